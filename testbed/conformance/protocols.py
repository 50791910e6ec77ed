"""All properties of protocols and workloads."""

from collections.abc import Iterator
from contextlib import suppress

from testbed.conformance import aggregation, selection, workload
from testbed.conformance.evidence import Evidence
from testbed.conformance.results import PropertyResult, Result, results
from testbed.conformance.subjects import Subject
from testbed.errors import CodeCrashed

PROPERTIES: dict[str, tuple[PropertyResult[Evidence], ...]] = {
    "selection": selection.PROPERTIES,
    "aggregation": aggregation.PROPERTIES,
}
"""Properties of protocols, by section."""


def evidence_of(subject: Subject) -> Evidence:
    """Return the runs of a protocol, not yet made."""
    if subject.section == "selection":
        return selection.selection_evidence(subject)
    return aggregation.aggregation_evidence(subject)


def results_of(subject: Subject) -> Iterator[Result]:
    """Check the properties of a protocol or a workload, one after the other.

    Raises:
        ExperimentError: the class does not follow its contract.
    """
    if subject.section == "workload":
        yield from results(workload.WorkloadEvidence(subject), workload.PROPERTIES)
        return
    with suppress(CodeCrashed):  # the first property reports an error in __init__
        _ = subject.plan
    yield from results(evidence_of(subject), PROPERTIES[subject.section])
