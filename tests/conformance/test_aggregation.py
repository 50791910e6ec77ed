"""Every built-in aggregation protocol has all properties."""

import pytest

from testbed.conformance.aggregation import PROPERTIES, aggregation_evidence
from testbed.conformance.results import results
from tests.conformance.settings import AGGREGATIONS

RESULT = "With any dropouts, the result is that of the survivors"
REASONS = "Rounds that end early have a reason"
WHOLE_BATCHES = "Batches are summed as a whole or not at all"
OLD = "Old questions are refused by name and crash no client"

NOT_APPLICABLE = {
    "plain, noise": {RESULT},
    "secagg, enforced noise": {RESULT},
    # A sum of clipped gradients, of clients that are drawn independently; an empty round is a round.
    "dp-sgd-random-participation": {RESULT, REASONS, WHOLE_BATCHES},
}
REFUSED_BY = {"secagg-plus": "secagg"}
"""The protocol by whose names a client refuses, where it is another one."""
REFERENCES = {"plain": "the mean by samples", "pine": "the mean of equal weights"}


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_an_aggregation_protocol_has_all_properties(name: str) -> None:
    checked = AGGREGATIONS[name]
    evidence = aggregation_evidence(checked)
    by_claim = {result.claim: result for result in results(evidence, PROPERTIES)}
    assert [result for result in by_claim.values() if result.verdict == "failed"] == []
    assert {claim for claim, result in by_claim.items() if result.verdict != "passed"} == NOT_APPLICABLE.get(
        name, set()
    )
    assert len(by_claim) == len(PROPERTIES)
    assert refusing_protocols(by_claim[OLD].detail) <= {"aggregation", "train", REFUSED_BY.get(name, checked.name)}
    if name in NOT_APPLICABLE:
        return
    reference, _, stages = by_claim[RESULT].detail.partition("; ")
    assert reference == REFERENCES.get(name, "the quantised sum")
    for stage in ("train", *checked.plan.aggregation.stages):  # in each of them a few may drop out
        assert f"{stage} in " in stages
    ended = {one.outcome.state for one, scenario in zip(evidence.rounds, evidence.scenarios, strict=True)
             if scenario.leaving.get("train") == frozenset(range(checked.experiment.population))}  # fmt: skip
    assert ended == {"aborted"}


def refusing_protocols(detail: str) -> set[str]:
    """The first parts of the names of refusals."""
    return {name.partition(".")[0] for name in detail.partition("refused by ")[2].split(", ")}
