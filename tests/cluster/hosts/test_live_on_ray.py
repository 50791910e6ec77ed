"""Live mode on real Ray actors: the clients of several processes, over TCP; a host that dies comes back.

That its results are those of the virtual clock: test_same_on_ray.py.
"""

import os
import signal
from pathlib import Path

import pytest
import ray

from cluster.hosts.session import RaySession
from testbed.engine.federation import RunProgress
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]


def described() -> Experiment:
    return Experiment.model_validate(
        {
            "name": "live-on-ray", "seed": 5, "rounds": 4, "population": 12,
            "workload": {"dataset": "benchmarks.breaking:Means"},
            "selection": {"protocol": "random", "participants": 5},
            "aggregation": {"protocol": "secagg", "threshold": 0.6},
            "links": {"latency_ms": 5},
            "time": {"compute": "modelled", "deadline_s": 30, "clock": "wall", "disconnects": "visible"},
        }
    )  # fmt: skip


def test_a_host_that_dies_takes_its_clients_along_and_both_are_back_in_the_next_round(tmp_path: Path) -> None:
    live = described()
    RunDirectory.create(tmp_path / "run", live.plain())
    killed: list[int] = []
    with RaySession(None, 3) as session:

        def kill_one(progress: RunProgress) -> None:
            if not killed and progress.round_number == 2:
                killed.append(ray.get(session.coordinator.host_processes.remote())[1])
                os.kill(killed[0], signal.SIGKILL)

        session.run(live, 0, tmp_path / "run", kill_one)
    run = RunRecords(tmp_path / "run")
    assert killed
    assert len(run.rounds) == 4
    assert run.rounds["outcome"].iloc[-1] == "completed"
    events = run.frame("events")
    assert "host:1" in events[events["kind"] == "restart"]["party"].tolist()
    last = run.frame("exchanges").query("round == 4")
    assert (last["outcome"] == "answered").all()
