"""Reports of a Flower app: mean of its clients' evaluations, names of loss and accuracy, sizes of its clients."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from workloads.contract import Evaluation, EvaluationWithoutLoss

MOST_COUNTED = 100
"""Largest number of clients that are trained once before the first round, to find their numbers of samples."""

MEASURES = ("loss", "accuracy")


@dataclass(frozen=True, slots=True)
class ClientEvaluation:
    """One client's evaluation of a model.

    Attributes:
        samples: held-out samples, as reported; 0 if none are reported.
        loss, accuracy: as reported; None if not reported.
        names: the names under which the client reports the two; None if not reported.
        reported: the names of all reported numbers, sorted; None: the app evaluates nothing.
    """

    samples: int = 0
    loss: float | None = None
    accuracy: float | None = None
    names: Mapping[str, str | None] | None = None
    reported: tuple[str, ...] | None = None


def mean_evaluation(evaluations: Mapping[int, ClientEvaluation]) -> Evaluation | None:
    """Return the mean over clients, weighted by their samples; None if no client reports a loss or an accuracy.

    Args:
        evaluations: by client; clients without samples do not count.

    Raises:
        ExperimentError: only some of the clients report a loss, or an accuracy.
    """
    counted = {
        client: evaluation
        for client, evaluation in evaluations.items()
        if evaluation.samples and evaluation.reported is not None
    }
    if not counted:
        return None
    means: dict[str, float | None] = {}
    for measure in MEASURES:
        values = {client: getattr(evaluation, measure) for client, evaluation in counted.items()}
        without = [client for client, value in values.items() if value is None]
        # A mean over some of the clients would change with the clients that are asked.
        if without and len(without) < len(counted):
            other = next(client for client, value in values.items() if value is not None)
            raise ExperimentError(
                f"workload.flower: client {without[0]} reports no {measure} in its evaluation, but client {other} "
                f"does; name a metric of both with workload.flower.{measure}, or set "
                "workload.flower.evaluate_clients: 0"
            )
        means[measure] = None if without else _weighted(values, counted)
    loss, accuracy = means["loss"], means["accuracy"]
    samples = sum(evaluation.samples for evaluation in counted.values())
    if loss is None:
        return None if accuracy is None else EvaluationWithoutLoss(math.nan, accuracy, samples)
    return Evaluation(loss, math.nan if accuracy is None else accuracy, samples)


def _weighted(values: Mapping[int, float], counted: Mapping[int, ClientEvaluation]) -> float:
    total = sum(evaluation.samples for evaluation in counted.values())
    return sum(value * counted[client].samples for client, value in values.items()) / total


def evaluation_notes(evaluation: ClientEvaluation) -> list[str]:
    """Return notes on a loss or accuracy that a run cannot record, from one client's evaluation."""
    missing = [measure for measure in MEASURES if getattr(evaluation, measure) is None]
    if evaluation.reported is None:
        return ["the app's clients do not evaluate, so neither loss nor accuracy is recorded"]
    if missing:
        reported = ", ".join(evaluation.reported) or "no numbers"
        keys = " and ".join(f"workload.flower.{measure}" for measure in missing)
        return [
            f"the app's clients report no {' and no '.join(missing)} in their evaluation ({reported}), so none is "
            f"recorded; name a metric with {keys}"
        ]
    return []


def recorded_names(evaluation: ClientEvaluation) -> list[str]:
    """Return a line with the names of the reported metrics that a run records; empty if none is recorded."""
    named = [f"{name} as {measure}" for measure, name in (evaluation.names or {}).items() if name is not None]
    return [f"Recorded from its clients' evaluation: {', '.join(named)}."] if named else []


def counted_clients(population: int) -> list[int]:
    """Return the clients to train once before the first round, spread evenly over all, at most `MOST_COUNTED`."""
    return spread(population, MOST_COUNTED)


def spread(population: int, most: int) -> list[int]:
    """Return at most `most` clients, sorted and spread evenly over the population.

    Args:
        population: number of clients.
        most: largest number of results.

    Example:
        >>> spread(11, 3)
        [0, 5, 10]
    """
    clients: list[int] = np.linspace(0, population - 1, min(most, population)).round().astype(int).tolist()
    return clients


def announced_samples(counts: Mapping[int, int], population: int) -> NDArray[np.int64]:
    """Return each client's samples, (population,) int64; for clients that were not counted the largest number.

    Args:
        counts: samples by client.
        population: number of clients.
    """
    announced = np.full(population, max(counts.values()), np.int64)
    announced[list(counts)] = list(counts.values())
    return announced
