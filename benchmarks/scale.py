"""Rounds of 10^3 to 10^6 clients on Ray: time by part, bytes, memory per idle client, and how each grows.

    python -m benchmarks.scale
    python -m benchmarks.scale --largest 100000 --hosts 1 2
    python -m benchmarks.scale --format json

100 participants, plain sums, a small model; full records are written. The parts of a round: announce (all clients are
asked, available ones answer, the participants are drawn), train, aggregate, record. Times are the best of the timed
rounds but the first; memory is proportional (PSS), of all processes together, Ray's too. The floor, in one process:
fill and add up arrays of as many numbers as the record has, draw the participants, and train them in a bare loop.
Targets: below 2 kB per idle client, 10^6 clients in less than 4 GB.
"""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.floors import bare_training_loop
from benchmarks.report import arguments, emit, table
from benchmarks.scale_runs import (
    MODEL,
    PARTS,
    ROUND,
    Measured,
    experiment_of,
    lotto,
    measure,
    timed_session,
    variations,
)
from testbed.engine.plan import Plan
from testbed.experiment.schema import Experiment

SMALLEST = 1000
LOTTO_AT = 10_000
FIT_PARTICIPANTS_AT = 10_000
RECORD_COLUMNS = 11  # that are as long as there are clients asked, of `Exchanges`


def floor_seconds(experiment: Experiment) -> float:
    """The least that a round must do, in this process: arrays over everybody, then the participants' training."""
    import workloads

    n, participants = experiment.population, experiment.selection.participants
    workload: Any = workloads.build(experiment.workload, n, 1)
    began = time.perf_counter()
    columns = np.zeros((RECORD_COLUMNS, n))
    columns += 1.0
    columns.sum()
    chosen = np.random.default_rng(1).choice(n, participants, replace=False)
    arrays_s = time.perf_counter() - began
    section = experiment.workload
    data = [workload.data.shard(client) for client in chosen.tolist()]
    training_s = min(
        bare_training_loop(
            MODEL, data, section.epochs, section.batch_size, section.learning_rate, section.momentum, threads=1
        )
        for _ in range(3)
    )
    return arrays_s + training_s


