"""Tables of docs/papers and of the README, generated from kept results.

A page has blocks that end with ``<!-- end -->``. The comment before a block defines its content:

- ``<!-- result: NAME -->``: table, claims and remarks of a kept result;
- ``<!-- result: NAME | rows: costs=authors | columns: protocol, server min | remarks: 1, 3 -->``: the same with these
  rows, columns and remarks only (``remarks: none`` for none); each of the three parts can be left out;
- ``<!-- part: NAME | costs=authors, population=700 | protocol, server min -->``: the rows of its table that have these
  values, and these columns;
- ``<!-- results: all -->``: the verdicts of all results;
- ``<!-- results: lotto -->``: the verdicts of all results with names that begin with ``lotto-``;
- ``<!-- results: papers -->``: the sums of verdicts by the first word of the names;
- ``<!-- results: measurements -->``: a sentence that counts the results with stored measurements, and a sentence on the
  number of verdicts that are wrong by chance.

`make papers` writes all blocks. `testbed reproduce --verify` lists the pages with outdated blocks.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from pathlib import Path

import pandas as pd

from analysis.reproduction.catalogue import catalogue
from analysis.reproduction.contract import Reproduction
from analysis.reproduction.kept import KeptResult, by_data, data_kind, kept_results, unmeasured
from analysis.reproduction.multiplicity import multiplicity
from analysis.reproduction.presentation import as_markdown, outcome
from analysis.reproduction.verdicts import VERDICTS, Verdict, counts, total
from analysis.tables import Table, render
from testbed.durations import rounded_duration
from testbed.errors import ExperimentError

_BLOCK = re.compile(r"(?m)^<!-- (result|results|part): ([\w-]+)([^\n]*) -->\n(.*?)^<!-- end -->$", re.DOTALL)
_PART = re.compile(r" \| ([^|]+) \| ([^|]+)")


Results = Mapping[str, KeptResult]
"""Kept results by name."""


def page(text: str, where: str, results: Results | None = None) -> str:
    """Return a page with the blocks that the kept results give.

    Args:
        text: Markdown.
        where: the page's name, for errors.
        results: all kept results; None: they are read.

    Raises:
        ExperimentError: a block names an unknown reproduction, a reproduction without a kept result, or a part that its
            table does not have.
    """
    every = catalogue()
    by_name = kept_results(every.values()) if results is None else results

    def block(match: re.Match[str]) -> str:
        kind, name, which = match[1], match[2], match[3]
        if kind == "results":
            chosen = [
                reproduction
                for reproduction in every.values()
                if name in ("all", "papers", "measurements") or reproduction.name.startswith(f"{name}-")
            ]
            if not chosen:
                raise ExperimentError(f"{where}: results: {name}: no reproduction has a name that begins with {name}-")
            text = {"papers": by_paper, "measurements": measured}.get(name, overview)(chosen, by_name)
        elif name not in every:
            raise ExperimentError(f"{where}: {name}: no such reproduction")
        elif (of_it := by_name.get(name)) is None:
            raise ExperimentError(f"{where}: {name}: this reproduction has no kept result")
        elif kind == "part":
            text = f"\n{as_markdown(_part(of_it.result.table, which, f'{where}: part: {name}'))}\n"
        else:
            text = _block(of_it, which, f"{where}: result: {name}")
        return f"<!-- {kind}: {name}{which} -->\n{text}<!-- end -->"

    return _BLOCK.sub(block, text)


def _part(table: pd.DataFrame, which: str, where: str) -> pd.DataFrame:
    """Return the rows and columns that a page selects; raise `ExperimentError` if there are none."""
    selector = _PART.fullmatch(which)
    if selector is None:
        raise ExperimentError(f"{where}: expected ' | KEY=VALUE, ... | COLUMN, ...' after the name")
    return _selected(table, selector[1], selector[2], where)


def _selected(table: pd.DataFrame, rows: str, columns: str, where: str) -> pd.DataFrame:
    """Return a table's rows with the values KEY=VALUE, ... and its columns COLUMN, ...; empty text selects all."""
    chosen = dict(item.partition("=")[::2] for item in _items(rows))
    shown = _items(columns) or list(table.columns)
    if missing := [name for name in (*chosen, *shown) if name not in table.columns]:
        raise ExperimentError(
            f"{where}: no column {', '.join(missing)}; the table has {', '.join(map(str, table.columns))}"
        )
    part = table.loc[(table[list(chosen)].astype(str) == pd.Series(chosen)).all(axis=1), shown]
    if part.empty:
        raise ExperimentError(f"{where}: no row with {rows}")
    return part


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _block(outcome_kept: KeptResult, which: str, where: str) -> str:
    origin, result = outcome_kept.origin, outcome_kept.result
    parts = dict(part.partition(": ")[::2] for part in which.split(" | ")[1:])
    if unknown := [part for part in parts if part not in ("rows", "columns", "remarks")]:
        raise ExperimentError(f"{where}: {unknown[0]}: expected ' | rows: ...', ' | columns: ...' or ' | remarks: ...'")
    if "rows" in parts or "columns" in parts:
        table = _selected(result.table, parts.get("rows", ""), parts.get("columns", ""), where)
        result = replace(result, table=table)
    if "remarks" in parts:
        result = replace(result, remarks=_remarks(result.remarks, parts["remarks"], where))
    commit = (origin.git_commit or "")[:10] or "no checkout"
    took = f"{rounded_duration(origin.seconds)} on {origin.cpus} processors"
    provenance = f"Scale {outcome_kept.scale}; {took}; version {origin.version}, {commit}."
    return f"\n{outcome(result)}\n{provenance}\n\n"


