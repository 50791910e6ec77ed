"""Accuracies of Hasircioglu and Gunduz, Privacy Amplification via Random Participation (arXiv 2205.01556), section 6:
Figures 6 and 7.

What the noise of the proposed analysis really guarantees stands beside its curve: see
docs/papers/random-participation.md.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.bounds import random_participation_composed as composed
from analysis.bounds.random_participation import (
    Delta,
    Participation,
    as_printed,
    epsilon_at,
    orthogonal_pair,
    weak_client_sampling,
)
from analysis.reproduction.contract import (
    Agreement,
    Claim,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    agreement,
)
from analysis.reproduction.random_participation.published import (
    DELTA,
    EPSILON,
    FEW_CLIENTS,
    MANY_CLIENTS,
    NONE,
    OLS,
    PAPER,
    PROPOSED,
    WCS,
    Scenario,
)
from analysis.reproduction.random_participation.training import (
    RateSearch,
    TrainingTask,
    description,
    required_noise,
    search_rates,
    task_of,
    train,
)
from analysis.reproduction.training_runs import AccuracyCurves
from analysis.statistics import mean_interval
from analysis.style import one_panel, save

_LOOKS = {NONE: ("#7F7F7F", ":"), PROPOSED: ("#0072B2", "--"), WCS: ("#000000", "-"), OLS: ("#56B4E9", "-")}


def run_training(scenario: Scenario, context: ReproductionContext) -> ReproductionResult:
    """Train at every scheme's noise, and judge both the accuracies and what the noise is said to guarantee."""
    task, noise = task_of(scenario, context.scale, context.data), required_noise(scenario)
    tried = search_rates(context, scenario.title, task, noise)
    rates = {scheme: grid.best for scheme, grid in tried.items()}
    results = train(context, scenario.title, task, noise, rates)
    context.progress("what the noise guarantees, and what two data sets lose")
    frame = table(scenario, task, noise, rates, results)
    return ReproductionResult(
        frame,
        figures=draw(scenario, noise, results, frame, context.out),
        claims=[*accuracy_claims(scenario, results), privacy_claim(scenario, task, frame)],
        remarks=remarks(task, tried),
    )


def remarks(task: TrainingTask, tried: Mapping[str, RateSearch]) -> list[str]:
    """The data, how the learning rates were chosen, and what is compared."""
    grid = ", ".join(f"{rate:g}" for rate in task.rates)
    return [
        f"Data: {description(task)}.",
        *task.notes,
        f"Learning rates: every scheme was tried with {grid} on one seed that is not compared, and compared at the "
        "best. In brackets what each reached: " + "; ".join(f"{scheme} {of}" for scheme, of in tried.items()) + ".",
        f"{task.seeds} seeds; momentum 0.9 at the server. An accuracy is the mean over the evaluations of a run's last "
        "tenth; ± and bands: 95% intervals over the seeds. The schemes of a seed have everything in common but noise "
        "and rate.",
        f"All four are the same algorithm. What differs is the sigma that an analysis asks for, so that a round be "
        f"({EPSILON}, {DELTA:g})-DP. That of Theorem 4.1 (as the paper evaluates it) is no such guarantee: what a "
        "round loses lies between the worse of two pairs of data sets that can occur (the client's other gradients "
        "orthogonal to that of the sample, or parallel) and WCS.",
    ]


def table(
    scenario: Scenario,
    task: TrainingTask,
    noise: Mapping[str, float],
    rates: Mapping[str, float],
    results: Mapping[str, AccuracyCurves],
) -> pd.DataFrame:
    """Each scheme's noise, what it costs in privacy in a round and in all of them, its learning rate and accuracy."""
    rows = []
    for scheme, sigma in noise.items():
        row: dict[str, Any] = {"scheme": scheme, "sigma": sigma, "sigma (paper)": scenario.sigmas.get(scheme, 0.0)}
        for bound, (one_round, many_rounds) in _BOUNDS.items():
            row[f"epsilon of a round, {bound}"] = max(_in_round(delta, scenario.who, sigma) for delta in one_round)
            row[f"of {task.rounds}, {bound}"] = max(
                _in_all(loss, scenario.who, sigma, task.rounds) for loss in many_rounds
            )
        row["learning rate"], row["learning rate (paper)"] = rates[scheme], scenario.rates[scheme]
        interval = mean_interval(results[scheme].late)
        row["accuracy [%]"], row["±"] = interval.mean, interval.half_width
        rows.append(row)
    return pd.DataFrame.from_records(rows)


