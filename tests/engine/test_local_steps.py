"""Federations with FedProx, a schedule of the learning rate and a server optimizer, all at once."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.federations import Run
from tests.engine.test_clients_at_once import learned
from tests.engine.test_server_optimizers import PROTOCOLS, UNSTEADY
from tests.thoroughness import each_value

WORKLOAD = {
    "dataset": "digits",
    "model": "logistic",
    "partition": {"scheme": "label-shards"},
    "proximal": 0.3,
    "learning_rate_schedule": {"rounds": 6, "warm_up_rounds": 2},
}


def keys(protocol: str, **workload: Any) -> dict[str, Any]:
    optimizer = {"server_optimizer": {"name": "adam"}}
    return UNSTEADY | {"workload": WORKLOAD | workload, "aggregation": PROTOCOLS[protocol] | optimizer}


@pytest.mark.parametrize(("together", "protocol"), each_value([1, 4], PROTOCOLS))
def test_resumed_on_other_hosts_it_is_the_run_in_one_go(run: Callable[..., Run], protocol: str, together: int) -> None:
    asked = keys(protocol, clients_at_once=together)
    whole = learned(run, asked, name="whole").rounds()
    learned(run, asked, name="stopped").rounds(3)
    resumed = learned(run, asked, name="stopped", resume=True, hosts=2).rounds()
    assert any(0 < len(outcome.survivors) < 14 for outcome in whole.outcomes)  # some have dropped out
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    assert resumed.rows("exchanges") == whole.rows("exchanges")


@pytest.mark.parametrize(("key", "without"), [("proximal", 0.0), ("learning_rate_schedule", None)])
def test_each_setting_changes_the_updates(run: Callable[..., Run], key: str, without: Any) -> None:
    models = {
        learned(run, keys("plain", **more), name=f"run-{number}").rounds(2).federation.state.model.tobytes()
        for number, more in enumerate(({}, {key: without}))
    }
    assert len(models) == 2
