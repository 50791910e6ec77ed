"""Figures 1 to 3: delta and epsilon of the analyses over epsilon and the noise.

Hasircioglu and Gunduz, Privacy Amplification via Random Participation in Federated Learning, arXiv 2205.01556. The
figures show the same curves, at p = q = 0.1 and C = 1, in three projections.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
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
    hockey_stick,
    lower_bound,
    only_local_sampling,
    recentred,
    weak_client_sampling,
)
from analysis.plot_data import plot_data
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.random_participation.published import PAPER
from analysis.reproduction.verdicts import PaperClaim, above, between
from analysis.style import one_panel, save
from testbed.arrays import Floats

GUARANTEE, NO_GUARANTEE, LOWER_BOUND = "WCS (the guarantee)", "Theorem 4.1 (no guarantee)", "lower bound"
BASELINES: dict[str, tuple[Delta, str, str]] = {
    "OLS": (only_local_sampling, "#56B4E9", "-"),
    GUARANTEE: (weak_client_sampling, "#000000", "-"),
    "CS": (centralized_shuffling, "#999999", "-"),
}
SIZE_COLOURS = {1: "#009E73", 10: "#E69F00", 100: "#D55E00"}
_RATE = 0.1
"""p and q."""


def draw_curves(
    path: Path,
    height: float,
    columns: int,
    curves: Iterable[tuple["pd.Series[float]", "pd.Series[float]", dict[str, Any]]],
    **axes_properties: Any,
) -> list[Path]:
    """Draw curves over a logarithmic axis, with a legend of `columns` columns below them.

    Args:
        path: of the files, without extension.
        height: in inches.
        columns: of the legend.
        curves: x, y, and properties of each line.
        axes_properties: properties of the axes.
    """
    with one_panel(height) as (figure, axes):
        for x, y, look in curves:
            axes.plot(x, y, **look)
        axes.set(yscale="log", **axes_properties)
        axes.grid()
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
        return save(figure, path, plot_data(figure))


def curve(table: pd.DataFrame, label: str, size: int | None = None) -> pd.DataFrame:
    """Return the rows of one curve.

    Args:
        table: columns analysis, d, x, y.
        label: analysis.
        size: d; None for an analysis without d.
    """
    part = table[table["analysis"] == label]
    return part if size is None else part[part["d"] == size]


_SHOWN = 5


def summary(table: pd.DataFrame, keys: list[str], x: str, y: str) -> pd.DataFrame:
    """Return one row for each curve, with its values at five places; the CSV beside the figure has all values.

    Args:
        table: one row for each point.
        keys: columns that name a curve.
        x, y: columns of the curve.
    """
    xs = np.unique(table[x].to_numpy())
    places = xs[np.linspace(0, len(xs) - 1, min(_SHOWN, len(xs))).round().astype(int)]
    part = table[table[x].isin(places)]
    wide = part.pivot_table(index=keys, columns=x, values=y, sort=False, dropna=False).dropna(how="all")
    wide.columns = pd.Index([f"{y}, {x} {place:.3g}" for place in wide.columns])
    return wide.reset_index()


def measure_projection(
    name: str,
    xs: Floats,
    value: Callable[[Delta, Participation, float], float],
    x_label: str,
    y_label: str,
    context: ReproductionContext,
) -> Measurements:
    """Compute baselines, Theorem 4.1 (centred) and the lower bound for d = 1, 10 and 100, at p = q = 0.1 and C = 1.

    Args:
        name: name of the reproduction.
        xs: `(x,)` values of the horizontal axis.
        value: function from an analysis, a participation and x to y.
        x_label: name of x.
        y_label: name of y.
        context: where to draw.
    """
    any_size = Participation(1, _RATE, _RATE)
    curves: list[tuple[str, Delta, Participation, int | None]]
    curves = [(label, delta, any_size, None) for label, (delta, _, _) in BASELINES.items()]
    for size in SIZE_COLOURS:
        participation = Participation(size, _RATE, _RATE)
        curves += [(NO_GUARANTEE, recentred, participation, size), (LOWER_BOUND, lower_bound, participation, size)]
    table = pd.DataFrame.from_records(
        [
            {"analysis": label, "d": size, x_label: x, y_label: value(delta, participation, x)}
            for label, delta, participation, size in curves
            for x in xs.tolist()
        ]
    )
    return Measurements(
        Setting("none", sizes={"p": _RATE, "q": _RATE, "C": 1.0}),
        {"curves": table},
        _draw_projection(table, x_label, y_label, context.out / name),
    )


def _draw_projection(table: pd.DataFrame, x_label: str, y_label: str, path: Path) -> list[Path]:
    curves: list[tuple[pd.DataFrame, dict[str, Any]]] = [
        (curve(table, label), {"color": colour, "linestyle": style, "label": label})
        for label, (_, colour, style) in BASELINES.items()
    ]
    for size, colour in SIZE_COLOURS.items():
        for label, style, name in ((NO_GUARANTEE, "--", "4.1"), (LOWER_BOUND, "-", "lower bound")):
            look = {"color": colour, "linestyle": style, "linewidth": 1.0, "label": f"d = {size}: {name}"}
            curves.append((curve(table, label, size), look))
    lowest = max(1e-12, table.loc[table[y_label] > 0, y_label].min() / 2)
    lines = [(part[x_label], part[y_label], look) for part, look in curves]
    return draw_curves(path, 3.0, 2, lines, xlabel=x_label, ylabel=y_label, ylim=(lowest, None))


def conclude_projection(measurements: Measurements) -> ReproductionResult:
    """Compare the order of the curves with the paper's statements."""
    table = measurements.tables["curves"]
    x_label, y_label = map(str, table.columns[-2:])
    return ReproductionResult(
        summary(table, ["analysis", "d"], x_label, y_label),
        claims=_ordering(table, y_label),
        remarks=[
            "The paper's figures have no numbers in the text; ours are computed from the formulas at the parameters "
            "that it states (p = q = 0.1, C = 1), other parameters are on the axes.",
            "Theorem 4.1 is drawn centred on x', as the paper evaluates it; the lower bound is the worse of two "
            "possible pairs of data sets. Where it lies above the theorem's curve, the theorem is violated.",
            "CS is drawn with rate pq, which the text before Corollary 5.3 names; the corollary is printed with q.",
        ],
    )


