"""Keep results of `testbed reproduce` in the package: ``python -m analysis.reproduction.keep DIRECTORY...``.

A kept result must name a commit whose code made it, so results of a changed checkout are refused.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.reproduction.kept import RESULTS, measurements_file, read
from testbed.errors import ExperimentError


def keep(directory: Path, results: Path = RESULTS) -> Path:
    """Copy a result and its measurements into the folder of kept results, and return the result's path there.

    Args:
        directory: directory that `testbed reproduce` wrote.
        results: folder of kept results.

    Raises:
        ExperimentError: the directory has no result or no measurements, or the result's commit is unknown or had
            changes that were not committed.
    """
    source = directory / "result.json"
    result = read(source)
    if result.measurements is None:
        raise ExperimentError(f"{measurements_file(source)}: missing; only results with measurements are kept")
    commit = result.origin.git_commit or ""
    if not commit or commit.endswith("-dirty"):
        raise ExperimentError(
            f"{source}: made by {commit or 'an unknown commit'}; commit all changes, and run the reproduction again"
        )
    target = results / f"{result.name}.json"
    for file, copy in ((source, target), (measurements_file(source), measurements_file(target))):
        shutil.copyfile(file, copy)
    return target


def main(arguments: Sequence[str]) -> None:
    """Keep the results of the directories that the command line names."""
    try:
        for directory in arguments:
            print(f"{keep(Path(directory))}: written")
    except ExperimentError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main(sys.argv[1:])
