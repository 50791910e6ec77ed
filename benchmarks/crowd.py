"""A crowd: server-centric selection from 10^7 clients and a round with 100 of them, in this process.

    python -m benchmarks.crowd
    python -m benchmarks.crowd --population 1000000 --format json

The server asks all available clients, computes all numbers with HMAC-SHA-256 under its key on the bulletin
board, and draws; the participants verify and sign their list, train (a logistic model of 48,670 parameters, 20 images
each) and are summed, and everything is recorded. Keys are real; they follow from the seed, and the first round makes
those of the board, on all cores (`keys_s`): no client registers, as where compute time is modelled. `seconds` is the
best of the later rounds, `cpu_s` its CPU time. Targets: at most 20 s and 12 GB for 10^7. The floor is a bare loop of
HMAC-SHA-256 over as many keys.
"""

import asyncio
import itertools
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

import workloads
from benchmarks.report import arguments, emit
from benchmarks.scale_runs import experiment_of, lotto
from benchmarks.selection import hmac_floor_seconds
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import Plan
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory

PARTICIPANTS = 100
TARGET_S, TARGET_GB = 20.0, 12.0
WARM, FLOOR_KEYS = 1000, 1_000_000


def run(experiment: Experiment, directory: Path) -> dict[str, Any]:
    """Wall and CPU seconds of the start and of each round, and of merging the records; peak memory."""
    clock = time.perf_counter(), time.process_time()
    plan = Plan(experiment, 0)
    workload = workloads.build(experiment.workload, experiment.population, plan.seed)
    records = RunDirectory.create(directory, experiment.plain())
    federation = federation_in_process(plan, workload, records)
    marks = [clock, (time.perf_counter(), time.process_time())]
    states = []

    async def rounds() -> None:
        while not federation.finished:
            states.append((await federation.run_next_round()).state)
            marks.append((time.perf_counter(), time.process_time()))

    asyncio.run(rounds())
    records.finish()
    marks.append((time.perf_counter(), time.process_time()))
    assert set(states) == {"completed"}
    wall, cpu = ([after[at] - before[at] for before, after in itertools.pairwise(marks)] for at in (0, 1))
    return {"start_s": wall[0], "rounds_s": wall[1:-1], "cpu_s": cpu[1:-1], "finish_s": wall[-1]}


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--population", type=int, default=10_000_000, help="clients")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, the first of which makes the keys")
    parser.add_argument("--selection", choices=("lotto-server-centric", "random"), default="lotto-server-centric")
    options = parser.parse_args()
    if options.rounds < 2 or options.population < PARTICIPANTS:
        parser.error(f"--rounds must be at least 2, and --population at least {PARTICIPANTS}")
    kind = lotto if options.selection == "lotto-server-centric" else experiment_of
    process = psutil.Process()
    with tempfile.TemporaryDirectory() as folder:
        run(kind(WARM, PARTICIPANTS, 2), Path(folder) / "warm")  # imports, caches
        before = process.memory_info().rss
        found = run(kind(options.population, PARTICIPANTS, options.rounds), Path(folder) / "run")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds, cpu_s = min(found["rounds_s"][1:]), min(found["cpu_s"][1:])
    floor_s = hmac_floor_seconds(FLOOR_KEYS) * options.population / FLOOR_KEYS
    result = {
        "seconds": seconds, "floor_seconds": floor_s, "ratio": seconds / floor_s, "cpu_s": cpu_s,
        "population": options.population, "start_s": found["start_s"], "first_round_s": found["rounds_s"][0],
        "keys_s": found["rounds_s"][0] - seconds, "keys_cpu_s": found["cpu_s"][0] - cpu_s,
        "finish_s": found["finish_s"], "peak_GB": peak / 1e9,
        "bytes_per_idle_client": (peak - before) / options.population, "target_s": TARGET_S, "target_GB": TARGET_GB,
    }  # fmt: skip
    emit(result, [], options.format == "json")


if __name__ == "__main__":
    main()
