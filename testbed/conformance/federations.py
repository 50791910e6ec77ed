"""Small federations in this process, with updates and dropouts that depend on client and round alone."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crypto.memo import Memo
from testbed.emulation.availability import Presence
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.engine.round import Outcome
from testbed.experiment.schema import Experiment
from testbed.network.emulated import EmulatedNetwork
from testbed.records import RunDirectory
from testbed.workload.contract import Evaluation, LocalUpdate

DIMENSION = 8
_LARGEST = 0.2  # coordinate of an update: below the default clips and norm bounds of all built-in protocols
_MOST_SAMPLES = 9
_ACCUSATIONS = ("refusal", "misbehaviour")  # event kinds


class DrawnUpdates:
    """Workload in which an update depends on its client and round alone, so that every sum can be computed separately.

    Args:
        population: number of clients n.
        changed: by round, the clients that have other updates.
    """

    dimension = DIMENSION

    def __init__(self, population: int, changed: Mapping[int, frozenset[int]] | None = None) -> None:
        self.sample_counts = np.random.default_rng(population).integers(1, _MOST_SAMPLES, population)
        self._changed = changed or {}

    def initial_model(self) -> npt.NDArray[np.float32]:
        """Return the model of the first round."""
        return np.zeros(self.dimension, np.float32)

    def delta(self, client: int, round_number: int) -> npt.NDArray[np.float32]:
        """Return a client's update, (d,) float32."""
        changed = client in self._changed.get(round_number, frozenset())
        # From client and round alone: each property can compute any sum again, without the run.
        generator = np.random.default_rng((client, round_number, changed))
        return generator.uniform(-_LARGEST, _LARGEST, self.dimension).astype(np.float32)

    def train(self, client: int, model: npt.NDArray[np.float32], round_number: int) -> LocalUpdate:
        """Return the update with a loss and a number of samples."""
        samples = int(self.sample_counts[client])
        # Distinct positive losses, so that selections by losses have something to choose by.
        loss = 1 / (1 + client + round_number)
        return LocalUpdate(self.delta(client, round_number), samples, loss, samples, loss**2)

    def check_gradient_sum(self) -> None:
        """Accept DP-SGD: an update stands for the gradient of every sample of its client."""

    def gradient_sum(
        self,
        client: int,
        model: npt.NDArray[np.float32],
        round_number: int,
        samples: npt.NDArray[np.int64],
        clip: float | None,
    ) -> LocalUpdate:
        """Return the sum of the gradients of some samples, as `GradientWorkload` describes."""
        gradient = self.delta(client, round_number)
        if clip is not None:
            gradient = gradient * np.float32(min(1.0, clip / float(np.linalg.norm(gradient))))
        sample_count = int(self.sample_counts[client])
        return LocalUpdate(gradient * np.float32(len(samples)), sample_count, 0.0, len(samples))

    def evaluate(self, model: npt.NDArray[np.float32]) -> Evaluation:
        """Return a quality that depends on the model."""
        return Evaluation(float(np.square(model).sum()), 0.5, 1)


