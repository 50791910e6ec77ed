"""Keep results of `testbed reproduce` in the package: ``python -m analysis.reproduction.keep DIRECTORY...``.

A kept result must name the commit of the code that measured it, so results of a changed checkout are refused. After a
change of `conclude`, ``python -m analysis.reproduction.keep NAME...`` makes kept results again from their measurements.
"""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.reproduction.catalogue import catalogue
from analysis.reproduction.contract import Reproduction
from analysis.reproduction.kept import RESULTS, kept_result, measurements_file, read
from analysis.reproduction.presentation import render
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


def conclude_again(reproduction: Reproduction) -> Path:
    """Make table, claims and remarks of a kept result again from its measurements, and return the result's path.

    Args:
        reproduction: a reproduction whose kept result has measurements. Its origin, the code that measured, stays.

    Raises:
        ExperimentError: there is no kept result, or it has no measurements.
    """
    result = kept_result(reproduction)
    if result is None or result.measurements is None:
        raise ExperimentError(f"{reproduction.name}: no kept measurements; run `testbed reproduce {reproduction.name}`")
    concluded = replace(reproduction.conclude(result.measurements), figures=result.result.figures)
    target = RESULTS / f"{reproduction.name}.json"
    target.write_text(render(reproduction, concluded, result.scale, "json", result.origin), encoding="utf-8")
    return target


def main(arguments: Sequence[str]) -> None:
    """Keep the results of the directories, and make those of the names again, that the command line has."""
    every = catalogue()
    try:
        for argument in arguments:
            target = conclude_again(every[argument]) if argument in every else keep(Path(argument))
            print(f"{target}: written")
    except ExperimentError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main(sys.argv[1:])
