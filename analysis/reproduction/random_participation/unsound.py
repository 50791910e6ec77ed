"""Theorem 4.1 of Hasircioglu and Gunduz (arXiv 2205.01556) compared with possible neighbouring data sets.

The privacy loss of these data sets is computed by integration, and by attacks on simulated rounds and on the models of
a federation.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.attacks.membership import Advantage, attack_membership, coupled_delta
from analysis.attacks.membership_of_models import PairedAdvantage, attack_models
from analysis.bounds.neighbouring_pairs import angled_pair, orthogonal_pair_in_a_crowd, worst_angle
from analysis.bounds.random_participation import (
    Delta,
    as_printed,
    only_local_sampling,
    orthogonal_pair,
    recentred,
    sigma_at,
    weak_client_sampling,
)
from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.random_participation.published import (
    DELTA,
    EPSILON,
    MANY_CLIENTS,
    OLS,
    PAPER,
    PROPOSED,
    SCENARIOS,
    WCS,
    PublishedScenario,
)
from analysis.reproduction.verdicts import PaperClaim, between, within
from analysis.statistics import Interval
from analysis.style import PAGE_INCHES, house_style, save

TRIALS = {"small": 20_000_000, "paper": 1_000_000_000}
"""Simulated rounds with x', and as many without; half as many of rounds that share their coins."""

FEDERATED_ROUNDS = {"small": 1_000, "paper": 10_000}
"""Rounds of the first scenario's federation with x', and as many without; each is a trial for each of its clients."""

SIGMA_MARGIN = 0.005
"""Relative error of a published sigma, which has three or four digits; the paper does not state the accuracy of its
solver."""

_SEED = 2205


@dataclass(frozen=True)
class Counterexample:
    """Computed and sampled losses of one scenario, at the sigma that the paper gives for Theorem 4.1.

    Attributes:
        scenario: the paper's scenario.
        cosine: cosine of x' with the client's others at which the loss is largest.
        angled: delta of that pair, integrated.
        coupled: delta that the attack on the orthogonal pair attains, in simulated rounds that share their coins.
        independent: the attack in simulated rounds that share nothing.
    """

    scenario: PublishedScenario
    cosine: float
    angled: float
    coupled: Interval
    independent: Advantage

    @property
    def sigma(self) -> float:
        """The published sigma."""
        return self.scenario.sigmas[PROPOSED]

    def delta(self, of: Delta) -> float:
        """Return delta of an analysis, or of a pair, at that sigma."""
        return of(self.scenario.participation, self.sigma, EPSILON)


def run_unsound(context: ReproductionContext) -> ReproductionResult:
    """Compare Theorem 4.1 with the loss of two data sets at the published noise."""
    counterexamples = [_counterexample(scenario, context) for scenario in SCENARIOS]
    federated = _federated(context)
    table = pd.concat([_rows(counterexample) for counterexample in counterexamples], ignore_index=True)
    sigmas, formulas = _sigma_and_formula_claims(table)
    return ReproductionResult(
        table,
        figures=_draw_unsound(context.out),
        claims=[
            *sigmas,
            *(guarantee_claim(counterexample) for counterexample in counterexamples),
            federated_claim(federated),
            *formulas,
        ],
        remarks=[
            "Theorem 4.1 is not a bound: at the noise that the paper computes from it for delta = 1e-6, two "
            f"neighbouring data sets have delta = {counterexamples[0].delta(orthogonal_pair):.2g} (integrated and "
            "sampled). The printed equations, which give other noise, are exceeded as well.",
            "Orthogonal pair: the client's other gradients are parallel, that of x' is orthogonal to them, all of norm "
            "C. Participation shows in one direction, and x' in the other. Angled pair: the same at another angle.",
            "The other clients are silent along u, the direction of the client's others, or their gradients there "
            "are known. This assumption is fair, since a guarantee is for the worst case. Where all of them hold "
            "gradients along u, too, participation hides among theirs, and the pair's delta is that of the row `in a "
            "crowd`.",
            "The observer sees the models, as the theorem assumes, and does not need the server's view.",
            "Sampling corroborates the integral: the observer's test is made from the same densities. It is not an "
            "independent proof. The federation's rounds are the testbed's own, with its sampling, clipping and noise.",
            "Theorem 4.1 as printed needs another sigma than the paper gives; centred on x' it gives the paper's. As "
            "printed it is the exact loss of parallel gradients, hence a lower bound, too. sigma 0: parallel "
            "gradients need no noise, since a thousand of them hide one more.",
        ],
    )


