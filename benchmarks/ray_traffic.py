"""Traffic of a round between the nodes of a Ray cluster, against the model's size. Needs root.

    python -m benchmarks.ray_traffic [--nodes 3] [--hosts-per-node 2] [--participants 20] [--rounds 4] [--mbit-s RATE]

The model (4 bytes a parameter) should leave the head once for each other node, however many hosts and participants it
has, and one sum (8 bytes a parameter: fixed point) should come back from each: 1 model and 2. Bytes are those of the
interfaces, with Ethernet, IP and TCP headers (about 5 %) and all that Ray says on the way.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity.namespaces import Counters, Unavailable
from benchmarks.ray_nodes import RayStar

EXPERIMENT = """\
name: ray-traffic
seed: 7
rounds: {rounds}
population: {population}
workload: {{dataset: synthetic-femnist, model: femnist-cnn, samples_per_client: 4, evaluate_every: 1000}}
selection: {{protocol: random, participants: {participants}}}
aggregation: {{protocol: plain}}
time: {{compute: modelled, deadline_s: 100000}}
"""
IDLE_S = 3.0


@dataclass(frozen=True)
class Round:
    """Bytes that passed the nodes' interfaces in a round.

    Attributes:
        head_sent: by the head.
        head_received: by the head.
        node_received: `(nodes - 1,)` by each other node.
        node_sent: `(nodes - 1,)` by each other node.
        wall_s: wall-clock seconds.
    """

    head_sent: int
    head_received: int
    node_received: tuple[int, ...]
    node_sent: tuple[int, ...]
    wall_s: float

    @classmethod
    def between(cls, before: Sequence[Counters], after: Sequence[Counters], wall_s: float) -> "Round":
        """From the interfaces' counters, the head's first."""
        head, *others = (late.since(early) for late, early in zip(after, before, strict=True))
        received, sent = (tuple(getattr(node, name) for node in others) for name in ("received_bytes", "sent_bytes"))
        return cls(head.sent_bytes, head.received_bytes, received, sent, wall_s)

    @property
    def among_nodes(self) -> int:
        """Bytes that went from one node to another without touching the head."""
        return sum(self.node_sent) - self.head_received


def measure(star: RayStar, experiment: Path, hosts: int) -> tuple[list[Round], float]:
    """Return each round's traffic, and the traffic of the idle cluster at the head in bytes per second."""
    driver = star.driver(sys.executable, "-m", "benchmarks.ray_rounds", star.address, str(experiment), str(hosts))
    assert driver.stdin is not None
    assert driver.stdout is not None
    rounds: list[Round] = []
    before: list[Counters] = []
    began = 0.0
    while line := driver.stdout.readline():
        after, ended = star.traffic(), time.monotonic()
        said = json.loads(line)
        if (said["nodes"], said["coordinator"]) != (star.nodes, star.ip(0)):
            raise Unavailable(f"not {star.nodes} nodes with the coordinator on the head: {line.strip()}")
        if said["rounds"]:
            rounds.append(Round.between(before, after, ended - began))
        if said["last"]:
            break
        before, began = star.traffic(), time.monotonic()
        driver.stdin.write("\n")
        driver.stdin.flush()
    else:
        raise Unavailable(f"the run ended early: {driver.communicate()[1].strip()[-2000:]}")
    before = star.traffic()
    time.sleep(IDLE_S)
    idle = star.traffic()[0].since(before[0]).total_bytes / IDLE_S
    driver.communicate("\n")
    return rounds, idle


def model_bytes(experiment: Path) -> int:
    """Of the model as it travels, float32."""
    import workloads
    from testbed.experiment import load

    loaded = load(experiment)
    return 4 * workloads.build(loaded.workload, loaded.population, 7).dimension


def report(rounds: Sequence[Round], size: int, idle: float, setting: dict[str, Any]) -> str:
    """A Markdown table: megabytes, and how many models that is."""

    def cell(count: float) -> str:
        return f"{count / 1e6:.2f} ({count / size:.2f})"

    lines = [
        ", ".join(f"{name} {value}" for name, value in setting.items()),
        f"model: {size / 1e6:.2f} MB; idle cluster: {idle / 1e3:.1f} kB/s at the head",
        "",
        "MB a round (in models):",
        "",
        "| round | head sends | head receives | a node receives, most | a node sends, most | among nodes | wall s |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, one in enumerate(rounds, 1):
        counts = (one.head_sent, one.head_received, max(one.node_received), max(one.node_sent), one.among_nodes)
        lines.append(f"| {number} | {' | '.join(cell(count) for count in counts)} | {one.wall_s:.1f} |")
    steady = rounds[1:] or rounds
    sent = float(np.median([one.head_sent for one in steady]))
    received = float(np.median([one.head_received for one in steady]))
    others = len(rounds[0].node_sent)
    lines += ["", f"head to each other node: {sent / size / others:.2f} models; back: {received / size / others:.2f}"]
    return "\n".join(lines)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--hosts-per-node", type=int, default=2)
    parser.add_argument("--participants", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--mbit-s", type=float)
    given = parser.parse_args()
    if given.nodes < 2:
        parser.error("--nodes: at least 2")
    text = EXPERIMENT.format(rounds=given.rounds, population=2 * given.participants, participants=given.participants)
    with tempfile.TemporaryDirectory() as folder:
        experiment = Path(folder) / "experiment.yaml"
        experiment.write_text(text)
        try:
            with RayStar(given.nodes, given.mbit_s, given.hosts_per_node) as star:
                rounds, idle = measure(star, experiment, given.nodes * given.hosts_per_node)
        except Unavailable as error:
            sys.exit(str(error))
        print(report(rounds, model_bytes(experiment), idle, vars(given)))


if __name__ == "__main__":
    main()
