"""Theorem 4.1 of Hasircioglu and Gunduz (arXiv 2205.01556) compared with possible neighbouring data sets.

The privacy loss of these data sets is computed by integration, and by attacks on simulated rounds and on the models of
a federation.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.attacks.membership import Advantage, CoupledAdvantage, attack_coupled_rounds, attack_membership
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
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.random_participation.crossings import count_crossings, crossing_claim
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
from analysis.style import PAGE_INCHES, house_style, save

TRIALS = {"small": 20_000_000, "paper": 1_000_000_000}
"""Simulated rounds with x', and as many without; half as many of rounds that share their coins."""

FEDERATED_ROUNDS = {"small": 1_000, "paper": 10_000}
"""Rounds of the first scenario's federation with x', and as many without; each is a trial for each of its clients."""

SIGMA_MARGIN = 0.005
"""Relative error of a published sigma, which has three or four digits; the paper does not state the accuracy of its
solver."""

_SEED = 2205


def measure_unsound(context: ReproductionContext) -> Measurements:
    """Compute the loss of two data sets at the published noise, and attack simulated rounds and a federation."""
    trials = TRIALS[context.scale]
    independent, coupled = list[dict[str, object]](), list[dict[str, object]]()
    for scenario in SCENARIOS:
        participation, sigma = scenario.participation, scenario.sigmas[PROPOSED]
        context.progress(f"{scenario.title}: {trials:,} rounds with the sample, and as many without")
        random = np.random.default_rng((_SEED, 1556, participation.local_samples))  # a stream for each scenario
        apart = attack_membership(participation, sigma, EPSILON, trials, random)
        together = attack_coupled_rounds(participation, sigma, EPSILON, trials // 2, random)
        independent.append({"scenario": scenario.title, **_counts(apart, "trials", "yes_with", "yes_without")})
        coupled.append({"scenario": scenario.title, **_counts(together, "trials", "changed", "yes_without")})
    federated = _attack_federation(context)
    context.progress("changes of sign of equation (28)")
    return Measurements(
        Setting("none", seeds=[_SEED], sizes={"clients of the federation": MANY_CLIENTS.population}),
        {
            "bounds": pd.concat([bounds(scenario) for scenario in SCENARIOS], ignore_index=True),
            "rounds that share nothing": pd.DataFrame(independent),
            "rounds that share their coins": pd.DataFrame(coupled),
            "federation": pd.DataFrame([_counts(federated, "trials", "gained", "lost", "yes_without")]),
            "zero-crossings": count_crossings(),
        },
        _draw_unsound(context.out),
    )


def _counts(attack: object, *names: str) -> dict[str, int]:
    return {name: getattr(attack, name) for name in names}


def _attack_federation(context: ReproductionContext) -> PairedAdvantage:
    rounds, population = FEDERATED_ROUNDS[context.scale], MANY_CLIENTS.population

    def progress(done: int) -> None:
        if done % 500 == 0 or done == rounds:
            context.progress(f"a federation of {population} clients, every one a trial: round {done} of {rounds}")

    sigma = MANY_CLIENTS.sigmas[PROPOSED]
    return attack_models(MANY_CLIENTS.participation, sigma, EPSILON, population, rounds, _SEED, progress)


def bounds(scenario: PublishedScenario) -> pd.DataFrame:
    """Return the required noise of each analysis and pair, and its delta at the published noise of Theorem 4.1.

    Args:
        scenario: the paper's scenario.

    Returns:
        Columns scenario, analysis or pair, cosine, required sigma, at sigma, delta.
    """
    participation, sigma = scenario.participation, scenario.sigmas[PROPOSED]
    others = scenario.population - 1
    cosine, _ = worst_angle(participation, sigma, EPSILON)
    rows: list[tuple[str, Delta, float | None]] = [
        (_OLS_ROW, only_local_sampling, None),
        (_WCS_ROW, weak_client_sampling, None),
        (_PRINTED_ROW, as_printed, None),
        (_CENTRED_ROW, recentred, None),
        (_ORTHOGONAL_ROW, orthogonal_pair, 0.0),
        (_ANGLED_ROW, partial(angled_pair, cosine=cosine), cosine),
        (f"{_CROWD_ROW}: {others:,} others along u", partial(orthogonal_pair_in_a_crowd, clients=others), 0.0),
    ]
    return pd.DataFrame.from_records(
        [
            {
                "scenario": scenario.title,
                "analysis or pair": name,
                "cosine": angle,
                "required sigma": None
                if name.startswith(_CROWD_ROW)
                else sigma_at(delta, participation, EPSILON, DELTA),
                "at sigma": sigma,
                "delta": delta(participation, sigma, EPSILON),
            }
            for name, delta, angle in rows
        ]
    )


def conclude_unsound(measurements: Measurements) -> ReproductionResult:
    """Compare Theorem 4.1 with the loss of two data sets at the published noise."""
    tables = measurements.tables
    of_scenarios = [(scenario, _of(tables["bounds"], scenario)) for scenario in SCENARIOS]
    guarantees = []
    for scenario, rows in of_scenarios:
        (apart,) = _of(tables["rounds that share nothing"], scenario).to_dict("records")
        (together,) = _of(tables["rounds that share their coins"], scenario).to_dict("records")
        participation = scenario.participation
        used = participation.client_rate * participation.sample_rate
        guarantees.append(
            guarantee_claim(
                scenario,
                rows,
                Advantage(apart["trials"], apart["yes_with"], apart["yes_without"], EPSILON),
                CoupledAdvantage(together["trials"], together["changed"], together["yes_without"], used, EPSILON),
            )
        )
    (federated,) = tables["federation"].to_dict("records")
    worst = float(_deltas(of_scenarios[0][1])[_ORTHOGONAL_ROW])
    return ReproductionResult(
        _table(tables["bounds"]),
        claims=[
            *(claim for scenario, rows in of_scenarios for claim in sigma_claims(scenario, rows)),
            *guarantees,
            federated_claim(
                PairedAdvantage(**{str(name): int(count) for name, count in federated.items()}, epsilon=EPSILON)
            ),
            *(formula_claim(scenario, rows) for scenario, rows in of_scenarios),
            crossing_claim(tables["zero-crossings"]),
        ],
        remarks=[
            "Theorem 4.1 is not a bound: at the noise that the paper computes from it for delta = 1e-6, two "
            f"neighbouring data sets have delta = {worst:.2g} (integrated and sampled). The printed equations, which "
            "give other noise, are exceeded as well.",
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
            "Equation (8) of Theorem 5.1, and (12), are printed with e^(epsilon' - 1); the proof and Theorem 2.5 have "
            "e^epsilon' - 1, which gives the paper's sigma.",
        ],
    )


def _of(table: pd.DataFrame, scenario: PublishedScenario) -> pd.DataFrame:
    return table[table["scenario"] == scenario.title]


def _deltas(rows: pd.DataFrame) -> "pd.Series[float]":
    """Return delta at the published noise, by analysis or pair."""
    return rows.set_index("analysis or pair")["delta"]


def _table(bounds: pd.DataFrame) -> pd.DataFrame:
    """Return the bounds with the paper's sigmas beside them, and the cosine in the name of the angled pair."""
    published = {_OLS_ROW: OLS, _WCS_ROW: WCS, _PRINTED_ROW: PROPOSED, _CENTRED_ROW: PROPOSED}
    sigmas = {scenario.title: scenario.sigmas for scenario in SCENARIOS}
    return pd.DataFrame.from_records(
        [
            {
                "scenario": row["scenario"],
                "analysis or pair": f"{name}, cosine {row['cosine']:.2f}" if name == _ANGLED_ROW else name,
                f"sigma for delta = {DELTA:g}": row["required sigma"],
                f"sigma for delta = {DELTA:g} (paper)": sigmas[row["scenario"]].get(published.get(name, "")),
                "at sigma": row["at sigma"],
                "delta": row["delta"],
            }
            for row in bounds.to_dict("records")
            for name in [str(row["analysis or pair"])]
        ]
    )


def sigma_claims(scenario: PublishedScenario, rows: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims that the published sigmas follow from the theorems as printed.

    Args:
        scenario: the paper's scenario.
        rows: this scenario's rows of the bounds.
    """
    sigmas = rows.set_index("analysis or pair")["required sigma"]
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
        claims.append(PaperClaim(says, measured, [within("sigma", ours, paper, SIGMA_MARGIN * paper)], uses_data=False))
    return claims


def guarantee_claim(
    scenario: PublishedScenario, rows: pd.DataFrame, apart: Advantage, together: CoupledAdvantage
) -> PaperClaim:
    """Return the claim on the paper's guarantee of every round.

    Args:
        scenario: the paper's scenario.
        rows: this scenario's rows of the bounds.
        apart: attack on rounds that share nothing.
        together: attack on rounds that share their coins.
    """
    deltas = _deltas(rows)
    exact, angled = float(deltas[_ORTHOGONAL_ROW]), float(deltas[_ANGLED_ROW])
    return PaperClaim(
        f"{scenario.title}: sigma = {scenario.sigmas[PROPOSED]} makes each round ({EPSILON}, {DELTA:g})-DP",
        f"delta of the orthogonal pair {exact:.3g} (integrated), {_format_delta(together)} (attacked, simulated rounds "
        f"that share their coins), {_format_delta(apart)} in {apart.trials:,} that share nothing; of the angled pair "
        f"{angled:.3g}",
        [
            between("delta of the orthogonal pair", exact, most=DELTA),
            between("the same, attacked", together.interval(), most=DELTA),
            between("delta of the angled pair", angled, most=DELTA),
        ],
        uses_data=False,
    )


def _format_delta(attack: Advantage | CoupledAdvantage | PairedAdvantage) -> str:
    return f"{attack.delta:.3g} ± {attack.interval().half_width:.2g}"


def federated_claim(attack: PairedAdvantage) -> PaperClaim:
    """Return the claim on the models that the testbed's DP-SGD publishes.

    Args:
        attack: attack on the models of a federation.
    """
    scenario = MANY_CLIENTS
    return PaperClaim(
        f"{scenario.title}: the models of such rounds give no more than delta = {DELTA:g} away",
        f"delta {_format_delta(attack)}: the attack on the models of the testbed's own federation of "
        f"{scenario.population:,} clients, {attack.trials:,} rounds of a client with x' and as many without, which "
        f"share their coins (told apart {attack.gained} times, mistaken {attack.lost} times)",
        [between("delta that the attack attains", attack.interval(), most=DELTA)],
        seeds=1,
        uses_data=False,
    )


def formula_claim(scenario: PublishedScenario, rows: pd.DataFrame) -> PaperClaim:
    """Return the claim on equations (6) and (7), for any required noise.

    Args:
        scenario: the paper's scenario.
        rows: this scenario's rows of the bounds.
    """
    deltas = _deltas(rows)
    printed, angled = float(deltas[_PRINTED_ROW]), float(deltas[_ANGLED_ROW])
    cosine = float(rows.set_index("analysis or pair")["cosine"][_ANGLED_ROW])
    return PaperClaim(
        f"{scenario.title}: no two data sets lose more than the printed equation (6) says",
        f"at sigma = {scenario.sigmas[PROPOSED]} it says {printed:.3g}, and the angled pair (cosine {cosine:.2f}) "
        f"loses {angled:.3g}, {angled / printed:.3g} times as much",
        [between("the pair's delta over the formula's", angled / printed, most=1.0)],
        uses_data=False,
    )


_OLS_ROW, _WCS_ROW = "OLS, Theorem 5.1 (a guarantee)", "WCS, Theorem 5.2 (the guarantee)"
_PRINTED_ROW, _CENTRED_ROW = "Theorem 4.1 as printed", "Theorem 4.1, centred on x'"
_ORTHOGONAL_ROW, _ANGLED_ROW, _CROWD_ROW = "orthogonal pair", "angled pair", "orthogonal pair in a crowd"
"""Names of rows; the last is followed by the size of the crowd."""


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
        measure=measure_unsound,
        conclude=conclude_unsound,
    ),
)
