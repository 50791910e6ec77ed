"""Federations of clients that send compressed updates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.attacks.reconstruction import reconstruct
from testbed.aggregation.kit.compression import coordinates
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.records import RunRecords

UNSTEADY = {
    "selection": {"participants": 14},
    "availability": {"dropout": {"rate": 0.2, "stage": "random"}},
    "rounds": 4,
}
SECAGG_PLUS = {"protocol": "secagg-plus", "neighbours": 8, "threshold": 6, "dropouts": 0.3, "accept_weaker": True}
CASES: dict[str, dict[str, Any]] = {
    "top-k": {"protocol": "plain", "compression": {"name": "top-k", "share": 0.05}},
    "quantise": {"protocol": "plain", "compression": {"name": "quantise", "bits": 6}},
    "random-k": {"protocol": "plain", "compression": {"name": "random-k", "share": 0.25}},
    "random-k, secagg": {"protocol": "secagg", "threshold": 0.6, "compression": {"name": "random-k", "share": 0.25}},
    "random-k, secagg-plus": SECAGG_PLUS | {"compression": {"name": "random-k", "share": 0.25}},
}


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(run: Callable, case: str) -> None:
    asked = UNSTEADY | {"aggregation": CASES[case]}
    whole = run(asked, "whole").rounds()
    assert len({len(outcome.survivors) for outcome in whole.outcomes}) > 1  # some have dropped out
    run(asked, "stopped").rounds(2)
    resumed = run(asked, "stopped", resume=True, hosts=3).rounds()
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    assert resumed.rows("rounds")[-1]["bytes_up"] == whole.rows("rounds")[-1]["bytes_up"]


def test_other_coordinates_move_in_each_round(run: Callable) -> None:
    one = run({"aggregation": CASES["random-k, secagg"]}, "run")
    model = one.workload.initial_model()
    d, experiment = len(model), one.federation.plan.experiment_id
    for number in (1, 2, 3):
        one.rounds(1)
        after = one.federation.state.model
        moved = np.flatnonzero(after != model)
        assert set(moved) <= set(coordinates(experiment, number, d, -(-d // 4)).tolist())
        assert len(moved) > d // 8
        model = after


def test_an_attack_that_is_measured_against_whole_updates(run: Callable, tmp_path: Path) -> None:
    run({"aggregation": CASES["random-k"], "records": {"aggregates": "all"}}, "run").rounds(2)
    with pytest.raises(ExperimentError, match=r"updates were compressed .aggregation\.compression., and attacks are"):
        reconstruct(RunRecords(tmp_path / "run"), 1, 2)


@pytest.mark.parametrize(
    ("aggregation", "message"),
    [
        (
            {"protocol": "secagg", "compression": {"name": "top-k", "share": 0.1}},
            "top-k: each client would send other coordinates",
        ),
        ({"protocol": "secagg-plus", "compression": {"name": "quantise", "bits": 8}}, "set levels_bits and bits"),
        ({"protocol": "plain", "compression": {"name": "top-k"}}, "share: is required for top-k"),
    ],
)
def test_impossible_settings_give_one_error_line(aggregation: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated({"aggregation": aggregation}, "mine.yaml")
    assert message in str(error.value)
    assert str(error.value).startswith("mine.yaml: aggregation")
    assert "\n" not in str(error.value)
