"""Federations that sum by PINE: the model, the bytes, bound reports."""

from collections.abc import Callable
from typing import Any

import numpy as np

from testbed.aggregation.pine.parameters import PineParameters

KEYS: dict[str, Any] = {
    "selection": {"participants": 10},
    "aggregation": {"protocol": "pine", "helper": 3, "norm_bound": 20.0},
    "availability": {"dropout": {"rate": 0.1, "stage": "random"}},
    "rounds": 4,
}


def test_the_model_is_nearly_that_of_plain_sums(run: Callable) -> None:
    given = {**KEYS, "availability": {}}
    two = run(given, "two").rounds(2)
    plain = run({**given, "aggregation": {"protocol": "plain", "weights": "equal"}}, "plain").rounds(2)
    difference = np.abs(two.federation.state.model - plain.federation.state.model).max()
    assert 0 < difference < 2**-18


def test_the_helpers_bytes_are_recorded(run: Callable) -> None:
    done = run({**KEYS, "availability": {}}, "recorded").rounds(1)
    rows = [row for row in done.rows("exchanges") if row["stage"].startswith("pine/")]
    helpers = {row["stage"]: row for row in rows if row["client"] == 3 and row["stage"] != "pine/report"}
    assert helpers.keys() == {"pine/verify-key", "pine/prepare", "pine/aggregate-share"}
    vdaf = PineParameters(norm_bound=20.0).vdaf(done.workload.dimension)
    assert helpers["pine/prepare"]["bytes_down"] > 10 * vdaf.prepare_bytes
    assert helpers["pine/aggregate-share"]["bytes_up"] > 8 * vdaf.dimension
    reports = [row["bytes_up"] for row in rows if row["stage"] == "pine/report"]
    assert len(reports) == 10
    assert all(vdaf.leader_bytes < sent < vdaf.leader_bytes + 400 for sent in reports)


def test_another_model_for_one_client_is_left_out(run: Callable) -> None:
    """The client's report is bound to its training question: the helper cannot open it with the others."""
    adversary = {"dishonest": 0, "server": ["send-different-models"]}
    given = {**KEYS, "availability": {}, "adversary": adversary}
    done = run(given, "bound").rounds(1)
    assert [outcome.state for outcome in done.outcomes] == ["aborted"]
    rejected = [row for row in done.rows("events") if row["kind"] == "misbehaviour"]
    assert {row["detail"].partition(":")[0] for row in rejected} == {"pine.invalid-share"}
