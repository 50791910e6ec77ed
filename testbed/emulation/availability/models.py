"""The contract of availability models, and models without a clock, which draw or look up each round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.availability.section import Dropout, LabelDependent
from testbed.emulation.links import cycle_values
from testbed.emulation.traces.schedule import DROPPED, PARTICIPANT, Schedule
from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.randomness import Randomness

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Presence:
    """Availability of the asked clients in one stage; the arrays are aligned with the clients of the question.

    Attributes:
        reachable: `(m,)` bool; the client is online when the stage begins.
        drops: `(m,)` bool; the client receives the question and drops out before it begins to answer (models without a
            clock: Bernoulli, hazard, schedule). The network remembers these clients: they stay away until the round is
            over. False where not reachable.
        leaves_s: `(m,)` float64, virtual time at which a reachable client goes offline (models with a clock); infinite:
            the client stays. An answer counts only if it is complete by then.

    Example:
        >>> presence = Presence.of(np.array([True, False, True]), leaves_s=np.array([60.0, np.inf, np.inf]))
        >>> presence.take(np.array([0, 1]))
        Presence(reachable=array([ True, False]), drops=array([False, False]), leaves_s=array([60., inf]))
    """

    reachable: Mask
    drops: Mask
    leaves_s: Floats

    @classmethod
    def of(cls, reachable: Mask, drops: Mask | None = None, leaves_s: Floats | None = None) -> "Presence":
        """Return the presence with default values: no client drops out, no client leaves."""
        nobody = np.broadcast_to(np.False_, reachable.shape)
        never = np.broadcast_to(np.inf, reachable.shape)
        return cls(reachable, nobody if drops is None else drops & reachable, never if leaves_s is None else leaves_s)

    def take(self, positions: Ids) -> "Presence":
        """Return the presence of the clients at these positions, in that order."""
        return Presence(self.reachable[positions], self.drops[positions], self.leaves_s[positions])


@runtime_checkable
class Availability(Protocol):
    """An availability model: the clients that are online at a time, and dropouts in a stage.

    A user's model inherits from this class, or has the same two members.

    Answers must depend on the arguments (and the model's own seed) alone, not on earlier questions: a resumed run asks
    only about its later rounds.
    """

    comes_back: bool = False
    """Whether a client that was away in a stage can be online in a later stage of the same round.

    If not, the network also remembers clients that were not reachable until the round is over.
    """

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """Return the availability of clients that are asked in a stage.

        Args:
            round_number: number of the round, from 1.
            stage: name of the stage.
            now_s: virtual time in seconds; never decreases within a round, and from round to round.
            clients: `(m,)` sorted client numbers.
        """


class AlwaysAvailable:
    """All clients are online all the time."""

    comes_back = False

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        return Presence.of(np.ones(len(clients), np.bool_))


class RoundwiseAvailability:
    """Each client is away for a whole round with its own probability, independently of everything else.

    Args:
        unavailable: `(n,)` float64 probability p of each client.
        randomness: of the experiment.
    """

    comes_back = False

    def __init__(self, unavailable: Floats, randomness: Randomness) -> None:
        self.unavailable = unavailable
        self._randomness = randomness
        self._drawn_for: int | None = None

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        if self._drawn_for != round_number:
            # Draw for all clients, so that a client's availability does not depend on the other clients asked.
            generator = self._randomness.generator("availability", round_number, "present")
            self._present = generator.random(len(self.unavailable)) >= self.unavailable
            self._drawn_for = round_number
        return Presence.of(self._present[clients])


def unavailable_by_label(section: LabelDependent, label_counts: npt.NDArray[np.int64], population: int) -> Floats:
    """Return each client's probability of being away: linear in its label, from `lowest` to `highest`.

    A client's label is its most frequent label (the smallest one if several are equally frequent, 0 without data). The
    paper sets 0.1 for label 0 and 0.5 for label 9, with one label per client, and leaves open the values in between.

    Args:
        section: the two probabilities.
        label_counts: `(n, classes)` int64 examples of each label that each client has. Leave out samples that all
            clients share: the paper's label is that of the private data.
        population: number of clients n.

    Returns:
        `(n,)` float64.

    Raises:
        ExperimentError: counts of another shape.

    Source:
        Multi-RoundSecAgg, first version (arXiv 2106.03328v1), experiments, "Modeling user dropouts".
    """
    counts = np.asarray(label_counts)
    if counts.ndim != 2 or counts.shape[0] != population or counts.shape[1] < 1:
        raise ExperimentError(
            f"availability.model: the workload's label_counts() has shape {counts.shape}; (clients, labels) is needed, "
            f"with {population} clients"
        )
    label = counts.argmax(axis=1)
    unavailable: Floats = section.lowest + (section.highest - section.lowest) * label / max(1, counts.shape[1] - 1)
    return unavailable


_THROUGHOUT = -1.0  # before the first stage


class ScheduledAvailability:
    """Replay of a schedule: same client, same round, same stage, same fate. In later rounds no client is away.

    Another protocol may not have the recorded stage. Then a client that participated in the recorded round meets the
    same fate in the first stage after selection. A client that did not participate (it was lost during selection) is
    away for the round.

    Args:
        schedule: the fates to replay, with the recorded participants.
        population: number of clients n.
        stages_after_selection: stages of the replaying run from training on, in order.
        selection_stages: its stages before, in order. If left out, a fate in a stage that is not among
            `stages_after_selection` applies only to a question in a stage of exactly that name.

    Raises:
        TraceError: the schedule has a client beyond the population.
    """

    comes_back = False

    def __init__(
        self,
        schedule: Schedule,
        population: int,
        stages_after_selection: Sequence[str],
        selection_stages: Sequence[str] = (),
    ) -> None:
        schedule.check_population(population)
        after = len(selection_stages)
        self._order = {stage: float(at) for at, stage in enumerate((*selection_stages, *stages_after_selection))}
        self._order[""] = _THROUGHOUT
        # A stage of no list is one of selection's, and comes before training.
        self._before_training = after - 0.5
        # Rows are sorted, and a client's participation comes right before its fate.
        fates = np.flatnonzero(schedule.fate != PARTICIPANT)
        previous = np.maximum(fates - 1, 0)
        took_part = (
            (schedule.fate[previous] == PARTICIPANT)
            & (schedule.round[previous] == schedule.round[fates])
            & (schedule.client[previous] == schedule.client[fates])
        )
        self._round, self._client = schedule.round[fates], schedule.client[fates]
        self._drops = schedule.fate[fates] == DROPPED
        self._stage, self._codes = schedule.stage[fates], {name: at for at, name in enumerate(schedule.stages)}
        has_place = np.array([stage in self._order for stage in schedule.stages])[self._stage]
        places = np.array([self._order.get(stage, np.nan) for stage in schedule.stages])[self._stage]
        self._place = np.where(has_place, places, np.where(took_part, float(after), _THROUGHOUT))

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        here = self._order.get(stage, self._before_training)
        start, end = np.searchsorted(self._round, (round_number, round_number + 1))
        part = slice(start, end)
        place = self._place[part]
        hit = (place == here) | (self._stage[part] == self._codes.get(stage, -1))
        away = ~hit & (place < here) | hit & ~self._drops[part]
        dropped = hit & self._drops[part]
        reachable, drops = np.ones(len(clients), np.bool_), np.zeros(len(clients), np.bool_)
        row = np.searchsorted(self._client[part], clients)
        has = np.zeros(len(clients), np.bool_)
        inside = row < len(place)
        has[inside] = self._client[part][row[inside]] == clients[inside]
        # All others stay online.
        reachable[has] = ~away[row[has]]
        drops[has] = dropped[row[has]]
        return Presence.of(reachable, drops)


class DroppingAvailability:
    """A model whose clients also drop out of stages, by rate and by hazard, and stay away for the round.

    Args:
        model: the underlying availability model.
        section: dropout rate, stage and hazards.
        population: number of clients n.
        stages_after_selection: in order. A random dropout chooses among these stages, and a hazard that is one number
            applies to each of them.
        randomness: of the experiment.
    """

    def __init__(
        self,
        model: Availability,
        section: Dropout,
        population: int,
        stages_after_selection: Sequence[str],
        randomness: Randomness,
    ) -> None:
        self.comes_back = model.comes_back
        self._model = model
        self._stages = list(stages_after_selection)
        self._rate = cycle_values(section.rate, population)
        self._at = section.stage
        hazard = section.hazard
        self._hazard = dict(hazard) if isinstance(hazard, dict) else dict.fromkeys(self._stages, hazard)
        self._population = population
        self._randomness = randomness
        self._round: int | None = None

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        there = self._model.presence(round_number, stage, now_s, clients)
        if self._round != round_number:
            self._round = round_number
            self._leaving: dict[str, Mask] = {}
            self._draw_leaving_by_rate()
        drops = there.reachable & (there.drops | self._leaving_in(stage)[clients])
        return Presence(there.reachable, drops, there.leaves_s)

    def _draw_leaving_by_rate(self) -> None:
        generator = self._generator("dropout")
        # Draw for all clients, so that a client's fate does not depend on the other clients asked.
        leaves = generator.random(self._population) < self._rate
        where = generator.integers(0, max(1, len(self._stages)), self._population)
        self._by_rate_in = np.where(leaves, where, -1)

    def _generator(self, purpose: str) -> np.random.Generator:
        assert self._round is not None
        return self._randomness.generator("availability", self._round, purpose)

    def _leaving_in(self, stage: str) -> Mask:
        """Return `(n,)` booleans: the clients that drop out in this stage if they are asked in it."""
        if stage not in self._leaving:
            if self._at != "random":
                leaving = (self._by_rate_in >= 0) & (stage == self._at)
            elif stage in self._stages:
                leaving = self._by_rate_in == self._stages.index(stage)
            else:
                leaving = np.zeros(self._population, np.bool_)
            if self._hazard.get(stage):
                leaving |= self._generator(f"hazard {stage}").random(self._population) < self._hazard[stage]
            self._leaving[stage] = leaving
        return self._leaving[stage]


class CheckedAvailability:
    """A wrapper that checks the answers of a user-defined availability model.

    Args:
        model: the user's object.
        name: name of its class in the experiment.

    Raises:
        ExperimentError: the model lacks `presence`, or a boolean `comes_back`; later, an answer of the wrong type or
            shape. Exceptions inside the model pass through unchanged.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        options.check_methods(model, name, "availability.model", "presence(round_number, stage, now_s, clients)")
        if not isinstance(model, Availability) or not isinstance(model.comes_back, bool):
            raise self._error(
                "needs an attribute `comes_back` that is True or False (see testbed.emulation.availability)"
            )
        self.comes_back = model.comes_back

    def _error(self, problem: str) -> ExperimentError:
        return ExperimentError(f"availability.model: {self._name}: {problem}")

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        answer = self._model.presence(round_number, stage, now_s, clients)
        if not isinstance(answer, Presence):
            raise self._error(f"presence() must return a Presence, not {type(answer).__name__}")
        m = len(clients)
        columns: dict[str, tuple[Any, type[np.generic]]] = {
            "reachable": (answer.reachable, np.bool_),
            "drops": (answer.drops, np.bool_),
            "leaves_s": (answer.leaves_s, np.float64),
        }
        for name, (array, dtype) in columns.items():
            if not isinstance(array, np.ndarray) or array.shape != (m,) or array.dtype != dtype:
                actual = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                raise self._error(f"presence().{name} must be {np.dtype(dtype)} of shape ({m},), not {actual}")
        if np.isnan(answer.leaves_s).any():
            raise self._error("presence().leaves_s has NaN; use infinity for a client that stays online")
        # A client that is away cannot drop out; models need not take care of that.
        return Presence(answer.reachable, answer.drops & answer.reachable, answer.leaves_s)