_BOUNDS: Mapping[str, tuple[tuple[Delta, ...], tuple[composed.Composed, ...]]] = {
    "at least": ((orthogonal_pair, as_printed), (composed.orthogonal_pair, composed.as_printed)),
    "guaranteed": ((weak_client_sampling,), (composed.weak_client_sampling,)),
}
"""The worse of two pairs of data sets that can occur, and what holds for all."""


def _in_round(delta: Delta, who: Participation, sigma: float) -> float:
    return epsilon_at(delta, who, sigma, DELTA) if sigma else float("inf")


def _in_all(loss: composed.Composed, who: Participation, sigma: float, rounds: int) -> float:
    if not sigma:
        return float("inf")
    return float(loss(who, sigma).self_compose(rounds).get_epsilon_for_delta(DELTA))


def accuracy_claims(scenario: Scenario, results: Mapping[str, AccuracyCurves]) -> list[Claim]:
    """The order of the curves, seed by seed."""
    first = (
        ("the proposed scheme's noise gives much higher accuracy than WCS's", PROPOSED, WCS)
        if scenario is MANY_CLIENTS
        else ("the proposed scheme has the best accuracy of the private ones", PROPOSED, WCS)
    )
    claims = [first, ("WCS improves on OLS", WCS, OLS), ("without privacy the accuracy is the highest", NONE, PROPOSED)]
    found = []
    for says, better, worse in claims:
        difference = mean_interval(results[better].late - results[worse].late)
        mean, half = difference.mean, difference.half_width
        assert mean is not None
        shown = f"{better} {mean:+.1f}{'' if half is None else f' ± {half:.1f}'} points above {worse}"
        found.append(Claim(says, shown, _sign(mean, half)))
    return found


def _sign(mean: float, half: float | None) -> Agreement | None:
    if half is None or abs(mean) <= half:
        return None
    return agreement(mean > 0)


def privacy_claim(scenario: Scenario, task: TrainingTask, frame: pd.DataFrame) -> Claim:
    """What the proposed scheme's noise is said to guarantee."""
    row = frame[frame["scheme"] == PROPOSED].iloc[0]
    least, most = (float(row[f"epsilon of a round, {bound}"]) for bound in ("at least", "guaranteed"))
    all_least, all_most = (float(row[f"of {task.rounds}, {bound}"]) for bound in ("at least", "guaranteed"))
    return Claim(
        f"the proposed scheme's sigma = {scenario.sigmas[PROPOSED]} makes every round ({EPSILON}, {DELTA:g})-DP",
        f"at sigma = {row['sigma']:.4g} a round loses epsilon {least:.3g} at least, and {most:.3g} at most (WCS); "
        f"{task.rounds} rounds {all_least:.3g} to {all_most:.3g}",
        "no" if least > EPSILON else ("yes" if most <= EPSILON else None),
    )


def draw(
    scenario: Scenario,
    noise: Mapping[str, float],
    results: Mapping[str, AccuracyCurves],
    frame: pd.DataFrame,
    out: Path,
) -> list[Path]:
    """Accuracy over the iterations; the legend says what a round loses, which for the proposed scheme is no 0.015."""
    rows = frame.set_index("scheme")
    with one_panel(3.2, columns=1.5) as (figure, axes):
        for scheme, of_scheme in results.items():
            colour, line = _LOOKS[scheme]
            label = scheme
            if noise[scheme]:
                least, most = (
                    float(rows[f"epsilon of a round, {bound}"][scheme]) for bound in ("at least", "guaranteed")
                )
                label += f", sigma {noise[scheme]:.3g}: a round loses epsilon {least:.2g} to {most:.2g}"
                label += f" (said: {EPSILON})" if least > EPSILON else ""
            of_scheme.plot(axes, color=colour, linestyle=line, label=label)
        axes.set(xlabel="iteration", ylabel="accuracy [%]", ylim=(0, 100))
        who = scenario.who
        axes.set_title(
            f"{scenario.title}: noise for p = {who.client_rate:g}, q = {who.sample_rate:g}, d = {who.local_samples}"
        )
        axes.grid()
        figure.legend(loc="outside lower center", ncols=1)
        return save(figure, out / scenario.name)


def _reproduction(scenario: Scenario, figure: str) -> Reproduction:
    return Reproduction(
        scenario.name,
        f"Random participation: accuracy at the noise of four analyses, {scenario.title}",
        f"{PAPER}, {figure}",
        partial(run_training, scenario),
        data_files="EMNIST ByClass, idx files",
    )


REPRODUCTIONS = (_reproduction(MANY_CLIENTS, "Figure 6"), _reproduction(FEW_CLIENTS, "Figure 7"))
