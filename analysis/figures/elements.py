"""Elements shared by figures: stacked bars with a row for each protocol, fitted legends, intervals and their notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from analysis.comparison.measures import FAILED
from analysis.comparison.rows import ComparisonRow
from analysis.legends import FittedLegend as FittedLegend
from analysis.legends import fitted as fitted
from analysis.legends import fitted_lines as fitted_lines
from analysis.stage_looks import StageLook
from analysis.statistics import Interval, mean_interval
from analysis.style import COLUMN_INCHES, figure_lines, figure_text
from analysis.tables import Unit

FAILED_LOOK: dict[str, Any] = {"facecolor": "white", "edgecolor": "#7F7F7F", "hatch": "/////"}
ERROR_LOOK: dict[str, Any] = {"ecolor": "#333333", "elinewidth": 0.8, "capsize": 2, "capthick": 0.8}
_BAR = 0.72


@dataclass(frozen=True)
class FigureWithData:
    """A figure and its data.

    Attributes:
        name: of its files.
        figure: complete, not yet written.
        data: one row per mark, in base units (seconds, bytes, shares).
    """

    name: str
    figure: Figure
    data: pd.DataFrame


def named(row: ComparisonRow) -> dict[str, Any]:
    """Return the first columns of a figure's data: setting, label, protocol, seeds (number of runs)."""
    return {"setting": row.setting, "label": row.label, "protocol": row.protocol, "seeds": len(row.runs)}


def of_rows(rows: Sequence[ComparisonRow], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows' frames below each other, with the columns of `named` in front.

    Args:
        rows: the rows of a comparison.
        frames: one for each row.
    """
    parts = []
    for row, frame in zip(rows, frames, strict=True):
        part = frame.copy()
        for place, (name, value) in enumerate(named(row).items()):
            part.insert(place, name, value)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


# -- intervals --------------------------------------------------------------------------------------------------------


def over_runs(values: Sequence[pd.Series]) -> Interval:
    """Return mean and 95% interval over the runs' means; of a single run over its rounds.

    Args:
        values: for each run one number per round; runs without any do not count.
    """
    measured_runs = [each for each in values if each.notna().any()]
    return mean_interval(
        measured_runs[0] if len(values) == 1 and measured_runs else [float(each.mean()) for each in measured_runs]
    )


def interval_note(counts: Sequence[int], alone: str = "") -> str:
    """Return the meaning of bands or error bars, e.g. ``95% intervals over 3 seeds``; empty if there are none.

    Args:
        counts: number of runs of each row.
        alone: sample of the interval of a row with a single run; empty: it has no interval.
    """
    several = sorted({count for count in counts if count > 1})
    seeds = f"{several[0]} seeds" if len(several) == 1 else f"seeds ({several[0]} to {several[-1]})" if several else ""
    if not seeds:
        return f"95% intervals over {alone}" if alone else ""
    single = f", of one seed over {alone}" if alone and min(counts) == 1 else ""
    return f"95% intervals over {seeds}{single}"


# -- bars -------------------------------------------------------------------------------------------------------------


def positions(rows: Sequence[ComparisonRow]) -> tuple[list[float], float]:
    """Return the place of each row's bar and the height of the axis in inches.

    Places grow downwards, with room for the setting's name above its first bar.
    """
    places, at, setting = [], 0.0, ""
    for row in rows:
        if row.setting != setting:
            setting = row.setting
            at += 1.1 if at else 1.0
        places.append(at)
        at += 1
    lines = max(label.count("\n") + 1 for label in map(_label, rows))
    return places, max(0.23, 0.12 * lines + 0.02) * (at + 0.2)


def _label(row: ComparisonRow) -> str:
    return "\n".join(figure_lines(row.label, 26, 4))


def bars(
    axes: Axes,
    places: Sequence[float],
    columns: Sequence[pd.Series],
    half_widths: Sequence[float | None],
    unit: Unit,
    looks: Mapping[str, StageLook],
    nothing: str = "no completed round",
) -> float:
    """Draw one horizontal bar per row: stacked parts, an error bar, hatched failed rounds, then the numbers.

    Args:
        axes: to draw into.
        places: from `positions`.
        columns: for each row the values (in base units) by name of the part; `FAILED` is the hatched part.
        half_widths: of the interval of the sum of a row's parts, without `FAILED`.
        unit: of the axis.
        looks: of each part, in the order of stacking.
        nothing: text for a row without values.

    Returns:
        the end of the axis at which the numbers fit.
    """
    whole = axes.figure.bbox.width / axes.figure.dpi
    reach, letter = 0.0, 0.028 * COLUMN_INCHES / whole
    for position, column, half_width in zip(places, columns, half_widths, strict=True):
        values = (column / unit.size).to_dict()
        end = 0.0
        for part in [part for part in looks if part in values]:
            axes.barh(position, values[part], _BAR, end, **_patch_look(looks[part]))
            end += values[part]
        failed, text = values.get(FAILED, 0.0), f"{end:.{unit.decimals}f}" if values else nothing
        if failed:
            axes.barh(position, failed, _BAR, end, linewidth=0.5, **FAILED_LOOK)
        if round(failed, unit.decimals):
            text += f" + {failed:.{unit.decimals}f}"
        last = end + failed
        if half_width is not None:
            half_width /= unit.size
            error_bar = axes.errorbar(
                end, position, xerr=[[min(half_width, end)], [half_width]], fmt="none", **ERROR_LOOK
            )
            for part in (*error_bar[1], *error_bar[2]):
                part.set_path_effects([withStroke(linewidth=1.8, foreground="white")])  # visible on dark parts, too
            last = max(last, end + half_width)
        axes.annotate(text, (last, position), (3, 0), textcoords="offset points", va="center_baseline", fontsize=7)
        reach = max(reach, last / (0.98 - letter * len(text)))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    return reach


def protocol_axis(axes: Axes, rows: Sequence[ComparisonRow], places: Sequence[float]) -> None:
    """Label the bars, and put the names of settings in bold above their first bar.

    Args:
        axes: with the bars.
        rows: of the bars.
        places: from `positions`.
    """
    ticks = {position: (_label(row), False) for row, position in zip(rows, places, strict=True)}
    setting = ""
    for row, position in zip(rows, places, strict=True):
        if row.setting != setting:
            setting = row.setting
            ticks[position - 0.95] = (figure_text(setting), True)
    axes.set_yticks(list(ticks), [label for label, _ in ticks.values()])
    for label, (_, bold) in zip(axes.get_yticklabels(), ticks.values(), strict=True):
        label.set_fontweight("bold" if bold else "normal")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(places[-1] + 0.6, min(ticks) - 0.6)
    axes.grid(axis="x")


# -- legends ----------------------------------------------------------------------------------------------------------


def part_handles(looks: Mapping[str, StageLook]) -> list[Patch]:
    """Return the legend's entries for the parts of the bars."""
    return [Patch(label=figure_text(part), **_patch_look(look)) for part, look in looks.items()]


def _patch_look(look: StageLook) -> dict[str, Any]:
    return {"facecolor": look.colour, "hatch": look.hatch, "edgecolor": look.hatch_colour, "linewidth": 0}
