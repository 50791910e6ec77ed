"""``testbed bound committee`` and ``testbed plan committee`` from the outside."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.bounds.committee import Draw, round_fails

SMALL = ("--population", 1000, "--dishonest", 100, "--size", 30, "--threshold", 20)


def test_json_holds_every_digit_and_no_nan(call: Callable[..., Any]) -> None:
    given = (*SMALL, "--dropout", 0.1, "--rounds", 10, "--serves-rounds", 4, "--tries", 2, "--format", "json")
    ended = call("bound", "committee", *given)
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out, parse_constant=lambda constant: pytest.fail(constant))
    assert not any(isinstance(value, dict | list) for value in found.values())
    members = Draw(1000, 100, dropout=0.1).of(30)
    assert (found["dishonest_break"], found["services"], found["dishonest_expected"]) == (10, 3, 3.0)
    assert found["committee_broken"] == members.at_least(10) > found["threshold_dishonest"] == members.at_least(20)
    assert found["broken_ever"] == pytest.approx(1 - (1 - members.at_least(10)) ** 6, rel=1e-9)
    assert found["broken_ever"] <= found["broken_ever_union"] == 6 * members.at_least(10)
    assert found["round_fails"] == round_fails(members, 20)


def test_text_says_what_is_at_most_and_what_no_double_holds(call: Callable[..., Any]) -> None:
    out = call("bound", "committee", *SMALL).out
    assert out.startswith("public-seed: n = 1000, c = 100, dropout = 0, R = 1, tries = 1, s = 30, t = 20\n")
    assert re.search("10 or more dishonest members: a malicious server .* 0.000", out)
    assert "at most" not in out
    assert "(at most)" in call("bound", "committee", *SMALL, "--selection", "lotto-client-centric").out
    assert "20 or more dishonest" in call("bound", "committee", *SMALL, "--server", "semi-honest").out
    far = ("--population", 10**9, "--dishonest", 10**4, "--size", 200, "--threshold", 200)
    assert re.search(r"malicious server .* 10\^-", call("bound", "committee", *far).out)


def test_a_plan_is_a_committee_that_keeps_its_targets(call: Callable[..., Any]) -> None:
    given = ("--population", 1000, "--dishonest", 100, "--dropout", 0.1, "--rounds", 10, "--serves-rounds", 4)
    found = json.loads(call("plan", "committee", *given, "--target", 1e-6, "--format", "json").out)
    assert found["broken_ever"] <= 1e-6
    assert found["round_fails"] <= 1e-3
    again = ("--size", found["smallest_size"], "--threshold", found["threshold"], "--format", "json")
    same = json.loads(call("bound", "committee", *given, *again).out)
    assert same == {key: value for key, value in found.items() if key in same}
    assert (
        "none: no committee of up to 20 members"
        in call("plan", "committee", *given, "--target", 1e-6, "--largest", 20).out
    )


def test_weights_come_from_a_file(call: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "weights.txt"
    path.write_text("\n".join(str(1 + client) for client in range(1000)))
    given = (*SMALL, "--selection", "lotto-client-centric", "--format", "json")
    plain, heavy = (
        json.loads(call("bound", "committee", *given, *more).out) for more in ((), ("--weights", str(path)))
    )
    assert heavy["committee_broken"] > plain["committee_broken"]
    assert (plain["weights"], heavy["weights"]) == ("equal", "given")
    path.write_text("1\nx\n")
    assert "--weights: " in call("bound", "committee", *given, "--weights", str(path)).err
