"""The real honest clients, and the accomplices' keys. The server talks to a client as a host does.

Accomplices are no clients here: the server has their secrets and sends any message in their names. Where it needs bytes
that a client checks (signed content, authenticated data), it takes them from that client's own role: these bytes are
public, and the search need not implement the formats again.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np

from testbed.crypto import signatures, vrf
from testbed.crypto.key_agreement import PrivateKey
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import validated
from testbed.messages import Message, attach, detach, encode
from testbed.network.hosts import Delivery
from testbed.parties.client import Environment, Role
from testbed.parties.host import Host
from testbed.parties.pki import PKI, Identity
from testbed.selection.lotto.messages import Announce
from testbed.workload.contract import LocalUpdate
from tests.search import beacon

DIMENSION = 3
HONEST_MODEL = np.zeros(DIMENSION, np.float32)
CRAFTED_MODEL = np.full(DIMENSION, -1, np.float32)
"""A model whose update the server knows: that of a dead network is 0 (Pasquini et al., CCS 2022)."""


class Learning:
    """A workload in which each client learns its own update, and nothing from the crafted model."""

    dimension = DIMENSION

    def __init__(self, population: int) -> None:
        self.sample_counts = np.ones(population, np.int64)

    def initial_model(self) -> Any:
        return HONEST_MODEL

    def train(self, client: int, model: Any, round_number: int) -> LocalUpdate:
        learned = 0.0 if model[0] < 0 else 1.0
        delta = learned * np.array([0.01 * (client + 1), 0.001 * round_number, 0.25], np.float32)
        return LocalUpdate(delta.astype(np.float32), 1, 0.5, 1)

    def evaluate(self, model: Any) -> None:
        return None


@dataclass(frozen=True)
class Mix:
    """One combination of protocols, with the accomplices.

    Attributes:
        name: for the report.
        selection: section of the experiment.
        aggregation: section of the experiment.
        population: n.
        accomplices: clients that collude with the server.
        rounds: number of rounds in a play.
        known_broken: whether the documentation says that the server recovers single updates.
    """

    name: str
    selection: dict[str, Any]
    aggregation: dict[str, Any]
    population: int
    accomplices: frozenset[int] = frozenset()
    rounds: int = 1
    known_broken: bool = False


class Federation:
    """A registered mix: everything that stays the same between searches.

    Args:
        mix: the protocols.
        seed: of the clients' secrets.
    """

    LAST_ROUND = 12

    def __init__(self, mix: Mix, seed: int = 1) -> None:
        self.mix = mix
        written = {
            "name": "search",
            "seed": seed,
            "rounds": self.LAST_ROUND,
            "population": mix.population,
            "workload": {"dataset": "digits", "model": "logistic"},
            "selection": mix.selection,
            "aggregation": mix.aggregation,
            "time": {"compute": "modelled"},
        }
        self.experiment = validated(written, "search")
        self.plan = RunPlan(self.experiment, seed)
        self.environment: Environment = self.plan.environment(Learning(mix.population))
        host = Host(np.arange(mix.population), self.environment, self.plan.roles, on_crash="raise")
        pki = PKI(mix.population, self.plan.randomness)
        host.accept_registrations(pki.register_many(host.registrations(), host.numbers))
        self.environment.directory = pki.directory()
        if beacon.used_by(self.plan):
            self.environment.directory = self.plan.completed(self.environment.directory, Learning(mix.population))
        self.identities = {client: _identity(host, client) for client in range(mix.population)}

    @property
    def honest(self) -> list[int]:
        """The clients that do not collude with the server."""
        return [client for client in range(self.mix.population) if client not in self.mix.accomplices]

    @property
    def selection(self) -> Any:
        """The experiment's section."""
        return self.experiment.selection

    @property
    def aggregation(self) -> Any:
        """The experiment's section."""
        return self.experiment.aggregation

    @cached_property
    def agrees(self) -> bool:
        """Whether participants verify and sign their list."""
        return self.environment.participants_are_agreed


def _identity(host: Host, client: int) -> Identity:
    identity = host.client(client).identity
    assert identity is not None
    return identity


