"""Figure of T, F and C after each round, as in Figure 4 of Multi-RoundSecAgg (arXiv 2106.03328)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.legends import fitted_lines
from analysis.multi_round.over_rounds import OverRounds
from analysis.plot_data import plot_data
from analysis.statistics import mean_interval
from analysis.style import COLUMN_INCHES, figure_text, house_style, protocol_colours, save

_LINES = ("-", "--", ":", "-.")
_PANELS = {"weak": "T (weak)", "fairness": "Fairness gap F", "cardinality": "Cardinality C"}


@dataclass(frozen=True)
class Line:
    """Metrics of one scheme.

    Attributes:
        label: text in the legend.
        protocol: selection protocol, which determines the colour.
        repetitions: metrics of one run, or of several runs with equally many rounds.
    """

    label: str
    protocol: str
    repetitions: Sequence[OverRounds]


def draw(lines: Sequence[Line], out: Path, name: str = "multi-round-metrics") -> list[Path]:
    """Draw three panels over the rounds, with the mean of the repetitions as line, and return the files.

    Bands of F and C are 95% intervals over the repetitions. The band of T reaches from the smallest lower bound to the
    largest value of the repetitions, so that it is wide in rounds without a certified T.

    Args:
        lines: one per scheme.
        out: existing directory.
        name: file name without extension.
    """
    colours = protocol_colours([line.protocol for line in lines])
    used: Counter[str] = Counter()
    with house_style():
        bands = _bands(lines)
        legend = fitted_lines([line.label for line in lines], COLUMN_INCHES, bands)
        figure = Figure(figsize=(COLUMN_INCHES, 4.2 + legend.inches), layout="constrained")
        panels = figure.subplots(len(_PANELS), 1, sharex=True)
        for line in lines:
            style = _LINES[used[line.protocol] % len(_LINES)]
            used[line.protocol] += 1
            for axes, metric in zip(panels, _PANELS, strict=True):
                _line(axes, line, metric, colours[line.protocol], style)
        for axes, title in zip(panels, _PANELS.values(), strict=True):
            axes.set_ylabel(title)
            axes.set_ylim(bottom=0)
            axes.grid()
        panels[0].yaxis.set_major_locator(MaxNLocator(integer=True))
        panels[-1].set_xlabel("Round")
        panels[-1].set_xlim(left=0)
        panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.align_ylabels()
        legend.add_to(figure, panels[0].get_legend_handles_labels()[0])
        return save(figure, out / name, plot_data(figure))


def _bands(lines: Sequence[Line]) -> str:
    """Return the legend's text about the bands; empty without bands."""
    repetitions = [metrics for line in lines for metrics in line.repetitions]
    is_open = any((metrics.lower_bound != metrics.weak)[metrics.rank > 0].any() for metrics in repetitions)
    most = max((len(line.repetitions) for line in lines), default=1)
    parts = ["of T from its lower bound to its smallest known value"] if is_open or most > 1 else []
    if most > 1:
        parts.append(f"of F and C 95% intervals over {most} runs")
    return "bands: " + ",\n".join(parts) if parts else ""


def _line(axes: Axes, line: Line, metric: str, colour: str, style: str) -> None:
    values = _stacked(line, metric)
    rounds = np.arange(1, values.shape[1] + 1)
    there = ~np.isnan(values).any(axis=0)
    rounds, values = rounds[there], values[:, there]
    if metric == "weak":
        low, high = _stacked(line, "lower_bound")[:, there].min(axis=0), values.max(axis=0)
    else:
        half = np.array([mean_interval(each).half_width or 0.0 for each in values.T])
        low, high = np.maximum(values.mean(axis=0) - half, 0), values.mean(axis=0) + half
    axes.plot(
        rounds,
        values.mean(axis=0),
        style,
        drawstyle="steps-post",
        color=colour,
        label=figure_text(line.label),
        linewidth=1.0,
    )
    axes.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)


def _stacked(line: Line, metric: str) -> npt.NDArray[np.float64]:
    """Return a metric as `(repetitions, rounds)`; T is NaN in rounds in which nothing is reachable yet."""
    columns = []
    for metrics in line.repetitions:
        values = np.asarray(getattr(metrics, metric), np.float64)
        if metric in ("weak", "lower_bound"):
            values = np.where(metrics.rank > 0, values, np.nan)
        columns.append(values)
    return np.stack(columns)
