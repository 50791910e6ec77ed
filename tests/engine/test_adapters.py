"""Federations that fine-tune: adapters alone are sent, masked and summed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.engine.federations import Run
from tests.engine.test_clients_at_once import learned
from tests.engine.test_server_optimizers import PROTOCOLS, UNSTEADY
from tests.thoroughness import each_value

WORKLOAD: dict[str, Any] = {"dataset": "digits", "model": "mlp", "batch_size": 10}
ADAPTERS = {"adapters": {"rank": 4, "alpha": 8}}


@pytest.mark.parametrize(("together", "protocol"), each_value([1, 4], PROTOCOLS))
def test_resumed_on_other_hosts_it_is_the_run_in_one_go(run: Callable[..., Run], protocol: str, together: int) -> None:
    workload = WORKLOAD | ADAPTERS | {"clients_at_once": together}
    asked = UNSTEADY | {"rounds": 4, "workload": workload, "aggregation": PROTOCOLS[protocol]}
    whole = learned(run, asked, name="whole").rounds()
    learned(run, asked, name="stopped").rounds(2)
    resumed = learned(run, asked, name="stopped", resume=True, hosts=2).rounds()
    assert any(0 < len(outcome.survivors) < 14 for outcome in whole.outcomes)  # some have dropped out
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    assert whole.federation.state.model.shape == (whole.workload.dimension,)
    assert np.abs(whole.federation.state.model - whole.workload.initial_model()).max() > 1e-3


def test_bytes_are_those_of_the_adapters_and_time_is_that_of_the_model(run: Callable[..., Run]) -> None:
    aggregation = {"protocol": "secagg", "threshold": 0.6, "bits": 32}
    runs = [
        learned(run, {"workload": WORKLOAD | more, "aggregation": aggregation}, name=f"run-{bool(more)}").rounds(1)
        for more in ({}, ADAPTERS)
    ]
    whole, fine = ({stage.stage: stage for stage in one.exchanges[0]} for one in runs)
    sizes = [one.workload.dimension for one in runs]
    assert sizes[1] < sizes[0] / 3
    for stages, size in zip((whole, fine), sizes, strict=True):
        assert 4 * size < stages["train"].bytes_down.max() < 4 * size + 40
        assert 4 * (size + 1) < stages["secagg/masked-input"].bytes_up.max() < 4 * (size + 1) + 40
    share = np.nanmax(fine["train"].compute_s) / np.nanmax(whole["train"].compute_s)
    assert share == pytest.approx((sizes[1] + 2 / 3 * sizes[0]) / sizes[0], rel=0.01)
