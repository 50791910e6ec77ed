"""Curves of the analyses at p = q = 0.1 and C = 1, which Figures 1 to 3 show in three projections.

Hasircioglu and Gunduz, Privacy Amplification via Random Participation in Federated Learning, arXiv 2205.01556.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.bounds.random_participation import (
    Delta,
    Participation,
    centralized_shuffling,
    lower_bound,
    only_local_sampling,
    recentred,
    weak_client_sampling,
)
from analysis.reproduction.contract import Claim, ReproductionContext, ReproductionResult, agreement
from analysis.style import one_panel, save
from testbed.arrays import Floats

BASELINES: dict[str, tuple[Delta, str, str]] = {
    "OLS": (only_local_sampling, "#56B4E9", "-"),
    "WCS (the guarantee)": (weak_client_sampling, "#000000", "-"),
    "CS": (centralized_shuffling, "#999999", "-"),
}
SIZE_COLOURS = {1: "#009E73", 10: "#E69F00", 100: "#D55E00"}


def draw_curves(
    context: ReproductionContext,
    name: str,
    xs: Floats,
    value: Callable[[Delta, Participation, float], float],
    x_label: str,
    y_label: str,
) -> ReproductionResult:
    """Baselines, Theorem 4.1 (centred) and the orthogonal pair for d = 1, 10 and 100, at p = q = 0.1 and C = 1."""
    rows = []

    def add(label: str, delta: Delta, who: Participation, size: int | None) -> None:
        for x in xs.tolist():
            rows.append({"analysis": label, "d": size, x_label: x, y_label: value(delta, who, x)})

    any_size = Participation(1, 0.1, 0.1)
    for label, (delta, _, _) in BASELINES.items():
        add(label, delta, any_size, None)
    for size in SIZE_COLOURS:
        add("Theorem 4.1 (no guarantee)", recentred, Participation(size, 0.1, 0.1), size)
        add("lower bound", lower_bound, Participation(size, 0.1, 0.1), size)
    table = pd.DataFrame.from_records(rows)
    with one_panel(3.0) as (figure, axes):
        _plot(axes, table, x_label, y_label)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        figures = save(figure, context.out / name)
    return ReproductionResult(
        table,
        figures=figures,
        claims=_ordering(table, x_label, y_label),
        remarks=[
            "The paper's figures have no numbers in the text; ours are computed from the formulas at the parameters "
            "that it states (p = q = 0.1, C = 1), other parameters are on the axes.",
            "Theorem 4.1 is drawn centred on x', as the paper evaluates it; the lower bound is the worse of two pairs "
            "of data sets that can occur, and lies above it: what the theorem gives is no guarantee.",
        ],
    )


def _plot(axes: Axes, table: pd.DataFrame, x_label: str, y_label: str) -> None:
    for label, (_, colour, style) in BASELINES.items():
        part = table[table["analysis"] == label]
        axes.plot(part[x_label], part[y_label], style, color=colour, label=label)
    for size, colour in SIZE_COLOURS.items():
        for label, style in (("Theorem 4.1 (no guarantee)", "--"), ("lower bound", "-")):
            part = table[(table["analysis"] == label) & (table["d"] == size)]
            name = f"d = {size}: {'4.1' if style == '--' else 'lower bound'}"
            axes.plot(part[x_label], part[y_label], style, color=colour, linewidth=1.0, label=name)
    axes.set(xlabel=x_label, ylabel=y_label, yscale="log")
    axes.set_ylim(bottom=max(1e-12, table.loc[table[y_label] > 0, y_label].min() / 2))
    axes.grid()


def _ordering(table: pd.DataFrame, x_label: str, y_label: str) -> list[Claim]:
    """The proposed scheme lies between CS and WCS; it converges to WCS with d; and whether it is a bound at all."""

    def of(label: str, size: int | None = None) -> Floats:
        part = table[table["analysis"] == label]
        return (part if size is None else part[part["d"] == size])[y_label].to_numpy()

    cs, wcs = of("CS"), of("WCS (the guarantee)")
    curves = {size: of("Theorem 4.1 (no guarantee)", size) for size in SIZE_COLOURS}
    within = [bool((c >= cs * (1 - 1e-6)).all() and (c <= wcs * (1 + 1e-6)).all()) for c in curves.values()]
    gap = {size: float(np.nanmedian(c / wcs)) for size, c in curves.items()}
    lower = {size: of("lower bound", size) for size in SIZE_COLOURS}
    below = max(float(np.nanmax(lower[size] / curves[size])) for size in SIZE_COLOURS)
    return [
        Claim(
            "Theorem 4.1 lies between CS and WCS",
            f"for {sum(within)} of {len(within)} sizes of the local data sets",
            "yes" if all(within) else "partly",
        ),
        Claim(
            "it converges to WCS as d grows",
            ", ".join(f"{share:.2f} of WCS at d = {size}" for size, share in gap.items()) + " (median)",
            "yes" if gap[100] > gap[10] > gap[1] and gap[100] > 0.9 else "partly",
        ),
        Claim(
            "Theorem 4.1 bounds what is lost",
            f"two data sets lose up to {below:.3g} times as much",
            agreement(below <= 1 + 1e-6),
        ),
    ]
