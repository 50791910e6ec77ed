"""Why rounds did not complete, in one line."""

import pytest

from testbed.records.reader import counted, format_end_reasons

SHORT = "below-threshold: 8 of 9 needed shared their keys"
ENDS = [
    ("completed", ""),
    ("aborted", SHORT),
    ("aborted", "refused: 3 participants refused: lotto.list"),
    ("skipped", "too-few-available: 3 available, 5 wanted"),
    ("aborted", SHORT),
    ("skipped", "too-few-available: 4 available, 5 wanted"),
]


def test_the_reasons_of_all_rounds_in_one_line() -> None:
    assert format_end_reasons(ENDS) == (
        "3 aborted: 2 x below-threshold (8 of 9 needed shared their keys), "
        "1 x refused (3 participants refused: lotto.list); "
        "2 skipped: 2 x too-few-available (e.g. 3 available, 5 wanted)"
    )
    assert counted(ENDS) == {"below-threshold": 2, "too-few-available": 2, "refused": 1}


@pytest.mark.parametrize("ends", [[], [("completed", "")] * 3])
def test_nothing_is_said_of_completed_rounds(ends: list[tuple[str, str]]) -> None:
    assert (format_end_reasons(ends), counted(ends)) == ("", {})


def test_an_endless_reason_is_cut_and_a_missing_one_named() -> None:
    assert len(format_end_reasons([("aborted", f"why: {'x' * 5000}")])) < 200
    assert format_end_reasons([("aborted", "")]) == "1 aborted: 1 x no reason given"
