"""`testbed cluster check`: messages for nodes that differ, or lack room or files; and a check of two real nodes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.cluster_utils import Cluster

from cluster.check import CheckResult, Demand, capacity, clocks, inputs, processors, reachable, same_versions, writable
from cluster.probe import NodeFacts
from testbed.experiment.schema import Experiment

VERSIONS: dict[str, str | None] = {"python": "3.11.7", "testbed": "0.1.0", "ray": "2", "torch": "2", "numpy": "2"}
NODE = NodeFacts("a" * 8, "10.0.0.1", 4.0, 0.0, 10**9, 16 * 10**9, VERSIONS, "abc", "fast")
OTHER = replace(NODE, node_id="b" * 8, address="10.0.0.2")


def levels(findings: Iterable[CheckResult]) -> list[tuple[str, str]]:
    """The level of each finding, and where it was."""
    found = list(findings)
    assert all(bool(finding.advice) == (finding.level != "ok") for finding in found)  # advice exactly if not ok
    return [(finding.level, finding.where) for finding in found]


def experiment(**changes: Any) -> Experiment:
    """1,000 clients, 100 participants."""
    return Experiment.model_validate({"population": 1000, "selection": {"participants": 100}} | changes)


def test_nodes_that_do_not_answer_and_nodes_that_left() -> None:
    silent = replace(OTHER, failure="no answer within 60 s")
    assert levels(reachable([NODE, OTHER], 0)) == [("ok", "cluster")]
    assert levels(reachable([NODE, silent], 2)) == [("ok", "cluster"), ("fail", "10.0.0.2"), ("warn", "cluster")]
    assert levels(reachable([silent], 0)) == [("fail", "10.0.0.2")]


@pytest.mark.parametrize(
    ("package", "version", "level"),
    [
        ("ray", "3", "fail"),
        ("python", "3.12.1", "fail"),
        ("testbed", None, "fail"),
        ("torch", "3", "warn"),
        ("torch", None, "fail"),
    ],
)
def test_other_versions(package: str, version: str | None, level: str) -> None:
    differing = replace(OTHER, versions=VERSIONS | {package: version})
    assert levels(same_versions([NODE, differing], NODE)) == [(level, "10.0.0.2")]
    assert levels(same_versions([NODE, OTHER], NODE)) == [("ok", "all nodes")]


def test_another_build_of_the_same_version() -> None:
    [finding] = same_versions([NODE, replace(OTHER, code="def")], NODE)
    assert finding.level == "fail"
    assert "other code" in finding.detail


def test_clocks_count_their_error() -> None:
    assert clocks([NODE]).level == "ok"
    assert clocks([NODE, replace(OTHER, clock_ahead_s=-3.0)]).level == "warn"
    assert clocks([NODE, replace(OTHER, clock_ahead_s=3.0, clock_error_s=2.5)]).level == "ok"  # it may be half a second


def test_processors_matter_to_measured_compute_alone() -> None:
    nodes = [NODE, replace(OTHER, processor="slow")]
    measured, modelled = (experiment(time={"compute": compute}) for compute in ("measured", "modelled"))
    assert levels(processors(nodes, [modelled, measured])) == [("warn", "all nodes")]
    assert levels(processors(nodes, [modelled])) == []


def of(check: str, findings: Iterable[CheckResult]) -> list[tuple[str, str]]:
    """The levels of one check."""
    return levels(finding for finding in findings if finding.check == check)


def test_memory_per_node_is_that_of_its_hosts() -> None:
    small = replace(OTHER, memory_bytes=2 * 10**9)
    demand = Demand(experiment(), dimension=1000, data_bytes=0)
    assert of("memory", capacity([NODE, small], [demand])) == [("ok", "10.0.0.1"), ("fail", "10.0.0.2")]  # 4 hosts each
    two = Demand(experiment(cluster={"hosts": 2}), dimension=1000, data_bytes=0)
    assert of("memory", capacity([NODE, small], [two])) == [("ok", "10.0.0.1"), ("ok", "10.0.0.2")]
    data = Demand(experiment(cluster={"hosts": 2}), dimension=1000, data_bytes=3 * 10**9)
    assert of("memory", capacity([NODE, small], [data])) == [("ok", "10.0.0.1"), ("fail", "10.0.0.2")]


def test_memory_grows_with_clients_participants_and_the_model() -> None:
    demand = Demand(experiment(), dimension=1000, data_bytes=0)
    assert demand.host_bytes(1) - demand.host_bytes(2) == 500 * 2048  # as many participants may be on either
    assert demand.host_bytes(50) - demand.host_bytes(100) == 10 * (2048 + 3 * 4 * 1000)
    assert replace(demand, dimension=2000).host_bytes(1) - demand.host_bytes(1) == 100 * 3 * 4 * 1000


def test_the_point_that_asks_for_most_decides() -> None:
    demands = [Demand(experiment(), dimension, 0) for dimension in (1000, 10**8, 1000)]
    for order in (demands, demands[1:], demands[:2]):
        assert of("memory", capacity([NODE], order)) == [("fail", "10.0.0.1")]
    assert of("memory", capacity([NODE], demands[:1])) == [("ok", "10.0.0.1")]


def test_more_hosts_than_cpus_is_a_warning() -> None:
    crowded = Demand(experiment(cluster={"hosts": 5}), 1000, 0)
    assert of("cpus", capacity([NODE], [crowded])) == [("warn", "cluster")]
    assert of("cpus", capacity([NODE, OTHER], [crowded])) == [("ok", "cluster")]


def test_gpus_fit_the_hosts_somewhere() -> None:
    demand = Demand(experiment(cluster={"hosts": 4, "gpus_per_host": 0.5}), 1000, 0)
    assert of("gpus", capacity([replace(NODE, gpus=1.0), OTHER], [demand])) == [("fail", "cluster")]
    assert len(of("memory", capacity([replace(NODE, gpus=1.0), OTHER], [demand]))) == 2
    assert of("gpus", capacity([replace(NODE, gpus=2.0), OTHER], [demand])) == []
    assert of("gpus", capacity([replace(NODE, gpus=1.0), replace(OTHER, gpus=1.0)], [demand])) == []


def test_a_small_object_store() -> None:
    demand = Demand(experiment(), dimension=10**6, data_bytes=0)
    small = replace(OTHER, object_store_bytes=10**7)
    assert of("object store", capacity([NODE, small], [demand])) == [("ok", "10.0.0.1"), ("warn", "10.0.0.2")]


def test_files_that_are_missing_or_others() -> None:
    here = {"/data/a": "1", "/data/b": "2"}
    nodes = [NODE, OTHER]
    same = {node.node_id: ("", dict(here)) for node in nodes}
    assert levels(inputs(nodes, here, same)) == [("ok", "all nodes")]
    assert levels(inputs(nodes, here, same | {OTHER.node_id: ("", {"/data/a": "1", "/data/b": "3"})})) == [
        ("fail", "10.0.0.2")
    ]
    assert levels(inputs(nodes, here, same | {OTHER.node_id: ("", {})})) == [("fail", "10.0.0.2")] * 2
    assert levels(inputs(nodes, here, same | {NODE.node_id: ("no module named mine", {})})) == [("fail", "10.0.0.1")]


def test_output(tmp_path: Path) -> None:
    assert writable(str(tmp_path / "new" / "run")).level == "ok"
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    assert writable(str(tmp_path / "file" / "run")).level == "fail"
    assert writable(f"file://{tmp_path}/remote").level == "ok"
    assert list((tmp_path / "remote").iterdir()) == []
    assert writable("no-such-scheme://bucket/run").level == "fail"


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a cluster of two raylets, and the environment of a process that joins it."""
    before = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"  # ignore a token in this user's home
    try:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        cluster.add_node(num_cpus=1)
        yield cluster.address, dict(os.environ)
        cluster.shutdown()
    finally:
        if before is None:
            del os.environ["RAY_AUTH_MODE"]
        else:
            os.environ["RAY_AUTH_MODE"] = before


