"""Verification for `testbed reproduce --verify`: recompute verdicts from kept numbers, and compare generated pages."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import analysis
from analysis.reproduction.commits import unknown_commits
from analysis.reproduction.contract import Reproduction
from analysis.reproduction.kept import (
    KeptResult,
    by_data,
    check_measurements,
    data_kind,
    differences,
    kept_result,
    read,
)
from analysis.reproduction.multiplicity import multiplicity
from analysis.reproduction.pages import differing
from analysis.reproduction.verdicts import VERDICTS, counts, total
from analysis.tables import Table, render, to_json
from testbed.durations import rounded_duration
from testbed.errors import ExperimentError

PAGES = Path(analysis.__file__).parents[1] / "docs" / "papers"
"""Pages of the checkout; an installed testbed has none."""


@dataclass
class Verification:
    """Result of a verification.

    Attributes:
        outcomes: results whose verdicts were recomputed.
        missing: names of reproductions without a result.
        from_measurements: names of results whose table, claims and remarks were made again from stored measurements.
        differing: differences, one line each.
    """

    outcomes: list[KeptResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    from_measurements: set[str] = field(default_factory=set)
    differing: list[str] = field(default_factory=list)


def verify(every: Sequence[Reproduction], directory: Path | None = None) -> Verification:
    """Recompute the verdicts of results, and recompute the claims that follow from a table.

    Args:
        every: the reproductions to verify.
        directory: directory that `testbed reproduce` wrote: a ``result.json``, or a folder for each reproduction. None:
            the kept results, and the pages that are generated from them.

    Raises:
        ExperimentError: a file is not a result, or the directory has no result.
    """
    verification = Verification()
    if directory is None:
        for reproduction in every:
            if (of_it := kept_result(reproduction)) is None:
                verification.missing.append(reproduction.name)
            else:
                verification.outcomes.append(of_it)
        if PAGES.is_dir():
            verification.differing += differing(PAGES)
            verification.differing += unknown_commits(verification.outcomes, PAGES)
    else:
        names = {reproduction.name for reproduction in every}
        files = [directory / "result.json", *sorted(directory.glob("*/result.json"))]
        outcomes = [read(file) for file in files if file.exists()]
        verification.outcomes = [of_it for of_it in outcomes if of_it.name in names]
        if not verification.outcomes:
            raise ExperimentError(f"--out: {directory} has no result.json of {', '.join(sorted(names))}")
    by_name = {reproduction.name: reproduction for reproduction in every}
    for of_it in verification.outcomes:
        verification.differing += differences(of_it)
        reproduction = by_name[of_it.name]
        if of_it.measurements is not None:
            verification.from_measurements.add(of_it.name)
            verification.differing += check_measurements(of_it, reproduction)
    return verification


def shown(verification: Verification, every: Sequence[Reproduction], format: str) -> str:
    """Return a verification as text, Markdown or JSON, ending in a line feed.

    Args:
        verification: the result of `verify`.
        every: the reproductions that were verified.
        format: ``text``, ``markdown`` or ``json``.
    """
    by_name = {reproduction.name: reproduction for reproduction in every}
    apart = {result.name: by_data(result, by_name[result.name]) for result in verification.outcomes}
    of_paper, on_stand_in = (total(counts(parts[place]) for parts in apart.values()) for place in (0, 1))
    at_once = multiplicity(claim for result in verification.outcomes for claim in result.result.claims)
    if format == "json":
        return to_json(
            {
                "verdicts": {result.name: counts(result.result.claims) for result in verification.outcomes},
                "all": total([of_paper, on_stand_in]),
                "on_paper_data_or_none": of_paper,
                "on_stand_in_data": on_stand_in,
                "multiplicity": asdict(at_once) | {"expected_errors": at_once.expected_errors},
                "not_run": verification.missing,
                "from_measurements": sorted(verification.from_measurements),
                "differing": verification.differing,
            }
        )
    rows = [
        [
            result.name,
            result.scale,
            data_kind(result, by_name[result.name]),
            *(str(count or "") for count in counts(result.result.claims).values()),
            _again(verification, result),
        ]
        for result in verification.outcomes
    ]
    sums = [
        ["on the paper's data, or without data", "", "", *map(str, of_paper.values()), ""],
        ["on stand-in data", "", "", *map(str, on_stand_in.values()), ""],
    ]
    headings = ["reproduction", "scale", "data", *VERDICTS, "made again from"]
    table = render(Table(headings, [*rows, *sums], left=[0, 1, 2, len(headings) - 1]), format)
    lines = [
        f"{sum(each.values())} claims {where}: " + ", ".join(f"{count} {verdict}" for verdict, count in each.items())
        for each, where in ((of_paper, "on the paper's data, or without data"), (on_stand_in, "on stand-in data"))
    ]
    lines += [f"without a kept result: {', '.join(verification.missing)}"] if verification.missing else []
    lines.append(at_once.sentence())
    lines += _coverage(verification)
    lines += verification.differing or ["every verdict agrees with its numbers"]
    return table + "\n" + "".join(f"{line}\n" for line in lines)


def _again(verification: Verification, outcome: KeptResult) -> str:
    """Return the numbers from which a result's claims were made again, for a cell."""
    if outcome.name in verification.from_measurements:
        assert outcome.measurements is not None
        return f"{sum(map(len, outcome.measurements.tables.values()))} measurements"
    return "verdicts only"


def _coverage(verification: Verification) -> list[str]:
    """Say which results were made again from measurements, and how long the others take to measure."""
    others = [result for result in verification.outcomes if result.name not in verification.from_measurements]
    lines = [
        f"{len(verification.from_measurements)} of {len(verification.outcomes)} results: table, claims and remarks "
        "made again from stored measurements; `testbed reproduce NAME` measures again, and compares number by number"
    ]
    if others:
        took = rounded_duration(sum(result.origin.seconds for result in others))
        lines.append(
            f"{len(others)} results are of earlier versions, without measurements ({took} to run in all): "
            + ", ".join(f"{result.name} ({rounded_duration(result.origin.seconds)})" for result in others)
        )
    return lines
