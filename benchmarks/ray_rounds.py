"""Runs an experiment on a Ray cluster round by round, each when told to: to count or break things in between.

    python -m benchmarks.ray_rounds HEAD:6379 EXPERIMENT.yaml HOSTS [DIRECTORY]

Prints a line of JSON when the clients are ready and after each round, and reads a line of standard input before it goes
on. Nothing happens on the cluster meanwhile.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import ray

from cluster.hosts.session import RaySession
from testbed.experiment import load
from testbed.records import RunDirectory


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    address, file, hosts = arguments[:3]
    experiment = load(Path(file))
    directory = None
    if len(arguments) > 3:
        directory = str(RunDirectory.create(Path(arguments[3]), experiment.plain()).path.resolve())
    with RaySession(address, int(hosts)) as session:
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        said = {
            "nodes": len({place.node_id for place in session.places}),
            "coordinator": addresses[ray.get_runtime_context().get_node_id()],
        }
        finished = ray.get(session.coordinator.prepare.remote(experiment, 0, directory))
        done = 0
        while True:
            print(json.dumps(said | {"rounds": done, "last": finished}), flush=True)
            if not sys.stdin.readline() or finished:
                break
            finished = ray.get(session.coordinator.run_next_round.remote())
            done += 1
        ray.get(session.coordinator.finish.remote())


if __name__ == "__main__":
    main(sys.argv[1:])
