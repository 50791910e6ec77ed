"""Figures 1 to 5: delta and epsilon of the analyses over epsilon, the noise, delta and the sampling rates.

Hasircioglu and Gunduz, Privacy Amplification via Random Participation in Federated Learning, arXiv 2205.01556. Figures
1 to 3 show the same curves, at p = q = 0.1 and C = 1, in three projections.
"""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.bounds.random_check_ins import fixed_window_approximate, pure_privacy_assumed, steps_to
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
from analysis.marks import marks
from analysis.reproduction.contract import Claim, Reproduction, ReproductionContext, ReproductionResult, agreement
from analysis.reproduction.random_participation.published import PAPER
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
    """Curves over a logarithmic axis, named in a legend of so many columns below them."""
    with one_panel(height) as (figure, axes):
        for x, y, look in curves:
            axes.plot(x, y, **look)
        axes.set(yscale="log", **axes_properties)
        axes.grid()
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
        return save(figure, path, marks(figure))


# -- Figures 1 to 3 --------------------------------------------------------------------------------------------------


def run_projection(
    name: str,
    xs: Floats,
    value: Callable[[Delta, Participation, float], float],
    x_label: str,
    y_label: str,
    context: ReproductionContext,
) -> ReproductionResult:
    """Baselines, Theorem 4.1 (centred) and the orthogonal pair for d = 1, 10 and 100, at p = q = 0.1 and C = 1."""
    any_size = Participation(1, 0.1, 0.1)
    curves: list[tuple[str, Delta, Participation, int | None]]
    curves = [(label, delta, any_size, None) for label, (delta, _, _) in BASELINES.items()]
    for size in SIZE_COLOURS:
        who = Participation(size, 0.1, 0.1)
        curves += [(_NO_GUARANTEE, recentred, who, size), (_LOWER_BOUND, lower_bound, who, size)]
    table = pd.DataFrame.from_records(
        [
            {"analysis": label, "d": size, x_label: x, y_label: value(delta, who, x)}
            for label, delta, who, size in curves
            for x in xs.tolist()
        ]
    )
    return ReproductionResult(
        table,
        figures=_draw_projection(table, x_label, y_label, context.out / name),
        claims=_ordering(table, y_label),
        remarks=[
            "The paper's figures have no numbers in the text; ours are computed from the formulas at the parameters "
            "that it states (p = q = 0.1, C = 1), other parameters are on the axes.",
            "Theorem 4.1 is drawn centred on x', as the paper evaluates it; the lower bound is the worse of two pairs "
            "of data sets that can occur, and lies above it: what the theorem gives is no guarantee.",
        ],
    )


def _of(table: pd.DataFrame, label: str, size: int | None = None) -> pd.DataFrame:
    """The rows of one curve."""
    part = table[table["analysis"] == label]
    return part if size is None else part[part["d"] == size]


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


def _ordering(table: pd.DataFrame, y_label: str) -> list[Claim]:
    """The proposed scheme lies between CS and WCS; it converges to WCS with d; and whether it is a bound at all."""

    def of(label: str, size: int | None = None) -> Floats:
        return _of(table, label, size)[y_label].to_numpy()

    cs, wcs = of("CS"), of("WCS (the guarantee)")
    curves = {size: of(_NO_GUARANTEE, size) for size in SIZE_COLOURS}
    within = [bool((c >= cs * (1 - 1e-6)).all() and (c <= wcs * (1 + 1e-6)).all()) for c in curves.values()]
    gap = {size: float(np.nanmedian(c / wcs)) for size, c in curves.items()}
    lower = {size: of(_LOWER_BOUND, size) for size in SIZE_COLOURS}
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


# -- Figure 4 ------------------------------------------------------------------------------------------------------


_SIGMA, _RATE = 3.0, 0.1
_DELTAS = np.geomspace(1e-8, 1e-3, 26)
_SIZE = 10
_STEPS = (1, 100)
_PUBLISHED_STEPS = (1, 10**3, 10**6, 10**12)
_WCS, _PROPOSED, _LOWER = "WCS (the guarantee)", f"Theorem 4.1, d = {_SIZE} (no guarantee)", f"lower bound, d = {_SIZE}"


def run_fig4(context: ReproductionContext) -> ReproductionResult:
    """epsilon over delta at p = q = 0.1, C = 1, sigma = 3."""
    who = Participation(_SIZE, _RATE, _RATE)
    table = pd.DataFrame.from_records(_rows(who))
    looks = {
        _granted(1): ("#CC79A7", "--"),
        _granted(100): ("#CC79A7", ":"),
        _WCS: ("#000000", "-"),
        _PROPOSED: ("#E69F00", "--"),
        _LOWER: ("#E69F00", "-"),
    }
    lines = [
        (part["delta"], part["epsilon"], {"color": colour, "linestyle": style, "label": name})
        for name, (colour, style) in looks.items()
        for part in [_of(table, name)]
    ]
    axes = {"xscale": "log", "xlabel": "delta", "ylabel": "epsilon", "title": "p = q = 0.1, C = 1, sigma = 3"}
    return ReproductionResult(
        table,
        figures=_draw(context.out / "random-participation-fig4", 3.2, 1, lines, **axes),
        claims=_claims(table, who),
        remarks=[
            "The paper does not say which of Balle et al.'s bounds it drew, with how many steps, nor at which delta; "
            "its text has no numbers of Figure 4. What stands here for it is our reading.",
            "Theirs is a bound for one sample per client (rate p q). A Gaussian randomiser has approximate privacy "
            "only; what they publish for that (8 eps0) gives no epsilon here. Drawn is what would follow if "
            "(eps0, delta0) were as good as pure eps0: no guarantee.",
        ],
    )