@pytest.mark.ray
def test_two_real_nodes(two_nodes: tuple[str, dict[str, str]], tmp_path: Path) -> None:
    address, environment = two_nodes
    data = {"name": "tiny", "seed": 4, "rounds": 2, "population": 12, "selection": {"participants": 4}}
    fits = tmp_path / "fits.yaml"
    fits.write_text(yaml.safe_dump(data | {"workload": {"dataset": "digits", "model": "logistic"}}))
    misfit = tmp_path / "misfit.yaml"
    misfit.write_text(yaml.safe_dump(data | {"workload": {"dataset": "mnist", "path": str(tmp_path / "nowhere")}}))

    def check(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "testbed", "cluster", "check", *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)

    done = check(fits, "--address", address, "--out", tmp_path / "run", "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["fits"]
    looked_at = {finding["check"] for finding in report["findings"]}
    assert looked_at == {"nodes", "versions", "clocks", "cpus", "memory", "object store", "data", "output"}
    assert {finding["level"] for finding in report["findings"]} == {"ok"}
    assert report["findings"][0]["detail"] == "2 nodes, 3 CPUs, 0 GPUs"
    assert len({finding["where"] for finding in report["findings"] if finding["check"] == "memory"}) == 2

    done = check(misfit, "--address", address, "--out", "/proc/run")
    assert done.returncode == 3
    failing = [line for line in done.stdout.splitlines() if line.startswith("fail")]
    assert [line.split()[1] for line in failing] == ["experiment", "output"]
    assert str(tmp_path / "nowhere") in failing[0]
    assert done.stdout.count("->") == 2


@pytest.mark.ray
def test_no_cluster_is_one_line() -> None:
    command = [sys.executable, "-m", "testbed", "cluster", "check", "--address", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "127.0.0.1:1" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
