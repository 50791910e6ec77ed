"""Facts of each node of a cluster, collected by a small actor per node, which works without the testbed there.

The actor's class travels by value, so that a node without the testbed can still report that it is missing.
"""

import importlib.metadata
import importlib.util
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from testbed.errors import reason
from testbed.experiment.schema import Experiment

ANSWER_TIMEOUT_S = 60.0
_CLOCK_QUESTIONS = 7
PACKAGES = ("testbed", "ray", "torch", "numpy")


@dataclass(frozen=True)
class NodeFacts:
    """Facts of a node.

    Attributes:
        node_id: Ray's id of the node.
        address: its IP address, followed by the beginning of the id if several nodes share the address.
        cpus: CPUs that Ray may use.
        gpus: GPUs that Ray may use.
        object_store_bytes: capacity of its object store.
        memory_bytes: free memory, within the container's limit.
        versions: versions of Python and `PACKAGES`; None for a missing package.
        code: digest of the installed testbed's source; empty if it is missing.
        processor: the processor's name.
        clock_ahead_s: seconds by which its clock is ahead of this process's.
        clock_error_s: largest error of `clock_ahead_s`, in seconds.
        failure: the reason if the node did not answer, or empty; with a failure, the measured facts are missing.
    """

    node_id: str
    address: str
    cpus: float
    gpus: float
    object_store_bytes: int
    memory_bytes: int = 0
    versions: dict[str, str | None] = field(default_factory=dict)
    code: str = ""
    processor: str = ""
    clock_ahead_s: float = 0.0
    clock_error_s: float = 0.0
    failure: str = ""


class Probe:
    """Ray actor on one node; methods import packages on use, so that a missing one is an answer, not a crash."""

    def facts(self, packages: Sequence[str]) -> dict[str, Any]:
        """Return versions, source digest, processor and free memory: fields of `NodeFacts`."""
        import psutil

        versions: dict[str, str | None] = {"python": platform.python_version()}
        for package in packages:
            try:
                if package == "testbed":  # which may run from a checkout, too
                    import testbed

                    versions[package] = testbed.__version__
                else:
                    versions[package] = importlib.metadata.version(package)
            except (ImportError, importlib.metadata.PackageNotFoundError):
                versions[package] = None
        processor = platform.machine()
        try:
            lines = Path("/proc/cpuinfo").read_text().splitlines()
            processor = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        except (OSError, StopIteration):
            pass  # not Linux, or a processor without a name
        memory = psutil.virtual_memory().available
        group = Path("/sys/fs/cgroup")
        for limit, used in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
            folder = group if limit == "max" else group / "memory"
            try:  # a container's own limit (cgroup version 2, 1)
                most, taken = ((folder / f"memory.{name}").read_text() for name in (limit, used))
                memory = min(memory, int(most) - int(taken))
            except (OSError, ValueError):
                continue  # no such limit
        return {"versions": versions, "code": self._code(), "processor": processor, "memory_bytes": max(0, memory)}

    def _code(self) -> str:
        import hashlib

        digest = hashlib.sha256()
        for package in ("testbed", "cluster", "workloads"):
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                return ""
            root = Path(next(iter(spec.submodule_search_locations)))
            for file in sorted(root.rglob("*.py")):
                digest.update(f"{package}/{file.relative_to(root)}\0".encode() + file.read_bytes())
        return digest.hexdigest()[:12]

    def now_s(self) -> float:
        """Return this node's clock in seconds."""
        return time.time()

    def check_experiments(self, experiments: Sequence[Any]) -> tuple[str, dict[str, str]]:
        """Return the problem with the experiments' classes here (or ""), and digests of their files and modules."""
        from importlib import import_module

        from testbed.engine.plan import RunPlan
        from testbed.errors import TestbedError
        from testbed.experiment.inputs import digests, plugin_classes
        from testbed.plugins import sources

        files: dict[str, str] = {}
        try:
            for experiment in experiments:
                RunPlan(experiment, 0)
                for _, name in experiment.workload.own:
                    import_module(name.partition(":")[0])
                files |= digests(experiment)
                files |= sources.digests(name for _, name in plugin_classes(experiment))
        except (TestbedError, ImportError) as error:
            return str(error), files
        return "", files


