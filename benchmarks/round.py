"""Real rounds on Ray (plain aggregation) against a bare torch loop doing the same local training on the same cores.

    python -m benchmarks.round --population 700 --participants 70 --samples 225
    python -m benchmarks.round --population 700 --participants 70 --samples 20

Model and data: the FEMNIST CNN of 1,018,174 parameters on synthetic FEMNIST. A round is all of it: check-in,
selection, broadcast, training, upload accounting, the sum, the new model. The floor trains the same clients' samples
with stock torch layers and torch.optim.SGD, without any federation around it, the faster of two ways to use the
cores: one process with a torch thread per core, or one process per core. Its data are in memory before it starts; the
testbed's clients make theirs when they are first asked. Rounds and floor alternate, so that both see the same
machine. For orientation, Flower's simulation engine takes 1.35x and 3.2x here.
"""

import multiprocessing
import os
import statistics
import time
from multiprocessing.pool import Pool
from typing import Any

import numpy as np
import psutil
import ray

from benchmarks.floors import bare_training_loop
from benchmarks.report import arguments, emit
from cluster.hosts.session import RaySession
from testbed.engine.plan import Plan
from testbed.experiment.schema import Experiment

MODEL = "femnist-cnn"


def experiment_of(population: int, participants: int, samples: int, rounds: int) -> Experiment:
    """Return the experiment with the timed rounds."""
    return Experiment.model_validate(
        {
            "name": "benchmark-round", "seed": 1, "rounds": rounds, "population": population,
            "workload": {
                "dataset": "synthetic-femnist", "samples_per_client": samples, "batch_size": 20, "learning_rate": 0.05,
                "momentum": 0.9,
                "evaluate_every": rounds + 1,
            },
            "selection": {"protocol": "random", "participants": participants},
            "aggregation": {"protocol": "plain"},
            "time": {"compute": "modelled", "deadline_s": 1e6},
        }
    )  # fmt: skip


def participants_of(experiment: Experiment, round_number: int) -> list[int]:
    """Return the clients that the honest server draws in a round with all clients available, as the run does."""
    coin = Plan(experiment, 0).randomness.generator("server", round_number, "participants")
    return sorted(coin.choice(np.arange(experiment.population), experiment.selection.participants, replace=False))


def _floor_of(task: tuple[Experiment, list[int], int]) -> float:
    """One process's part of the floor: seconds of the bare loop over some clients."""
    import workloads

    experiment, clients, threads = task
    workload: Any = workloads.build(experiment.workload, experiment.population, 1)
    data = [_shard(workload, client) for client in clients]
    section = experiment.workload
    return bare_training_loop(
        MODEL, data, section.epochs, section.batch_size, section.learning_rate, section.momentum, threads
    )


def _shard(workload: Any, client: int) -> Any:
    images, labels = workload.data.shard(client)
    return images.reshape(len(labels), *images.shape[-2:]).contiguous(), labels


def floor_seconds(pool: Pool, experiment: Experiment, clients: list[int], cores: int) -> dict[str, float]:
    """Seconds of both ways to use the cores; with several processes, the slowest part counts."""
    parts = [(experiment, clients[core::cores], 1) for core in range(cores)]
    spread = max(pool.map(_floor_of, parts, chunksize=1))
    return {"processes": spread, "threads": pool.apply(_floor_of, ((experiment, clients, cores),))}


def memory_bytes() -> int:
    """Proportional memory of this process and all that it has started (Ray included)."""
    total = 0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--population", type=int, default=700, help="clients n")
    parser.add_argument("--participants", type=int, default=70, help="participants K of a round")
    parser.add_argument("--samples", type=int, default=225, help="training samples of a client, about")
    parser.add_argument("--rounds", type=int, default=4, help="timed rounds, after one that is not")
    parser.add_argument("--hosts", type=int, default=os.cpu_count(), help="client host processes")
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    experiment = experiment_of(options.population, options.participants, options.samples, options.rounds + 1)
    rows: list[dict[str, Any]] = []
    peak = 0
    with multiprocessing.get_context("spawn").Pool(cores) as pool, RaySession(None, options.hosts) as session:
        ray.get(session.coordinator.prepare.remote(experiment, 0, None))
        floor_seconds(pool, experiment, participants_of(experiment, 1), cores)
        ray.get(session.coordinator.run_next_round.remote())
        for round_number in range(2, options.rounds + 2):
            began = time.perf_counter()
            ray.get(session.coordinator.run_next_round.remote())
            seconds = time.perf_counter() - began
            peak = max(peak, memory_bytes())
            floors = floor_seconds(pool, experiment, participants_of(experiment, round_number), cores)
            floor = min(floors.values())
            rows.append(
                {"round": round_number, "seconds": seconds, "floor_seconds": floor, "ratio": seconds / floor,
                 "floor_processes_s": floors["processes"], "floor_threads_s": floors["threads"]}
            )  # fmt: skip
    emit(
        {
            "seconds": statistics.median(row["seconds"] for row in rows),
            "floor_seconds": statistics.median(row["floor_seconds"] for row in rows),
            "ratio": statistics.median(row["ratio"] for row in rows),
            "peak_memory_gb": peak / 1e9,
            "population": options.population,
            "participants": options.participants,
            "samples": options.samples,
            "hosts": options.hosts,
        },
        rows,
        options.format == "json",
    )


if __name__ == "__main__":
    main()
