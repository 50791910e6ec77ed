"""Results of reproductions as text, Markdown and JSON, and as files beside the figures.

Numbers are rounded in text and Markdown, and complete in JSON and CSV.
"""

import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from analysis.reproduction.contract import Measurements, Origin, Reproduction, ReproductionResult, Scale
from analysis.reproduction.kept import data_kind, kept_result
from analysis.reproduction.measurements import FILE as MEASUREMENTS
from analysis.reproduction.measurements import as_text
from analysis.reproduction.verdicts import PaperClaim, counts
from analysis.tables import WIDTH, Table, require_format, to_json
from analysis.tables import render as render_table
from testbed.durations import rounded_duration
from testbed.errors import ExperimentError, RunError
from testbed.files.atomic import atomic_write

Format = Literal["text", "markdown", "json"]
FILES = ("result.md", "result.json", "table.csv", MEASUREMENTS)
_NOTHING = "–"


def render(
    reproduction: Reproduction,
    result: ReproductionResult,
    scale: Scale,
    format: str = "text",
    origin: Origin = Origin(),
) -> str:
    """Return a result as text, ending in a line feed.

    Args:
        reproduction: the reproduction.
        result: its result.
        scale: scale at which it ran.
        format: ``text`` (at most 118 columns wide where the table's cells allow it), ``markdown`` or ``json``.
        origin: version, machine and duration, for JSON.

    Raises:
        ExperimentError: the format is unknown.
    """
    require_format(format, "text", "markdown", "json")
    if format == "json":
        return _json(reproduction, result, scale, origin)
    return (_text if format == "text" else _markdown)(reproduction, result, scale)


def listed(every: Sequence[Reproduction], format: str = "text") -> str:
    """List reproductions with title, source, usable data files, and the verdicts and duration of the kept result.

    Args:
        every: the reproductions.
        format: ``text``, ``markdown`` or ``json``.

    Raises:
        ExperimentError: the format is unknown.
    """
    require_format(format, "text", "markdown", "json")
    if format == "json":
        return to_json([_listing(reproduction) for reproduction in every])
    if format == "markdown":
        cells = [
            (
                ", ".join(f"`{name}`" for name in _names(reproduction)),
                reproduction.title,
                reproduction.source,
                _last(reproduction) or "not run",
            )
            for reproduction in every
        ]
        return render_table(Table(["Name", "What", "Source", "Last"], cells, is_markup=True), format)
    rows = [
        row for reproduction in every for row in zip_longest(_names(reproduction), _about(reproduction), fillvalue="")
    ]
    return render_table(Table((), rows, ruled=False), format)


def _listing(reproduction: Reproduction) -> dict[str, Any]:
    last = kept_result(reproduction)
    return {
        "name": reproduction.name, "also": reproduction.aliases, "title": reproduction.title,
        "source": reproduction.source, "reads": reproduction.data_files,
        "last": None if last is None else {
            "scale": last.scale, "data": data_kind(last, reproduction), "seconds": last.origin.seconds,
            "verdicts": counts(last.result.claims),
        },
    }  # fmt: skip


def _last(reproduction: Reproduction) -> str:
    """Return scale, duration and verdicts of the kept result in one line; empty without a kept result."""
    last = kept_result(reproduction)
    if last is None:
        return ""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts(last.result.claims).items() if count)
    stand_in = ", on stand-in data" if data_kind(last, reproduction) == "stand-in" else ""
    return f"{last.scale}{stand_in}, {rounded_duration(last.origin.seconds)}: {verdicts or 'no claims'}"


def expected_length(reproduction: Reproduction, scale: Scale) -> str:
    """Return the duration of a reproduction, as measured by its kept result: a line to show before it starts.

    Args:
        reproduction: the reproduction.
        scale: scale at which it will run; the line names the scale of a kept result of another scale.
    """
    last = kept_result(reproduction)
    if last is None or not last.origin.seconds:
        return f"duration of --scale {scale}: not measured"
    measured = f"{rounded_duration(last.origin.seconds)} on {last.origin.cpus} cores"
    if last.scale != scale:
        return f"duration of --scale {scale}: not measured; --scale {last.scale} took {measured}"
    return f"about {measured} (measured with {last.origin.version}, {last.origin.processor})"


