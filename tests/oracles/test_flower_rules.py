"""Robust rules against Flower's, which run in an environment of their own; Krum is that of the paper there."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from testbed.aggregation.robust_rules import RobustSection, combined, robust_rule
from tests.oracles.updates_of_clients import cases

RULES = {"krum": ("max_dishonest",), "multi-krum": ("max_dishonest",), "median": (), "trimmed-mean": ("max_dishonest",)}


def test_rules_give_the_means_of_flowers() -> None:
    python = os.environ.get("FLOWER_PYTHON")
    if not python:
        pytest.skip("FLOWER_PYTHON names no interpreter with flwr (make test does)")
    every = list(cases())
    asked = [{"rows": rows.astype(np.float64).tolist(), "f": f} for _, rows, f in every]
    ran = subprocess.run(
        [python, str(Path(__file__).with_name("flower_rules.py"))],
        input=json.dumps(asked), capture_output=True, text=True, check=True,
    )  # fmt: skip
    for (name, rows, f), theirs in zip(every, json.loads(ran.stdout), strict=True):
        for rule, keys in RULES.items():
            ours = combined(robust_rule(RobustSection(rule=rule, **dict.fromkeys(keys, f))), list(rows)).mean
            scale = float(np.abs(rows).max())
            assert ours == pytest.approx(np.array(theirs[rule]), rel=1e-6, abs=1e-6 * scale), (name, rule)
