"""``testbed bound batch-partition`` from the outside."""

import json
import re
from collections.abc import Callable
from math import comb
from pathlib import Path
from typing import Any

import pytest

from analysis.bounds.batch_partition import average_cardinality, unavailable_round

PAPER = ("bound", "batch-partition", "--users", 120, "--selected", 12)
THEOREM2 = ("--smoothness", 2, "--convexity", 1, "--gradient-variance", 1, "--gradient-bound", 10,
            "--heterogeneity", 0.5, "--initial-distance", 1)  # fmt: skip


def object_in(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    assert not any(isinstance(value, dict | list) for value in found.values())
    assert all(found[f"{key}_reason"] for key, value in found.items() if value is None)
    return found


def test_the_papers_setting_as_text(call: Callable[..., Any]) -> None:
    ended = call(*PAPER, "--privacy", 3, "--dropout", 0.3)
    assert (ended.code, ended.err) == (0, "")
    parameters, *lines = ended.out.splitlines()
    assert parameters == "N = 120, K = 12, 40 batches of 3, p = 0.3"
    assert [re.split(" {2,}", line)[1] for line in lines] == [
        "91390",
        "11.999",
        "8.27083e-05",
        "none: the theorem does not state its constant c'",
        "0.999224",
    ]


def test_one_number_a_list_and_a_file_are_the_same(call: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "dropouts.txt"
    file.write_text("0.2\n" * 120)
    one, many, filed = (
        object_in(call(*PAPER, "--privacy", 6, "--simulate", 500, "--dropout", given, "--format", "json").out)
        for given in ("0.2", ",".join(["0.2"] * 120), file)
    )
    assert many == filed
    assert one["average_cardinality"] == average_cardinality(120, 12, 6, 0.2)
    assert one["unavailable_round"] == pytest.approx(many["unavailable_round"], rel=1e-12)
    assert many["simulated_unavailable_low"] < unavailable_round(120, 12, 6, 0.2) < many["simulated_unavailable_high"]
    assert abs(many["simulated_cardinality"] - one["average_cardinality"]) < 5 * many["simulated_error"]


def test_different_users_are_simulated_unasked(call: Callable[..., Any]) -> None:
    given = (*PAPER[:2], "--users", 8, "--selected", 4, "--privacy", 2, "--dropout", ",".join(["0.1", "0.5"] * 4))
    found = object_in(call(*given, "--format", "json").out)
    assert (found["simulated_rounds"], found["dropout_lowest"], found["dropout_highest"]) == (10_000, 0.1, 0.5)
    assert "p = 0.1 to 0.5, mean 0.3" in call(*given).out


def test_full_rank_and_theorem_2(call: Callable[..., Any]) -> None:
    given = ("bound", "batch-partition", "--users", 20, "--selected", 6, "--privacy", 2, "--dropout", 0.2)
    found = object_in(call(*given, "--trials", 20, "--rounds", 25, *THEOREM2, "--format", "json").out)
    assert (found["full_rank_rounds"], found["full_rank_trials"], found["rounds"]) == (25, 20, 25)
    for name in ("uniform", "independent"):
        assert found[f"full_rank_{name}_low"] <= found[f"full_rank_{name}"] <= found[f"full_rank_{name}_high"]
        assert 20 <= found[f"full_rank_{name}_median"] <= 25
    assert 0 < found["theorem2_printed"] < found["theorem2_repaired"]
    text = call(*given, "--trials", 20, "--rounds", 25, *THEOREM2).out
    assert "full rank after 25 rounds" in text
    assert "E[L] - L* after 25 rounds" in text


def test_exact_however_long(call: Callable[..., Any]) -> None:
    given = ("bound", "batch-partition", "--users", 10_000, "--privacy", 1, "--dropout", 0.1, "--format", "json")
    assert object_in(call(*given, "--selected", 1000).out)["family_size"] == comb(10_000, 1000)
    found = object_in(call(*given[:3], 100_000, *given[4:], "--selected", 50_000).out)
    assert (found["family_size"], found["family_size_reason"]) == (None, "an integer of 30101 digits")


def test_batches_of_like_reliability(call: Callable[..., Any]) -> None:
    users = (*PAPER[:2], "--users", 12, "--selected", 3, "--privacy", 3, "--dropout", ",".join(["0.1", "0.6"] * 6))
    mixed, like = (
        object_in(call(*users, "--batching", batching, "--format", "json").out)
        for batching in ("by-index", "by-reliability")
    )
    assert like["average_cardinality"] > 1.2 * mixed["average_cardinality"]
    assert like["average_cardinality"] == average_cardinality(12, 3, 3, [0.1] * 6 + [0.6] * 6)
    for found in (mixed, like):
        assert abs(found["simulated_cardinality"] - found["average_cardinality"]) < 5 * found["simulated_error"]
        assert 0 < found["simulated_fairness_gap"] <= 1
    assert like["simulated_fairness_gap"] != mixed["simulated_fairness_gap"]
    assert "4 batches of 3 of like reliability" in call(*users, "--batching", "by-reliability").out
    refused = call(*PAPER, "--privacy", 3, "--dropout", 0.3, "--batching", "by-reliability")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--batching: by-reliability has no effect with one probability" in refused.err
