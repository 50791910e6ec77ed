"""Connections, windows and loss in whole runs: the same on more hosts, and after a resume."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.test_same_results import experiment_with, result

LINKS = {
    "down_mbit_s": [44, 8, 2],
    "up_mbit_s": [10, 2],
    "latency_ms": [20, 80, 150],
    "transport": {"preset": "tls", "connection": "persistent"},
    "loss": [0.0, 0.01, 0.05],
    "loss_burst_packets": 2,
    "buffer_ms": 200,
}


@pytest.mark.parametrize("protocol", ["random", "lotto-client-centric"])
def test_the_same_on_more_hosts_and_after_a_resume(protocol: str, run: Callable[..., Any]) -> None:
    keys = experiment_with(protocol, links=LINKS)
    whole = run(keys, "whole").rounds()
    spread = run(keys, "spread", hosts=3).rounds()
    run(keys, "stopped").rounds(2)
    resumed = run(keys, "stopped", resume=True, hosts=2).rounds()
    assert result(whole) == result(spread) == result(resumed)


def test_loss_depends_on_the_seed_alone(run: Callable[..., Any]) -> None:
    def loads(name: str, seed: int) -> list[int]:
        links = LINKS | {"down_mbit_s": 8, "up_mbit_s": 8, "latency_ms": 50, "loss": 0.1}
        keys = experiment_with("random", rounds=2, seed=seed, links=links, selection={"participants": 30})
        return [row["transport_down"] for row in run(keys, name).rounds().rows("exchanges")]

    assert loads("one", 1) == loads("again", 1) != loads("other", 2)
