"""The comparison as a figure over both columns of a page: four of its measures, a colour for each protocol."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.marks import marks
from analysis.style import SERIES_COLOURS, house_style, save, width


def draw(frame: pd.DataFrame, path: Path) -> Sequence[Path]:
    """Client time and traffic against n, the server's time against drop-outs, round time on phones."""
    names = list(dict.fromkeys(frame["protocol"]))
    colours = dict(zip(names, SERIES_COLOURS, strict=False))
    with house_style():
        figure = Figure(figsize=(width(2), 2.2), layout="constrained")
        axes = figure.subplots(1, 4)
        _lines(axes[0], frame, "participants", "client s", colours)
        axes[0].set(title="a", xlabel="Participants", ylabel="Client's work [s]")
        _lines(axes[1], frame, "participants", "MB up", colours)
        axes[1].set(title="b", xlabel="Participants", ylabel="Sent by a client [MB]")
        _lines(axes[2], frame, "drop-out", "server s", colours)
        axes[2].set(title="c", xlabel="Drop-outs [%]", ylabel="Server's work [s]")
        _bars(axes[3], frame, colours)
        axes[3].set(title="d", xlabel="Links of phones", ylabel="Round [s]", yscale="log")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
        return save(figure, path, marks(figure))


def _lines(axes: Axes, frame: pd.DataFrame, varied: str, column: str, colours: dict[str, str]) -> None:
    """With the first condition where it belongs: at no drop-outs, or at its own number of participants."""
    base = frame[frame["varied"] == "always on"]
    for name, colour in colours.items():
        rows = pd.concat([base, frame[frame["varied"] == varied]])
        rows = rows[rows["protocol"] == name].dropna(subset=[column])
        x = rows["n"] if varied == "participants" else 100 * rows["dropout"]
        order = np.argsort(x.to_numpy(), kind="stable")
        axes.plot(x.to_numpy()[order], rows[column].to_numpy()[order], "o-", markersize=3, color=colour, label=name)
    axes.set_ylim(bottom=0)
    axes.grid()


def _bars(axes: Axes, frame: pd.DataFrame, colours: dict[str, str]) -> None:
    phones = frame[frame["varied"] == "phones"]
    links = list(dict.fromkeys(phones["value"]))
    wide = 0.8 / len(colours)
    for place, (name, colour) in enumerate(colours.items()):
        rows = phones[phones["protocol"] == name].set_index("value").reindex(links)
        x = np.arange(len(links)) + (place - (len(colours) - 1) / 2) * wide
        axes.bar(x, rows["round s"], wide, color=colour, label=name)
    axes.set_xticks(range(len(links)), links)
    axes.grid(axis="y")
