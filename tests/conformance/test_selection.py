"""Every built-in selection protocol has all properties."""

import pytest

from testbed.conformance.results import results
from testbed.conformance.selection import PROPERTIES, selection_evidence
from tests.conformance.settings import SELECTIONS

BATCHES = "Batches take part as a whole"
IN_BATCHES = {"partition", "batch-partition", "verifiable-batch-partition"}


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_protocol_has_all_properties(name: str) -> None:
    evidence = selection_evidence(SELECTIONS[name])
    checked = list(results(evidence, PROPERTIES))
    assert [result for result in checked if result.verdict == "failed"] == []
    others = {result.claim for result in checked if result.verdict != "passed"}
    assert others == (set() if SELECTIONS[name].name in IN_BATCHES else {BATCHES})
    assert len(checked) == len(PROPERTIES)
    with_absent = zip(evidence.rounds, evidence.scenarios, strict=True)
    assert "completed" in {facts.outcome.state for facts, scenario in with_absent if scenario.away}
