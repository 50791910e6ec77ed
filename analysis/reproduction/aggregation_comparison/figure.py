"""Figure of the comparison: work and traffic of clients, the server's work with dropouts, and rounds on phones."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plot_data import plot_data
from analysis.reproduction.aggregation_comparison.protocols import PROTOCOLS
from analysis.style import SERIES_COLOURS, house_style, save, width

LINES = ("plain", "secagg", "secagg-plus", "lightsecagg", "flamingo", "one-shot", "e-seafl")
"""Rows with a line: one for each protocol with rows for other numbers of participants."""


def draw(table: pd.DataFrame, path: Path) -> Sequence[Path]:
    """Draw client time and traffic against n, server time against dropouts, and round time on phones.

    Args:
        table: table of the result.
        path: path of the files, without extension.
    """
    names = [compared.name for compared in PROTOCOLS if compared.name in LINES]
    colours = dict(zip(names, SERIES_COLOURS, strict=False))
    frame = table.assign(
        participants=pd.to_numeric(table["n"]),
        lost=[_lost(str(varied), str(value)) for varied, value in zip(table["varied"], table["value"], strict=True)],
    )
    with house_style():
        figure = Figure(figsize=(width(2), 2.2), layout="constrained")
        axes = figure.subplots(1, 4)
        _lines(axes[0], frame, "participants", "client s", colours)
        axes[0].set(title="a", xlabel="Participants", ylabel="Client's work [s]")
        _lines(axes[1], frame, "participants", "MB up", colours)
        axes[1].set(title="b", xlabel="Participants", ylabel="Sent by a client [MB]")
        _lines(axes[2], frame, "lost", "server s", colours)
        axes[2].set(title="c", xlabel="Participants lost", ylabel="Server's work [s]")
        _bars(axes[3], frame, colours)
        axes[3].set(title="d", xlabel="Links of phones", ylabel="Round [s]", yscale="log")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
        return save(figure, path, plot_data(figure))


def _lost(varied: str, value: str) -> int:
    """Return the number of lost participants of a row, as in "10 of 100"."""
    return int(value.partition(" ")[0]) if varied == "lost" else 0


def _lines(axes: Axes, frame: pd.DataFrame, varied: str, column: str, colours: dict[str, str]) -> None:
    """Draw lines that include the first condition: at no dropouts, or at its own number of participants."""
    for name, colour in colours.items():
        rows = frame[frame["varied"].isin(("always on", varied)) & (frame["protocol"] == name)].dropna(subset=[column])
        x = rows[varied].to_numpy()
        order = np.argsort(x, kind="stable")
        axes.plot(x[order], rows[column].to_numpy()[order], "o-", markersize=3, color=colour, label=name)
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
