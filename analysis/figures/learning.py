"""Figures of the global model's quality over time, rounds and traffic, with lines at targets."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.ticker import MaxNLocator

from analysis.comparison.rows import ComparisonRow
from analysis.comparison.targets import Metric, Target
from analysis.comparison.time_to_target import trajectory
from analysis.figures.curves import Panel, over_settings, with_intervals
from analysis.figures.elements import FigureWithData, of_rows
from analysis.figures.target_lines import add_target_lines
from analysis.tables import bytes_unit, seconds_unit

_X = ["time_s", "server_bytes", "client_bytes"]


def over_time(
    rows: Sequence[ComparisonRow],
    metric: Metric = "accuracy",
    targets: Sequence[Target] = (),
    columns: int = 1,
    smooth: int = 1,
) -> FigureWithData | str:
    """Draw two panels per setting: the metric over the run's clock and over rounds.

    Lines are means over the seeds that evaluated in a round, at their mean time; bands are 95% intervals.

    Args:
        rows: from `analysis.comparison.rows.rows_of`.
        metric: of the global model.
        targets: targets of this metric become lines.
        columns: of the page, 1 or 2.
        smooth: number of evaluations to average over, see `analysis.comparison.targets.values_of`.

    Returns:
        the figure, or the reason for its absence.
    """
    curves = [_curve(row, metric, smooth) for row in rows]
    unit = seconds_unit([max((curve["time_s"].max() for curve in curves if len(curve)), default=0.0)])
    x = {"time_s": (f"Time [{unit.symbol}]", unit.size), "round": ("Round", 1.0)}
    return _draw_curves(rows, metric, curves, x, targets, columns, smooth, metric)


def by_traffic(
    rows: Sequence[ComparisonRow],
    metric: Metric = "accuracy",
    targets: Sequence[Target] = (),
    columns: int = 1,
    smooth: int = 1,
) -> FigureWithData | str:
    """Draw the metric over the bytes since the start: of the server, and of all clients with the PKI.

    Args:
        rows, metric, targets, columns, smooth: as for `over_time`.

    Returns:
        the figure, or the reason for its absence.
    """
    curves = [_curve(row, metric, smooth) for row in rows]
    unit = bytes_unit([max((curve["server_bytes"].max() for curve in curves if len(curve)), default=0.0)])
    titles = {"server_bytes": "Server traffic so far", "client_bytes": "Traffic of all clients so far, with the PKI"}
    x = {name: (f"{title} [{unit.symbol}]", unit.size) for name, title in titles.items()}
    return _draw_curves(rows, metric, curves, x, targets, columns, smooth, f"{metric}-by-traffic")


def _curve(row: ComparisonRow, metric: Metric, smooth: int) -> pd.DataFrame:
    """Return by round: means of time_s, server_bytes and client_bytes, and the metric with its half-width."""
    rounds = pd.concat([trajectory(run, metric, smooth) for run in row.runs]).dropna(subset="value")
    frame = with_intervals(rounds, "round", [*_X, "value"])
    return frame[["round", *_X, "value", "value_half_width"]]


def _draw_curves(
    rows: Sequence[ComparisonRow],
    metric: Metric,
    curves: Sequence[pd.DataFrame],
    x: dict[str, tuple[str, float]],
    targets: Sequence[Target],
    columns: int,
    smooth: int,
    name: str,
) -> FigureWithData | str:
    if all(curve.empty for curve in curves):
        return f"no {metric} was measured in these runs"
    percent = 100 if metric == "accuracy" else 1
    averaged = f", mean of {smooth} evaluations" if smooth > 1 else ""
    label = f"{metric.capitalize()}{' [%]' if metric == 'accuracy' else ''}{averaged}"
    panels = [Panel(title, label, 100 if metric == "accuracy" else None) for title, _ in x.values()]
    lines = []
    for curve in curves:
        y = pd.DataFrame({"mean": percent * curve["value"], "half_width": percent * curve["value_half_width"]})
        lines.append([(curve[column] / size, y) for column, (_, size) in x.items()])
    figure, settings = over_settings(rows, panels, lines, columns)
    own = [target for target in targets if target.metric == metric]
    if "round" in x:
        for axes in (setting[list(x).index("round")] for setting in settings):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    add_target_lines(figure, figure.axes, own, percent, panels[0].top)
    shown = ["round", *[column for column in x if column != "round"], "value", "value_half_width"]
    data = of_rows(rows, [curve[shown] for curve in curves])
    named = {"value": metric, "value_half_width": f"{metric}_half_width"}
    marks = [{"label": f"target: {target.column}", "value": target.threshold} for target in own]
    return FigureWithData(name, figure, pd.concat([data, pd.DataFrame(marks)], ignore_index=True).rename(columns=named))
