"""Figures 1 to 5: delta and epsilon of the analyses over epsilon, the noise, delta and the sampling rates.

Hasircioglu and Gunduz, Privacy Amplification via Random Participation in Federated Learning, arXiv 2205.01556. Figures
1 to 3 show the same curves, at p = q = 0.1 and C = 1, in three projections.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.bounds.random_participation import (
    Delta,
    Participation,
    centralized_shuffling,
    epsilon_at,
    lower_bound,
    only_local_sampling,
    recentred,
    weak_client_sampling,
)
from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.random_participation.published import PAPER
from analysis.reproduction.verdicts import PaperClaim, above, between
from analysis.style import one_panel, save
from testbed.arrays import Floats

BASELINES: dict[str, tuple[Delta, str, str]] = {
    "OLS": (only_local_sampling, "#56B4E9", "-"),
    "WCS (the guarantee)": (weak_client_sampling, "#000000", "-"),
    "CS": (centralized_shuffling, "#999999", "-"),
}
SIZE_COLOURS = {1: "#009E73", 10: "#E69F00", 100: "#D55E00"}
_NO_GUARANTEE, _LOWER_BOUND = "Theorem 4.1 (no guarantee)", "lower bound"


def _draw(
    path: Path,
    height: float,
    columns: int,
    curves: Iterable[tuple["pd.Series[float]", "pd.Series[float]", dict[str, Any]]],
    **axes_properties: Any,
) -> list[Path]:
    """Draw curves over a logarithmic axis, with a legend of `columns` columns below them."""
    with one_panel(height) as (figure, axes):
        for x, y, look in curves:
            axes.plot(x, y, **look)
        axes.set(yscale="log", **axes_properties)
        axes.grid()
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
        return save(figure, path, plot_data(figure))


# -- Figures 1 to 3 --------------------------------------------------------------------------------------------------


def run_projection(
    name: str,
    xs: Floats,
    value: Callable[[Delta, Participation, float], float],
    x_label: str,
    y_label: str,
    context: ReproductionContext,
) -> ReproductionResult:
    """Compute baselines, Theorem 4.1 (centred) and the orthogonal pair for d = 1, 10 and 100, at p = q = 0.1 and C = 1.

    Args:
        name: name of the reproduction.
        xs: `(x,)` values of the horizontal axis.
        value: function from an analysis, a participation and x to y.
        x_label: name of x.
        y_label: name of y.
        context: where to draw.
    """
    any_size = Participation(1, 0.1, 0.1)
    curves: list[tuple[str, Delta, Participation, int | None]]
    curves = [(label, delta, any_size, None) for label, (delta, _, _) in BASELINES.items()]
    for size in SIZE_COLOURS:
        participation = Participation(size, 0.1, 0.1)
        curves += [(_NO_GUARANTEE, recentred, participation, size), (_LOWER_BOUND, lower_bound, participation, size)]
    table = pd.DataFrame.from_records(
        [
            {"analysis": label, "d": size, x_label: x, y_label: value(delta, participation, x)}
            for label, delta, participation, size in curves
            for x in xs.tolist()
        ]
    )
    return ReproductionResult(
        _summary(table, ["analysis", "d"], x_label, y_label),
        figures=_draw_projection(table, x_label, y_label, context.out / name),
        claims=_ordering(table, y_label),
        remarks=[
            "The paper's figures have no numbers in the text; ours are computed from the formulas at the parameters "
            "that it states (p = q = 0.1, C = 1), other parameters are on the axes.",
            "Theorem 4.1 is drawn centred on x', as the paper evaluates it; the lower bound is the worse of two "
            "possible pairs of data sets. Where it lies above the theorem's curve, the theorem is violated.",
        ],
    )


def _of(table: pd.DataFrame, label: str, size: int | None = None) -> pd.DataFrame:
    """Return the rows of one curve."""
    part = table[table["analysis"] == label]
    return part if size is None else part[part["d"] == size]


_SHOWN = 5


def _summary(table: pd.DataFrame, keys: list[str], x: str, y: str) -> pd.DataFrame:
    """Return one row for each curve, with its values at five places; the CSV beside the figure has all values."""
    xs = np.unique(table[x].to_numpy())
    places = xs[np.linspace(0, len(xs) - 1, min(_SHOWN, len(xs))).round().astype(int)]
    part = table[table[x].isin(places)]
    wide = part.pivot_table(index=keys, columns=x, values=y, sort=False, dropna=False).dropna(how="all")
    wide.columns = pd.Index([f"{y}, {x} {place:.3g}" for place in wide.columns])
    return wide.reset_index()


def _draw_projection(table: pd.DataFrame, x_label: str, y_label: str, path: Path) -> list[Path]:
    curves: list[tuple[pd.DataFrame, dict[str, Any]]] = [
        (_of(table, label), {"color": colour, "linestyle": style, "label": label})
        for label, (_, colour, style) in BASELINES.items()
    ]
    for size, colour in SIZE_COLOURS.items():
        for label, style, name in ((_NO_GUARANTEE, "--", "4.1"), (_LOWER_BOUND, "-", "lower bound")):
            look = {"color": colour, "linestyle": style, "linewidth": 1.0, "label": f"d = {size}: {name}"}
            curves.append((_of(table, label, size), look))
    lowest = max(1e-12, table.loc[table[y_label] > 0, y_label].min() / 2)
    lines = [(part[x_label], part[y_label], look) for part, look in curves]
    return _draw(path, 3.0, 2, lines, xlabel=x_label, ylabel=y_label, ylim=(lowest, None))


ALMOST = 0.1
"""Largest share of the distance between CS and WCS on a logarithmic axis, at the median, at which curves count as
almost the same or almost identical. The paper prints no numbers; lines that are nearer than a tenth of the whole
picture run into one another."""

ROUNDING = 1e-6
"""Error of a ratio of two curves that integration of both leaves."""


def _ordering(table: pd.DataFrame, y_label: str) -> list[PaperClaim]:
    """Claim that the proposed scheme lies between CS and WCS, converges to WCS with d, and is a bound."""

    def of(label: str, size: int | None = None) -> Floats:
        return _of(table, label, size)[y_label].to_numpy()

    cs, wcs = of("CS"), of("WCS (the guarantee)")
    curves = {size: of(_NO_GUARANTEE, size) for size in SIZE_COLOURS}
    shown = (cs > 0) & (wcs > 0)  # at 0 there is no ratio
    to_wcs = {size: (curve / wcs)[shown] for size, curve in curves.items()}
    to_cs = {size: (curve / cs)[shown] for size, curve in curves.items()}
    most, least = (
        max(float(ratios.max()) for ratios in to_wcs.values()),
        min(float(ratios.min()) for ratios in to_cs.values()),
    )
    whole = np.log(wcs[shown] / cs[shown])
    way = {size: float(np.median(np.log(ratios) / whole)) for size, ratios in to_cs.items()}
    linear = float(np.median(((curves[10] - cs) / (wcs - cs))[shown]))
    lost = {size: of(_LOWER_BOUND, size)[shown] / curves[size][shown] for size in SIZE_COLOURS}
    exceeded = max(float(ratios.max()) for ratios in lost.values())
    return [
        PaperClaim(
            "the proposed scheme lies between CS and WCS, for d = 1, 10 and 100",
            f"as the paper evaluates Theorem 4.1: {least:.3g} times CS at least, {most:.3g} times WCS at most",
            [
                between("smallest ratio to CS", least, least=1 - ROUNDING),
                between("largest ratio to WCS", most, most=1 + ROUNDING),
            ],
        ),
        PaperClaim(
            "for d = 1 it is almost identical to CS",
            f"{way[1]:.3f} of the way from CS to WCS (median, logarithmic axis)",
            [between("share of the way, d = 1", way[1], most=ALMOST)],
        ),
        PaperClaim(
            "for d = 10 it is still very close to CS",
            f"{way[10]:.3f} of the way from CS to WCS on a logarithmic axis, {linear:.3f} on a linear one (medians)",
            undetermined="how close is very close, and the scale of the figure's axis",
        ),
        PaperClaim(
            "it converges to WCS as d grows; d = 100 is almost the same curve",
            ", ".join(f"{share:.3f} of the way at d = {size}" for size, share in way.items()),
            [
                above("way from d = 1 to d = 10", way[10] - way[1]),
                above("way from d = 10 to d = 100", way[100] - way[10]),
                between("share of the way, d = 100", way[100], 1 - ALMOST, 1 + ROUNDING),
            ],
        ),
        PaperClaim(
            "Theorem 4.1 bounds the privacy loss",
            f"two data sets lose up to {exceeded:.3g} times as much",
            [between("largest ratio of a pair's loss to the bound", exceeded, most=1 + ROUNDING)],
            counted_in="random-participation-unsound",
        ),
    ]


# -- Figure 4 ------------------------------------------------------------------------------------------------------


_SIGMA, _RATE, _SIZE = 3.0, 0.1, 10
_DELTAS = np.geomspace(1e-8, 1e-3, 26)
_WCS, _PROPOSED, _LOWER = "WCS (the guarantee)", f"Theorem 4.1, d = {_SIZE} (no guarantee)", f"lower bound, d = {_SIZE}"


def run_fig4(context: ReproductionContext) -> ReproductionResult:
    """Compute epsilon over delta at p = q = 0.1, C = 1, sigma = 3, for this paper's own schemes."""
    participation = Participation(_SIZE, _RATE, _RATE)
    curves: dict[str, Delta] = {_WCS: weak_client_sampling, _PROPOSED: recentred, _LOWER: lower_bound}
    rows = [
        {"analysis": name, "delta": delta, "epsilon": epsilon_at(curve, participation, _SIGMA, delta)}
        for delta in _DELTAS.tolist()
        for name, curve in curves.items()
    ]
    return ReproductionResult(
        _summary(pd.DataFrame.from_records(rows), ["analysis"], "delta", "epsilon"),
        claims=[
            PaperClaim(
                "the proposed scheme significantly improves upon random check-ins (Balle et al., arXiv 2007.06605)",
                "not compared",
                undetermined="which of their bounds is drawn, for how many steps, and with how many samples a client",
            )
        ],
        remarks=[
            "The paper draws random check-ins in a region in which meaningful guarantees were found, and states "
            "neither the bound, nor the number of steps of its epsilon, nor d. Here are only this paper's own "
            f"curves, for d = {_SIZE}, without a figure.",
            "An earlier version drew the bounds of random check-ins from memory. Their paper was not available for a "
            "check, so they were removed.",
        ],
    )


