"""``testbed bound correlated`` from the outside."""

import json
from collections.abc import Callable
from typing import Any

import pytest

SMALL = ("--rounds", 40, "--separation", 10)


def test_json_has_every_strategy_and_the_noise(call: Callable[..., Any]) -> None:
    ended = call("bound", "correlated", *SMALL, "--epsilon", 2, "--delta", 1e-5, "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out, parse_constant=lambda constant: pytest.fail(constant))
    assert (found["rounds"], found["separation"], found["participations"]) == (40, 10, 4)
    assert found["noise_multiplier"] == pytest.approx(1.9938, rel=1e-3)
    errors = {one["strategy"]: one["mean_error"] for one in found["strategies"]}
    assert errors["band"] < errors["blt, 4 buffers"] < errors["identity"] < errors["prefix-sum"]


def test_text_says_what_was_given(call: Callable[..., Any]) -> None:
    out = call("bound", "correlated", *SMALL, "--participations", 9).out
    assert out.startswith("n = 40, b = 10, k = 4\n")
    assert "clipping norms" not in out
    assert "best matrix" in call("bound", "correlated", "--rounds", 20, "--separation", 20).out