@dataclass
class Clients:
    """All honest clients, at the beginning of a run.

    Attributes:
        federation: the clients' federation.
        refusals: failed checks, with counts.
        crashes: handlers that ended in an error other than a refusal, one line each.
        asked: questions so far.
        told: history of each client in order, the state of the search.
        sent: every question so far with its receiver and private part, to be sent again.
        heard: the last announced round of each client; a refused announcement counts as the next number.
    """

    federation: Federation
    refusals: Counter[str] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)
    asked: int = 0
    told: dict[int, list[object]] = field(default_factory=dict)
    sent: list[tuple[int, Message, Message | None]] = field(default_factory=list)
    heard: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = self.federation
        self._host = Host(np.arange(known.mix.population), known.environment, known.plan.roles, on_crash="drop")
        for client in known.honest:
            self._host.client(client).identity = known.identities[client]

    def begin_round(self) -> None:
        """Let clients forget the state of earlier rounds."""
        self._host.begin_round()
        for told in self.told.values():
            told.append("a round begins")

    def client(self, number: int) -> Any:
        """Return the client itself."""
        return self._host.client(number)

    def role(self, number: int, question: type[Message]) -> Any:
        """Return the role that answers such questions at a client."""
        spec = next(spec for spec in reversed(self._host._roles) if question in spec.role._handlers)
        role: Role = self.client(number).role(spec.role, spec.parameters)
        return role

    def ask(self, client: int, message: Message, private: Message | None = None, about: object = "") -> Any:
        """Return the answer; None for a refusal or silence.

        Args:
            client: an honest client.
            message: the question.
            private: private part for this client.
            about: distinguishes this question from others of its kind, for the count of states.
        """
        self.asked += 1
        self.sent.append((client, message, private))
        detached = detach(message)
        key = (0, self.asked)
        encoded = None if private is None else {client: encode(private)}
        delivery = Delivery(
            key=key,
            kind=type(message),
            header=detached.header,
            vectors=detached.vectors,
            recipients=np.array([client]),
            private=encoded,
        )
        answers = self._host.deliver(beacon.heard(delivery, self.heard.get(client, 0)))
        if isinstance(message, Announce):
            known = self.heard.get(client, 0)
            self.heard[client] = known + 1 if answers.refusals else max(known, message.round)
        self.crashes += [
            f"crash: client {crash.client}, {type(message).__name__}: {crash.error}" for crash in answers.crashes
        ]
        told = self.told.setdefault(client, [])
        if answers.refusals:
            check = answers.refusals[0].check
            self.refusals[check] += 1
            told.append((type(message).__name__, about, check))
            return None
        told.append((type(message).__name__, about))
        if client not in answers.headers or type(message).Answer is None:
            return None
        vectors = self._host._vectors.get(key, {})
        return attach(type(message).Answer, answers.headers[client], (vectors[client],) if vectors else ())


@contextmanager
def remembered() -> Iterator[None]:
    """Compute signatures, key agreements and VRF proofs once inside the block: they depend on their arguments alone."""
    from_seed = PrivateKey.from_seed.__func__  # type: ignore[attr-defined]
    sign, agree = signatures.SigningKey.sign, PrivateKey.agree
    prove, output = vrf.SecretKey.prove, vrf.SecretKey.output
    made = lru_cache(1 << 16)(lambda seed: from_seed(PrivateKey, seed))
    signed: dict[Any, bytes] = {}
    agreed: dict[Any, bytes] = {}
    proven: dict[Any, Any] = {}
    drawn: dict[Any, bytes] = {}

    def sign_once(self: Any, domain: bytes, content: bytes) -> bytes:
        key = (self.public, domain, content)
        if key not in signed:
            signed[key] = sign(self, domain, content)
        return signed[key]

    def agree_once(self: Any, peer_public: bytes, purpose: bytes) -> bytes:
        key = (self.public, peer_public, purpose)
        if key not in agreed:
            agreed[key] = agree(self, peer_public, purpose)
        return agreed[key]

    def prove_once(self: Any, alpha: bytes, *suite: Any) -> Any:
        key = (self.public, alpha, *suite)
        if key not in proven:
            proven[key] = prove(self, alpha, *suite)
        return proven[key]

    def output_once(self: Any, alpha: bytes, *suite: Any) -> bytes:
        key = (self.public, alpha, *suite)
        if key not in drawn:
            drawn[key] = output(self, alpha, *suite)
        return drawn[key]

    with ExitStack() as stack:
        for owner, name, instead in (
            (signatures.SigningKey, "sign", sign_once),
            (signatures, "verify", lru_cache(1 << 16)(signatures.verify)),
            (PrivateKey, "agree", agree_once),
            (PrivateKey, "from_seed", classmethod(lambda cls, seed: made(seed))),
            (vrf.SecretKey, "prove", prove_once),
            (vrf.SecretKey, "output", output_once),
            (vrf, "verify", lru_cache(1 << 16)(vrf.verify)),
        ):
            stack.enter_context(patch.object(owner, name, instead))
        yield
