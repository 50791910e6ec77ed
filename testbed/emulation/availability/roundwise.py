"""Models that draw for each round who is there: everybody, Bernoulli, by label. None has a clock."""

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.availability.presence import Presence
from testbed.emulation.availability.section import LabelDependent
from testbed.errors import ExperimentError
from testbed.randomness import Randomness


class AlwaysAvailable:
    """Everybody is there all the time."""

    comes_back = False

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """See `Availability.presence`."""
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
        """See `Availability.presence`; the same in all stages of a round."""
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