def _names(reproduction: Reproduction) -> list[str]:
    return [reproduction.name, *reproduction.aliases]


def _about(reproduction: Reproduction) -> list[str]:
    files = [f"--data: {reproduction.data_files}"] if reproduction.data_files else []
    last = _last(reproduction)
    return [reproduction.title, reproduction.source, *files, *([f"last: {last}"] if last else [])]


def refuse_foreign(reproduction: Reproduction, scale: Scale, directory: Path) -> None:
    """Refuse a directory in which `write` would overwrite files other than an earlier result of the same scale.

    Args:
        reproduction: the reproduction.
        scale: scale at which it will run.
        directory: directory for `FILES`.

    Raises:
        ExperimentError: the directory has such a file.
    """
    there = [name for name in FILES if (directory / name).exists()]
    if not there:
        return
    try:
        before = json.loads((directory / "result.json").read_bytes())
    except (OSError, ValueError, RecursionError):  # any file may have this name
        before = None
    if not isinstance(before, dict) or (before.get("name"), before.get("scale")) != (reproduction.name, scale):
        raise ExperimentError(
            f"--out: {directory / there[0]} is not a result of {reproduction.name} at scale {scale}; "
            "choose another --out, or move the file"
        )


def write(
    reproduction: Reproduction,
    result: ReproductionResult,
    scale: Scale,
    directory: Path,
    origin: Origin = Origin(),
    measurements: Measurements | None = None,
) -> list[Path]:
    """Write `FILES` into a directory, each completely or not at all, and return their paths.

    Args:
        reproduction: the reproduction.
        result: its result; ``table.csv`` is left out if the result has no table.
        scale: scale at which it ran.
        directory: directory for the files; it is created if necessary.
        origin: version, machine and duration.
        measurements: measurements behind the result; ``measurements.json`` is left out without them.

    Raises:
        RunError: a file cannot be written.
    """
    contents = {
        "result.md": render(reproduction, result, scale, "markdown"),
        "result.json": render(reproduction, result, scale, "json", origin),
    }
    if not result.table.empty:
        contents["table.csv"] = str(result.table.to_csv(index=False, lineterminator="\n"))
    if measurements is not None:
        contents[MEASUREMENTS] = as_text(measurements)
    paths = [directory / name for name in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{path.parent}: cannot be created: {error.strerror}") from None
        with atomic_write(path, partial(_not_written, path)) as file:
            file.write(text.encode())
    return paths


def _not_written(path: Path, why: str) -> RunError:
    return RunError(f"{path}: cannot be written: {why}")


# -- for people -----------------------------------------------------------------------------------------------------


def _text(reproduction: Reproduction, result: ReproductionResult, scale: Scale) -> str:
    parts = [f"{reproduction.title}\n{reproduction.source}; scale {scale}\n"]
    if not result.table.empty:
        parts += [render_table(grid, "text") for grid in _grids(result.table)]
    if result.claims:
        claims = Table(_CLAIM_HEADINGS, _claims(result), widths=[34, 38, 26, 13])
        parts.append(render_table(claims, "text"))
    if result.figures:
        parts.append("".join(["figures:\n", *(f"  {path}\n" for path in result.figures)]))
    if result.remarks:
        notes = [textwrap.fill(remark, WIDTH, initial_indent="- ", subsequent_indent="  ") for remark in result.remarks]
        parts.append("\n".join(["remarks:", *notes, ""]))
    return "\n".join(parts)


def _grids(table: pd.DataFrame) -> list[Table]:
    """Split a table into grids that fit the width, one below the other, each with the columns that name the rows."""
    columns = _columns(table)
    keys = _keys(table)
    widths = {heading: max(map(len, [heading, *cells])) for heading, cells in columns.items()}
    room = WIDTH - sum(widths[key] + 2 for key in keys)
    grids: list[list[str]] = [[]]
    left = room
    for heading in [heading for heading in columns if heading not in keys]:
        if widths[heading] + 2 > left and grids[-1]:
            grids.append([])
            left = room
        grids[-1].append(heading)
        left -= widths[heading] + 2
    return [_grid({heading: columns[heading] for heading in [*keys, *grid]}, keys) for grid in grids]


def _grid(columns: dict[str, list[str]], keys: Sequence[str]) -> Table:
    """Return a grid with keys to the left and values to the right; a gap separates rows with different leading keys."""
    groups = list(zip(*(columns[key] for key in keys[:-1]), strict=True))
    gaps = {row: "" for row in range(1, len(groups)) if groups[row] != groups[row - 1]}
    rows = list(zip(*columns.values(), strict=True))
    return Table(list(columns), rows, left=range(len(keys)), sections=gaps)


def _markdown(reproduction: Reproduction, result: ReproductionResult, scale: Scale) -> str:
    parts = [f"## {reproduction.name}: {reproduction.title}\n", f"{reproduction.source}. Scale: {scale}.\n"]
    if result.figures:
        parts.append("".join(f"![{path.stem}]({path.name})\n" for path in result.figures if path.suffix == ".png"))
    return "\n".join([*parts, outcome(result)])


def outcome(result: ReproductionResult) -> str:
    """Return table, claims and remarks as Markdown, without heading and figures, ending in a line feed."""
    parts = []
    if not result.table.empty:
        parts.append(as_markdown(result.table))
    if result.claims:
        claims = Table([heading.capitalize() for heading in _CLAIM_HEADINGS], _claims(result), is_markup=True)
        parts.append(render_table(claims, "markdown"))
    if result.remarks:
        parts.append("".join(f"- {remark}\n" for remark in result.remarks))
    return "\n".join(parts)


def as_markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown, with rounded numbers and the columns that name the rows to the left."""
    columns = _columns(table)
    rows = list(zip(*columns.values(), strict=True))
    return render_table(Table(list(columns), rows, left=range(len(_keys(table))), is_markup=True), "markdown")


_CLAIM_HEADINGS = ["claim in the paper", "what we measured", "judged by", "verdict"]


def _claims(result: ReproductionResult) -> list[tuple[str, str, str, str]]:
    return [(claim.claim, claim.measured, claim.judged, _verdict(claim)) for claim in result.claims]


def _verdict(claim: PaperClaim) -> str:
    return f"{claim.verdict} (counted in {claim.counted_in})" if claim.counted_in else claim.verdict


def _keys(table: pd.DataFrame) -> list[str]:
    """Return the columns that name the rows: all before the first column of floats or of a paper's values."""
    names = [str(name) for name in table.columns]
    ends = [
        place
        for place, name in enumerate(names)
        if pd.api.types.is_float_dtype(table.iloc[:, place]) or name.endswith("(paper)")
    ]
    return names[: max(1, ends[0] if ends else 1)]  # a table of counts alone is named by its first column


def _columns(table: pd.DataFrame) -> dict[str, list[str]]:
    return {str(name): [_cell(value) for value in table[name]] for name in table.columns}


def _cell(value: Any) -> str:
    """Return a value as text, numbers with four significant figures."""
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return _NOTHING
    if isinstance(value, float):
        if value == 0 or 1e-3 <= abs(value) < 1e5:
            decimals = 0 if value == 0 else max(0, 3 - math.floor(math.log10(abs(value))))
            return f"{value:.{decimals}f}"
        return f"{value:.2e}"
    return str(value)


# -- for programs ---------------------------------------------------------------------------------------------------


def _json(reproduction: Reproduction, result: ReproductionResult, scale: Scale, origin: Origin) -> str:
    return to_json(
        {
            "name": reproduction.name,
            "title": reproduction.title,
            "source": reproduction.source,
            "scale": scale,
            "origin": asdict(origin),
            "table": result.table,
            "claims": [claim.as_data() for claim in result.claims],
            "figures": [path.name for path in result.figures],
            "remarks": list(result.remarks),
        }
    )
