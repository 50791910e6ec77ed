"""Verdicts follow from numbers, intervals and bands, and survive being written down."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.reproduction.verdicts import (
    VERDICTS,
    Check,
    PaperClaim,
    above,
    below,
    between,
    counts,
    equal,
    true,
    within,
    within_factor,
)
from analysis.statistics import Interval
from tests.messages_named import naming

NUMBERS = st.floats(-1e6, 1e6)


def test_an_exact_number_is_in_the_band_or_not() -> None:
    assert within("x", 1.9, 2.0, 0.1).verdict == "agrees"
    assert within("x", 1.89, 2.0, 0.1).verdict == "disagrees"
    assert within("x", 2.11, 2.0, 0.1).verdict == "disagrees"  # in both directions
    assert within_factor("x", 4.0, 2.0, 2.0).verdict == "agrees"
    assert within_factor("x", 0.9, 2.0, 2.0).verdict == "disagrees"
    assert equal("x", 91390, 91389).verdict == "disagrees"
    assert true("x", 2 > 1).verdict == "agrees"
    assert true("x", 2 < 1).verdict == "disagrees"


def test_the_end_of_an_order_does_not_belong_to_it() -> None:
    assert above("x", 0.0).verdict == "disagrees"
    assert below("x", 1.0, 1.0).verdict == "disagrees"
    assert above("x", Interval(1.0, 1.0)).verdict == "partly"
    assert above("x", Interval(-1.0, 1.0)).verdict == "disagrees"


def test_an_interval_that_reaches_out_of_the_band_is_partly_in_it() -> None:
    assert between("x", Interval(0.0, 1.0), -2, 2).verdict == "agrees"
    assert between("x", Interval(0.0, 3.0), -2, 2).verdict == "partly"
    assert between("x", Interval(2.5, 1.0), -2, 2).verdict == "partly"
    assert between("x", Interval(4.0, 1.0), -2, 2).verdict == "disagrees"


def test_a_single_run_has_no_interval_and_decides_nothing() -> None:
    assert above("x", Interval(5.0, None)).verdict == "partly"


def test_a_number_that_was_not_measured_is_not_run() -> None:
    assert above("x", None).verdict == "not run"
    assert above("x", math.nan).verdict == "not run"
    assert above("x", Interval(None, None)).verdict == "not run"
    with pytest.raises(ValueError, match="infinite"):
        above("x", math.inf)


def test_a_claim_agrees_where_all_its_checks_do() -> None:
    yes, no, unknown = true("a", True), true("b", False), above("c", None)
    assert PaperClaim("c", "m", [yes, yes]).verdict == "agrees"
    assert PaperClaim("c", "m", [no, no]).verdict == "disagrees"
    assert PaperClaim("c", "m", [yes, no]).verdict == "partly"
    assert PaperClaim("c", "m", [yes, unknown]).verdict == "partly"  # some of it was not looked at
    assert PaperClaim("c", "m", [unknown]).verdict == "not run"
    assert PaperClaim("c", "m").verdict == "not run"
    assert PaperClaim("c", "m", undetermined="the threshold").verdict == "undetermined"
    with pytest.raises(ValueError, match=naming("undetermined", "checks")):
        PaperClaim("c", "m", [yes], undetermined="the threshold")


def test_the_basis_of_a_verdict_is_shown() -> None:
    assert within("minutes", 1.0, 2.0, 0.5).band == "1.5 to 2.5"
    assert above("points", 1.0).band == "> 0"
    assert below("points", 1.0, 3.0).band == "< 3"
    assert between("share", 1.0, most=0.05).band == "≤ 0.05"
    assert between("share", 1.0, least=0.05).band == "≥ 0.05"
    assert equal("sets", 1.0, 10.0).band == "= 10"
    assert PaperClaim("c", "m", [above("points", 1.0), above("points", 2.0)]).judged == "points > 0"
    assert PaperClaim("c", "m", undetermined="the threshold").judged == "open: the threshold"


def test_a_claim_counts_once() -> None:
    claims = [
        PaperClaim("c", "m", [true("a", True)]),
        PaperClaim("c", "m", [true("a", True)], counted_in="multiround-fig7"),
    ]
    assert counts(claims) == {**dict.fromkeys(VERDICTS, 0), "agrees": 1}


@given(NUMBERS, st.none() | st.floats(0, 1e6), NUMBERS, NUMBERS, st.booleans())
def test_written_data_give_the_same_verdict(mean, half, one, other, strict) -> None:
    least, most = sorted((one, other))
    checks = [above("a", Interval(mean, half), least), between("b", Interval(mean, half), least, most)]
    checks.append(Check("c", mean, mean, mean, least, most, strict))
    claim = PaperClaim("c", "m", checks, seeds=3)
    data = json.loads(json.dumps(claim.as_data(), allow_nan=False))
    read = PaperClaim.of_data(data)
    assert read.verdict == claim.verdict == data["verdict"]
    assert read == PaperClaim("c", "m", tuple(checks), seeds=3)


@given(NUMBERS, st.floats(0, 1e6), NUMBERS, st.floats(0, 1e6))
def test_a_wider_band_never_turns_against_a_claim(mean, half, middle, margin) -> None:
    order = ("disagrees", "partly", "agrees")
    narrow = within("x", Interval(mean, half), middle, margin).verdict
    wide = within("x", Interval(mean, half), middle, 2 * margin + 1).verdict
    assert order.index(wide) >= order.index(narrow)
