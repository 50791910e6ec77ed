"""A small federation with given updates, dropouts at chosen stages, and a record of the hosts' traffic."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.secagg.messages import AdvertOf, ShareKeys, SharesFor
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.round import SecAggRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.batches import Batches
from testbed.crypto.memo import Memo
from testbed.emulation.availability import Presence
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.emulation.links import ClientLinks, Links
from testbed.messages import Vector
from testbed.network.contract import Timing
from testbed.network.emulated import EmulatedNetwork
from testbed.parties.client import Environment, RoleSpec
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.randomness import Randomness
from testbed.training import Train, Trainer

EXPERIMENT = b"a test's own id."


@dataclass
class GivenUpdate:
    """A `testbed.workload.contract.LocalUpdate`."""

    delta: Any
    samples: int
    loss: float = 0.5
    examples_processed: int = 1
    squared_loss: float | None = None


class GivenUpdates:
    """A `testbed.workload.contract.Workload` with the updates that the test gives."""

    def __init__(self, deltas: Sequence[Any], samples: Sequence[int]) -> None:
        self.deltas = [np.asarray(delta, np.float32) for delta in deltas]
        self.dimension = len(self.deltas[0])
        self.sample_counts = np.asarray(samples, np.int64)

    def initial_model(self) -> Any:
        return np.zeros(self.dimension, np.float32)

    def train(self, client: int, model: Any, round_number: int) -> GivenUpdate:
        return GivenUpdate(self.deltas[client], int(self.sample_counts[client]))

    def evaluate(self, model: Any) -> Any:
        return SimpleNamespace(loss=0.0, accuracy=0.0, samples=1)


@dataclass
class Leaving:
    """An `Availability` with the clients that leave at each stage."""

    at: Mapping[str, set[int]] = field(default_factory=dict)
    comes_back = False

    def presence(self, round_number: int, stage: str, now_s: float, clients: Any) -> Presence:
        return Presence.of(np.ones(len(clients), np.bool_), np.isin(clients, sorted(self.at.get(stage, ()))))


class WatchedHosts(LocalHosts):
    """Keeps every delivery and every answer."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.seen: list[tuple[Any, Any]] = []

    async def deliver(self, delivery: Any) -> Any:
        answers = await super().deliver(delivery)
        self.seen.append((delivery, answers))
        return answers


class SmallFederation:
    """Registered clients 0..n-1 on an emulated network, all of them participants.

    Args:
        deltas: each client's update.
        samples: each client's number of samples (default: all 1).
        parameters: of the aggregation protocol.
        protocol: its server side.
        leaving: stage -> clients that leave in it.
        roles: client sides beside those of the protocol (`RoleSpec.only` for dishonest ones).
        hosts: number of hosts.
        agreed: whether participants must have agreed on a list (which tests then put in place).
        told: whether the server knows the dimension and the experiment's id.
        secrets_from_system: as in an experiment without a seed.
        minimum: as clients know it.
        batches: of the selection.
    """

    def __init__(
        self,
        deltas: Sequence[Any],
        parameters: Any = None,
        *,
        samples: Sequence[int] | None = None,
        protocol: Callable[[Any], Any] = SecAgg,
        leaving: Mapping[str, set[int]] | None = None,
        roles: Sequence[RoleSpec] = (),
        hosts: int = 2,
        agreed: bool = False,
        told: bool = True,
        secrets_from_system: bool = False,
        minimum: int = 2,
        batches: Batches | None = None,
    ) -> None:
        self.parameters = parameters or SecAggParameters(threshold=0.6, bits=32, levels_bits=16)
        self.protocol = protocol(self.parameters)
        n = len(deltas)
        self.workload = GivenUpdates(deltas, samples if samples is not None else [1] * n)
        self.randomness = Randomness(7, secrets_from_system=secrets_from_system)
        self.compute = ComputeModel(False, REFERENCE_COSTS)
        self.environment = Environment(
            population=n,
            randomness=self.randomness,
            compute=self.compute,
            directory=Directory.empty(n),
            workload=self.workload,
            experiment_id=EXPERIMENT,
            participants_are_agreed=agreed,
            minimum_participants=minimum,
            batches=batches,
            results=Memo(),
        )
        self.batches = batches
        all_roles = [RoleSpec(Trainer, None), *self.protocol.roles, *roles]
        self.hosts = WatchedHosts(n, self.environment, all_roles, hosts=hosts)
        self.hosts.register(PKI(n, self.randomness))
        self.everybody = np.arange(n, dtype=np.int64)
        self.network = EmulatedNetwork(
            self.hosts, ClientLinks.of(Links(), n), np.ones(n), Leaving(leaving or {}), Timing(60.0), self.compute
        )
        self.told = told

    def client(self, number: int) -> Any:
        """The client object itself, to look into it or to put a list in place."""
        return self.hosts.hosts[number % len(self.hosts.hosts)].client(number)

    async def begin(self, number: int = 1) -> AggregationRound:
        """Begin a round and train."""
        await self.network.begin_round(number)
        return await self.train(number)

    async def train(self, number: int = 1) -> AggregationRound:
        """Train everybody; the aggregation's starting point."""
        question = Train(number, Vector(self.workload.initial_model(), 0))
        trained = await self.network.ask(self.everybody, question)
        return AggregationRound(
            number, self.network, self.everybody, trained.ids, self.environment.directory,
            dimension=self.workload.dimension if self.told else None,
            experiment_id=EXPERIMENT if self.told else None,
            randomness=self.randomness if self.told else None,
            batches=self.batches,
            training=question if self.told else None,
            participants_agreed=self.environment.participants_are_agreed,
        )  # fmt: skip

    async def aggregate(self, number: int = 1) -> Any:
        """One whole round."""
        start = await self.begin(number)
        try:
            return await self.protocol.aggregate(start)
        finally:
            self.network.end_round()

    def run(self, number: int = 1) -> Any:
        """One whole round, from outside an event loop."""
        return asyncio.run(self.aggregate(number))

    def quantised_sum(self, clients: Sequence[int], number: int = 1) -> Any:
        """`(d+1,)` the clients' quantised updates with their weights, added up one by one without a mask, as `int`s."""
        given, workload, total = self.parameters, self.workload, np.zeros(self.workload.dimension + 1, object)
        for client in clients:
            weight = int(workload.sample_counts[client]) if given.weights == "samples" else 1
            coins = self.randomness.simulation_key(client, number, "stochastic rounding")
            total = total + given.quantisation.encode(workload.deltas[client], weight, coins).astype(object)
        return total % given.quantisation.modulus

    def mean_of(self, clients: Sequence[int], number: int = 1) -> Any:
        """`(d,)` the mean that `quantised_sum` gives."""
        total = np.array(self.quantised_sum(clients, number), np.uint64)
        return self.parameters.quantisation.decode(total, len(clients))[0]

    def refusals(self) -> list[tuple[int, str]]:
        """(client, check) of all refusals of the round, in order."""
        found = []
        for event in self.network.events:
            if event.kind == "refusal":
                found.append((int(event.party.removeprefix("client:")), event.detail.partition(":")[0]))
        return found

    def misbehaviour(self) -> list[tuple[int, str]]:
        """Return (client, detail) of the recorded misbehaviour."""
        events = [event for event in self.network.events if event.kind == "misbehaviour"]
        return [(int(event.party.removeprefix("client:")), event.detail) for event in events]