ALMOST = 0.1
"""Largest share of the distance between CS and WCS on a logarithmic axis, at the median, at which curves count as
almost the same or almost identical. The paper prints no numbers; lines that are nearer than a tenth of the whole
picture run into one another."""

ROUNDING = 1e-6
"""Error of a ratio of two curves that integration of both leaves."""


def _ordering(table: pd.DataFrame, y_label: str) -> list[PaperClaim]:
    """Claim that the proposed scheme lies between CS and WCS, converges to WCS with d, and is a bound."""

    def of(label: str, size: int | None = None) -> Floats:
        return curve(table, label, size)[y_label].to_numpy()

    cs, wcs = of("CS"), of(GUARANTEE)
    curves = {size: of(NO_GUARANTEE, size) for size in SIZE_COLOURS}
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
    lost = {size: of(LOWER_BOUND, size)[shown] / curves[size][shown] for size in SIZE_COLOURS}
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


# -- Corollary 5.3, beside Figure 1 --------------------------------------------------------------------------------


_EPSILONS = np.linspace(0.0, 2.0, 41)


def measure_fig1(context: ReproductionContext) -> Measurements:
    """Compute Figure 1, and the delta of Corollary 5.3 beside the integrated delta of CS."""
    figure = measure_projection(
        "random-participation-fig1",
        _EPSILONS,
        lambda delta, participation, epsilon: delta(participation, 1.0, epsilon),
        "epsilon",
        "delta",
        context,
    )
    # In CS the sample is used with probability pq, and nothing else depends on it.
    rate = _RATE * _RATE
    with_x, without = (np.array([1 - rate, rate]), np.array([0.0, 1.0])), (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    corollary = pd.DataFrame.from_records(
        [
            {
                "epsilon": epsilon,
                "delta, integrated": hockey_stick(with_x, without, epsilon),
                "delta, rate pq": centralized_shuffling(Participation(1, _RATE, _RATE), 1.0, epsilon),
                # As printed: Theorem 5.1's equations, with its rate.
                "delta, rate q": only_local_sampling(Participation(1, _RATE, _RATE), 1.0, epsilon),
            }
            for epsilon in _EPSILONS.tolist()
        ]
    )
    return Measurements(figure.setting, {**figure.tables, "Corollary 5.3": corollary}, figure.figures)


def conclude_fig1(measurements: Measurements) -> ReproductionResult:
    """Compare the order of the curves, and Corollary 5.3, with the paper's statements."""
    result = conclude_projection(measurements)
    return replace(result, claims=[*result.claims, corollary_claim(measurements.tables["Corollary 5.3"])])


def corollary_claim(table: pd.DataFrame) -> PaperClaim:
    """Return the claim that Corollary 5.3 gives the delta of CS.

    Args:
        table: columns epsilon, delta, integrated; delta, rate pq; delta, rate q.
    """
    rows = table[table["delta, integrated"] > _SMALLEST]
    named, printed = (
        (rows[f"delta, {rate}"] / rows["delta, integrated"]).astype(float) for rate in ("rate pq", "rate q")
    )
    return PaperClaim(
        "Corollary 5.3 gives the delta of CS (printed with rate q; the text before it names pq)",
        f"with rate pq {named.min():.7g} to {named.max():.7g} times the integrated delta; as printed, with rate q, "
        f"{printed.min():.3g} to {printed.max():.3g} times, which is the delta of OLS: a misprint",
        [
            between("smallest ratio, rate pq", float(named.min()), 1 - ROUNDING, 1 + ROUNDING),
            between("largest ratio, rate pq", float(named.max()), 1 - ROUNDING, 1 + ROUNDING),
            between("smallest ratio, as printed", float(printed.min()), 1 - ROUNDING, 1 + ROUNDING),
        ],
    )


_SMALLEST = 1e-9
"""Smallest delta that an integral of double precision gives to a relative error of `ROUNDING`."""


def _projection(
    figure: int,
    title: str,
    xs: Floats,
    value: Callable[[Delta, Participation, float], float],
    x_label: str,
    y_label: str,
) -> Reproduction:
    name = f"random-participation-fig{figure}"
    measure = partial(measure_projection, name, xs, value, x_label, y_label)
    return Reproduction(
        name,
        f"Random participation: {title}",
        f"{PAPER}, Figure {figure}",
        measure=measure,
        conclude=conclude_projection,
    )


REPRODUCTIONS = (
    Reproduction(
        "random-participation-fig1",
        "Random participation: delta against epsilon",
        f"{PAPER}, Figure 1 and Corollary 5.3",
        measure=measure_fig1,
        conclude=conclude_fig1,
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
)  # fmt: skip
