"""The table of `analysis.comparison.time_to_target` as text, Markdown, LaTeX, CSV or JSON.

A sign before a number marks a bound, so that a run that did not reach the target does not look fast.
"""

from collections.abc import Collection

import pandas as pd

from analysis.comparison import layout
from analysis.comparison.cells import MISSING, Column, Rows, has_ratios
from analysis.comparison.time_to_target import MEDIAN, NOT_REACHED, RESTRICTED
from analysis.tables import Unit, bytes_unit, csv, latex_float, markdown, require_format, seconds_unit, to_json
from testbed.records.targets import Target

HEADS = {
    "time_to_target_s": "Time",
    "rounds_to_target": "Rounds",
    "server_bytes_to_target": "Server traffic",
    "client_bytes_to_target": "Client traffic",
}
_SHORTEST_LABEL = 12
_BOUNDS = {RESTRICTED: "≥", NOT_REACHED: ">"}
_RATIO_BOUNDS = {"at least": "≥", "at most": "≤"}


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """Return the frame of `compare_targets` as a table, ending in a line feed.

    Args:
        frame: of one target or several.
        format: ``text``, ``markdown``, ``latex`` (needs the package booktabs), or, with every column in seconds and
            bytes, ``csv`` or ``json`` (``{"targets": [...]}``).

    Raises:
        ExperimentError: an unknown format.
    """
    require_format(format, "text", "markdown", "csv", "latex", "json")
    if format in ("csv", "json"):
        table = for_programs(frame)
        return csv(table) if format == "csv" else to_json({"targets": table})
    frames = [part for _, part in frame.groupby(["target", "is_default"], sort=False)]
    sentences = notes(frame)
    if format == "latex":
        caption = f"Time to accuracy: {sentences[0][0].lower()}{sentences[0][1:]}"
        tables = [
            table
            for part in frames
            for table in layout.tabulars(part, _columns(part, all_intervals=True), title(part.iloc[0]), narrow=False)
        ]
        return latex_float(caption, "tab:time-to-target", tables, sentences[1:], narrow=False)
    parts = [_of_target(part, format) for part in frames]
    if format == "text":
        return "\n".join([*parts, *layout.wrapped(sentences)]) + "\n"
    return "\n".join(parts) + f"\n{markdown(' '.join(sentences))}\n"


def for_programs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the numbers of rows that never reached the target moved to columns ``..._at_least``.

    Sorting by a column then never places such a row before others. If some runs of a row reached the target, the number
    stays: it is a restricted mean, as ``estimator`` says.
    """
    table = frame.copy()
    nobody = frame["estimator"] == NOT_REACHED
    for measure in HEADS:
        table.insert(list(table.columns).index(measure) + 1, f"{measure}_at_least", frame[measure].where(nobody))
        for column in (measure, f"{measure}_half_width"):
            table[column] = frame[column].mask(nobody)
    return table


def title(row: pd.Series) -> str:
    """Return the title of a target's table, from its first row."""
    smooth = f", mean of {row['smooth']} evaluations" if row["smooth"] > 1 else ""
    best = ", the best that every run reaches" if row["is_default"] else ""
    return f"Time to {Target(row['metric'], row['threshold']).label}{best}{smooth}"


def _of_target(frame: pd.DataFrame, format: str) -> str:
    columns = _columns(frame, all_intervals=format != "text")
    if format == "markdown":
        return layout.markdown_table(frame, columns, title(frame.iloc[0]))
    width = layout.label_width(frame, layout.width_of(columns), _SHORTEST_LABEL)
    return layout.text_table(frame, columns, width, title(frame.iloc[0]))


def _columns(frame: pd.DataFrame, *, all_intervals: bool) -> list[Column]:
    """Return the columns of one target's table; `all_intervals`: also of the ratios of rounds and traffic."""
    columns = [Column.of("Reached", reached_of(frame))]
    for measure in HEADS:
        unit = unit_of(frame, measure)
        head = f"{HEADS[measure]} [{unit.symbol}]" if unit.symbol else HEADS[measure]
        # A terminal has room for the interval of one ratio.
        cells = cells_of(frame, measure, unit, ratio_intervals=all_intervals or measure == "time_to_target_s")
        columns.append(Column(head, cells))
    if (frame["estimator"] == RESTRICTED).any():
        medians = [MISSING if pd.isna(value) else f"{value:.0f}" for value in frame[MEDIAN]]
        columns.append(Column.of("Median", medians))
    return columns


def reached_of(frame: pd.DataFrame) -> list[str]:
    """Return texts such as ``2 of 3`` or ``2 of 3, 1 unfinished``."""
    rows = zip(frame["reached"], frame["seeds"], frame["unfinished"], strict=True)
    return [f"{reached} of {seeds}" + (f", {more} unfinished" if more else "") for reached, seeds, more in rows]


