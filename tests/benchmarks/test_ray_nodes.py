"""A Ray cluster of network namespaces gives the result of one process, also when a node dies (root only)."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import workloads
from benchmarks.fidelity.namespaces import Unavailable, check_available
from benchmarks.ray_nodes import RayStar
from testbed.engine.in_process import run_in_process
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory, RunRecords

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]
EXPERIMENT = """\
name: over-nodes
seed: 5
rounds: 4
population: 12
workload: {dataset: digits, model: logistic}
selection: {protocol: lotto-client-centric, participants: 5, over_selection: 2}
aggregation: {protocol: secagg, threshold: 0.6}
availability: {dropout: {rate: 0.15}}
time: {compute: modelled, deadline_s: 5}
"""
# A head that looks after its nodes often notices soon that one has gone.
WATCHFUL = {
    "RAY_health_check_initial_delay_ms": "2000", "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "4000", "RAY_health_check_failure_threshold": "3",
}  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes") / "experiment.yaml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module")
def reference(file: Path) -> RunRecords:
    """The same experiment in this process."""
    import yaml

    experiment = Experiment.model_validate(yaml.safe_load(file.read_text()))
    path = file.with_name("reference")
    records = RunDirectory.create(path, experiment.plain())
    workload = workloads.build(experiment.workload, experiment.population, 5)
    run_in_process(experiment, workload, 0, records, lambda progress: None)
    records.finish()
    return RunRecords(path)


@pytest.fixture
def star() -> Iterator[RayStar]:
    """Three nodes of one CPU; nothing of them is left afterwards."""
    try:
        check_available()
    except Unavailable as error:
        pytest.skip(str(error))
    with RayStar(3, None, 1, WATCHFUL) as nodes:
        own = {process for node in range(nodes.nodes) for process in nodes.processes(node)}
        assert len(own) >= 3 * nodes.nodes
        yield nodes
        own |= {process for node in range(nodes.nodes) for process in nodes.processes(node)}
        folder = nodes.folder
    assert [process for process in own if lives(process)] == []
    assert not folder.exists()


def lives(process: int) -> bool:
    """Whether it runs; one that has ended may wait for its parent for a while."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def assert_same(path: Path, reference: RunRecords) -> None:
    """Tables and model, bit for bit."""
    records = RunRecords(path)
    for table in ("rounds", "exchanges", "participation"):
        assert records.frame(table).equals(reference.frame(table)), table
    assert records.model is not None
    assert reference.model is not None
    assert records.model.tobytes() == reference.model.tobytes()
    assert (reference.rounds["outcome"] == "completed").any()


def test_three_nodes_give_what_one_process_gives(
    star: RayStar, file: Path, reference: RunRecords, tmp_path: Path
) -> None:
    before = star.traffic()
    out, command = tmp_path / "run", (sys.executable, "-m", "testbed", "run", str(file), "--quiet", "--hosts", "3")
    star.run(*command, "--address", star.address, "--out", str(out), timeout_s=200)
    assert_same(out, reference)
    crossed = [late.since(early) for late, early in zip(star.traffic(), before, strict=True)]
    rounds = reference.rounds
    for node in crossed[1:]:  # each has a third of the clients
        assert node.received_bytes > rounds["bytes_down"].sum() / 10


@pytest.mark.parametrize("accident", [RayStar.kill, RayStar.cut], ids=["power", "network"])
def test_a_node_that_goes_in_the_middle_changes_nothing(
    star: RayStar, file: Path, reference: RunRecords, tmp_path: Path, accident: Callable[[RayStar, int], None]
) -> None:
    out = tmp_path / "run"
    driver = star.driver(sys.executable, "-m", "benchmarks.ray_rounds", star.address, str(file), "3", str(out))
    assert driver.stdin is not None
    assert driver.stdout is not None
    while line := driver.stdout.readline():
        said = json.loads(line)
        assert said["nodes"] == 3
        if said["rounds"] == 2:
            accident(star, 2)
        driver.stdin.write("\n")
        driver.stdin.flush()
        if said["last"]:
            break
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 0, errors[-2000:]
    assert_same(out, reference)
    restarts = RunRecords(out).events.query("kind == 'restart'")
    assert set(restarts["round"]) == {3}  # more than one when the node is not yet known to be gone
    assert set(restarts["party"])
