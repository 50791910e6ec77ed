"""What the network asks an availability model, and the models without a clock, which draw or look up each round."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.availability.section import DropOut, LabelDependent
from testbed.emulation.links import cycled
from testbed.emulation.traces.schedule import DROPPED, PARTICIPANT, Schedule
from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.randomness import Randomness

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Presence:
    """What becomes of the clients asked in one stage; arrays aligned with the clients of the question.

    Attributes:
        reachable: `(m,)` bool, the client is there when the stage begins.
        drops: `(m,)` bool, the client gets the question and is lost before it begins to answer, however long that
            takes (models without a clock: Bernoulli, hazard, schedule). The network remembers it: such a client stays
            away until the round is over. False where not reachable.
        leaves_s: `(m,)` float64, virtual time at which a reachable client goes offline (models with a clock);
            infinite: it stays. Its answer counts only if it is complete by then.
    """

    reachable: Mask
    drops: Mask
    leaves_s: Floats

    @classmethod
    def of(cls, reachable: Mask, drops: Mask | None = None, leaves_s: Floats | None = None) -> "Presence":
        """With nobody dropping and nobody leaving where that is not said."""
        nobody = np.broadcast_to(np.False_, reachable.shape)
        never = np.broadcast_to(np.inf, reachable.shape)
        return cls(reachable, nobody if drops is None else drops & reachable, never if leaves_s is None else leaves_s)

    def take(self, positions: Ids) -> "Presence":
        """What becomes of the clients at some positions, in that order."""
        return Presence(self.reachable[positions], self.drops[positions], self.leaves_s[positions])


@runtime_checkable
class Availability(Protocol):
    """An availability model: who is reachable when, and who drops out where.

    A user's model inherits from this class, or has the same two members.

    Answers must depend on the arguments (and the model's own seed) alone, not on what was asked before: a resumed run
    asks only about its later rounds.
    """

    comes_back: bool = False
    """Whether a client that has been away in a stage can be back in a later stage of the same round.

    If not, the network remembers whoever was away, too, until the round is over."""

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """What becomes of `clients` (sorted numbers) when they are asked at virtual time `now_s` in this stage.

        Within a round, and from round to round, `now_s` never decreases.
        """


class AlwaysAvailable:
    """Everybody is there all the time."""

    comes_back = False

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        return Presence.of(np.ones(len(clients), np.bool_))


class RoundwiseAvailability:
    """Each client is away for a whole round with a probability of its own, independently of all else.

    Args:
        unavailable: `(n,)` float64 probability p of each client.
        randomness: the experiment's.
    """

    comes_back = False

    def __init__(self, unavailable: Floats, randomness: Randomness) -> None:
        self.unavailable = unavailable
        self._randomness = randomness
        self._drawn_for: int | None = None

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        if self._drawn_for != round_number:
            # One draw per client and round, for everybody, so that no client's fate depends on who is asked.
            generator = self._randomness.generator("availability", round_number, "present")
            self._present = generator.random(len(self.unavailable)) >= self.unavailable
            self._drawn_for = round_number
        return Presence.of(self._present[clients])


def unavailable_by_label(section: LabelDependent, label_counts: npt.NDArray[np.int64], population: int) -> Floats:
    """`(n,)` float64: linear from `lowest` for label 0 to `highest` for the last label.

    A client's label is its most frequent one, the smallest of several; without data it is 0. First version of
    Multi-RoundSecAgg (arXiv 2106.03328v1), experiments, "Modeling user dropouts": with one label per client, 0.1 for
    label 0 and 0.5 for label 9; in between the paper leaves it open.

    Args:
        section: the two probabilities.
        label_counts: `(n, classes)` int64 examples of each label that each client has; samples that all clients share
            are best left out, as the paper's label is that of the private data.
        population: number of clients n.

    Raises:
        ExperimentError: counts of another shape.
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
    """Replays a schedule: same client, same round, same stage, same fate. Rounds beyond it: nobody is away.

    Another protocol may not have the stage. Then a client that took part in the recorded round meets the same fate
    in the first stage after selection; one that did not (it was lost while it stood for selection) is away for the
    round.

    Args:
        schedule: what happens; its rows of participants say who took part.
        population: number of clients n.
        stages_after_selection: the replaying run's stages from training on, in order.
        selection_stages: its stages before, in order; may be left out, then a fate in a stage that is not among
            `stages_after_selection` befalls a client only if it is asked in a stage of just that name.

    Raises:
        TraceError: the schedule has a client that the population has not.
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
        reachable[has] = ~away[row[has]]
        drops[has] = dropped[row[has]]
        return Presence.of(reachable, drops)


class DroppingAvailability:
    """A model whose clients also drop out of stages, by rate and by hazard; one that has stays away for the round.

    Everything is drawn for everybody, so that no client's fate depends on who is asked.

    Args:
        model: who is there besides.
        section: who leaves where.
        population: number of clients n.
        stages_after_selection: in order; a random drop-out chooses among them, and a hazard that is one number
            applies to each.
        randomness: the experiment's.
    """

    def __init__(
        self,
        model: Availability,
        section: DropOut,
        population: int,
        stages_after_selection: Sequence[str],
        randomness: Randomness,
    ) -> None:
        self.comes_back = model.comes_back
        self._model = model
        self._stages = list(stages_after_selection)
        self._rate = cycled(section.rate, population)
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
        leaves = generator.random(self._population) < self._rate
        where = generator.integers(0, max(1, len(self._stages)), self._population)
        self._by_rate_in = np.where(leaves, where, -1)

    def _generator(self, purpose: str) -> np.random.Generator:
        assert self._round is not None
        return self._randomness.generator("availability", self._round, purpose)

    def _leaving_in(self, stage: str) -> Mask:
        """`(n,)` bool: who leaves in this stage if it is asked there."""
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
    """Passes questions on, and refuses answers that are none.

    Args:
        model: an `Availability`, as far as anybody knows.
        name: how the experiment names its class.

    Raises:
        ExperimentError: it has no `presence`, or no `comes_back` that is true or false; later, an answer of the
            wrong type or shape. What goes wrong inside the model comes through unchanged.
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
            raise self._error("presence().leaves_s has NaN; a client that stays has infinity")
        return Presence(answer.reachable, answer.drops & answer.reachable, answer.leaves_s)
