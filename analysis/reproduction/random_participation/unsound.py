"""What is wrong with Theorem 4.1 of Hasircioglu and Gunduz (arXiv 2205.01556): by integration, and by an attack that
is carried out.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.attacks.membership import attack_membership, coupled_delta
from analysis.bounds.random_participation import (
    Delta,
    as_printed,
    only_local_sampling,
    orthogonal_pair,
    recentred,
    sigma_at,
    weak_client_sampling,
)
from analysis.marks import marks
from analysis.reproduction.contract import Agreement, Claim, Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.random_participation.published import DELTA, EPSILON, OLS, PAPER, PROPOSED, SCENARIOS, WCS
from analysis.style import PAGE_INCHES, house_style, save

TRIALS = {"small": 100_000_000, "paper": 1_000_000_000}


def run_unsound(context: ReproductionContext) -> ReproductionResult:
    """Theorem 4.1's numbers beside what two data sets really lose at the published noise, integrated and attacked."""
    rows, claims = [], []
    for scenario in SCENARIOS:
        who, sigma = scenario.who, scenario.sigmas[PROPOSED]
        context.progress(f"{scenario.title}: {TRIALS[context.scale]:,} rounds with the sample, and as many without")
        random = np.random.default_rng((2205, 1556, who.local_samples))
        seen = attack_membership(who, sigma, EPSILON, TRIALS[context.scale], random)
        coupled, half_width = coupled_delta(who, sigma, EPSILON, TRIALS[context.scale] // 10, random)
        exact = orthogonal_pair(who, sigma, EPSILON)
        for name, delta, key in (
            ("OLS, Theorem 5.1", only_local_sampling, OLS),
            ("WCS, Theorem 5.2 (the guarantee)", weak_client_sampling, WCS),
            ("Theorem 4.1 as printed", as_printed, PROPOSED),
            ("Theorem 4.1, centred on x'", recentred, PROPOSED),
            ("orthogonal pair (a lower bound)", orthogonal_pair, None),
        ):
            rows.append(
                {
                    "scenario": scenario.title,
                    "analysis": name,
                    "sigma": sigma_at(delta, who, EPSILON, DELTA),
                    "sigma (paper)": scenario.sigmas.get(key) if key else None,
                    f"delta at sigma = {SCENARIOS[0].sigmas[PROPOSED]} / {SCENARIOS[1].sigmas[PROPOSED]}": delta(
                        who, sigma, EPSILON
                    ),
                }
            )
        claims.append(
            Claim(
                f"{scenario.title}: sigma = {sigma} gives ({EPSILON}, {DELTA:g}) in each round",
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
    )


def _refuted(least: float, exact: float) -> Agreement | None:
    if exact <= DELTA:
        return "yes"
    return "no" if least > DELTA else None


def _draw_unsound(out: Path) -> list[Path]:
    """delta over sigma at the paper's epsilon, for both scenarios."""
    curves: dict[str, tuple[Delta, str, str]] = {
        "WCS (the guarantee)": (weak_client_sampling, "#000000", "-"),
        "orthogonal pair (lower bound)": (orthogonal_pair, "#D55E00", "-"),
        "parallel pair (lower bound; 4.1 as printed)": (as_printed, "#E69F00", "-"),
        "4.1 as evaluated in the paper": (recentred, "#0072B2", "--"),
    }
    with house_style():
        figure = Figure(figsize=(PAGE_INCHES, 2.6), layout="constrained")
        for axes, scenario in zip(figure.subplots(1, 2), SCENARIOS, strict=True):
            published = scenario.sigmas[PROPOSED]
            sigmas = np.geomspace(published / 1.6, 1.3 * scenario.sigmas[WCS], 40)
            for name, (delta, colour, style) in curves.items():
                values = [delta(scenario.who, float(sigma), EPSILON) for sigma in sigmas]
                axes.plot(sigmas, values, style, color=colour, label=name)
            axes.axhline(DELTA, color="#7F7F7F", linewidth=0.8, linestyle=":")
            axes.plot([published], [DELTA], "o", color="#0072B2", markersize=4, label="the paper's sigma and delta")
            axes.set(xscale="log", yscale="log", ylim=(1e-9, 1e-3), xlabel="sigma [C]", ylabel="delta of a round")
            axes.set_title(f"{scenario.title} (epsilon {EPSILON})")
            axes.grid()
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return save(figure, out / "random-participation-unsound", marks(figure))


REPRODUCTIONS = (
    Reproduction(
        "random-participation-unsound",
        "Random participation: Theorem 4.1 is not a bound, integrated and attacked",
        f"{PAPER}, Theorem 4.1 and section 6",
        run_unsound,
    ),
)
