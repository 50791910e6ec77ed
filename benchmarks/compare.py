"""Compare two files of benchmark results, row by row.

    python -m benchmarks --out new.json
    python -m benchmarks.compare old.json new.json

Seconds compare on one machine that does nothing else; the ratio to the floor, which was measured in the same process,
holds on others, too, as long as the floor is the same work.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

from benchmarks.report import table
from benchmarks.results import FAILED, Results, kept
from testbed.errors import TestbedError


def rows(old: Results, new: Results) -> list[dict[str, object]]:
    """A row for each work that both measured with the same options.

    ``new / old`` below 1 is faster.
    """
    return [
        {
            "work": name, "old s": old[name]["seconds"], "new s": new[name]["seconds"],
            "new / old": _times(new[name], old[name], "seconds"), "old ratio": old[name]["ratio"],
            "new ratio": new[name]["ratio"], "new / old ratio": _times(new[name], old[name], "ratio"),
        }
        for name in new
        if not _why_not(old, new, name)
    ]  # fmt: skip


def notes(old: Results, new: Results) -> list[str]:
    """Return one line for each row that cannot be compared, and one if the machines differ."""
    lines = [f"{name}: {why}" for name in {**old, **new} if (why := _why_not(old, new, name))]
    processors = [sorted({str(row.get("processor")) for row in side.values()}) for side in (old, new)]
    if processors[0] != processors[1]:
        before, after = (" and ".join(names) for names in processors)
        lines.append(f"measured on {before}, then on {after}: compare the ratios, not the seconds")
    return lines


def _times(new: Mapping[str, object], old: Mapping[str, object], key: str) -> float | None:
    before = float(str(old[key]))
    return float(str(new[key])) / before if before else None


def _why_not(old: Results, new: Results, name: str) -> str:
    """Why this work has no row, or nothing."""
    for side, label in ((old, "old"), (new, "new")):
        if name not in side:
            return f"not in the {label} file"
        if FAILED in side[name]:
            return f"failed in the {label} file ({side[name][FAILED]})"
    before, after = old[name]["command"], new[name]["command"]
    return "" if before == after else f"not the same work: `{before}`, then `{after}`"


def main() -> None:
    """Compare the files that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__.split("\n\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args()
    try:
        old, new = kept(options.old), kept(options.new)
    except TestbedError as error:
        raise SystemExit(str(error)) from None
    compared = rows(old, new)
    print(table(compared) if compared else "no work was measured in both files")
    for line in notes(old, new):
        print(line)


if __name__ == "__main__":
    main()
