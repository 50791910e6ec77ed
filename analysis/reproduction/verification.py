"""Verification for `testbed reproduce --verify`: recompute verdicts from kept numbers, and compare generated pages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import analysis
from analysis.reproduction.contract import Reproduction
from analysis.reproduction.kept import (
    KeptResult,
    TableCheck,
    check_measurements,
    check_table,
    differences,
    kept_result,
    read,
)
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
        from_measurements: names of results whose table, claims and remarks were made again from stored measurements.
        from_tables: by name, results whose claims were recomputed from the kept table, number by number; for all other
            claims only the verdicts were recomputed.
        differing: differences, one line each.
    """

    outcomes: list[KeptResult] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    from_measurements: set[str] = field(default_factory=set)
    from_tables: dict[str, TableCheck] = field(default_factory=dict)
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
        if of_it.measurements is not None and reproduction.conclude is not None:
            verification.from_measurements.add(of_it.name)
            verification.differing += check_measurements(of_it, reproduction)
        elif (of_table := reproduction.claims_of) is not None:
            verification.from_tables[of_it.name] = check_table(of_it, of_table)
            verification.differing += verification.from_tables[of_it.name].differing
    return verification


def shown(verification: Verification, format: str) -> str:
    """Return a verification as text, Markdown or JSON, ending in a line feed.

    Args:
        verification: the result of `verify`.
        format: ``text``, ``markdown`` or ``json``.
    """
    of_each = [(result, counts(result.result.claims)) for result in verification.outcomes]
    every = total(of_it for _, of_it in of_each)
    if format == "json":
        return to_json(
            {
                "verdicts": {result.name: of_it for result, of_it in of_each},
                "all": every,
                "not_run": verification.missing,
                "from_tables": {
                    name: {"claims": check.claims, "computed_again": check.again}
                    for name, check in verification.from_tables.items()
                },
                "differing": verification.differing,
            }
        )
    again = {result.name: _again(verification, result) for result in verification.outcomes}
    rows = [
        [result.name, result.scale, *(str(count or "") for count in of_it.values()), again[result.name]]
        for result, of_it in of_each
    ]
    claims = sum(len(result.result.claims) for result in verification.outcomes)
    recomputed = sum(check.again for check in verification.from_tables.values())
    last = ["all", "", *map(str, every.values()), f"{recomputed} of {claims}"]
    table = render(Table(["reproduction", "scale", *VERDICTS, "computed again"], [*rows, last], left=range(2)), format)
    sums = ", ".join(f"{count} {verdict}" for verdict, count in every.items())
    lines = [f"{sum(every.values())} claims: {sums}"]
    lines += [f"without a kept result: {', '.join(verification.missing)}"] if verification.missing else []
    with_claims = sum(check.again > 0 for check in verification.from_tables.values())
    lines += [
        f"{recomputed} of {claims} claims, in {with_claims} of {len(verification.outcomes)} results: every number "
        "recomputed from the kept table; for the others, the verdict"
    ]
    lines += verification.differing or ["every verdict agrees with its numbers"]
    return table + "\n" + "".join(f"{line}\n" for line in lines)


def _again(verification: Verification, outcome: KeptResult) -> str:
    """Return how many of a result's claims were recomputed from its table, for a cell."""
    check = verification.from_tables.get(outcome.name)
    return f"{check.again if check else 0} of {len(outcome.result.claims)}"