def start_probes() -> tuple[list[NodeFacts], dict[str, Any]]:
    """Ask every living node of the cluster that this process is connected to.

    Returns:
        The nodes' facts, in the order of addresses, and the probes of the nodes that have answered, by node id; the
        probes end with `ray.kill` or with this process.
    """
    # By value: nodes without the testbed could not import the class.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        probe_class: Any = ray.remote(Probe)  # Ray's types know `.remote` only of methods that it has marked
        rows = [row for row in ray.nodes() if row["Alive"]]
        probes = {row["NodeID"]: probe_class.options(**_placed_on(row["NodeID"])).remote() for row in rows}
        references = {node: probe.facts.remote(PACKAGES) for node, probe in probes.items()}
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    ray.wait(list(references.values()), num_returns=len(references), timeout=ANSWER_TIMEOUT_S)
    nodes = []
    nodes_at = Counter(row["NodeManagerAddress"] for row in rows)
    for row in rows:
        node, resources, address = row["NodeID"], row["Resources"], row["NodeManagerAddress"]
        basics: dict[str, Any] = {
            "node_id": node,
            "address": address if nodes_at[address] == 1 else f"{address}/{node[:6]}",
            "cpus": resources.get("CPU", 0.0),
            "gpus": resources.get("GPU", 0.0),
            "object_store_bytes": int(resources.get("object_store_memory", 0)),
        }
        try:
            # `ray.wait` has waited for all of them; the rest does not answer.
            answer = ray.get(references[node], timeout=0.1)
            ahead, error = _clock(probes[node])
            nodes.append(NodeFacts(**basics, **answer, clock_ahead_s=ahead, clock_error_s=error))
        except (RayError, TimeoutError) as failure:
            nodes.append(NodeFacts(**basics, failure=_failure_text(failure)))
            ray.kill(probes.pop(node), no_restart=True)
    return sorted(nodes, key=lambda facts: (facts.address, facts.node_id)), probes


def check_inputs_on(probes: dict[str, Any], experiments: Sequence[Experiment]) -> dict[str, tuple[str, dict[str, str]]]:
    """Return, for each probed node, the problem with the experiments there (or ""), and the digests of their files.

    Args:
        probes: probes of nodes that have the testbed, by node id.
        experiments: points without sweeps, with absolute paths (see `testbed.experiment.inputs.located`).
    """
    references = {node: probe.check_experiments.remote(list(experiments)) for node, probe in probes.items()}
    answers: dict[str, tuple[str, dict[str, str]]] = {}
    for node, reference in references.items():
        try:
            answers[node] = ray.get(reference, timeout=10 * ANSWER_TIMEOUT_S)  # it reads all the data
        except (RayError, TimeoutError) as failure:
            answers[node] = (_failure_text(failure), {})
    return answers


def facts_here() -> NodeFacts:
    """Return the same facts of this process, for comparison with the nodes; its resources are not those of a node."""
    return NodeFacts("", "here", 0.0, 0.0, 0, **Probe().facts(PACKAGES))


def _placed_on(node_id: str) -> dict[str, Any]:
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


def _clock(probe: Any) -> tuple[float, float]:
    """Return the lead of the node's clock, and a bound of its error, in seconds.

    Source:
        Cristian 1989: the question with the shortest round trip.
    """
    best = (float("inf"), 0.0)
    for _ in range(_CLOCK_QUESTIONS):
        sent_s = time.time()
        node_s = ray.get(probe.now_s.remote(), timeout=ANSWER_TIMEOUT_S)
        received_s = time.time()
        # The shortest round trip bounds the error best: half of it, in either direction.
        best = min(best, (received_s - sent_s, node_s - (sent_s + received_s) / 2))
    return best[1], best[0] / 2


def _failure_text(failure: Exception) -> str:
    if isinstance(failure, TimeoutError):
        return f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
    return f"{type(failure).__name__}: {reason(failure)}"
