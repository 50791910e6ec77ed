"""Accuracy of the global model over time and over rounds."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.ticker import MaxNLocator

from analysis.comparison.measures import per_round
from analysis.comparison.rows import Row
from analysis.figures.curves import Panel, over_settings, with_intervals
from analysis.figures.elements import Drawn, of_rows
from analysis.tables import seconds_unit


def accuracy(rows: Sequence[Row], columns: int = 1) -> Drawn | str:
    """Two panels a setting: against time and against rounds.

    Lines are means over the seeds that measured in that round, at their mean time; bands are 95% intervals.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        columns: of the page, 1 or 2.

    Returns:
        The figure, or why there is none.
    """
    curves = [_curve(row) for row in rows]
    if all(curve.empty for curve in curves):
        return "no accuracy was measured in these runs"
    unit = seconds_unit([max(curve["ended_s"].max() for curve in curves if len(curve))])
    lines = []
    for curve in curves:
        percent = pd.DataFrame({"mean": 100 * curve["accuracy"], "half_width": 100 * curve["accuracy_half_width"]})
        lines.append([(curve["ended_s"] / unit.size, percent), (curve["round"], percent)])
    panels = [Panel(f"Time [{unit.symbol}]", "Accuracy [%]", 100), Panel("Round", "Accuracy [%]", 100)]
    figure, settings = over_settings(rows, panels, lines, columns)
    for _, below in settings:
        below.xaxis.set_major_locator(MaxNLocator(integer=True))
    return Drawn("accuracy", figure, of_rows(rows, curves))


def _curve(row: Row) -> pd.DataFrame:
    """By round: round, ended_s (s, mean), accuracy (mean over the repetitions), accuracy_half_width."""
    rounds = pd.concat([per_round(run)[["round", "ended_s", "accuracy"]] for run in row.runs]).dropna()
    return with_intervals(rounds, "round", ["ended_s", "accuracy"]).drop(columns="ended_s_half_width")
