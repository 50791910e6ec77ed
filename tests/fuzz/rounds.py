"""Fuzz whole rounds: one message differs from an honest one, and all errors must be typed.

    python -m tests.fuzz.rounds --federations 400 --seed 1

Each federation runs three rounds of one of the protocol mixes below. In each round one question (a malicious server) or
one answer (a malicious client) is decoded, changed in one place, and sent on; or it is replaced by an older question, a
question of another protocol, or another client's private part. In all cases the round must end with an outcome,
handlers must answer or refuse, and the server may raise only the testbed's own errors. The same seed gives the same
federations.
"""

import argparse
import asyncio
import random
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from testbed import messages
from testbed.engine.federation import Federation
from testbed.engine.plan import RunPlan
from testbed.errors import ProtocolError, TestbedError
from testbed.experiment.schema import validated
from testbed.messages import Message, Vector
from testbed.network.hosts import Delivery, HostAnswers
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.vectors.integers import INTEGERS, IntegerVector
from testbed.workload.contract import LocalUpdate
from tests.fuzz.messages import message_kinds, valid

POPULATION = 16
DIMENSION = 11
ROUNDS = 3
_SKELLAM = {"mechanism": "skellam", "noise_multiplier": 1.0, "scale": 64}
_CORRELATED = {"mechanism": "correlated", "noise_multiplier": 1.0, "scale": 64, "buffers": 2}
_NEIGHBOURS = {"neighbours": 4, "threshold": 4, "accept_weaker": True, "dishonest": 0.1, "dropouts": 0.0}

MIXES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"protocol": "random", "participants": 6}, {"protocol": "plain"}),
    (
        {"protocol": "random", "participants": 6},
        {"protocol": "plain", "weights": "equal", "robust": {"rule": "median"}},
    ),
    ({"protocol": "random", "participants": 6}, {"protocol": "secagg"}),
    ({"protocol": "random", "participants": 6}, {"protocol": "lightsecagg"}),
    (
        {"protocol": "min-separation", "participants": 5, "separation": 3},
        {"protocol": "secagg", "weights": "equal", "noise": _CORRELATED},
    ),
    (
        {"protocol": "random", "participants": 6},
        {"protocol": "flamingo", "dropouts": 0.4, "committee": {"size": 4, "threshold": 3, "serves_rounds": 2}},
    ),
    (
        {"protocol": "min-separation", "participants": 6, "separation": 2, "privacy": 2},
        {"protocol": "secagg", "threshold": 0.6},
    ),
    ({"protocol": "balls-in-bins", "bins": 2, "coins": "clients"}, {"protocol": "secagg", "threshold": 0.6}),
    (
        {"protocol": "batch-partition", "participants": 6, "privacy": 3},
        {"protocol": "flamingo", "dropouts": 0.5, "committee": {"selection": "given", "members": [0, 3, 5]}},
    ),
    ({"protocol": "random", "participants": 6}, {"protocol": "one-shot", "committee": {"size": 9}, "max_colluders": 2}),
    ({"protocol": "random", "participants": 6}, {"protocol": "pine", "helper": 3}),
    (
        {"protocol": "random", "participants": 6},
        {
            "protocol": "one-shot",
            "committee": {"selection": "lotto-client-centric", "size": 5, "over_selection": 1.8},
            "max_colluders": 1,
        },
    ),
    (
        {"protocol": "random", "participants": 6},
        {
            "protocol": "flamingo",
            "dropouts": 0.4,
            "committee": {"selection": "lotto-server-centric", "size": 4, "threshold": 3, "over_selection": 2},
        },
    ),
    ({"protocol": "lotto-client-centric", "participants": 5, "over_selection": 3}, {"protocol": "secagg"}),
    (
        {"protocol": "lotto-server-centric", "participants": 5, "over_selection": 3},
        {"protocol": "secagg-plus", **_NEIGHBOURS},
    ),
    (
        {"protocol": "verifiable-batch-partition", "participants": 4, "privacy": 2, "over_selection": 4},
        {"protocol": "secagg", "smallest_sum": 2},
    ),
    (
        {"protocol": "batch-partition", "participants": 6, "privacy": 3},
        {"protocol": "secagg", "consistency": "none", "threshold": 0.8},
    ),
    (
        {"protocol": "random", "participants": 6},
        {
            "protocol": "secagg", "weights": "equal", "threshold": 0.6,
            "noise": {**_SKELLAM, "enforcement": {"tolerated_dropouts": 2}},
        },
    ),
    ({"protocol": "random", "participants": 6}, {"protocol": "plain", "weights": "equal", "noise": _SKELLAM}),
    (
        {"protocol": "bernoulli", "participants": 6},
        {"protocol": "dp-sgd-random-participation", "sample_rate": 0.5, "sigma": 1.0, "server": "untrusted"},
    ),
]  # fmt: skip

