"""Run the benchmarks one after another, and end in one table: work, seconds, floor, ratio.

    python -m benchmarks                              # all of them, into bench.json; `make bench`
    python -m benchmarks --only vrf secagg-symbolic   # some of them
    python -m benchmarks --list
    python -m benchmarks.compare OLD.json NEW.json    # two such files

Each runs in a process of its own and is in the file as soon as it is done, in place of its former row; other rows stay.
One that fails is a row that says so, and makes the exit status 1.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.report import REQUIRED, table
from benchmarks.results import FAILED, kept, origin, write
from benchmarks.works import WORKS, Work
from testbed.errors import TestbedError


def measured(work: Work) -> dict[str, object]:
    """Return the JSON result of one benchmark, or ``{"failed": why}``."""
    command = [sys.executable, "-m", f"benchmarks.{work.module}", *work.options, "--format", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    told = ended.stdout.strip().splitlines()
    try:
        result = json.loads(told[-1] if told else "")
    except json.JSONDecodeError:
        result = None
    if ended.returncode == 0 and isinstance(result, dict) and all(key in result for key in REQUIRED):
        return result
    why = ended.stderr.strip().splitlines()
    return {FAILED: f"exit status {ended.returncode}: {why[-1] if why else 'it printed no result'}"}


def row(work: Work, result: Mapping[str, object]) -> dict[str, object]:
    """Return a row of the table: the target beside the measured value, or the reason of a failure."""
    if FAILED in result:
        return {"work": work.says, "seconds": None, "floor": None, "ratio": None, "target": result[FAILED]}
    wanted = [f"{work.target_s:g} s"] if work.target_s is not None else []
    wanted += [f"{work.target_ratio:g} x"] if work.target_ratio is not None else []
    missed = exceeds(result["seconds"], work.target_s) or exceeds(result["ratio"], work.target_ratio)
    return {
        "work": work.says, "seconds": result["seconds"], "floor": result["floor_seconds"], "ratio": result["ratio"],
        "target": ", ".join(wanted) + (": missed" if missed else ""),
    }  # fmt: skip


def exceeds(value: object, target: float | None) -> bool:
    """Return whether a figure is above its target."""
    return target is not None and float(str(value)) > target


def main() -> int:
    """Run the chosen benchmarks; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[work.name for work in WORKS], help="some of them")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="file that the results go into")
    parser.add_argument("--list", action="store_true", help="say which there are, and measure nothing")
    options = parser.parse_args()
    if options.list:
        print(table([{"name": work.name, "work": work.says, "command": work.command} for work in WORKS]))
        return 0
    chosen = [work for work in WORKS if options.only is None or work.name in options.only]
    results = kept(options.out) if options.out.exists() else {}
    write(options.out, results)  # an hour before the first row would find out that it cannot be
    where = origin()
    for number, work in enumerate(chosen, 1):
        print(f"{number} of {len(chosen)}: {work.command}", file=sys.stderr, flush=True)
        began = time.perf_counter()
        result = measured(work)
        results[work.name] = {**result, "command": work.command, "took_s": time.perf_counter() - began, **where}
        write(options.out, results)
    print(table([row(work, results[work.name]) for work in chosen]))
    print(f"\nin {options.out}; python -m benchmarks.compare OLD.json {options.out} shows the changes")
    return int(any(FAILED in results[work.name] for work in chosen))


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except TestbedError as error:
        raise SystemExit(str(error)) from None
