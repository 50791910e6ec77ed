"""Figures of `fig1a`: honest updates in the smallest sum by x, and rates of reconstruction beside Corollary 1."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.plot_data import plot_data
from analysis.style import COLUMN_INCHES, PAGE_INCHES, house_style, protocol_colours, save

SIGNED, SHRUNK, SPLIT = ("signed", "contradict-dropouts"), ("none", "shrink-the-sum"), ("none", "split-the-sharing")
UNSIGNED = ("none", "contradict-dropouts")
LOOKS = {SIGNED: ("#000000", "o"), UNSIGNED: ("#7F7F7F", "x"), SHRUNK: ("#0072B2", "s"), SPLIT: ("#D55E00", "^")}
_NAMES = {"random": "random, of the server's choice"}


def draw_steps(frame: pd.DataFrame, s: int, path: Path) -> list[Path]:
    """Draw the honest updates in the smallest sum, one panel for each threshold, and return the files.

    Args:
        frame: a row for each consistency, attack, t and x.
        s: number of participants.
        path: of the files, without a suffix.
    """
    thresholds = sorted(set(frame["t"]))
    with house_style():
        figure, panels = plt.subplots(1, len(thresholds), figsize=(PAGE_INCHES, 2.1), sharey=True)
        for axes, t in zip(np.atleast_1d(panels), thresholds, strict=True):
            for (consistency, attack), (colour, marker) in LOOKS.items():
                rows = frame[(frame["consistency"] == consistency) & (frame["attack"] == attack) & (frame["t"] == t)]
                if len(rows):
                    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3, "linewidth": 0.8}
                    label = f"{consistency}; {attack}"
                    axes.plot(rows["x"], rows["smallest"], label=label, clip_on=False, **look)
            axes.axvline(2 * t - s, color="#7F7F7F", linestyle=":", linewidth=0.9)
            axes.text(2 * t - s + 0.3, 1.01 * s, f"2t − s = {2 * t - s}", fontsize=6.5, va="bottom", ha="center")
            axes.set_title(f"t = {t}" + ("" if 3 * t > 2 * s else " (none: refused)"), pad=12)
            axes.set_yticks([1, 5, 10, 15, 20])
            axes.set_ylim(0, s)
            axes.grid(axis="y")
        np.atleast_1d(panels)[0].set_ylabel("honest updates in\nthe smallest sum had")
        handles, labels = np.atleast_1d(panels)[-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncols=4, bbox_to_anchor=(0.5, -0.02))
        figure.supxlabel(f"dishonest among {s} participants (x)", fontsize=7.5, y=0.0)
        figure.tight_layout()
        files = save(figure, path, plot_data(figure))
        plt.close(figure)
    return files


def draw_rates(frame: pd.DataFrame, path: Path) -> list[Path]:
    """Draw the rates of reconstruction with their intervals beside Corollary 1, and return the files.

    Args:
        frame: a row for each selection, c and t.
        path: of the files, without a suffix.
    """
    settings = list(dict.fromkeys(zip(frame["c"], frame["t"], strict=True)))
    selections = list(dict.fromkeys(frame["selection"]))
    colours = protocol_colours(selections)
    with house_style():
        figure, axes = plt.subplots(figsize=(COLUMN_INCHES, 2.4))
        for place, selection in enumerate(selections):
            rows = frame[frame["selection"] == selection].set_index(["c", "t"])
            for at, setting in enumerate(settings):
                label = _NAMES.get(selection, selection) if at == 0 else None
                _point(axes, at + 0.2 * (place - 1), rows.loc[setting], colours[selection], "osD"[place], label)
        for at, (c, t) in enumerate(settings):
            of_setting = frame[(frame["c"] == c) & (frame["t"] == t)]
            bound = float(of_setting["Corollary 1 (paper)"].max())
            axes.plot([at - 0.1, at + 0.4], [bound, bound], color="#7F7F7F", label="Corollary 1" if at == 0 else None)
        axes.set_yscale("log")
        axes.set_ylim(1e-6, 2)
        axes.set_xticks(range(len(settings)), [f"c = {c}\nt = {t}" for c, t in settings])
        axes.set_ylabel("rounds in which a victim's\nupdate was reconstructed")
        axes.grid(axis="y")
        axes.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.42, -0.18))
        files = save(figure, path, plot_data(figure))
        plt.close(figure)
    return files


def _point(axes: Axes, x: float, row: Any, colour: str, marker: str, label: str | None) -> None:
    """Draw a rate and its interval; without any reconstruction, draw the interval's end with an arrow down."""
    look: dict[str, Any] = {"color": colour, "markersize": 3.5, "linewidth": 0.9, "label": label}
    if row["reconstructed"]:
        reach = [[row["rate"] - row["95% low"]], [row["95% high"] - row["rate"]]]
        axes.errorbar([x], [row["rate"]], reach, marker=marker, linestyle="", **look)
        return
    high = row["95% high"]
    axes.plot([x], [high], marker="v", linestyle="", **look)
    axes.plot([x, x], [high / 10, high], color=colour, linewidth=0.9, linestyle=":")