# -- Figure 5 ------------------------------------------------------------------------------------------------------


def run_fig5(context: ReproductionContext) -> ReproductionResult:
    """Compute epsilon over q at p q = 1e-4, sigma = 1."""
    rates = np.geomspace(1e-4, 1.0, 25)
    curves: dict[str, tuple[Delta, int | None, str, str]] = {
        name: (delta, None, colour, style) for name, (delta, colour, style) in BASELINES.items()
    }
    for size, colour in SIZE_COLOURS.items():
        curves[f"d = {size}: 4.1"] = (recentred, size, colour, "--")
        curves[f"d = {size}: lower bound"] = (lower_bound, size, colour, "-")
    rows = []
    for name, (delta, local_samples, _, _) in curves.items():
        for q in rates.tolist():
            # The baselines do not depend on d. At q = 1e-4, rounding may make p larger than 1.
            participation = Participation(local_samples or 1, min(1.0, 1e-4 / q), q)
            rows.append({"analysis": name, "q": q, "epsilon": epsilon_at(delta, participation, 1.0, 1e-6)})
    table = pd.DataFrame.from_records(rows)
    lines = [
        (part["q"], part["epsilon"], {"color": colour, "linestyle": style, "label": name, "linewidth": 1.0})
        for name, (_, _, colour, style) in curves.items()
        for part in [_of(table, name)]
    ]
    axes = {"xscale": "log", "xlabel": "q, at p q = 1e-4", "ylabel": "epsilon at delta = 1e-6"}
    return ReproductionResult(
        _summary(table, ["analysis"], "q", "epsilon"),
        figures=_draw(context.out / "random-participation-fig5", 3.0, 2, lines, **axes),
        claims=_over_rates(table),
        remarks=[
            "delta = 1e-6 is ours; the paper does not state it. OLS is drawn with q, as in the paper.",
            "CS depends on p q alone, so its curve is level.",
        ],
    )


