"""Metrics of an evaluation beside loss and accuracy: numbers of labels and predictions."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.plugins.classes import plugin_class

Metric = Callable[[NDArray[np.generic], NDArray[np.generic]], float]
"""From labels and predictions, in scikit-learn's order."""


def metrics_of(names: Sequence[str]) -> dict[str, Metric]:
    """The metrics that ``workload.metrics`` names; raises `ExperimentError` for one that is not there."""
    built_in: dict[str, Metric] = {"macro-f1": macro_f1, "mae": mean_absolute_error, "r2": r2}
    return {name: built_in[name] if name in built_in else plugin_class(name, "workload.metrics") for name in names}


def measured(
    metrics: dict[str, Metric], labels: NDArray[np.generic], predictions: NDArray[np.generic]
) -> tuple[float, ...]:
    """The value of each; raises `ExperimentError` for one that does not take such labels."""
    values = []
    for name, metric in metrics.items():
        try:
            values.append(float(metric(labels, predictions)))
        except (TypeError, ValueError) as error:
            lines = str(error).strip().splitlines()
            raise ExperimentError(
                f"workload.metrics: {name} does not take these labels {labels.shape} and predictions "
                f"{predictions.shape}: {lines[0] if lines else type(error).__name__}"
            ) from error
    return tuple(values)


def macro_f1(labels: NDArray[np.generic], predictions: NDArray[np.generic]) -> float:
    """The mean over the classes, that occur in either, of 2 right / (held + said)."""
    scores = []
    for label in np.union1d(labels, predictions):
        right = np.count_nonzero((labels == label) & (predictions == label))
        scores.append(2 * right / (np.count_nonzero(labels == label) + np.count_nonzero(predictions == label)))
    return float(np.mean(scores))


def mean_absolute_error(labels: NDArray[np.generic], predictions: NDArray[np.generic]) -> float:
    """The mean distance of values."""
    return float(np.abs(np.asarray(labels, np.float64) - np.asarray(predictions, np.float64)).mean())


def r2(labels: NDArray[np.generic], predictions: NDArray[np.generic]) -> float:
    """The coefficient of determination, one where all values are right; NaN where all labels are the same."""
    true_values, predicted = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    spread = np.square(true_values - true_values.mean()).sum()
    return float(1 - np.square(true_values - predicted).sum() / spread) if spread else float("nan")