def unit_of(frame: pd.DataFrame, measure: str) -> Unit:
    """Return the unit of a measure for all rows.

    Args:
        frame: from `compare_targets`.
        measure: one of `analysis.comparison.time_to_target.MEASURES`.
    """
    if measure == "rounds_to_target":
        return Unit("", 1.0, 1 if (frame["seeds"] > 1).any() else 0)
    values = frame[measure].dropna().tolist()
    return bytes_unit(values) if "bytes" in measure else seconds_unit(values)


def cells_of(frame: pd.DataFrame, measure: str, unit: Unit, *, ratio_intervals: bool) -> Rows:
    """Return the mean, half-width and ratio to the baseline of a measure in each row, with the signs of bounds.

    Ratios are empty if every row is its own baseline.

    Args:
        frame: from `compare_targets`.
        measure: one of `analysis.comparison.time_to_target.MEASURES`.
        unit: of the mean and the half-width.
        ratio_intervals: whether ratios have their half-widths.
    """
    cells, has_others = [], has_ratios(frame)
    for row in frame.to_dict("records"):
        half, ratio, ratio_half = (row[f"{measure}{end}"] for end in ("_half_width", "_ratio", "_ratio_half_width"))
        ratio_text = ""
        if has_others and not pd.isna(ratio):
            ratio_text = _RATIO_BOUNDS.get(row["ratio_is"], "") + (f"{ratio:.3f}" if ratio < 100 else f"{ratio:.1f}")
            ratio_text += f"±{ratio_half:.3f}" if ratio_intervals and not row["is_baseline"] and ratio_half > 0 else ""
            ratio_text += "×"
        mean = _BOUNDS.get(row["estimator"], "") + unit.number(row[measure])
        cells.append((mean, "" if pd.isna(half) else unit.number(half), ratio_text))
    return cells


# -- notes --------------------------------------------------------------------------------------------------------


def notes(frame: pd.DataFrame, columns: Collection[str] | None = None) -> list[str]:
    """Return the notes below the table, a sentence or two each.

    Args:
        frame: from `compare_targets`.
        columns: the displayed columns; None: all.
    """
    seeds = sorted(set(frame["seeds"]))
    several = seeds[-1] > 1
    over = f"; means over {seeds[0]} seeds" if several and len(seeds) == 1 else "; means over the seeds" * several
    lines = [f"From the start of the run, failed rounds included, to the first evaluation that meets the target{over}"]
    lines[0] += " ± half-width of the 95% interval." if several else "."
    baselines = list(dict.fromkeys(frame["baseline"].dropna()))
    if (frame["time_to_target_s_ratio"].notna() & ~frame["is_baseline"]).any():
        lines.append(f"× is the ratio to {' / '.join(baselines)}.")
    if (every := frame["evaluated_every"].max()) > 1:
        lines.append(f"Evaluated at least every {every} rounds: the target was met up to {every - 1} rounds earlier.")
    if (frame["smooth"] > 1).any():
        number = frame["smooth"].max()
        lines.append(f"Smoothed: the mean of an evaluation and the {number - 1} before it has to meet the target.")
    if (frame["estimator"] == RESTRICTED).any():
        lines.append(
            "≥: some runs did not reach the target and count up to their last evaluation (a restricted "
            "mean; the mean is at least this)."
        )
        if columns is None:
            lines[-1] += " Median: round by which half of the runs had reached the target (Kaplan-Meier)."
    if (frame["estimator"] == NOT_REACHED).any():
        lines.append(">: no run reached the target before this value (mean of the last evaluations of the runs).")
    if (frame["ratio_is"].isin(["at least", "at most"])).any():
        lines.append("≥, ≤ before a ratio: a bound, because only one of the two means is known.")
    if (frame["unfinished"] > 0).any():
        lines.append("Unfinished: these runs may still reach the target.")
    lines += _unchanged_notes(frame)
    if columns is None or "client_bytes_to_target" in columns:
        lines.append("Client traffic: sum over all clients, including PKI look-ups.")
    return lines


def _unchanged_notes(frame: pd.DataFrame) -> list[str]:
    """Return sentences on runs in which no round changed the model, and on initial models that met a target."""
    most = frame.groupby("target")[["unchanged", "met_at_start"]].sum().max()  # each run counts once per target
    lines = []
    if count := int(most["unchanged"]):
        best = " The default target ignores these runs." if frame["is_default"].any() else ""
        lines.append(
            f"In {count} {'run' if count == 1 else 'runs'} no round has changed the model, so the target counts as "
            f"not reached.{best}"
        )
    if count := int(most["met_at_start"]):
        lines.append(
            f"The initial model of {count} {'run' if count == 1 else 'runs'} met a target. Only evaluations after the "
            "first completed round count."
        )
    return lines
