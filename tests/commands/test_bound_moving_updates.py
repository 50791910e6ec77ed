"""``testbed bound moving-updates`` from the outside."""

import json
from collections.abc import Callable
from typing import Any

import pytest

GIVEN = ("bound", "moving-updates", "--users", 20, "--selected", 4, "--change", 0.1)


def row(call: Callable[..., Any], *more: object) -> dict[str, Any]:
    ended = call(*GIVEN, *more, "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    found: dict[str, Any] = json.loads(ended.out)
    return found


def test_more_rounds_lower_the_errors_but_not_below_the_floor(call: Callable[..., Any]) -> None:
    few, many = (row(call, "--rounds", rounds) for rounds in (30, 600))
    assert few["determined"] == many["determined"] == few["targets"] == 20
    assert few["floor"] == many["floor"] == 7
    assert few["guarantee_median"] > many["guarantee_median"] >= many["guarantee_least"] == pytest.approx(0.7)
    assert few["independent_median"] > 3 * many["independent_median"]
    assert many["hiding_change"] == pytest.approx(1 / 7)


def test_undetermined_users_and_means_of_batches(call: Callable[..., Any]) -> None:
    assert row(call, "--rounds", 10)["amplification_least"] is None
    assert row(call, "--rounds", 10)["independent_median_reason"] == "the sums do not determine it"
    batches = row(call, "--rounds", 60, "--privacy", 2)
    assert (batches["targets"], batches["determined"], batches["floor"]) == (10, 10, 3)
    assert "of 10 means of batches" in call(*GIVEN, "--rounds", 60, "--privacy", 2).out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--rounds", 9, "--privacy", 3), "--privacy: T = 3 does not divide K = 4"),
        (("--rounds", 9, "--users", 3), "--selected: K = 4 of 3 users"),
        (("--rounds", 9, "--users", 21, "--privacy", 2), "--privacy: T = 2 does not divide N = 21"),
    ],
)
def test_bad_input_is_one_line(call: Callable[..., Any], more: tuple[object, ...], message: str) -> None:
    ended = call(*GIVEN, *more)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1