class KeepsTotal(SecAgg):
    """Keeps the unmasked sum, as `int`s."""

    total: list[int]

    async def unmask(self, state: SecAggRound) -> Any:
        total = await super().unmask(state)
        self.total = [int(value) for value in total]
        return total


def sets_of(*clients: int) -> Any:
    """A set of clients, as a network asks it."""
    return np.array(clients, np.int64)


@dataclass
class Stand:
    """Where an honest run has got to."""

    small: Any
    start: Any

    @cached_property
    def state(self) -> Any:
        """Return the server's state at the beginning of the round."""
        return self.small.protocol.begin(self.start)

    @property
    def listed(self) -> list[AdvertOf]:
        return [AdvertOf(c, a.sealing_key, a.mask_key, a.signature) for c, a in self.state.adverts.items()]

    def sealed_for(self, client: int) -> list[SharesFor]:
        sealed = self.state.sealed
        return [SharesFor(peer, sealed[peer][client]) for peer in sealed if peer != client]

    @property
    def signatures(self) -> list[SignatureOf]:
        return [SignatureOf(client, signature) for client, signature in self.state.signed.items()]

    def with_advert(self, of: int, **fields: Any) -> ShareKeys:
        """The list of keys, with something else in client `of`'s row."""
        changed = msgspec.structs.replace
        return ShareKeys(1, [changed(row, **fields) if row.client == of else row for row in self.listed])

    async def ask(self, message: Any, private: Any = None, who: Any = (2,)) -> list[tuple[int, str]]:
        """The refusals that a question brings."""
        known = None if private is None else dict.fromkeys(who, private)
        replies = await self.small.network.ask(np.array(who, np.int64), message, private=known)
        assert len(replies) + len(replies.missing.refused) == len(who)
        return [(refusal.client, refusal.check) for refusal in replies.missing.refusals]


async def stand_before(stage: str, **keywords: Any) -> Stand:
    """Six clients (threshold 4) run honestly until `stage` is next."""
    deltas = np.random.default_rng(3).uniform(-1, 1, (6, 5))
    small = SmallFederation(deltas, SecAggParameters(threshold=4, bits=32), **keywords)
    protocol, start = small.protocol, await small.begin()
    stand = Stand(small, start)
    await run_until(stage, protocol, stand.state)
    return stand


async def run_until(stage: str, protocol: SecAgg, state: SecAggRound) -> None:
    """All stages before this one."""
    steps = {
        "advertise": protocol.advertise_keys,
        "share": protocol.share_keys,
        "mask": protocol.collect_masked_inputs,
        "check": protocol.check_consistency,
    }
    for name, step in steps.items():
        if name == stage:
            return
        await step(state)


def refused_by_the_victim(stage: str, question: Callable[[Stand], tuple[Any, ...]], **keywords: Any) -> list[str]:
    """The names of the checks with which client 2 answers a dishonest question before `stage`."""

    async def play() -> Any:
        stand = await stand_before(stage, **keywords)
        return await stand.ask(*question(stand))

    return [check for client, check in asyncio.run(play()) if client == 2]
