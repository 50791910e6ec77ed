"""Where training runs end up: accuracies at their ends, and the learning rate that reaches the best of them."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_LATE = 0.1
"""Share of the rounds, the last ones, over whose evaluations an accuracy is the mean."""


def late_accuracy(
    rounds: npt.NDArray[np.int64], accuracy: npt.NDArray[np.float64], total: int
) -> npt.NDArray[np.float64]:
    """`(seeds,)` accuracies: the means over the evaluations of the last tenth of the rounds, as one round's is noisy.

    Args:
        rounds: `(e,)` after which the model was evaluated.
        accuracy: `(seeds, e)`.
        total: rounds of each run.
    """
    return np.asarray(accuracy[:, rounds > (1 - _LATE) * total].mean(axis=1), np.float64)


def best_of(rates: Sequence[float], reached: Sequence[float]) -> float:
    """The learning rate that reached the most, the larger of equal ones; one that reached no number is none of them.

    Args:
        rates: that were tried.
        reached: the accuracy at each; NaN where the model was lost.
    """
    return max(
        (-math.inf if math.isnan(accuracy) else accuracy, rate) for accuracy, rate in zip(reached, rates, strict=True)
    )[1]