def _counterexample(scenario: PublishedScenario, context: ReproductionContext) -> Counterexample:
    trials = TRIALS[context.scale]
    participation, sigma = scenario.participation, scenario.sigmas[PROPOSED]
    context.progress(f"{scenario.title}: {trials:,} rounds with the sample, and as many without")
    random = np.random.default_rng((_SEED, 1556, participation.local_samples))  # a stream for each scenario
    independent = attack_membership(participation, sigma, EPSILON, trials, random)
    coupled = coupled_delta(participation, sigma, EPSILON, trials // 2, random)
    return Counterexample(scenario, *worst_angle(participation, sigma, EPSILON), Interval(*coupled), independent)


def _federated(context: ReproductionContext) -> PairedAdvantage:
    rounds, population = FEDERATED_ROUNDS[context.scale], MANY_CLIENTS.population

    def progress(done: int) -> None:
        if done % 500 == 0 or done == rounds:
            context.progress(f"a federation of {population} clients, every one a trial: round {done} of {rounds}")

    sigma = MANY_CLIENTS.sigmas[PROPOSED]
    return attack_models(MANY_CLIENTS.participation, sigma, EPSILON, population, rounds, _SEED, progress)


def _rows(counterexample: Counterexample) -> pd.DataFrame:
    """Return the required noise of each analysis and pair, and its delta at the published noise of Theorem 4.1."""
    participation, others = counterexample.scenario.participation, counterexample.scenario.population - 1
    crowd: Delta = partial(orthogonal_pair_in_a_crowd, clients=others)
    angled: Delta = partial(angled_pair, cosine=counterexample.cosine)
    rows: list[tuple[str, Delta, str | None]] = [
        (_OLS_ROW, only_local_sampling, OLS),
        (_WCS_ROW, weak_client_sampling, WCS),
        (_PRINTED_ROW, as_printed, PROPOSED),
        (_CENTRED_ROW, recentred, PROPOSED),
        ("orthogonal pair", orthogonal_pair, None),
        (f"{_ANGLED_ROW}{counterexample.cosine:.2f}", angled, None),
        (f"orthogonal pair in a crowd: {others:,} others along u", crowd, None),
    ]
    return pd.DataFrame.from_records(
        [
            {
                "scenario": counterexample.scenario.title,
                "analysis or pair": name,
                f"sigma for delta = {DELTA:g}": None
                if delta is crowd
                else sigma_at(delta, participation, EPSILON, DELTA),
                f"sigma for delta = {DELTA:g} (paper)": counterexample.scenario.sigmas.get(key) if key else None,
                "at sigma": counterexample.sigma,
                "delta": counterexample.delta(delta),
            }
            for name, delta, key in rows
        ]
    )


def _sigma_and_formula_claims(table: pd.DataFrame) -> tuple[list[PaperClaim], list[PaperClaim]]:
    both = [(scenario, table[table["scenario"] == scenario.title]) for scenario in SCENARIOS]
    sigmas = [claim for scenario, rows in both for claim in sigma_claims(scenario, rows)]
    return sigmas, [formula_claim(scenario, rows) for scenario, rows in both]


def claims_of(table: pd.DataFrame) -> list[PaperClaim | None]:
    """Return the claims about sigmas and formulas; claims about guarantees need the attacks."""
    sigmas, formulas = _sigma_and_formula_claims(table)
    return [*sigmas, *[None] * (len(SCENARIOS) + 1), *formulas]


def sigma_claims(scenario: PublishedScenario, rows: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims that the published sigmas follow from the theorems as printed.

    Args:
        scenario: the paper's scenario.
        rows: this scenario's rows of the table.
    """
    sigmas = rows.set_index("analysis or pair")[f"sigma for delta = {DELTA:g}"]
    claims = []
    for theorem, analysis, key in (
        ("Theorem 5.1 (OLS)", _OLS_ROW, OLS),
        ("Theorem 5.2 (WCS)", _WCS_ROW, WCS),
        ("Theorem 4.1", _PRINTED_ROW, PROPOSED),
    ):
        paper, ours = scenario.sigmas[key], float(sigmas[analysis])
        measured = f"{ours:.5g}" if ours else "no noise at all"
        if key == PROPOSED:
            measured += f" as printed; {sigmas[_CENTRED_ROW]:.5g} centred on x'"
        says = f"{scenario.title}: {theorem} needs sigma = {paper} for ({EPSILON}, {DELTA:g})"
        claims.append(PaperClaim(says, measured, [within("sigma", ours, paper, SIGMA_MARGIN * paper)]))
    return claims


def guarantee_claim(counterexample: Counterexample) -> PaperClaim:
    """Return the claim on the paper's guarantee of every round."""
    coupled, independent = counterexample.coupled, counterexample.independent
    exact = counterexample.delta(orthogonal_pair)
    return PaperClaim(
        f"{counterexample.scenario.title}: sigma = {counterexample.sigma} makes each round ({EPSILON}, {DELTA:g})-DP",
        f"delta of the orthogonal pair {exact:.3g} (integrated), {coupled.mean:.3g} ± {coupled.half_width:.2g} "
        f"(attacked, simulated rounds that share their coins), {_format_delta(independent)} in "
        f"{independent.trials:,} that share nothing; of the angled pair {counterexample.angled:.3g}",
        [
            between("delta of the orthogonal pair", exact, most=DELTA),
            between("the same, attacked", coupled, most=DELTA),
            between("delta of the angled pair", counterexample.angled, most=DELTA),
        ],
    )


def _format_delta(advantage: Advantage) -> str:
    return f"{advantage.delta:.3g} ± {advantage.interval().half_width:.2g}"


def federated_claim(advantage: PairedAdvantage) -> PaperClaim:
    """Return the claim on the models that the testbed's DP-SGD publishes."""
    scenario = MANY_CLIENTS
    return PaperClaim(
        f"{scenario.title}: the models of such rounds give no more than delta = {DELTA:g} away",
        f"delta {advantage.delta:.3g} ± {advantage.interval().half_width:.2g}: the attack on the models of the "
        f"testbed's own federation of {scenario.population:,} clients, {advantage.trials:,} rounds of a client "
        f"with x' and as many without, which share their coins "
        f"(told apart {advantage.gained} times, mistaken {advantage.lost} times)",
        [between("delta that the attack attains", advantage.interval(), most=DELTA)],
        seeds=1,
    )


def formula_claim(scenario: PublishedScenario, rows: pd.DataFrame) -> PaperClaim:
    """Return the claim on equations (6) and (7), for any required noise.

    Args:
        scenario: the paper's scenario.
        rows: this scenario's rows of the table.
    """
    deltas = {str(row["analysis or pair"]): float(row["delta"]) for _, row in rows.iterrows()}
    (pair,) = (name for name in deltas if name.startswith(_ANGLED_ROW))
    printed, angled = deltas[_PRINTED_ROW], deltas[pair]
    return PaperClaim(
        f"{scenario.title}: no two data sets lose more than the printed equation (6) says",
        f"at sigma = {scenario.sigmas[PROPOSED]} it says {printed:.3g}, and the angled pair (cosine "
        f"{pair.removeprefix(_ANGLED_ROW)}) loses {angled:.3g}, {angled / printed:.3g} times as much",
        [between("the pair's delta over the formula's", angled / printed, most=1.0)],
    )


_OLS_ROW, _WCS_ROW = "OLS, Theorem 5.1 (a guarantee)", "WCS, Theorem 5.2 (the guarantee)"
_PRINTED_ROW, _CENTRED_ROW = "Theorem 4.1 as printed", "Theorem 4.1, centred on x'"
_ANGLED_ROW = "angled pair, cosine "
"""Names of rows; the last is followed by the cosine."""


def _draw_unsound(out: Path) -> list[Path]:
    """Draw delta over sigma at the paper's epsilon, for both scenarios."""
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
                values = [delta(scenario.participation, float(sigma), EPSILON) for sigma in sigmas]
                axes.plot(sigmas, values, style, color=colour, label=name)
            axes.axhline(DELTA, color="#7F7F7F", linewidth=0.8, linestyle=":")
            axes.plot([published], [DELTA], "o", color="#0072B2", markersize=4, label="the paper's sigma and delta")
            axes.set(xscale="log", yscale="log", ylim=(1e-9, 1e-3), xlabel="sigma [C]", ylabel="delta of a round")
            axes.set_title(f"{scenario.title} (epsilon {EPSILON})")
            axes.grid()
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return save(figure, out / "random-participation-unsound", plot_data(figure))


REPRODUCTIONS = (
    Reproduction(
        "random-participation-unsound",
        "Random participation: whether Theorem 4.1 is a bound, integrated and attacked",
        f"{PAPER}, Theorem 4.1 and section 6",
        run_unsound,
        claims_of=lambda table, seeds: claims_of(table),
    ),
)
