"""Wherever an epsilon is printed, what it does not cover is said: a seed, losses that are reported."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOISE: dict[str, Any] = {
    "rounds": 2,
    "availability": {},  # without a seed, dropouts would end both rounds once in thirty runs
    "aggregation": {"protocol": "secagg", "weights": "equal", "bits": 40, "noise": {"noise_multiplier": 5.0}},
}
SEED, LOSSES = "the run has a seed: ", "losses and sample counts leave the clients without noise"


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("reported", [False, True])
def test_everywhere(
    seed: int | None, reported: bool, call: Callable[..., Any], written: Callable[..., Path], tmp_path: Path
) -> None:
    file = written(**NOISE, seed=seed, **({"privacy": {"report_losses": True}} if reported else {}))
    out = tmp_path / "out"
    ran = call("run", file, "--out", out, "--quiet")
    assert ran.code == 0, ran.err
    summary = json.loads((out / "summary.json").read_text())
    printed = {
        "run": ran.out,
        "summary": summary["privacy_caveats"] or "",
        "compare": call("compare", out).out,
        "status": call("status", out).out,
        "status --format json": call("status", out, "--format", "json").out,
        "privacy": call("privacy", out).out,
        "privacy --format markdown": call("privacy", out, "--format", "markdown").out,
        "privacy --format json": call("privacy", out, "--format", "json").out,
        "bound privacy": call("bound", "privacy", file).out,
        "bound privacy --format json": call("bound", "privacy", file, "--format", "json").out,
    }
    for where, text in printed.items():
        joined = " ".join(text.split())
        assert (SEED in joined) == (seed is not None), where
        assert (LOSSES in joined) == reported, where


def test_without_noise_there_is_nothing_to_say(
    call: Callable[..., Any], written: Callable[..., Path], tmp_path: Path
) -> None:
    ran = call("run", written(seed=3), "--out", tmp_path / "out", "--quiet")
    assert SEED not in ran.out
    assert SEED not in call("status", tmp_path / "out").out
    assert "privacy_caveats" not in json.loads((tmp_path / "out" / "summary.json").read_text())
