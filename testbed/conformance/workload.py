"""Properties of user-defined workloads (`testbed.workload.contract.Workload`)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.conformance.results import NotApplicable, PropertyResult, Violation
from testbed.conformance.subjects import Subject
from testbed.workload.building import build
from testbed.workload.contract import Evaluation, LocalUpdate, Workload

_ROUNDS = (1, 2)
_HOSTS = 4  # threads that call `train` concurrently, as several hosts in one process do


class WorkloadEvidence:
    """A workload, and the updates of its clients.

    Args:
        subject: the workload and its experiment.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.population = subject.experiment.population

    def built(self) -> Workload:
        """Return a new object of the class."""
        return build(self.subject.experiment.workload, self.population, self.subject.seed)

    @cached_property
    def workload(self) -> Workload:
        """The object that most properties check."""
        return self.built()

    @property
    def model(self) -> npt.NDArray[np.float32]:
        """The initial model, read-only, as `train` and `evaluate` may get it."""
        model = np.array(self.workload.initial_model())
        # As in a run, where a model may be memory-mapped: a workload that writes into it fails here.
        model.flags.writeable = False
        return model

    @cached_property
    def updates(self) -> dict[tuple[int, int], LocalUpdate]:
        """The update of every client from the initial model, by client and round."""
        order = [(client, number) for number in _ROUNDS for client in range(self.population)]
        return {key: self.workload.train(key[0], self.model, key[1]) for key in order}


def sizes_are_declared(evidence: WorkloadEvidence) -> str:
    """Check the dimension, the sample counts and the initial model."""
    workload, population = evidence.workload, evidence.population
    counts, dimension = np.asarray(workload.sample_counts), workload.dimension
    if not isinstance(dimension, int | np.integer) or dimension < 1:
        raise Violation(f"dimension is {dimension!r}; return the number of the model's parameters, an int above 0")
    if (counts < 0).any():
        raise Violation(
            f"sample_counts: client {int(counts.argmin())} has {counts.min()} samples; return numbers of at least 0"
        )
    _check_vector("initial_model", workload.initial_model(), int(dimension))
    return f"{dimension} parameters, {counts.sum()} samples of {population} clients"


def _check_vector(name: str, vector: Any, dimension: int) -> None:
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or vector.shape != (dimension,):
        description = (
            f"{vector.dtype} of shape {vector.shape}" if isinstance(vector, np.ndarray) else type(vector).__name__
        )
        raise Violation(f"{name} is {description}; return ({dimension},) float32, e.g. with .astype(np.float32)")
    if not np.isfinite(vector).all():
        raise Violation(f"{name} has numbers that are not finite; return finite numbers")


def updates_are_as_declared(evidence: WorkloadEvidence) -> str:
    """Check the updates of all clients in two rounds."""
    counts = np.asarray(evidence.workload.sample_counts)
    for (client, number), update in evidence.updates.items():
        where = f"train of client {client} in round {number}"
        if not isinstance(update, LocalUpdate):
            raise Violation(f"{where} returns {type(update).__name__}; return testbed.LocalUpdate")
        _check_vector(f"{where}: delta", update.delta, evidence.workload.dimension)
        if update.samples != counts[client]:
            raise Violation(
                f"{where}: {update.samples} samples, but sample_counts has {counts[client]}; return the same number"
            )
        if update.examples_processed < 0:
            raise Violation(f"{where}: examples_processed is {update.examples_processed}; return samples times epochs")
    return f"{len(evidence.updates)} updates"


def evaluation_is_a_quality(evidence: WorkloadEvidence) -> str:
    """Check the evaluation of the initial model."""
    evaluation = evidence.workload.evaluate(evidence.model)
    if evaluation is None:
        raise NotApplicable("evaluate returns None: the workload measures nothing")
    if not isinstance(evaluation, Evaluation):
        raise Violation(f"evaluate returns {type(evaluation).__name__}; return testbed.Evaluation or None")
    if not (np.isnan(evaluation.accuracy) or 0 <= evaluation.accuracy <= 1) or evaluation.samples < 0:
        raise Violation(
            f"evaluate: accuracy {evaluation.accuracy} of {evaluation.samples} samples; return a share, 0 to 1, or NaN"
        )
    return f"loss {evaluation.loss:.3g}, accuracy {evaluation.accuracy:.3g}"


def results_follow_from_the_arguments(evidence: WorkloadEvidence) -> str:
    """Check that neither another object, nor another order of calls, nor threads change a bit."""
    # Another object in the opposite order, as other hosts train other clients before.
    backwards = list(reversed(evidence.updates))
    other = evidence.built()
    if other.initial_model().tobytes() != evidence.model.tobytes():
        raise Violation("initial_model differs between two objects with one seed; draw from the seed alone")
    _compare(evidence, backwards, [other.train(client, evidence.model, number) for client, number in backwards])
    third = evidence.built()
    with ThreadPoolExecutor(_HOSTS) as threads:
        updates = list(threads.map(lambda key: third.train(key[0], evidence.model, key[1]), backwards))
    _compare(evidence, backwards, updates, " in threads")
    first, again = (evidence.workload.evaluate(evidence.model) for _ in range(2))
    if repr(first) != repr(again):
        raise Violation("evaluate returns another result for the same model; do not depend on earlier calls")
    return f"{len(backwards)} updates again, in the opposite order, by other objects and in {_HOSTS} threads"


def _compare(
    evidence: WorkloadEvidence, order: Sequence[tuple[int, int]], updates: Sequence[LocalUpdate], how: str = ""
) -> None:
    for (client, number), update in zip(order, updates, strict=True):
        before = evidence.updates[client, number]
        if (before.delta.tobytes(), repr(before)) != (update.delta.tobytes(), repr(update)):
            raise Violation(
                f"train of client {client} in round {number} differs when another object trains the clients in another "
                f"order{how}; draw from (seed, client, round_number) alone, and store nothing between calls"
            )


PROPERTIES: tuple[PropertyResult[WorkloadEvidence], ...] = (
    PropertyResult("Sizes are those declared", sizes_are_declared),
    PropertyResult("Updates are finite float32 vectors, with the declared samples", updates_are_as_declared),
    PropertyResult("An evaluation is a quality", evaluation_is_a_quality),
    PropertyResult(
        "The same seed gives the same bits, for all callers and orders of calls", results_follow_from_the_arguments
    ),
)