@dataclass(frozen=True)
class Scenario:
    """Absent clients of one round.

    Attributes:
        away: clients that are offline for the whole round.
        leaving: clients that drop out, by stage.
    """

    away: frozenset[int] = frozenset()
    leaving: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all clients stay to the end."""
        return not self.away and not any(self.leaving.values())


class ScriptedPresence:
    """Availability model that follows scenarios.

    Args:
        scenarios: scenarios of the rounds 1, 2, ...; in later rounds all clients are online.
    """

    comes_back = False

    def __init__(self, scenarios: Sequence[Scenario]) -> None:
        self._scenarios = scenarios

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """Return the presence of the clients in one stage."""
        scenario = self._scenarios[round_number - 1] if round_number <= len(self._scenarios) else Scenario()
        away = np.isin(clients, sorted(scenario.away))
        return Presence.of(~away, np.isin(clients, sorted(scenario.leaving.get(stage, ()))))


class PlanWithoutShortcuts(RunPlan):
    """Plan in which every party does all of its work itself, and expands every mask."""

    @cached_property
    def results(self) -> Memo | None:
        """No memo: parties share no results."""
        return None

    @property
    def symbolic_masks(self) -> bool:
        """False: every mask is expanded."""
        return False


@dataclass(frozen=True)
class RoundFacts:
    """Properties of a round that two equal runs have in common.

    Attributes:
        number: the round.
        outcome: its outcome.
        stages: stages that were asked, in order.
        accusations: refusals, and misbehaviour that the server has noticed.
        parts: all results by name, as text with every bit.
    """

    number: int
    outcome: Outcome
    stages: tuple[str, ...]
    accusations: tuple[str, ...]
    parts: Mapping[str, str]


class Trial:
    """One run of an experiment on `DrawnUpdates`.

    Args:
        experiment: the experiment.
        scenarios: absent clients of each round.
        changed: see `DrawnUpdates`.
        hosts: number of hosts.
        shortcuts: whether parties of this process may share work.
        records: directory to record into; None: nothing is recorded.
    """

    def __init__(
        self,
        experiment: Experiment,
        scenarios: Sequence[Scenario],
        *,
        changed: Mapping[int, frozenset[int]] | None = None,
        hosts: int = 1,
        shortcuts: bool = True,
        records: RunDirectory | None = None,
    ) -> None:
        self.plan = (RunPlan if shortcuts else PlanWithoutShortcuts)(experiment, 0)
        self.workload = DrawnUpdates(experiment.population, changed)
        self.federation = federation_in_process(self.plan, self.workload, records, hosts=hosts)
        self.network = self.federation.network
        self.network.availability = ScriptedPresence(scenarios)
        self.rounds: list[RoundFacts] = []

    @property
    def hosts(self) -> Any:
        """The hosts of the clients, in this process."""
        assert isinstance(self.network, EmulatedNetwork), "time.clock: wall"
        return self.network.hosts

    def run(self, count: int) -> "Trial":
        """Run `count` more rounds."""
        asyncio.run(self._run(count))
        return self

    async def _run(self, count: int) -> None:
        for _ in range(count):
            await self.next_round()

    async def next_round(self) -> RoundFacts:
        """Run one more round."""
        outcome = await self.federation.run_next_round()
        facts = RoundFacts(
            self.federation.state.round_number,
            outcome,
            tuple(exchange.stage for exchange in self.network.exchanges),
            tuple(
                f"{event.party} at {event.stage}: {event.kind} {event.detail}".rstrip(": ")
                for event in self.network.events
                if event.kind in _ACCUSATIONS
            ),
            self._parts(outcome),
        )
        self.rounds.append(facts)
        return facts

    def _parts(self, outcome: Outcome) -> dict[str, str]:
        state, network = self.federation.state, self.network
        aggregate = outcome.aggregate
        return {
            "the outcome": f"{outcome.state} {outcome.reason}",
            "the participants": repr(np.asarray(outcome.participants).tolist()),
            "the survivors": repr(np.asarray(outcome.survivors).tolist()),
            "the update": repr(aggregate and [*np.asarray(aggregate.mean).tolist(), float(aggregate.weight)]),
            # repr of floats is exact: equal texts mean equal bits.
            "the model": repr(state.model.tolist()),
            "the participation counts": repr(state.participations.tolist()),
            "the memory": repr({name: array.tolist() for name, array in sorted(state.memory.items())}),
            "the exchanges": repr([_columns(exchange) for exchange in network.exchanges]),
            "the events": repr([str(event) for event in network.events]),
            "the clock": repr(state.now_s),
        }


def _columns(exchange: Any) -> list[Any]:
    return [np.asarray(getattr(exchange, column.name)).tolist() for column in fields(exchange)]


def first_difference(first: Sequence[RoundFacts], other: Sequence[RoundFacts]) -> str:
    """Return the first difference of two runs, e.g. ``the survivors of round 4``; empty if there is none.

    Args:
        first, other: rounds of the two runs.
    """
    of_other = {facts.number: facts for facts in other}
    for facts in first:
        # A shorter run has no such round: only common rounds are compared.
        if (counterpart := of_other.get(facts.number)) is None:
            continue
        for name, part in facts.parts.items():
            if part != counterpart.parts[name]:
                return f"{name} of round {facts.number}"
    return ""
