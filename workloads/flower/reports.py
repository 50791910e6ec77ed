"""A Flower app's answers: the mean of its clients' evaluations, the names of loss and accuracy, its clients' sizes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ExperimentError
from workloads.contract import Evaluation, EvaluationWithoutLoss

MOST_COUNTED = 100
"""Clients at most are trained once before the first round, to know their numbers of samples."""

MEASURES = ("loss", "accuracy")


@dataclass(frozen=True, slots=True)
class ClientEvaluation:
    """One client's evaluation of a model.

    Attributes:
        samples: held-out samples, as the client reports them; 0 where it reports none.
        loss, accuracy: as reported; None: the client reports none.
        names: under which name the client reports each of the two; None: it reports none.
        reported: the names of all numbers that it reports, sorted; None: the app evaluates nothing.
    """

    samples: int = 0
    loss: float | None = None
    accuracy: float | None = None
    names: Mapping[str, str | None] | None = None
    reported: tuple[str, ...] | None = None


def mean_evaluation(evaluations: Mapping[int, ClientEvaluation]) -> Evaluation | None:
    """The mean over clients, weighted by their samples; None: none of them reports a loss or an accuracy.

    Args:
        evaluations: by client; clients without samples do not count.

    Raises:
        ExperimentError: some of the clients report a loss (or an accuracy), and others none.
    """
    counted = {client: one for client, one in evaluations.items() if one.samples and one.reported is not None}
    if not counted:
        return None
    means: dict[str, float | None] = {}
    for measure in MEASURES:
        values = {client: getattr(one, measure) for client, one in counted.items()}
        without = [client for client, value in values.items() if value is None]
        if without and len(without) < len(counted):
            other = next(client for client, value in values.items() if value is not None)
            raise ExperimentError(
                f"workload.flower: client {without[0]} evaluates without {measure}, and client {other} with it; name a "
                f"metric of both with workload.flower.{measure}, or set workload.flower.evaluate_clients: 0"
            )
        means[measure] = None if without else _weighted(values, counted)
    loss, accuracy = means["loss"], means["accuracy"]
    samples = sum(one.samples for one in counted.values())
    if loss is None:
        return None if accuracy is None else EvaluationWithoutLoss(math.nan, accuracy, samples)
    return Evaluation(loss, math.nan if accuracy is None else accuracy, samples)


def _weighted(values: Mapping[int, float], counted: Mapping[int, ClientEvaluation]) -> float:
    total = sum(one.samples for one in counted.values())
    return sum(value * counted[client].samples for client, value in values.items()) / total


def evaluation_notes(evaluation: ClientEvaluation) -> list[str]:
    """Lines about the loss and accuracy that a run will record, from one client's evaluation; none where it reports
    both under usual names.
    """
    missing = [measure for measure in MEASURES if getattr(evaluation, measure) is None]
    if evaluation.reported is None:
        return ["the app's clients evaluate nothing; neither loss nor accuracy is recorded"]
    if missing:
        reported = ", ".join(evaluation.reported) or "no numbers"
        keys = " and ".join(f"workload.flower.{measure}" for measure in missing)
        return [
            f"the app's clients report no {' and no '.join(missing)} in their evaluation ({reported}); none is "
            f"recorded; {keys} can name a metric"
        ]
    return []


def recorded_names(evaluation: ClientEvaluation) -> list[str]:
    """A line that says under which names the clients report what a run records; none where nothing is recorded."""
    named = [f"{name} as {measure}" for measure, name in (evaluation.names or {}).items() if name is not None]
    return [f"Recorded of its clients' evaluation: {', '.join(named)}."] if named else []


def counted_clients(population: int) -> list[int]:
    """The clients whose samples are counted before the first round, spread evenly over all, at most `MOST_COUNTED`."""
    return spread(population, MOST_COUNTED)


def spread(population: int, most: int) -> list[int]:
    """At most so many clients, sorted and spread evenly over all."""
    clients: list[int] = np.linspace(0, population - 1, min(most, population)).round().astype(int).tolist()
    return clients


def announced_samples(counts: Mapping[int, int], population: int) -> NDArray[np.int64]:
    """`(population,)` int64: each client's samples; for a client that was not counted the largest number of all."""
    announced = np.full(population, max(counts.values()), np.int64)
    announced[list(counts)] = list(counts.values())
    return announced
