"""Runs `flower_app` in Flower's simulation engine, in its own environment, and prints the seconds of each round.

PEERS_TASK=benchmarks.peers.digits PEERS_ROUNDS=6 FLOWER_PYTHON -m benchmarks.peers.flower_rounds
"""

import json
import os
import time
from itertools import pairwise
from typing import Any

import flwr
import ray
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import flower_app


def main() -> None:
    """Prints one line of JSON: the versions, and seconds from the start of each round to that of the next."""
    starts: list[float] = []
    configure = FedAvg.configure_train

    def noted(*arguments: Any, **keywords: Any) -> Any:
        starts.append(time.perf_counter())
        return configure(*arguments, **keywords)

    FedAvg.configure_train = noted
    run_simulation(
        server_app=flower_app.server_app,
        client_app=flower_app.client_app,
        num_supernodes=100,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    assert len(starts) == int(os.environ["PEERS_ROUNDS"])
    rounds = [after - before for before, after in pairwise(starts)]
    print(json.dumps({"flwr": flwr.__version__, "ray": ray.__version__, "rounds_s": rounds}))


if __name__ == "__main__":
    main()
