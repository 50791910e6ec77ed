"""The table of `analysis.comparison.time_to_target` as text, Markdown, LaTeX, CSV or JSON.

A sign before a number says that it is a bound, so that a run that did not reach the target cannot look fast.
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
    """The frame of `compare_targets`, ending in a line feed.

    Args:
        frame: of one target or several.
        format: ``text``, ``markdown``, ``latex`` (needs the package booktabs), or, with every column in seconds and
            bytes, ``csv`` or ``json`` (``{"targets": [...]}``).

    Raises `ExperimentError` for another format.
    """
    require_format(format, "text", "markdown", "csv", "latex", "json")
    if format in ("csv", "json"):
        told = for_programs(frame)
        return csv(told) if format == "csv" else to_json({"targets": told})
    frames = [part for _, part in frame.groupby(["target", "is_default"], sort=False)]
    said = notes(frame)
    if format == "latex":
        caption = f"Time to accuracy: {said[0][0].lower()}{said[0][1:]}"
        tables = [
            table
            for part in frames
            for table in layout.tabulars(part, _columns(part, all_intervals=True), title(part.iloc[0]), narrow=False)
        ]
        return latex_float(caption, "tab:time-to-target", tables, said[1:], narrow=False)
    parts = [_of_target(part, format) for part in frames]
    if format == "text":
        return "\n".join([*parts, *layout.wrapped(said)]) + "\n"
    return "\n".join(parts) + f"\n{markdown(' '.join(said))}\n"


def for_programs(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame, numbers of rows that nobody has reached in columns ``..._at_least``: sorted, none comes before others.

    That of a row of which some have reached it stays: it is a restricted mean, as ``estimator`` says.
    """
    told = frame.copy()
    nobody = frame["estimator"] == NOT_REACHED
    for measure in HEADS:
        told.insert(list(told.columns).index(measure) + 1, f"{measure}_at_least", frame[measure].where(nobody))
        for column in (measure, f"{measure}_half_width"):
            told[column] = frame[column].mask(nobody)
    return told


def title(row: pd.Series) -> str:
    """What the table of a target is called: of its first row."""
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
    """The columns of one target's table; `all_intervals`: also of the ratios of rounds and traffic."""
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
    """E.g. ``2 of 3``, or ``2 of 3, 1 unfinished``."""
    rows = zip(frame["reached"], frame["seeds"], frame["unfinished"], strict=True)
    return [f"{reached} of {seeds}" + (f", {more} unfinished" if more else "") for reached, seeds, more in rows]


def unit_of(frame: pd.DataFrame, measure: str) -> Unit:
    """The unit of one of `analysis.comparison.time_to_target.MEASURES` for all rows."""
    if measure == "rounds_to_target":
        return Unit("", 1.0, 1 if (frame["seeds"] > 1).any() else 0)
    values = frame[measure].dropna().tolist()
    return bytes_unit(values) if "bytes" in measure else seconds_unit(values)


def cells_of(frame: pd.DataFrame, measure: str, unit: Unit, *, ratio_intervals: bool) -> Rows:
    """Of each row the measure's mean, its half-width and its ratio to the baseline, with their bounds.

    The ratios are empty where every row is its own baseline.
    """
    cells, has_others = [], has_ratios(frame)
    for row in frame.to_dict("records"):
        half, ratio, ratio_half = (row[f"{measure}{end}"] for end in ("_half_width", "_ratio", "_ratio_half_width"))
        told = ""
        if has_others and not pd.isna(ratio):
            told = _RATIO_BOUNDS.get(row["ratio_is"], "") + (f"{ratio:.3f}" if ratio < 100 else f"{ratio:.1f}")
            told += f"±{ratio_half:.3f}" if ratio_intervals and not row["is_baseline"] and ratio_half > 0 else ""
            told += "×"
        mean = _BOUNDS.get(row["estimator"], "") + unit.number(row[measure])
        cells.append((mean, "" if pd.isna(half) else unit.number(half), told))
    return cells


# -- what to know about the numbers -------------------------------------------------------------------------------


def notes(frame: pd.DataFrame, columns: Collection[str] | None = None) -> list[str]:
    """What a reader needs to know about the numbers, a sentence or two each.

    Args:
        frame: from `compare_targets`.
        columns: those that are shown; None: all.
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
        lines.append(f"Evaluated every {every} rounds at the widest: reached up to {every - 1} rounds before.")
    if (frame["smooth"] > 1).any():
        number = frame["smooth"].max()
        lines.append(f"Smoothed: what meets the target is the mean of an evaluation and the {number - 1} before it.")
    if (frame["estimator"] == RESTRICTED).any():
        lines.append(
            "≥: some runs did not reach it, and count with what they took up to their last evaluation (a restricted "
            "mean; the mean is at least that)."
        )
        if columns is None:
            lines[-1] += " Median: by which round half had reached it (Kaplan-Meier)."
    if (frame["estimator"] == NOT_REACHED).any():
        lines.append(">: none of the runs reached it in that, on average.")
    if (frame["ratio_is"].isin(["at least", "at most"])).any():
        lines.append("≥, ≤ before a ratio: a bound, as only one of the two means is known.")
    if (frame["unfinished"] > 0).any():
        lines.append("Unfinished: such a run may still reach it.")
    lines += _unchanged_notes(frame)
    if columns is None or "client_bytes_to_target" in columns:
        lines.append("Client traffic: of all clients together, their look-ups at the PKI included.")
    return lines


def _unchanged_notes(frame: pd.DataFrame) -> list[str]:
    """Sentences on runs whose model no round has changed, and on initial models that met a target."""
    most = frame.groupby("target")[["unchanged", "met_at_start"]].sum().max()  # each run counts once per target
    lines = []
    if count := int(most["unchanged"]):
        best = " The best that every run reaches is that of the others." if frame["is_default"].any() else ""
        lines.append(
            f"In {count} {'run' if count == 1 else 'runs'} no round has changed the model: such a run has reached "
            f"nothing.{best}"
        )
    if count := int(most["met_at_start"]):
        lines.append(
            f"The initial model of {count} {'run' if count == 1 else 'runs'} met a target before any round had "
            "completed; that does not count, only evaluations after the first completed round do."
        )
    return lines
