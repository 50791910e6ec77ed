"""How fast virtual time passes in Lotto's Table 2: FEMNIST, 700 clients, client-centric Lotto and SecAgg.

    python -m benchmarks.table2
    python -m benchmarks.table2 --costs testbed
    python -m benchmarks.table2 --population 400 --rounds 3

Rounds of `testbed reproduce lotto-table2` on Ray, with real training and real cryptography, the first not timed.
Virtual time depends on the settings of devices and links, here those of the reproduction. With the
authors' costs a round takes some 3.5 virtual minutes, as in the paper; with the testbed's own 2 virtual seconds, for
the same work on this machine. Target: 10 virtual seconds per wall second on two cores, with the authors' costs.

The floor is the work of any emulation of a round on these cores: train the participants' samples in a bare torch
loop, one process per core, and expand and add every mask of clients and server once.
"""

import multiprocessing
import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
import ray

from analysis.reproduction.lotto.overhead import COST_TABLES, RING_BITS, SCALES, CostTable, experiment
from analysis.reproduction.lotto.published import PARAMETERS
from benchmarks import round as training
from benchmarks import secagg
from benchmarks.report import arguments, emit
from benchmarks.scale_runs import ROUND, timed_session
from testbed.experiment.schema import Experiment, points
from testbed.records import RunDirectory, RunRecords

TARGET = 10.0


def experiment_of(costs: CostTable, population: int, rounds: int) -> Experiment:
    """Return client-centric Lotto at FEMNIST's size, as in the table, with `rounds` rounds."""
    block = experiment(SCALES["small"], "FEMNIST", costs, population, [{"protocol": "lotto-client-centric"}], "real")
    (point,) = points(block, "table 2")
    return point.experiment.model_copy(
        update={"rounds": rounds, "workload": point.experiment.workload.model_copy(update={"evaluate_every": rounds})}
    )


def rounds_of(timed: Experiment, hosts: int) -> tuple[list[float], RunRecords]:
    """Wall seconds of each round, and the records."""
    with tempfile.TemporaryDirectory() as folder, timed_session(hosts) as session:
        path = Path(folder) / "run"
        RunDirectory.create(path, timed.plain())
        session.run(timed, 0, path, lambda progress: None)
        walls = [times[ROUND] for times in ray.get(session.coordinator.timed.remote())]
        records = RunRecords(path)
        _ = records.rounds, records.participation  # read before the folder goes
    return walls, records


def floor_of(timed: Experiment, participants: list[int], cores: int) -> float:
    """Seconds of training and masks alone; no client is lost, so the server expands each one's own mask."""
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        training.floor_seconds(pool, timed, participants[:cores], cores)  # torch is imported
        trained_s = training.floor_seconds(pool, timed, participants, cores)["processes"]
    masks = len(participants) * (len(participants) + 1)
    lane = np.uint32 if RING_BITS <= 32 else np.uint64
    return trained_s + secagg.floor_of(masks, PARAMETERS["FEMNIST"] + 1, cores, lane).seconds


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--population", type=int, choices=SCALES["small"].participants, default=700, help="clients")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds, after one that is not")
    parser.add_argument("--costs", choices=list(COST_TABLES), default="authors", help="table of compute costs")
    parser.add_argument("--hosts", type=int, default=os.cpu_count(), help="client host processes")
    options = parser.parse_args()
    timed = experiment_of(options.costs, options.population, options.rounds + 1)
    walls, records = rounds_of(timed, options.hosts)
    virtual = records.rounds["ended_s"] - records.rounds["started_s"]
    rows = [
        {
            "round": number,
            "outcome": outcome,
            "seconds": wall_s,
            "virtual_s": virtual_s,
            "per_wall_s": virtual_s / wall_s,
        }
        for number, outcome, wall_s, virtual_s in zip(
            records.rounds["round"], records.rounds["outcome"], walls, virtual, strict=True
        )
        if number > 1 and outcome == "completed"
    ]
    last = records.participation["round"].max()
    participants = records.participation.loc[records.participation["round"] == last, "client"].tolist()
    floor_s = floor_of(timed, participants, os.cpu_count() or 1)
    seconds = statistics.median(row["seconds"] for row in rows)
    emit(
        {
            "seconds": seconds,
            "floor_seconds": floor_s,
            "ratio": seconds / floor_s,
            "virtual_seconds": statistics.median(row["virtual_s"] for row in rows),
            "virtual_per_wall_second": sum(row["virtual_s"] for row in rows) / sum(row["seconds"] for row in rows),
            "target": TARGET if options.costs == "authors" else None,
            "costs": options.costs,
            "population": options.population,
            "participants": len(participants),
            "hosts": options.hosts,
        },
        rows,
        options.format == "json",
    )


if __name__ == "__main__":
    main()