def _remarks(remarks: Sequence[str], numbers: str, where: str) -> list[str]:
    """Return the remarks with these numbers, counted from 1."""
    by_number = {str(number): remark for number, remark in enumerate(remarks, 1)}
    chosen = [] if numbers == "none" else _items(numbers)
    if unknown := [number for number in chosen if number not in by_number]:
        raise ExperimentError(f"{where}: remarks: {unknown[0]}: expected 'none' or numbers of 1 to {len(remarks)}")
    return [by_number[number] for number in chosen]


def overview(every: Sequence[Reproduction], results: Results) -> str:
    """Return the number of claims by verdict for each reproduction, and the sums, as a Markdown table.

    Args:
        every: reproductions.
        results: kept results by name.
    """
    rows = []
    for reproduction in every:
        result = results.get(reproduction.name)
        name = f"`{reproduction.name}`"
        if result is None:
            rows.append([name, "–", "", *([""] * len(VERDICTS))])
        else:
            kind = data_kind(result, reproduction)
            rows.append([name, result.scale, _DATA[kind], *_cells(counts(result.result.claims))])
    of_paper, on_stand_in = _sums(every, results)
    rows.append(["all without stand-in data", "", "", *map(str, of_paper.values())])
    rows.append(["all on stand-in data", "", "", *map(str, on_stand_in.values())])
    return _rendered(["reproduction", "scale", "data"], rows)


_DATA = {"paper": "the paper's", "stand-in": "stand-in", "none": "–"}


def by_paper(every: Sequence[Reproduction], results: Results) -> str:
    """Return the number of claims by verdict for each paper, and the sums, as a Markdown table.

    Reproductions belong to the same paper if their names have the same first word. Claims on stand-in data have rows of
    their own.

    Args:
        every: reproductions.
        results: kept results by name.
    """
    rows = []
    # The catalogue keeps a paper's reproductions together.
    for _, group in groupby(every, lambda reproduction: reproduction.name.partition("-")[0]):
        of_paper = list(group)
        words = zip(*(reproduction.name.split("-") for reproduction in of_paper), strict=False)
        # The words that all their names begin with.
        begin = "-".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, words))
        rows += [
            [f"`{begin}-`...", data, str(sum(part.values())), *_cells(part)]
            for data, part in zip(("", "stand-in"), _sums(of_paper, results), strict=True)
            if sum(part.values())
        ]
    for name, part in zip(("all without stand-in data", "all on stand-in data"), _sums(every, results), strict=True):
        rows.append([name, "", str(sum(part.values())), *map(str, part.values())])
    return _rendered(["reproductions", "data", "claims"], rows)


def _sums(every: Sequence[Reproduction], results: Results) -> tuple[Mapping[Verdict, int], Mapping[Verdict, int]]:
    """Return the sums of verdicts without stand-in data, and on stand-in data."""
    parts = [by_data(results[each.name], each) for each in every if each.name in results]
    return total(counts(part[0]) for part in parts), total(counts(part[1]) for part in parts)


def measured(every: Sequence[Reproduction], results: Results) -> str:
    """Return sentences on the results with stored measurements, and on the verdicts that chance may decide.

    Args:
        every: reproductions.
        results: kept results by name.
    """
    chosen = [results[reproduction.name] for reproduction in every if reproduction.name in results]
    older, named = unmeasured(chosen, "`{}`")
    rows = sum(len(table) for result in chosen if result.measurements for table in result.measurements.tables.values())
    text = f"{len(chosen) - older} of {len(chosen)} results have their measurements ({rows} rows)."
    text += f" The others are older; measuring them again takes {named}." if older else ""
    at_once = multiplicity(claim for result in chosen for claim in result.result.claims)
    return f"\n{text}\n\n{at_once.sentence()}.\n\n"


def _cells(verdicts: Mapping[Verdict, int]) -> list[str]:
    return [str(count or "") for count in verdicts.values()]


def _rendered(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    left = range(headings.index("data") + 1)
    table = Table([*headings, *VERDICTS], rows, left=left, is_markup=True)
    return "\n" + render(table, "markdown") + "\n"


def pages_below(folder: Path) -> list[Path]:
    """Return the Markdown files below a folder of pages, and the README of the folder's checkout."""
    readme = folder.resolve().parents[1] / "README.md"
    return [*sorted(folder.rglob("*.md")), *([readme] if readme.exists() else [])]


def differing(pages: Path, results: Results | None = None) -> list[str]:
    """List the pages below a folder, and the README, with blocks that differ from the kept results, one line each.

    Args:
        pages: folder of the pages.
        results: all kept results; None: they are read.
    """
    by_name = kept_results(catalogue().values()) if results is None else results
    lines = []
    for path in pages_below(pages):
        text = path.read_text(encoding="utf-8")
        if page(text, path.name, by_name) != text:
            lines.append(f"{path.name}: its blocks differ from the kept results; `make papers` writes them")
    return lines


def main() -> None:
    """Write the blocks of all pages below the folder that the command line names."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/papers")
    try:
        results = kept_results(catalogue().values())
        for path in pages_below(folder):
            text = path.read_text(encoding="utf-8")
            new = page(text, path.name, results)
            if new != text:
                path.write_text(new, encoding="utf-8")
                print(f"{path}: written")
    except ExperimentError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
