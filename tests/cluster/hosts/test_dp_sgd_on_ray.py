"""DP-SGD on real Ray actors: the same bytes whatever the number of hosts."""

from pathlib import Path

import pytest

from benchmarks.faults import undisturbed
from cluster.hosts.session import RaySession
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]
OTHERS = [("untrusted", 1), ("trusted", 1), ("trusted", 3)]


@pytest.mark.parametrize(
    ("server", "hosts"), [("untrusted", 3), *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)]
)
def test_one_and_three_hosts_give_what_one_process_gives(server: str, hosts: int, tmp_path: Path) -> None:
    experiment = Experiment.model_validate(
        {
            "name": "dp-sgd-on-ray", "seed": 5, "rounds": 4, "population": 12,
            "workload": {"dataset": "digits", "model": "cnn", "test_samples": 50},
            "selection": {"protocol": "bernoulli", "client_rate": 0.4},
            "aggregation": {
                "protocol": "dp-sgd-random-participation", "sample_rate": 0.3, "clip": 1.0, "sigma": 1.0,
                "server": server, "momentum": 0.9,
            },
            "availability": {"dropout": {"rate": 0.15}},
            "time": {"compute": "modelled", "deadline_s": 5},
        }
    )  # fmt: skip
    reference = undisturbed(experiment, tmp_path / "reference")
    assert (reference.rounds["outcome"] == "completed").all()
    path = tmp_path / str(hosts)
    RunDirectory.create(path, experiment.plain())
    with RaySession(None, hosts) as session:
        session.run(experiment, 0, path, lambda progress: None)
    run = RunRecords(path)
    for table in ("rounds", "exchanges", "participation"):
        assert run.frame(table).equals(reference.frame(table)), table
    assert run.model is not None
    assert reference.model is not None
    assert run.model.tobytes() == reference.model.tobytes()
