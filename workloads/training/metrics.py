"""Metrics of an evaluation besides loss and accuracy, computed from labels and predictions."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from testbed.plugins.classes import plugin_class

Metric = Callable[[NDArray[np.generic], NDArray[np.generic]], float]
"""Returns a value from labels and predictions, in scikit-learn's order of arguments."""


def metrics_of(names: Sequence[str]) -> dict[str, Metric]:
    """Return the metrics that ``workload.metrics`` names; raises `ExperimentError` for a missing one."""
    built_in: dict[str, Metric] = {"macro-f1": macro_f1, "mae": mean_absolute_error, "r2": r2}
    return {name: built_in[name] if name in built_in else plugin_class(name, "workload.metrics") for name in names}


def measured(
    metrics: dict[str, Metric], labels: NDArray[np.generic], predictions: NDArray[np.generic]
) -> tuple[float, ...]:
    """Return the value of each metric.

    Args:
        metrics: metrics by name.
        labels: the labels.
        predictions: the predictions.

    Raises:
        ExperimentError: a metric does not take such labels.
    """
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
    """Return the macro-averaged F1 score over the classes in labels or predictions.

    Args:
        labels: the labels.
        predictions: the predictions.

    Example:
        >>> macro_f1(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])).__round__(3)
        0.733
    """
    scores = []
    for label in np.union1d(labels, predictions):
        right = np.count_nonzero((labels == label) & (predictions == label))
        # F1 = 2 TP / (2 TP + FP + FN); the divisor is not zero, as the label occurs.
        scores.append(2 * right / (np.count_nonzero(labels == label) + np.count_nonzero(predictions == label)))
    return float(np.mean(scores))


def mean_absolute_error(labels: NDArray[np.generic], predictions: NDArray[np.generic]) -> float:
    """Return the mean absolute error.

    Args:
        labels: the true values.
        predictions: the predicted values.
    """
    return float(np.abs(np.asarray(labels, np.float64) - np.asarray(predictions, np.float64)).mean())


def r2(labels: NDArray[np.generic], predictions: NDArray[np.generic]) -> float:
    """Return the coefficient of determination: 1 if all predictions are right; NaN if all labels are equal.

    Args:
        labels: the true values.
        predictions: the predicted values.
    """
    true_values, predicted = np.asarray(labels, np.float64), np.asarray(predictions, np.float64)
    spread = np.square(true_values - true_values.mean()).sum()
    return float(1 - np.square(true_values - predicted).sum() / spread) if spread else float("nan")