QUESTIONS = [kind for kind in message_kinds() if kind.Answer is not None]


class Workload:
    """Updates that depend on the client alone, at no cost."""

    dimension = DIMENSION

    def __init__(self, population: int) -> None:
        self.sample_counts = np.arange(1, population + 1) % 7 + 1

    def initial_model(self) -> Any:
        return np.zeros(DIMENSION, np.float32)

    def train(self, client: int, model: Any, round_number: int) -> LocalUpdate:
        return LocalUpdate(np.full(DIMENSION, 0.01 * client, np.float32), int(self.sample_counts[client]), 0.5, 3)

    def gradient_sum(self, client: int, model: Any, round_number: int, samples: Any, clip: float) -> LocalUpdate:
        return self.train(1, model, round_number)

    def check_gradient_sum(self) -> None:
        """Accept all settings."""

    def evaluate(self, model: Any) -> None:
        """Measure nothing."""


class Changing:
    """Draws changes of values, one place at a time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def changed(self, value: Any) -> Any:
        """Return `value` with one place changed, of the same type if possible."""
        rng = self.rng
        match value:
            case Vector():
                return self._vector(value)
            case None | bool():
                return rng.choice([None, bytes(64), bytes(80)])
            case int():
                near = [0, 1, 2, value + 1, max(0, value - 1), POPULATION, POPULATION - 1, rng.randrange(POPULATION)]
                return rng.choice([*near, 2**32, 2**40])
            case float():
                return rng.choice([float("nan"), float("inf"), -1.0, 1e300, 0.0])
            case bytes() | bytearray() | memoryview():
                return self._bytes(bytes(value))
            case str():
                return "\x1b[2J" * 5
            case list():
                return self._list(value)
            case msgspec.Struct() if value.__struct_fields__:
                name = rng.choice(value.__struct_fields__)
                return msgspec.structs.replace(value, **{name: self.changed(getattr(value, name))})
        return value

    def _vector(self, vector: Vector) -> Vector:
        values, length = vector.values, len(vector)
        shorter, longer = values[:-1].copy(), np.append(values, values[:1])
        if vector.bits == 0:
            floats = [shorter, longer, np.full(length, np.nan, np.float32), np.full(length, 3e38, np.float32)]
            made = [Vector(one, 0) for one in floats]
            return self.rng.choice([*made, Vector(np.zeros(length, np.uint8), 8)])
        if vector.bits == INTEGERS:
            other, beyond = values.copy(), values.copy()
            other[self.rng.randrange(length)] += 1
            beyond[self.rng.randrange(length)] = 2**32 - 1  # no element of the field
            return self.rng.choice([*map(IntegerVector, (shorter, longer, other, beyond)), Vector(values, 32)])
        largest = np.full(length, (1 << vector.bits) - 1, values.dtype)
        made = [Vector(one, vector.bits) for one in (shorter, longer, largest)]
        others = [Vector(np.zeros(length, np.float32), 0), Vector(np.zeros(length, np.uint64), 64)]
        return self.rng.choice([*made, *others])

    def _bytes(self, value: bytes) -> bytes:
        if not value:
            return self.rng.randbytes(8)
        flipped = bytearray(value)
        flipped[self.rng.randrange(len(flipped))] ^= 1 << self.rng.randrange(8)
        return self.rng.choice([bytes(flipped), bytes(len(value)), b"\xff" * len(value), value[:-1], value + b"x"])

    def _list(self, value: list[Any]) -> list[Any]:
        if not value:
            return [0]
        made, at = list(value), self.rng.randrange(len(value))
        match self.rng.randrange(6):
            case 0:
                del made[at]
            case 1:
                made.append(made[at])
            case 2:
                self.rng.shuffle(made)
            case 3:
                made = []
            case 4:
                made = made * 3
            case _:
                made[at] = self.changed(made[at])
        return made


class DishonestHosts(LocalHosts):
    """Clients in this process; one question to them, or one answer from them, is changed in transit.

    Attributes:
        failures: handlers that crashed: (client, line).
        did: the last change.
    """

    def __init__(self, changing: Changing, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.failures: list[tuple[int, str]] = []
        self.did = "nothing"
        self._changing = changing
        self._rng = changing.rng
        self._past: list[Delivery] = []
        self._seen = self._at = 0
        self._of_question = True

    def plan(self) -> None:
        """Choose the message to change in the next round."""
        self._of_question, self._at = self._rng.random() < 0.5, self._seen + self._rng.randint(1, 9)

    async def deliver(self, delivery: Delivery) -> HostAnswers:
        self._seen += 1
        now = self._seen == self._at
        if now and self._of_question and len(delivery.recipients):
            delivery = self._question(delivery)
        self._past.append(delivery)
        answers = await super().deliver(delivery)
        self.failures += [
            (crash.client, f"{crash.error} ({crash.file}, line {crash.line})") for crash in answers.crashes
        ]
        if now and not self._of_question and answers.headers:
            self._answer(delivery, answers)
        return answers

    def _question(self, delivery: Delivery) -> Delivery:
        recipients, kind = delivery.recipients.tolist(), delivery.kind
        choice = self._rng.randrange(5)
        try:
            if choice == 4:
                known = list(self.hosts[0].questions.values())
                foreign = self._rng.choice(known if self._rng.random() < 0.5 else QUESTIONS)
                self.did = f"{foreign.__name__} instead of {kind.__name__}"
                return self._foreign(delivery, foreign)
            if choice == 0 and self._past:
                self.did = f"an older question instead of {kind.__name__}"
                old = self._rng.choice(self._past)
                parts = None if old.private is None else list(old.private.values())
                private = None if parts is None else {client: self._rng.choice(parts) for client in recipients}
                return replace(old, key=delivery.key, recipients=delivery.recipients, private=private)
            if choice == 1 and delivery.private is not None and kind.Private is not None:
                self.did = f"the private part of {kind.__name__}"
                client = self._rng.choice(recipients)
                part = messages.decode(kind.Private, delivery.private[client])
                made = messages.encode(self._changing.changed(part))
                return replace(delivery, private={**delivery.private, client: made})
            self.did = kind.__name__
            question = self._changing.changed(messages.attach(kind, delivery.header, delivery.vectors))
            detached = messages.detach(question)
            return replace(delivery, header=detached.header, vectors=detached.vectors)
        except (ProtocolError, TypeError, OverflowError, ValueError):
            return delivery  # a change that no encoding can say

    def _foreign(self, delivery: Delivery, kind: type[Message]) -> Delivery:
        """Return a valid question of any protocol, mostly of this round."""
        question: Any = valid(msgspec.inspect.type_info(kind), self._rng)
        if "round" in kind.__struct_fields__ and self._rng.random() < 0.8:
            question = msgspec.structs.replace(question, round=delivery.key[0])
        detached, private = messages.detach(question), None
        if kind.Private is not None:
            part = messages.encode(valid(msgspec.inspect.type_info(kind.Private), self._rng))
            private = dict.fromkeys(delivery.recipients.tolist(), part)
        return replace(delivery, kind=kind, header=detached.header, vectors=detached.vectors, private=private)

    def _answer(self, delivery: Delivery, answers: HostAnswers) -> None:
        client, kind = self._rng.choice(list(answers.headers)), delivery.kind.Answer
        self.did = f"the answer to {delivery.kind.__name__}"
        if kind is None or self._rng.random() < 0.3:
            answers.headers[client] = self._changing.changed(answers.headers[client])
            return
        kept = next(host for host in self.hosts if client in host.numbers)._vectors.setdefault(delivery.key, {})
        try:
            answer = messages.attach(kind, answers.headers[client], (kept[client],) if client in kept else ())
            detached = messages.detach(self._changing.changed(answer))
        except (ProtocolError, TypeError, OverflowError, ValueError):
            return
        answers.headers[client] = detached.header
        if detached.vectors:
            kept[client] = detached.vectors[0]


@dataclass
class Report:
    """Outcomes of the rounds.

    Attributes:
        states: rounds by outcome.
        changes: number of changes by kind.
        untyped: errors in handlers and in the server that are not the testbed's own, with the change that caused each.
    """

    states: Counter[str] = field(default_factory=Counter)
    changes: Counter[str] = field(default_factory=Counter)
    untyped: dict[str, str] = field(default_factory=dict)


def fuzz(federations: int, seed: int, mixes: list[tuple[dict[str, Any], dict[str, Any]]] | None = None) -> Report:
    """Run federations of all mixes in turn."""
    rng = random.Random(seed)  # noqa: S311 - cases are no secrets
    report, mixes = Report(), mixes or MIXES
    for number in range(federations):
        selection, aggregation = mixes[number % len(mixes)]
        said = f"{selection['protocol']} under {aggregation['protocol']}"
        hosts, federation = _federation(selection, aggregation, rng)
        for _ in range(ROUNDS):
            hosts.plan()
            try:
                report.states[asyncio.run(federation.run_next_round()).state] += 1
            except TestbedError as error:
                report.states[type(error).__name__] += 1  # typed: the command says it in a line
                break
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                line = f"server: {type(error).__name__}: {error} ({where.name}, line {where.lineno})"
                report.untyped.setdefault(line, f"{said}, {hosts.did}")
                break
            report.changes[hosts.did] += 1
        for _, line in hosts.failures:
            report.untyped.setdefault(f"handler: {line}", f"{said}, {hosts.did}")
    return report


def _federation(
    selection: dict[str, Any], aggregation: dict[str, Any], rng: random.Random
) -> tuple[DishonestHosts, Federation]:
    experiment = validated(
        {
            "name": "fuzz", "seed": rng.randrange(10**6), "rounds": ROUNDS, "population": POPULATION,
            "selection": selection, "aggregation": aggregation, "time": {"compute": "modelled"},
        },
        "fuzz",
    )  # fmt: skip
    plan, workload = RunPlan(experiment, 1), Workload(POPULATION)
    hosts = DishonestHosts(Changing(rng), POPULATION, plan.environment(workload), plan.roles, on_crash="drop")
    directory = Directory.empty(POPULATION)
    if plan.needs_registration:
        hosts.register(PKI(POPULATION, plan.randomness))
        directory = hosts.environment.directory
    return hosts, Federation(plan, hosts, workload, directory, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--federations", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    report = fuzz(given.federations, given.seed)
    print(f"{given.federations} federations, {report.states.total()} rounds: {dict(report.states)}")
    print(f"{len(report.changes)} messages changed or replaced")
    for line, after in report.untyped.items():
        print(f"{line}: {after}")
    raise SystemExit(bool(report.untyped))


if __name__ == "__main__":
    main()