def _over_rates(table: pd.DataFrame) -> list[PaperClaim]:
    """Claim the cost of a larger q at the same p q."""
    by_name = {str(name): rows["epsilon"].to_numpy() for name, rows in table.groupby("analysis", sort=False)}
    sampled = {name: values for name, values in by_name.items() if name != "CS" and not name.endswith("lower bound")}
    least = min(float(np.diff(values).min()) for values in sampled.values())
    whole = min(float(values[-1] - values[0]) for values in sampled.values())
    wcs = by_name["WCS (the guarantee)"]
    first, last = ({name: float(values[place]) for name, values in by_name.items()} for place in (0, -1))
    return [
        PaperClaim(
            "at fixed p q, a larger q costs privacy with all the schemes",
            f"WCS: epsilon {wcs[0]:.3g} at q = 1e-4, {wcs[-1]:.3g} at q = 1",
            [
                between("least step of epsilon, any scheme", least, least=-STEP_ROUNDING),
                above("whole rise of epsilon, any scheme", whole),
            ],
        ),
        *_at_the_ends(first, last),
    ]


def claims_of_fig5(table: pd.DataFrame) -> list[PaperClaim | None]:
    """Return all claims but the first, which needs the whole curves.

    Args:
        table: one row per curve, with its values at five places that include the ends.
    """
    first, last = (
        dict(zip(table["analysis"].astype(str), table[f"epsilon, q {q}"].astype(float), strict=True))
        for q in ("0.0001", "1")
    )
    return [None, *_at_the_ends(first, last)]


