"""Figures of clients: labels of each client, and distributions of samples, skew, devices and links."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.clients.profile import ClientProfile
from analysis.figures.elements import fitted_lines
from analysis.style import SERIES_COLOURS, USUAL_FORMATS, figure_text, house_style, save, width
from testbed.arrays import Floats

_BARS = 40
"""Largest number of clients drawn as bars; more are rows of a heat map."""
_BAR_LABELS = 20
_LINES = ("-", "--", ":", "-.")
_PANELS = (
    ("samples", "Training samples"),
    ("label_skew", "Label skew"),
    ("device_factor", "Device factor"),
    ("up_mbit_s", "Uplink [Mbit/s]"),
)


def draw(
    client_profile: ClientProfile, folder: Path, columns: int = 1, formats: Sequence[str] = USUAL_FORMATS
) -> list[Path]:
    """Write ``labels`` (if samples have labels) and ``clients``, with their data as CSV; return the files.

    Args:
        client_profile: the clients.
        folder: to write into.
        columns: of a paper's page, 1 or 2.
        formats: of `analysis.style.FORMATS`.
    """
    paths = []
    with house_style():
        if client_profile.label_counts is not None:
            paths += save(labels(client_profile, columns), folder / "labels", client_profile.labels, formats)
        paths += save(
            distributions(client_profile.clients, columns), folder / "clients", client_profile.clients, formats
        )
    return paths


def labels(client_profile: ClientProfile, columns: int = 1) -> Figure:
    """Return a figure of each client's labels: stacked bars for few clients, otherwise a heat map.

    In the heat map clients are ordered by the most frequent label of their samples.

    Args:
        client_profile: the clients.
        columns: of a paper's page, 1 or 2.
    """
    counts = client_profile.label_counts
    assert counts is not None
    few = counts.shape[0] <= _BARS and counts.shape[1] <= _BAR_LABELS
    figure = Figure(figsize=(width(columns), 2.4 if few else 2.9), layout="constrained")
    axes = figure.subplots()
    if few:
        _bars(axes, counts)
        figure.legend(loc="outside right upper", title="Label", title_fontsize=7, reverse=True)
    else:
        client_samples = counts.sum(axis=1, keepdims=True)
        shares = counts / np.maximum(client_samples, 1)
        order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        image = axes.imshow(100 * shares[order], aspect="auto", cmap="viridis", vmin=0, interpolation="nearest")
        axes.set_xlabel("Label")
        axes.set_ylabel(f"{len(counts):,} clients, by their main label")
        axes.set_yticks([])
        axes.spines[["top", "right"]].set_visible(True)
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
        figure.colorbar(image, ax=axes, label="Share of a client's samples [%]", pad=0.02)
    return figure


def _bars(axes: Axes, counts: np.ndarray) -> None:
    place, below = np.arange(len(counts)), np.zeros(len(counts))
    colours = _colours(counts.shape[1])
    for label, colour in enumerate(colours):
        axes.bar(place, counts[:, label], bottom=below, width=0.85, color=colour, label=str(label), linewidth=0)
        below += counts[:, label]
    axes.set_xlabel("Client")
    axes.set_ylabel("Training samples")
    axes.set_xlim(-0.6, len(counts) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))


def _colours(number: int) -> Sequence[object]:
    """Return distinct colours: a set for colour-blind readers, or a scale of lightness if there are many."""
    if number <= len(SERIES_COLOURS):
        return SERIES_COLOURS[:number]
    return [colormaps["viridis"](place) for place in np.linspace(0, 1, number)]


def distributions(clients: pd.DataFrame, columns: int = 1) -> Figure:
    """Return a figure of the cumulative share of clients over each measure; a line for each class of clients.

    Args:
        clients: one row per client.
        columns: of a paper's page, 1 or 2.
    """
    panels_drawn = [(column, name) for column, name in _PANELS if column in clients]
    rows = -(-len(panels_drawn) // 2)
    names = sorted(clients["class"].unique())
    legend = fitted_lines(list(map(str, names)), width(columns))
    figure = Figure(figsize=(width(columns), 1.55 * rows + legend.inches), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, 2, sharey=True)).ravel()
    for axes, (column, name) in zip(panels, panels_drawn, strict=False):
        span = _span(clients[column].dropna().to_numpy(np.float64))
        for place, class_name in enumerate(names):
            values = np.sort(clients.loc[clients["class"] == class_name, column].dropna().to_numpy(np.float64))
            look = {"color": SERIES_COLOURS[place % len(SERIES_COLOURS)], "linestyle": _LINES[place % len(_LINES)]}
            _distribution(axes, values, span, figure_text(str(class_name)), look)
        axes.set_xlabel(name)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=column == "samples", min_n_ticks=1))
        axes.set_ylim(0, 103)
        axes.grid()
    for axes in panels[len(panels_drawn) :]:
        axes.set_visible(False)
    for axes in panels[::2]:
        axes.set_ylabel("Clients [%]")
    legend.add_to(figure, panels[0].get_legend_handles_labels()[0])
    return figure


def _span(values: Floats) -> tuple[float, float]:
    """Return the ends of the lines of a panel, a little beyond the values."""
    if not len(values):
        return 0.0, 1.0
    least, most = float(values.min()), float(values.max())
    margin = 0.03 * (most - least) or 0.05 * abs(most) or 0.05
    return least - margin, most + margin


def _distribution(axes: Axes, values: Floats, span: tuple[float, float], label: str, look: Mapping[str, Any]) -> None:
    """Draw the cumulative share of `values`, which are ascending."""
    if not len(values):
        return
    edges = np.concatenate([span[:1], values, span[1:]])
    axes.stairs(100 * np.arange(len(values) + 1) / len(values), edges, baseline=None, label=label, **look)
