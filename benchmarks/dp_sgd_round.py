"""Rounds of DP-SGD with random participation at the sizes of the paper's experiments, in this process.

    python -m benchmarks.dp_sgd_round
    python -m benchmarks.dp_sgd_round --population 697 --samples 1000 --client-rate 0.1 --sample-rate 0.001

Hasircioglu and Gunduz, arXiv 2205.01556, section 6: 23,264 clients of 30 images, of which about 23 take part. Generated
images of EMNIST's shape and the paper's network; noise of the guarantee (WCS). A round is all of it: check-in of
everybody, broadcast, gradients, the sum, noise, the new model, and the records on disk. Clients make their images when
they are first asked, which is in the round, too. The floor is the work that nobody is spared: the same gradients of the
same samples, with images that are there already, and numpy's noise for the sum.
"""

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import workloads
from benchmarks.report import arguments, emit
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import Plan
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory


def experiment_of(
    population: int, samples: int, client_rate: float, sample_rate: float, server: str, rounds: int
) -> Experiment:
    """Return the experiment with the timed rounds; it has no evaluations."""
    return Experiment.model_validate(
        {
            "name": "benchmark-dp-sgd", "seed": 1, "rounds": rounds + 1, "population": population,
            "workload": {
                "dataset": "synthetic-femnist", "model": "emnist-cnn", "samples_per_client": samples,
                "evaluate_every": rounds + 2,
            },
            "selection": {"protocol": "bernoulli", "client_rate": client_rate},
            "aggregation": {
                "protocol": "dp-sgd-random-participation", "sample_rate": sample_rate, "clip": 1.0, "sigma": 7.665,
                "server": server, "momentum": 0.9, "learning_rate": 0.002,
            },
            "time": {"compute": "modelled", "deadline_s": 1e6},
        }
    )  # fmt: skip


def floor_seconds(workload: Any, participants: list[int], model: Any, sample_rate: float, number: int) -> float:
    """Wall seconds of the bare gradients of one round and of as much noise, from a generator that is no secret."""
    random = np.random.default_rng(number)
    drawn = [np.flatnonzero(random.random(workload.sample_counts[client]) < sample_rate) for client in participants]
    started = time.perf_counter()
    total = np.zeros(workload.dimension)
    for client, samples in zip(participants, drawn, strict=True):
        total += workload.gradient_sum(client, model, number, samples, 1.0).delta
    total += random.normal(0.0, 7.665, workload.dimension)
    return time.perf_counter() - started


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--population", type=int, default=23_264, help="clients N")
    parser.add_argument("--samples", type=int, default=30, help="samples d of a client")
    parser.add_argument("--client-rate", type=float, default=0.001, help="p")
    parser.add_argument("--sample-rate", type=float, default=0.1, help="q")
    parser.add_argument("--server", choices=("trusted", "untrusted"), default="trusted")
    parser.add_argument("--rounds", type=int, default=20, help="timed rounds, after one that is not")
    given = parser.parse_args()
    experiment = experiment_of(
        given.population, given.samples, given.client_rate, given.sample_rate, given.server, given.rounds
    )
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        workload = workloads.build(experiment.workload, experiment.population, 1)
        records = RunDirectory.create(Path(folder) / "run", experiment.plain())
        federation = federation_in_process(Plan(experiment, 0), workload, records)
        built_s = time.perf_counter() - began

        async def rounds() -> None:
            for number in range(given.rounds + 1):
                started, cpu_s = time.perf_counter(), time.process_time()
                outcome = await federation.run_next_round()
                seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
                if number:
                    took_part = outcome.participants.tolist()
                    if given.server == "untrusted":  # then all answer; how many of them count is not recorded
                        took_part = took_part[: round(given.client_rate * len(took_part))]
                    floor = floor_seconds(workload, took_part, outcome.model, given.sample_rate, number)
                    rows.append(
                        {"round": number + 1, "participants": len(outcome.participants), "seconds": seconds,
                         "cpu_seconds": cpu_s, "floor_seconds": floor, "ratio": seconds / floor}
                    )  # fmt: skip

        asyncio.run(rounds())
    emit(
        {
            "seconds": statistics.median(row["seconds"] for row in rows),
            "floor_seconds": statistics.median(row["floor_seconds"] for row in rows),
            "ratio": statistics.median(row["ratio"] for row in rows),
            "cpu_seconds": statistics.median(row["cpu_seconds"] for row in rows),
            "longest_seconds": max(row["seconds"] for row in rows),
            "participants": statistics.mean(row["participants"] for row in rows),
            "building_seconds": built_s, "population": given.population, "server": given.server,
            "cores": os.cpu_count(),
        },
        rows,
        given.format == "json",
    )  # fmt: skip


if __name__ == "__main__":
    main()
