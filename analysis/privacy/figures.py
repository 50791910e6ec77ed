"""Epsilon over the rounds, planned against achieved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from analysis.legends import MARKERS, fitted_lines
from analysis.plot_data import plot_data
from analysis.privacy.spent import Spending
from analysis.style import COLUMN_INCHES, SERIES_COLOURS, house_style, save

_KINDS: dict[str, tuple[str, Any]] = {
    "planned_epsilon": ("planned", ":"),
    "epsilon": ("achieved", "-"),
    "colluding_epsilon": ("against the server and its accomplices", "--"),
}


def draw(runs: Sequence[Spending], out: Path, name: str = "privacy") -> list[Path]:
    """Draw the largest epsilon of a client after each round, a colour for each run, and budgets as grey lines.

    Epsilons that are infinite, or equal to the achieved one throughout, are not drawn.

    Args:
        runs: ledgers.
        out: folder of the figure.
        name: of the figure.

    Returns:
        Paths of the written files.
    """
    with house_style():
        figure = Figure(layout="constrained")
        axes = figure.add_subplot()
        shown, handles = set(), []
        for place, run in enumerate(runs):
            colour, marker = SERIES_COLOURS[place % len(SERIES_COLOURS)], MARKERS[place % len(MARKERS)]
            if len(runs) <= len(SERIES_COLOURS):
                marker = "None"
            handles.append(Line2D([], [], color=colour, marker=marker, markersize=4))
            rounds, achieved = run.by_round["round"], run.by_round["epsilon_max"]
            for kind, (_, line) in _KINDS.items():
                values = run.by_round[f"{kind}_max"].to_numpy(np.float64)
                if np.isfinite(values).all() and (kind == "epsilon" or not np.array_equal(values, achieved)):
                    step = max(1, len(rounds) // 6)
                    look: dict[str, Any] = {
                        "color": colour,
                        "marker": marker,
                        "markersize": 4,
                        "markevery": (place % step, step),
                    }
                    axes.plot(rounds, values, line, drawstyle="steps-post", **look)
                    shown.add(kind)
        for budget in sorted({run.budget for run in runs if run.budget is not None}):
            axes.axhline(budget, color="#888888", linewidth=0.7)
            axes.annotate(
                "budget",
                (1, budget),
                xycoords=("axes fraction", "data"),
                xytext=(2, 0),
                textcoords="offset points",
                color="#666666",
                va="center",
            )
        labels = [run.label for run in runs]
        if len(shown) > 1:
            handles += [
                Line2D([], [], color="#444444", linestyle=line) for kind, (_, line) in _KINDS.items() if kind in shown
            ]
            labels += [text for kind, (text, _) in _KINDS.items() if kind in shown]
        legend = fitted_lines(labels, COLUMN_INCHES)
        figure.set_size_inches(COLUMN_INCHES, 2.2 + legend.inches)
        axes.set_xlabel("Round")
        axes.set_ylabel(r"Largest $\epsilon$ of a client")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid()
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        legend.add_to(figure, handles)
        return save(figure, out / name, plot_data(figure))
