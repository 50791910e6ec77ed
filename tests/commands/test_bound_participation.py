"""``testbed bound participation`` from the outside."""

import json
import re
from collections.abc import Callable
from math import log, sqrt
from typing import Any

import pytest

from analysis.bounds.balls_in_bins import gaussian_epsilon
from testbed.privacy.gaussian import SubsampledGaussianAccountant

SMALL = ("--rounds", 12, "--separation", 4, "--noise-multiplier", 3, "--delta", 1e-5, "--samples", 20000)


def found(call: Callable[..., Any], *more: Any) -> dict[str, Any]:
    ended = call("bound", "participation", *SMALL, *more, "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    row: dict[str, Any] = json.loads(ended.out, parse_constant=lambda constant: pytest.fail(constant))
    return row


def test_json_has_every_pattern(call: Callable[..., Any]) -> None:
    row = found(call)
    assert (row["participations"], row["bands"]) == (3, 1)
    assert row["epsilon_every_round"] == gaussian_epsilon(sqrt(12) / 3, 1e-5)
    assert row["epsilon_min_separation"] == row["epsilon_bins_seen"] == gaussian_epsilon(sqrt(3) / 3, 1e-5)
    assert row["epsilon_bins_unseen_drawn"] <= row["epsilon_bins_unseen"] < row["epsilon_bins_seen"]
    assert row["epsilon_poisson"] == SubsampledGaussianAccountant(3.0, 1 / 4).epsilon({1.0: 12}, 1e-5)
    assert found(call) == row
    assert found(call, "--seed", 1)["epsilon_poisson"] == row["epsilon_poisson"]


def test_correlated_noise(call: Callable[..., Any]) -> None:
    by_bands, by_list = found(call, "--bands", 3), found(call, "--coefficients", "1,0.5,0.375")
    assert by_bands == by_list
    assert by_bands["epsilon_poisson"] is None
    norm = sqrt(3 * (1 + 0.25 + 0.375**2))
    assert by_bands["epsilon_min_separation"] == gaussian_epsilon(norm / 3, 1e-5)
    many = found(call, "--bands", 8)
    assert many["epsilon_min_separation"] is None
    assert "8 bands, more than b" in many["epsilon_min_separation_reason"]
    assert many["epsilon_bins_seen"] > by_bands["epsilon_bins_seen"]


def test_what_is_beyond_any_accounting_is_said(call: Callable[..., Any]) -> None:
    little = found(call, "--noise-multiplier", 1e-9)
    assert little["epsilon_bins_seen"] is little["epsilon_bins_unseen"] is little["epsilon_poisson"] is None
    assert little["epsilon_bins_seen_reason"] == "above 10,000"
    rare = found(call, "--delta", 1e-30)
    assert "delta is below the truncation error" in rare["epsilon_poisson_reason"]
    assert rare["epsilon_bins_seen"] - log(4) - 0.5 < rare["epsilon_bins_unseen_drawn"] < rare["epsilon_bins_seen"]


def test_more_bands_than_rounds_are_as_many(call: Callable[..., Any]) -> None:
    assert found(call, "--bands", 1000) == found(call, "--bands", 12)


def test_text(call: Callable[..., Any]) -> None:
    out = call("bound", "participation", *SMALL, "--bands", 2).out
    assert out.splitlines()[0] == (
        "epsilon by pattern, n = 12, b = 4, sigma = 3, delta = 1e-05, bands of C = 2, participations k = 3"
    )
    assert re.search(r"\(the server\) +\d", out)
    assert "none: its rounds are not independent" in out