def _at_the_ends(first: Mapping[str, float], last: Mapping[str, float]) -> list[PaperClaim]:
    """Return the claims about epsilon at the smallest and at the largest q, by curve."""
    at_best = [value for name, value in first.items() if not name.endswith("lower bound")]
    many, single = last["d = 100: 4.1"], last["d = 1: 4.1"]
    return [
        PaperClaim(
            "with p = 1 all schemes are equivalent, and epsilon is at its best",
            f"epsilon {min(at_best):.4g} to {max(at_best):.4g}",
            [between("largest epsilon over the smallest at p = 1", max(at_best) / min(at_best), 1.0, 1 + 1e-3)],
        ),
        PaperClaim(
            "as q increases, smaller data sets become more favourable",
            f"at q = 1 epsilon is {single:.3g} for d = 1 and {many:.3g} for d = 100 (Theorem 4.1 as evaluated)",
            [above("epsilon at q = 1, d = 100 less d = 1", many - single)],
        ),
    ]


STEP_ROUNDING = 1e-9
"""Error of epsilon that its solver leaves between neighbouring points of a curve."""


def _projection(
    figure: int,
    title: str,
    xs: Floats,
    value: Callable[[Delta, Participation, float], float],
    x_label: str,
    y_label: str,
) -> Reproduction:
    name = f"random-participation-fig{figure}"
    run = partial(run_projection, name, xs, value, x_label, y_label)
    return Reproduction(name, f"Random participation: {title}", f"{PAPER}, Figure {figure}", run)


REPRODUCTIONS = (
    _projection(
        1, "delta against epsilon", np.linspace(0.0, 2.0, 41),
        lambda delta, participation, epsilon: delta(participation, 1.0, epsilon), "epsilon", "delta",
    ),
    _projection(
        2, "epsilon against the noise", np.geomspace(0.5, 5.0, 25),
        lambda delta, participation, sigma: epsilon_at(delta, participation, sigma, 1e-5), "sigma [C]",
        "epsilon at delta = 1e-5",
    ),
    _projection(
        3, "delta against the noise", np.geomspace(0.5, 3.0, 31),
        lambda delta, participation, sigma: delta(participation, sigma, 0.5), "sigma [C]", "delta at epsilon = 0.5",
    ),
    Reproduction(
        "random-participation-fig4", "Random participation beside random check-ins", f"{PAPER}, Figure 4", run_fig4
    ),
    Reproduction(
        "random-participation-fig5", "Client sampling against local sampling", f"{PAPER}, Figure 5", run_fig5,
        claims_of=lambda table, seeds: claims_of_fig5(table),
    ),
)  # fmt: skip
