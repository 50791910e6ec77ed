"""Analytic figures of Hasircioglu and Gunduz, Privacy Amplification via Random Participation (arXiv 2205.01556).

And what is wrong with their Theorem 4.1, by integration and by an attack that is carried out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.attacks.membership import attack_membership, coupled_delta
from analysis.bounds.random_participation import (
    Delta,
    Participation,
    as_printed,
    centralized_shuffling,
    epsilon_of,
    only_local_sampling,
    orthogonal_pair,
    recentred,
    sigma_of,
    weak_client_sampling,
)
from analysis.figures.style import COLUMN_INCHES, house_style, save
from analysis.reproduction.contract import Claim, Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.random_participation.check_ins import run_fig4

_PAPER = "Hasircioglu and Gunduz, Privacy Amplification via Random Participation, arXiv 2205.01556"
_EPSILON, _DELTA = 0.015, 1e-6  # of a round, in section 6


@dataclass(frozen=True)
class Scenario:
    """One of section 6: who takes part, and the noise that the paper gives for each analysis."""

    name: str
    who: Participation
    published: dict[str, float]


SCENARIOS = (
    Scenario("many clients, small data sets", Participation(30, 0.001, 0.1), {"4.1": 1.065, "WCS": 7.65, "OLS": 22.4}),
    Scenario(
        "few clients, large data sets", Participation(1000, 0.1, 0.001), {"4.1": 0.646, "WCS": 0.873, "OLS": 1.103}
    ),
)
TRIALS = {"small": 100_000_000, "paper": 1_000_000_000}

_BASELINES: dict[str, tuple[Delta, str, str]] = {
    "OLS": (only_local_sampling, "#56B4E9", "-"),
    "WCS (the guarantee)": (weak_client_sampling, "#000000", "-"),
    "CS": (centralized_shuffling, "#999999", "-"),
}
_SIZES = {1: "#009E73", 10: "#E69F00", 100: "#D55E00"}


def run_unsound(context: ReproductionContext) -> ReproductionResult:
    """Theorem 4.1's numbers beside what two data sets really lose at the published noise, integrated and attacked."""
    rows, claims = [], []
    for scenario in SCENARIOS:
        who, sigma = scenario.who, scenario.published["4.1"]
        context.progress(f"{scenario.name}: {TRIALS[context.scale]:,} rounds with the sample, and as many without")
        random = np.random.default_rng((2205, 1556, who.local_samples))
        seen = attack_membership(who, sigma, _EPSILON, TRIALS[context.scale], random)
        coupled, half_width = coupled_delta(who, sigma, _EPSILON, TRIALS[context.scale] // 10, random)
        exact = orthogonal_pair(who, sigma, _EPSILON)
        for name, delta, key in (
            ("OLS, Theorem 5.1", only_local_sampling, "OLS"),
            ("WCS, Theorem 5.2 (the guarantee)", weak_client_sampling, "WCS"),
            ("Theorem 4.1 as printed", as_printed, "4.1"),
            ("Theorem 4.1, centred on x'", recentred, "4.1"),
            ("orthogonal pair (a lower bound)", orthogonal_pair, None),
        ):
            rows.append(
                {
                    "scenario": scenario.name,
                    "analysis": name,
                    "sigma": sigma_of(_at(delta, who), _DELTA),
                    "sigma (paper)": scenario.published.get(key) if key else None,
                    f"delta at sigma = {SCENARIOS[0].published['4.1']} / {SCENARIOS[1].published['4.1']}": delta(
                        who, sigma, _EPSILON
                    ),
                }
            )
        claims.append(
            Claim(
                f"{scenario.name}: sigma = {sigma} gives ({_EPSILON}, {_DELTA:g}) in each round",
                f"delta is at least {exact:.3g} (integrated); the attack attains {coupled:.3g} ± {half_width:.2g} "
                f"(rounds that share their coins), {seen.delta:.3g} in {seen.trials:,} independent rounds each, which "
                f"is above {seen.least_delta():.2g} with 95% confidence",
                _refuted(max(coupled - half_width, seen.least_delta()), exact),
            )
        )
    return ReproductionResult(
        pd.DataFrame.from_records(rows),
        figures=_draw_unsound(context.out),
        claims=claims,
        remarks=[
            "Neighbouring data sets that break it: the client's other gradients are parallel, that of x' is orthogonal "
            "to them, all of norm C. Participation then shows in one direction, and x' in the other.",
            "Theorem 4.1 as printed needs another sigma than the paper gives; centred on x' it gives the paper's. As "
            "printed it is exact for parallel gradients, hence a lower bound, too; where it is above the orthogonal "
            "pair, parallel gradients are worse.",
            "sigma 0: no noise is needed for parallel gradients, since a thousand of them hide one more.",
        ],
    )  # fmt: skip


def _refuted(least: float, exact: float) -> Literal["yes", "no"] | None:
    if exact <= _DELTA:
        return "yes"
    return "no" if least > _DELTA else None


def _at(delta: Delta, who: Participation) -> Callable[[float], float]:
    return lambda sigma: delta(who, sigma, _EPSILON)


def _draw_unsound(out: Path) -> list[Path]:
    """delta over sigma at the paper's epsilon, for both scenarios."""
    curves: dict[str, tuple[Delta, str, str]] = {
        "WCS (the guarantee)": (weak_client_sampling, "#000000", "-"),
        "orthogonal pair (lower bound)": (orthogonal_pair, "#D55E00", "-"),
        "parallel pair (lower bound; 4.1 as printed)": (as_printed, "#E69F00", "-"),
        "4.1 as evaluated in the paper": (recentred, "#0072B2", "--"),
    }
    with house_style():
        figure = Figure(figsize=(2 * COLUMN_INCHES, 2.6), layout="constrained")
        for axes, scenario in zip(figure.subplots(1, 2), SCENARIOS, strict=True):
            published = scenario.published["4.1"]
            sigmas = np.geomspace(published / 1.6, 1.3 * scenario.published["WCS"], 40)
            for name, (delta, colour, style) in curves.items():
                values = [delta(scenario.who, float(sigma), _EPSILON) for sigma in sigmas]
                axes.plot(sigmas, values, style, color=colour, label=name)
            axes.axhline(_DELTA, color="#7F7F7F", linewidth=0.8, linestyle=":")
            axes.plot([published], [_DELTA], "o", color="#0072B2", markersize=4, label="the paper's sigma and delta")
            axes.set(xscale="log", yscale="log", ylim=(1e-9, 1e-3), xlabel="sigma [C]", ylabel="delta of a round")
            axes.set_title(f"{scenario.name} (epsilon {_EPSILON})")
            axes.grid()
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        out.mkdir(parents=True, exist_ok=True)
        return save(figure, out / "random-participation-unsound")


def run_fig1(context: ReproductionContext) -> ReproductionResult:
    """delta over epsilon at sigma = 1, p = q = 0.1."""
    epsilons = np.linspace(0.0, 2.0, 41)
    return _curves(
        context, "random-participation-fig1", epsilons, lambda delta, who, x: delta(who, 1.0, x), "epsilon", "delta"
    )


def run_fig2(context: ReproductionContext) -> ReproductionResult:
    """epsilon over sigma at delta = 1e-5, p = q = 0.1."""
    sigmas = np.geomspace(0.5, 5.0, 25)

    def epsilon(delta: Delta, who: Participation, sigma: float) -> float:
        return epsilon_of(lambda e: delta(who, sigma, e), 1e-5)

    return _curves(context, "random-participation-fig2", sigmas, epsilon, "sigma [C]", "epsilon at delta = 1e-5")


def run_fig3(context: ReproductionContext) -> ReproductionResult:
    """delta over sigma at epsilon = 0.5, p = q = 0.1."""
    sigmas = np.geomspace(0.5, 3.0, 31)
    return _curves(
        context, "random-participation-fig3", sigmas, lambda delta, who, x: delta(who, x, 0.5), "sigma [C]",
        "delta at epsilon = 0.5",
    )  # fmt: skip


def _curves(
    context: ReproductionContext,
    name: str,
    xs: np.ndarray,
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
    for label, (delta, _, _) in _BASELINES.items():
        add(label, delta, any_size, None)
    for size in _SIZES:
        add("Theorem 4.1 (no guarantee)", recentred, Participation(size, 0.1, 0.1), size)
        add("lower bound", _lower_bound, Participation(size, 0.1, 0.1), size)
    table = pd.DataFrame.from_records(rows)
    with house_style():
        figure = Figure(figsize=(COLUMN_INCHES, 3.0), layout="constrained")
        axes = figure.subplots()
        _draw_curves(axes, table, x_label, y_label)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        context.out.mkdir(parents=True, exist_ok=True)
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
    )  # fmt: skip


def _lower_bound(who: Participation, sigma: float, epsilon: float) -> float:
    return max(orthogonal_pair(who, sigma, epsilon), as_printed(who, sigma, epsilon))


def _draw_curves(axes: Axes, table: pd.DataFrame, x_label: str, y_label: str) -> None:
    for label, (_, colour, style) in _BASELINES.items():
        part = table[table["analysis"] == label]
        axes.plot(part[x_label], part[y_label], style, color=colour, label=label)
    for size, colour in _SIZES.items():
        for label, style in (("Theorem 4.1 (no guarantee)", "--"), ("lower bound", "-")):
            part = table[(table["analysis"] == label) & (table["d"] == size)]
            name = f"d = {size}: {'4.1' if style == '--' else 'lower bound'}"
            axes.plot(part[x_label], part[y_label], style, color=colour, linewidth=1.0, label=name)
    axes.set(xlabel=x_label, ylabel=y_label, yscale="log")
    axes.set_ylim(bottom=max(1e-12, table.loc[table[y_label] > 0, y_label].min() / 2))
    axes.grid()


def _ordering(table: pd.DataFrame, x_label: str, y_label: str) -> list[Claim]:
    """The proposed scheme lies between CS and WCS; it converges to WCS with d; and whether it is a bound at all."""

    def of(label: str, size: int | None = None) -> np.ndarray:
        part = table[table["analysis"] == label]
        return (part if size is None else part[part["d"] == size])[y_label].to_numpy()

    cs, wcs = of("CS"), of("WCS (the guarantee)")
    curves = {size: of("Theorem 4.1 (no guarantee)", size) for size in _SIZES}
    within = [bool((c >= cs * (1 - 1e-6)).all() and (c <= wcs * (1 + 1e-6)).all()) for c in curves.values()]
    gap = {size: float(np.nanmedian(c / wcs)) for size, c in curves.items()}
    lower = {size: of("lower bound", size) for size in _SIZES}
    below = max(float(np.nanmax(lower[size] / curves[size])) for size in _SIZES)
    return [
        Claim("Theorem 4.1 lies between CS and WCS",
              f"for {sum(within)} of {len(within)} sizes of the local data sets", "yes" if all(within) else "partly"),
        Claim("it converges to WCS as d grows",
              ", ".join(f"{share:.2f} of WCS at d = {size}" for size, share in gap.items()) + " (median)",
              "yes" if gap[100] > gap[10] > gap[1] and gap[100] > 0.9 else "partly"),
        Claim("Theorem 4.1 bounds what is lost",
              f"two data sets lose up to {below:.3g} times as much", "yes" if below <= 1 + 1e-6 else "no"),
    ]  # fmt: skip


def run_fig5(context: ReproductionContext) -> ReproductionResult:
    """epsilon over q at p q = 1e-4, sigma = 1."""
    rates = np.geomspace(1e-4, 1.0, 25)
    curves: dict[str, tuple[Delta, int | None, str, str]] = {
        name: (delta, None, colour, style) for name, (delta, colour, style) in _BASELINES.items()
    }
    for size, colour in _SIZES.items():
        curves[f"d = {size}: 4.1"] = (recentred, size, colour, "--")
        curves[f"d = {size}: lower bound"] = (_lower_bound, size, colour, "-")
    rows = []
    for name, (delta, size, _, _) in curves.items():
        for q in rates.tolist():
            who = Participation(size or 1, min(1.0, 1e-4 / q), q)
            found = epsilon_of(lambda e, delta=delta, who=who: delta(who, 1.0, e), 1e-6)  # type: ignore[misc]
            rows.append({"analysis": name, "q": q, "epsilon": found})
    table = pd.DataFrame.from_records(rows)
    with house_style():
        figure = Figure(figsize=(COLUMN_INCHES, 3.0), layout="constrained")
        axes = figure.subplots()
        for name, (_, _, colour, style) in curves.items():
            part = table[table["analysis"] == name]
            axes.plot(part["q"], part["epsilon"], style, color=colour, label=name, linewidth=1.0)
        axes.set(xscale="log", yscale="log", xlabel="q, at p q = 1e-4", ylabel="epsilon at delta = 1e-6")
        axes.grid()
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        context.out.mkdir(parents=True, exist_ok=True)
        figures = save(figure, context.out / "random-participation-fig5")
    wcs = table[table["analysis"] == "WCS (the guarantee)"]["epsilon"].to_numpy()
    at_best = table[(table["q"] == table["q"].min()) & (table["analysis"] != "OLS")]["epsilon"]
    return ReproductionResult(
        table,
        figures=figures,
        claims=[
            Claim("at fixed p q, a larger q costs privacy",
                  f"WCS: epsilon {wcs[0]:.3g} at q = 1e-4, {wcs[-1]:.3g} at q = 1",
                  "yes" if (np.diff(wcs) >= -1e-12).all() else "no"),
            Claim("with p = 1 all schemes are the same", f"epsilon {at_best.min():.4g} to {at_best.max():.4g}",
                  "yes" if at_best.max() - at_best.min() < 1e-6 else "no"),
        ],
        remarks=["delta = 1e-6 is ours; the paper does not state it. OLS is drawn with q, as in the paper."],
    )  # fmt: skip


REPRODUCTIONS = (
    Reproduction(
        "random-participation-fig1", "Random participation: delta against epsilon", f"{_PAPER}, Figure 1", run_fig1
    ),
    Reproduction(
        "random-participation-fig2", "Random participation: epsilon against the noise", f"{_PAPER}, Figure 2", run_fig2
    ),
    Reproduction(
        "random-participation-fig3", "Random participation: delta against the noise", f"{_PAPER}, Figure 3", run_fig3
    ),
    Reproduction(
        "random-participation-fig4", "Random participation beside random check-ins", f"{_PAPER}, Figure 4", run_fig4
    ),
    Reproduction(
        "random-participation-fig5", "Client sampling against local sampling", f"{_PAPER}, Figure 5", run_fig5
    ),
    Reproduction(
        "random-participation-unsound",
        "Random participation: Theorem 4.1 is not a bound, integrated and attacked",
        f"{_PAPER}, Theorem 4.1 and section 6",
        run_unsound,
    ),
)