def checking_seconds(experiment: Experiment) -> float:
    """Return the seconds that `testbed run` needs before the first round: data, links, devices, availability."""
    import workloads

    began = time.perf_counter()
    plan = Plan(experiment, 0)
    workload = workloads.build(experiment.workload, experiment.population, plan.seed)
    plan.check_sums(workload)
    plan.read_files(workload)
    return time.perf_counter() - began


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Return constant and slope of the line with the least relative errors."""
    weight = 1 / np.asarray(y, np.float64)
    design = np.stack([np.ones(len(x)), np.asarray(x, np.float64)], axis=1) * weight[:, None]
    constant, slope = np.linalg.lstsq(design, np.ones(len(x)), rcond=None)[0].tolist()
    return constant, slope


class Scale:
    """All measurements of one call.

    Args:
        participants: K.
        timed_rounds: of each run; one more is run to watch the memory.
        folder: run directories go here, and away when they are measured.
    """

    def __init__(self, participants: int, timed_rounds: int, folder: Path) -> None:
        self.participants = participants
        self.timed_rounds = timed_rounds
        self.folder = folder

    def run(self, session: Any, experiment: Experiment) -> Measured:
        """Measure one experiment in a run directory of its own."""
        directory = self.folder / "run"
        try:
            return measure(session, experiment, directory, self.timed_rounds)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def experiment(self, population: int, participants: int | None = None, **sections: Any) -> Experiment:
        """The base experiment, or a variation of it."""
        return experiment_of(population, participants or self.participants, self.timed_rounds + 1, **sections)

    def populations(self, hosts: int, largest: int) -> list[dict[str, Any]]:
        """One row per population, on new processes."""
        rows = []
        with timed_session(hosts) as session:
            self.run(session, self.experiment(SMALLEST))  # imports, which take longer than all else
            population = SMALLEST
            while population <= largest:
                found = self.run(session, self.experiment(population))
                rows.append({"population": population, "hosts": hosts, **_row(found)})
                population *= 10
        return rows

    def others(self, hosts: int, population: int) -> list[dict[str, Any]]:
        """Other protocols, links, devices and availability at `population`; Lotto at a smaller one."""
        few = min(population, LOTTO_AT)
        experiments = {
            name: self.experiment(population, **sections)
            for name, sections in variations(self.participants, self.folder).items()
        } | {"lotto-server-centric": lotto(few, self.participants, self.timed_rounds + 1)}
        rows = []
        for name, experiment in experiments.items():
            with timed_session(hosts) as session:  # new processes: memory of one run is not that of the next
                self.run(session, self.experiment(SMALLEST))
                found = self.run(session, experiment)
            first = {"what": name, "population": experiment.population, "first_round_s": found.rounds[0][ROUND]}
            rows.append(first | _row(found))
        return rows

    def by_participants(self, hosts: int, population: int) -> list[dict[str, Any]]:
        """One row per number of participants."""
        with timed_session(hosts) as session:
            self.run(session, self.experiment(SMALLEST))
            return [
                {"participants": count, **_row(self.run(session, self.experiment(population, count)))}
                for count in (self.participants // 4, self.participants // 2, self.participants, 2 * self.participants)
            ]


def _row(found: Measured) -> dict[str, Any]:
    return {
        "start_s": found.start_s, ROUND: found.best(ROUND), **{part: found.best(part) for part in PARTS},
        "finish_s": found.finish_s, "emulated_MB": found.emulated_bytes / 1e6, "store_MB": found.store_bytes / 1e6,
        "record_MB": found.record_bytes / 1e6, "hosts_MB": found.settled["hosts"] / 1e6,
        "coordinator_MB": found.settled["coordinator"] / 1e6, "pki_MB": found.settled["pki"] / 1e6,
        "driver_MB": found.settled["driver"] / 1e6, "ray_MB": found.settled["ray"] / 1e6,
        "peak_MB": found.peak_bytes / 1e6,
    }  # fmt: skip


def growth(rows: Sequence[dict[str, Any]], by_participants: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Fitted lines: announcing and recording by clients asked, training and aggregating by participants."""
    fitted = {}
    for part, over, samples in (
        ("announce", "population", rows), ("record", "population", rows), ("train", "participants", by_participants),
        ("aggregate", "participants", by_participants),
    ):  # fmt: skip
        if len(samples) < 2:
            continue
        constant, slope = line([row[over] for row in samples], [row[f"{part}_s"] for row in samples])
        fitted[f"{part}_constant_s"] = constant
        fitted[f"{part}_us_per_{'client' if over == 'population' else 'participant'}"] = slope * 1e6
    if len(rows) > 1:
        last, former = rows[-1], rows[-2]
        clients = last["population"] - former["population"]
        fitted["peak_bytes_per_idle_client"] = (last["peak_MB"] - former["peak_MB"]) * 1e6 / clients
        for process in ("hosts", "coordinator"):
            key = f"{process}_MB"
            fitted[f"{process}_bytes_per_idle_client"] = (last[key] - former[key]) * 1e6 / clients
    return fitted


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=1_000_000, help="largest population; from 1000 by tens")
    parser.add_argument("--participants", type=int, default=100, help="participants K of a round")
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2, 4], help="client host processes")
    parser.add_argument("--rounds", type=int, default=4, help="timed rounds of each run")
    parser.add_argument("--only-populations", action="store_true", help="leave out the other tables")
    options = parser.parse_args()
    if options.largest < SMALLEST or options.rounds < 2:
        parser.error(f"--largest must be at least {SMALLEST}, and --rounds at least 2")
    with tempfile.TemporaryDirectory() as folder:
        scale = Scale(options.participants, options.rounds, Path(folder))
        rows = [row for hosts in options.hosts for row in scale.populations(hosts, options.largest)]
        main_hosts = 2 if 2 in options.hosts else options.hosts[0]
        main_rows = [row for row in rows if row["hosts"] == main_hosts]
        largest = main_rows[-1]
        others, by_participants = [], []
        if not options.only_populations:
            by_participants = scale.by_participants(main_hosts, min(options.largest, FIT_PARTICIPANTS_AT))
            others = scale.others(main_hosts, largest["population"])
        base = scale.experiment(largest["population"])
        check_s, floor_s = checking_seconds(base), floor_seconds(base)
    fitted = growth(main_rows, by_participants)
    as_json = options.format == "json"
    if not as_json:
        for extra in (others, by_participants):
            if extra:
                print(table(extra), end="\n\n")
    result = {"seconds": largest[ROUND], "floor_seconds": floor_s, "ratio": largest[ROUND] / floor_s,
              "check_s": check_s, **largest, **fitted}  # fmt: skip
    if others:
        registered = others[-1]
        result["lotto_registration_us_per_client"] = registered["start_s"] / registered["population"] * 1e6
    emit(result, rows, as_json)


if __name__ == "__main__":
    main()
