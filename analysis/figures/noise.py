"""Figures of the accuracy under noise: by the amount of noise, and by the width of the ring for sums."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.comparison.measures import per_round
from analysis.figures.curves import keep_within
from analysis.figures.elements import FigureWithData, fitted, interval_note
from analysis.figures.points import MARKERS, Look, Series, draw_points
from analysis.statistics import mean_interval
from analysis.style import SERIES_COLOURS, width
from analysis.tables import Unit
from testbed.records import RunRecords

_PANELS = {"noise_multiplier": "Noise multiplier", "bits": "Ring width [bits]"}
_OTHER = {"noise_multiplier": "bits", "bits": "noise_multiplier"}


def accuracy_by_noise(runs: Sequence[RunRecords]) -> pd.DataFrame:
    """Return one row for each noise and ring: noise_multiplier (NaN: no noise), bits, runs, accuracy and half_width.

    Runs without an accuracy are left out, and so are runs with noise planned from an epsilon, or correlated noise. Rows
    are ordered by noise, then by ring. The 95% interval is over runs that differ in something else (seeds).
    """
    rows = []
    for run in runs:
        section: dict[str, Any] = run.experiment["aggregation"]
        noise = section.get("noise") or {}
        measured = per_round(run)["accuracy"].dropna()
        comparable = noise.get("epsilon") is None and noise.get("mechanism") != "correlated"
        if len(measured) and "bits" in section and comparable:
            rows.append((noise.get("noise_multiplier"), section["bits"], float(measured.iloc[-1])))
    frame = pd.DataFrame(rows, columns=["noise_multiplier", "bits", "accuracy"]).astype({"noise_multiplier": float})
    records = []
    for (multiplier, bits), part in frame.groupby(["noise_multiplier", "bits"], dropna=False):
        interval = mean_interval(part["accuracy"])
        records.append((multiplier, bits, len(part), interval.mean, interval.half_width))
    return pd.DataFrame(records, columns=["noise_multiplier", "bits", "runs", "accuracy", "half_width"])


def has_enough_points(frame: pd.DataFrame) -> bool:
    """Return whether there is noise, and more than one noise or ring to compare."""
    return len(frame) > 1 and bool(frame["noise_multiplier"].notna().any())


def noise_figure(runs: Sequence[RunRecords], columns: int = 1) -> FigureWithData | str:
    """Draw the accuracy of runs that differ in noise or ring width.

    Args:
        runs: the records.
        columns: of the page, 1 or 2.

    Returns:
        the figure, or the reason for its absence.
    """
    frame = accuracy_by_noise(runs)
    if not has_enough_points(frame):
        return "fewer than two noise multipliers or ring widths to compare"
    data = frame.rename(columns={"runs": "seeds", "half_width": "accuracy_half_width"})
    return FigureWithData("accuracy-of-noise", accuracy_of_noise(frame, columns), data)


def accuracy_of_noise(frame: pd.DataFrame, columns: int = 1) -> Figure:
    """Return a figure of the accuracy by noise multiplier and by ring width, with runs without noise as a line.

    Args:
        frame: from `accuracy_by_noise`.
        columns: of the page, 1 or 2.
    """
    noisy, without = frame[frame["noise_multiplier"].notna()], frame[frame["noise_multiplier"].isna()]
    panels = [key for key in _PANELS if noisy[key].nunique() > 1] or ["noise_multiplier"]
    abreast = len(panels) if columns == 2 else 1
    note = interval_note(frame["runs"].tolist()).replace("seeds", "runs") if frame["half_width"].notna().any() else ""
    shown = [_compared(noisy, _OTHER[key]) for key in panels]
    lines = [_names(part, _OTHER[key]) for part, key in zip(shown, panels, strict=True)]
    no_noise = ["no noise"] if len(without) else []
    title = f"error bars: {note}" if note else ""
    legends = [fitted([*names, *no_noise], width(columns) / abreast, title) for names in lines]
    inches = 1.9 + max(legend.inches for legend in legends)
    figure = Figure(figsize=(width(columns), inches * len(panels) / abreast), layout="constrained")
    parts = figure.subfigures(len(panels) // abreast, abreast, squeeze=False).flat
    for part, key, points, legend in zip(parts, panels, shown, legends, strict=True):
        axes = part.subplots()
        handles = _points(axes, points, key)
        for accuracy in without["accuracy"]:
            handles.append(axes.axhline(100 * accuracy, color="#555555", linewidth=0.8, linestyle=":"))
        axes.set_xlabel(_PANELS[key])
        axes.set_ylabel("Accuracy [%]")
        axes.grid()
        keep_within(axes, 100)
        legend.add_to(part, handles)
    return figure


def _compared(noisy: pd.DataFrame, other: str) -> pd.DataFrame:
    """Return the points that a line joins, if there are any; single points appear in the other panel."""
    compared = noisy.groupby(other).filter(lambda part: len(part) > 1)
    return compared if len(compared) else noisy


def _names(points: pd.DataFrame, other: str) -> list[str]:
    text = "{:g} bits" if other == "bits" else "multiplier {:g}"
    return [text.format(value) for value in sorted(points[other].unique())]


def _points(axes: Axes, points: pd.DataFrame, key: str) -> list[Any]:
    """Draw one line for each value of the other key; return the legend's entries."""
    values = sorted(points[key].unique())
    series = []
    for place, (_, part) in enumerate(points.groupby(_OTHER[key])):
        look = Look(SERIES_COLOURS[place % len(SERIES_COLOURS)], MARKERS[place % len(MARKERS)])
        at, closed = part[key].map(values.index), pd.Series(data=False, index=part.index)
        series.append(Series(look, at, part["accuracy"], part["half_width"], closed))
    draw_points(axes, series, Unit("%", 0.01, 1), joined=True, top=1.0)
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    return [one_series.look.handle for one_series in series]
