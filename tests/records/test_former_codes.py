"""Records of earlier versions are read with the present names of refusals and events."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from testbed.records.former_codes import EVENT_KINDS, REFUSALS, current_detail, with_current_names
from testbed.records.schemas import SCHEMAS
from tests.repository import ROOT


def test_no_former_name_is_a_present_one() -> None:
    assert not REFUSALS.keys() & set(REFUSALS.values())
    assert not EVENT_KINDS.keys() & set(EVENT_KINDS.values())


def test_translating_twice_changes_nothing_more() -> None:
    for former, present in REFUSALS.items():
        assert current_detail(f"{former}: x") == f"{present}: x"
        assert current_detail(current_detail(former)) == present


@pytest.mark.parametrize("text", ["my-secagg.alone: x", "secagg.alone-again: x", "xsecagg.alone", "a.secagg.alone"])
def test_a_name_within_a_longer_one_stays(text: str) -> None:
    assert current_detail(text) == text


def test_a_table_of_events_is_translated_in_both_columns() -> None:
    rows = [
        {"round": 1, "stage": "train", "party": "client:1", "kind": "refusal", "detail": "secagg.alone: one update"},
        {"round": 2, "stage": "train", "party": "client:2", "kind": "poisoned", "detail": "killed its host"},
        {"round": 3, "stage": None, "party": None, "kind": None, "detail": None},
    ]
    table = with_current_names(pa.Table.from_pylist(rows, SCHEMAS["events"]), "events")
    assert table.schema == SCHEMAS["events"]
    assert table.column("kind").to_pylist() == ["refusal", "quarantined", None]
    assert table.column("detail").to_pylist() == ["aggregation.single-participant: one update", "killed its host", None]


def test_reasons_of_rounds_name_refusals_too() -> None:
    reason = "below-threshold: 0 of 7 needed shared their keys; refusals: secagg.other-keys-or-training"
    table = pa.table({"round": [1, 2], "reason": [reason, None]})
    present = reason.replace("secagg.other-keys-or-training", "aggregation.keys-or-model-mismatch")
    assert with_current_names(table, "rounds").column("reason").to_pylist() == [present, None]


def test_no_code_uses_a_former_name() -> None:
    """A refusal that is raised under a former name would be recorded in two spellings."""
    quoted = re.compile("[\"']" + "(" + "|".join(map(re.escape, REFUSALS)) + ")" + "[\"':]")
    places = [
        f"{path.relative_to(ROOT)}: {match.group(1)}"
        for package in ("testbed", "cluster", "workloads", "analysis")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != Path("former_codes.py").name
        for match in quoted.finditer(path.read_text())
    ]
    assert not places