def _rows(who: Participation) -> list[dict[str, object]]:
    curves: dict[str, Delta] = {_WCS: weak_client_sampling, _PROPOSED: recentred, _LOWER: lower_bound}
    rows: list[dict[str, object]] = []
    for delta in _DELTAS.tolist():
        for name, curve in curves.items():
            rows.append({"analysis": name, "delta": delta, "epsilon": epsilon_at(curve, who, _SIGMA, delta)})
        for steps in _STEPS:
            rows.append({"analysis": _granted(steps), "delta": delta, "epsilon": _granted_at(delta, steps)})
    return rows


def _granted(steps: int) -> str:
    return f"Balle et al., pure privacy granted, m = {steps}"


def _claims(table: pd.DataFrame, who: Participation) -> list[Claim]:
    def of(name: str) -> Floats:
        return _of(table, name)["epsilon"].to_numpy()

    theirs = of(_granted(1))
    published = [
        fixed_window_approximate(_SIGMA, _RATE * _RATE, steps, delta)
        for steps in _PUBLISHED_STEPS
        for delta in (1e-3, 1e-6)
    ]
    meaningful = [value for value in published if np.isfinite(value)]
    claims = []
    for claim, name, curve in (
        ("the proposed scheme (Theorem 4.1) is far below Balle et al.", _PROPOSED, recentred),
        ("so is WCS, which is sound, in its place", _WCS, weak_client_sampling),
    ):
        ours = of(name)
        least, most = (theirs / ours).min(), (theirs / ours).max()
        delta = 1e-6
        at = epsilon_at(curve, who, _SIGMA, delta)
        enough = steps_to(partial(_granted_at, delta), at)
        claims.append(
            Claim(
                claim,
                f"as published, theirs gives {'an' if meaningful else 'no'} epsilon in up to "
                f"{_PUBLISHED_STEPS[-1]:.0e} steps; with pure privacy granted, one step costs {least:.3g} to "
                f"{most:.3g} times ours, and it takes {enough:.0f} steps to draw level (delta = {delta:g})",
                agreement(least > 1, most > 1),
            )
        )
    return claims


def _granted_at(delta: float, steps: int) -> float:
    return pure_privacy_assumed(_SIGMA, _RATE * _RATE, steps, delta)


# -- Figure 5 ------------------------------------------------------------------------------------------------------


def run_fig5(context: ReproductionContext) -> ReproductionResult:
    """epsilon over q at p q = 1e-4, sigma = 1."""
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
            who = Participation(local_samples or 1, min(1.0, 1e-4 / q), q)
            rows.append({"analysis": name, "q": q, "epsilon": epsilon_at(delta, who, 1.0, 1e-6)})
    table = pd.DataFrame.from_records(rows)
    lines = [
        (part["q"], part["epsilon"], {"color": colour, "linestyle": style, "label": name, "linewidth": 1.0})
        for name, (_, _, colour, style) in curves.items()
        for part in [_of(table, name)]
    ]
    axes = {"xscale": "log", "xlabel": "q, at p q = 1e-4", "ylabel": "epsilon at delta = 1e-6"}
    wcs = _of(table, "WCS (the guarantee)")["epsilon"].to_numpy()
    at_best = table[(table["q"] == table["q"].min()) & (table["analysis"] != "OLS")]["epsilon"]
    return ReproductionResult(
        table,
        figures=_draw(context.out / "random-participation-fig5", 3.0, 2, lines, **axes),
        claims=[
            Claim(
                "at fixed p q, a larger q costs privacy",
                f"WCS: epsilon {wcs[0]:.3g} at q = 1e-4, {wcs[-1]:.3g} at q = 1",
                agreement((np.diff(wcs) >= -1e-12).all()),
            ),
            Claim(
                "with p = 1 all schemes are the same",
                f"epsilon {at_best.min():.4g} to {at_best.max():.4g}",
                agreement(at_best.max() - at_best.min() < 1e-6),
            ),
        ],
        remarks=["delta = 1e-6 is ours; the paper does not state it. OLS is drawn with q, as in the paper."],
    )


def _projection(
    figure: int,
    what: str,
    xs: Floats,
    value: Callable[[Delta, Participation, float], float],
    x_label: str,
    y_label: str,
) -> Reproduction:
    name = f"random-participation-fig{figure}"
    run = partial(run_projection, name, xs, value, x_label, y_label)
    return Reproduction(name, f"Random participation: {what}", f"{PAPER}, Figure {figure}", run)


REPRODUCTIONS = (
    _projection(
        1, "delta against epsilon", np.linspace(0.0, 2.0, 41),
        lambda delta, who, epsilon: delta(who, 1.0, epsilon), "epsilon", "delta",
    ),
    _projection(
        2, "epsilon against the noise", np.geomspace(0.5, 5.0, 25),
        lambda delta, who, sigma: epsilon_at(delta, who, sigma, 1e-5), "sigma [C]", "epsilon at delta = 1e-5",
    ),
    _projection(
        3, "delta against the noise", np.geomspace(0.5, 3.0, 31),
        lambda delta, who, sigma: delta(who, sigma, 0.5), "sigma [C]", "delta at epsilon = 0.5",
    ),
    Reproduction(
        "random-participation-fig4", "Random participation beside random check-ins", f"{PAPER}, Figure 4", run_fig4
    ),
    Reproduction(
        "random-participation-fig5", "Client sampling against local sampling", f"{PAPER}, Figure 5", run_fig5
    ),
)  # fmt: skip
