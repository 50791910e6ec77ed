"""Verification for `testbed reproduce --verify`: recompute verdicts from kept numbers, and compare generated pages."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import analysis
from analysis.reproduction.catalogue import catalogue
from analysis.reproduction.commits import unknown_commits
from analysis.reproduction.contract import Reproduction
from analysis.reproduction.kept import (
    KeptResult,
    by_data,
    check_measurements,
    data_kind,
    differences,
    kept_results,
    read,
    unmeasured,
)
from analysis.reproduction.multiplicity import multiplicity
from analysis.reproduction.pages import differing
from analysis.reproduction.verdicts import VERDICTS, counts, total
from analysis.tables import Table, render, to_json
from testbed.errors import ExperimentError

PAGES = Path(analysis.__file__).parents[1] / "docs" / "papers"
"""Pages of the checkout; an installed testbed has none."""


@dataclass
class Verification:
    """Result of a verification.

    Attributes:
        outcomes: results whose verdicts were recomputed.
        missing: names of reproductions without a result.
        differing: differences, one line each.
    """

    outcomes: list[KeptResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)

    @property
    def from_measurements(self) -> set[str]:
        """Names of the results with measurements, from which table, claims and remarks were made again."""
        return {result.name for result in self.outcomes if result.measurements is not None}


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
        # Pages show results of all reproductions, not only of those to verify.
        in_checkout = PAGES.is_dir()
        results = kept_results(catalogue().values() if in_checkout else every)
        verification.missing = [each.name for each in every if each.name not in results]
        verification.outcomes = [results[each.name] for each in every if each.name in results]
        if in_checkout:
            verification.differing += differing(PAGES, results)
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
        if of_it.measurements is not None:
            verification.differing += check_measurements(of_it, by_name[of_it.name])
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
            _again(result),
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


def _again(outcome: KeptResult) -> str:
    """Return the numbers from which a result's claims were made again, for a cell."""
    if outcome.measurements is None:
        return "verdicts only"
    return f"{sum(map(len, outcome.measurements.tables.values()))} measurements"


def _coverage(verification: Verification) -> list[str]:
    """Say which results were made again from measurements, and how long the others take to measure."""
    older, named = unmeasured(verification.outcomes)
    count = len(verification.outcomes)
    lines = [
        f"{count - older} of {count} results: table, claims and remarks made again from stored measurements; "
        "`testbed reproduce NAME` measures again, and compares number by number"
    ]
    if older:
        lines.append(f"{older} results of earlier versions have no measurements; their runs took {named}")
    return lines
