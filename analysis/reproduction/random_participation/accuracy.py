"""Accuracies of Hasircioglu and Gunduz, Privacy Amplification via Random Participation (arXiv 2205.01556), section 6:
Figures 6 and 7.

DP-SGD with random participation at the noise that each analysis asks for: the same algorithm four times. Noise wants
smaller steps, so each scheme gets the learning rate that is best for it, of a grid that is the same for all and on a
seed that is not compared. For each further seed there is one sweep over the schemes. Its points have data, first model,
participants and samples in common, so that schemes are compared seed by seed. What the noise of the proposed analysis
really guarantees stands beside its curve: see docs/papers/random-participation.md.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.bounds import random_participation_composed as composed
from analysis.bounds.random_participation import (
    Delta,
    as_printed,
    epsilon_at,
    only_local_sampling,
    orthogonal_pair,
    recentred,
    sigma_at,
    weak_client_sampling,
)
from analysis.plot_data import plot_data
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.experiments import declared
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
    PublishedScenario,
)
from analysis.reproduction.random_participation.tasks import TrainingTask, task_of
from analysis.reproduction.training_runs import AccuracyCurves, best_of, describe_data, runs_by_scheme
from analysis.reproduction.verdicts import PaperClaim, above, between
from analysis.statistics import mean_interval
from analysis.style import one_panel, save
from testbed.experiment.schema import Experiment

ANALYSES: Mapping[str, Delta] = {PROPOSED: recentred, WCS: weak_client_sampling, OLS: only_local_sampling}
"""Analysis that gives each scheme's sigma; the paper evaluates Theorem 4.1 centred on x'."""

_SEARCH_SEED = 0
"""Seed with which learning rates are tried; compared seeds count from 1."""


@dataclass(frozen=True)
class RateSearch:
    """Accuracy of a scheme at each learning rate of the grid.

    Attributes:
        rates: learning rates of the grid.
        reached: accuracy in percent at each, as `AccuracyCurves.late`.
    """

    rates: tuple[float, ...]
    reached: tuple[float, ...]

    @property
    def best(self) -> float:
        """Learning rate at which the scheme is compared."""
        return best_of(self.rates, self.reached)

    def __str__(self) -> str:
        """Return the search as one line of text."""
        reached = ", ".join(
            f"{rate:g}: {accuracy:.0f}%" for rate, accuracy in zip(self.rates, self.reached, strict=True)
        )
        at_end = self.best in (min(self.rates), max(self.rates)) and len(self.rates) > 1
        return f"{self.best:g} ({reached}{'; at the end of the grid, so there may be a better one' if at_end else ''})"


def required_noise(scenario: PublishedScenario) -> dict[str, float]:
    """Return the noise of a round that each analysis requires, and zero for no privacy."""
    required = {scheme: sigma_at(delta, scenario.participation, EPSILON, DELTA) for scheme, delta in ANALYSES.items()}
    return {NONE: 0.0, **required}


def experiment(title: str, task: TrainingTask, schemes: Sequence[tuple[float, float]], seed: int) -> Experiment:
    """Return one seed's sweep.

    Args:
        title: title of the scenario.
        task: the learning task.
        schemes: sigma and learning rate of each point; gradients are not clipped without noise.
        seed: seed of data, first model, participants, samples and noise.
    """
    points = [
        {"clip": 1.0 if sigma else "none", "sigma": sigma, "learning_rate": learning_rate}
        for sigma, learning_rate in schemes
    ]
    return declared(
        f"{title}, seed {seed}",
        """
        selection: {protocol: bernoulli}
        aggregation: {protocol: dp-sgd-random-participation, momentum: 0.9, sigma: 0.0}
        time: {deadline_s: 86400.0}
        """,
        {
            "seed": seed,
            "rounds": task.rounds,
            "population": task.population,
            "workload": {
                **task.workload,
                "samples_per_client": task.participation.local_samples,
                "evaluate_every": max(1, task.rounds // task.evaluations),
            },
            "selection.client_rate": task.participation.client_rate,
            "aggregation.sample_rate": task.participation.sample_rate,
            "sweep": {"aggregation": points},
        },
    )


def search_rates(
    context: ReproductionContext, title: str, task: TrainingTask, noise: Mapping[str, float]
) -> dict[str, RateSearch]:
    """Train every scheme at every learning rate of the grid, with a seed that is not compared.

    Args:
        context: where and how to run.
        title: title of the scenario.
        task: the learning task.
        noise: sigma by scheme.
    """
    context.progress(f"learning rates: {len(noise)} schemes at {len(task.rates)} each, {task.rounds} rounds each")
    grid = [(sigma, rate) for sigma in noise.values() for rate in task.rates]
    runs = iter(context.run_experiment(experiment(title, task, grid, _SEARCH_SEED), context.out / "runs" / "rates"))
    return {
        scheme: RateSearch(task.rates, tuple(float(AccuracyCurves.of([next(runs)]).late[0]) for _ in task.rates))
        for scheme in noise
    }


def train(
    context: ReproductionContext, title: str, task: TrainingTask, noise: Mapping[str, float], rates: Mapping[str, float]
) -> dict[str, AccuracyCurves]:
    """Train every scheme with its noise and its learning rate, with every seed.

    Args:
        context: where and how to run.
        title: title of the scenario.
        task: the learning task.
        noise: sigma by scheme.
        rates: learning rate by scheme.
    """
    compared = [(sigma, rates[scheme]) for scheme, sigma in noise.items()]
    runs = runs_by_scheme(context, noise, task.rounds, task.seeds, partial(experiment, title, task, compared))
    return {scheme: AccuracyCurves.of(of_scheme) for scheme, of_scheme in runs.items()}


_LOOKS = {NONE: ("#7F7F7F", ":"), PROPOSED: ("#0072B2", "--"), WCS: ("#000000", "-"), OLS: ("#56B4E9", "-")}


def run_training(scenario: PublishedScenario, context: ReproductionContext) -> ReproductionResult:
    """Train with every scheme's noise, and judge accuracies and guarantees.

    Args:
        scenario: the paper's scenario.
        context: where and how to run.
    """
    task, noise = task_of(scenario, context.scale, context.data), required_noise(scenario)
    task = replace(task, seeds=context.seeds or task.seeds)
    tried = search_rates(context, scenario.title, task, noise)
    rates = {scheme: grid.best for scheme, grid in tried.items()}
    results = train(context, scenario.title, task, noise, rates)
    context.progress("guarantee of the noise, and loss of two data sets")
    frame = table(scenario, task, noise, rates, results)
    return ReproductionResult(
        frame,
        figures=draw(scenario, noise, results, frame, context.out),
        claims=[*accuracy_claims(scenario, results), privacy_claim(scenario, frame)],
        remarks=remarks(task, tried),
    )


def remarks(task: TrainingTask, tried: Mapping[str, RateSearch]) -> list[str]:
    """Return the data, the choice of the learning rates, and the comparison.

    Args:
        task: the learning task.
        tried: search for the learning rate, by scheme.
    """
    grid = ", ".join(f"{rate:g}" for rate in task.rates)
    data = describe_data({**task.workload, "samples_per_client": task.participation.local_samples}, task.population)
    return [
        f"Data: {data}.",
        *task.notes,
        f"Learning rates: every scheme was tried with {grid} on one seed that is not compared, and compared at the "
        "best. In brackets each accuracy: " + "; ".join(f"{scheme} {of}" for scheme, of in tried.items()) + ".",
        f"{task.seeds} seeds; momentum 0.9 at the server. An accuracy is the mean over the evaluations of a run's "
        "last tenth; ± and bands: 95% intervals over the seeds. The schemes of a seed differ only in noise and "
        "learning rate.",
        "All four are the same algorithm. They differ in the sigma that an analysis requires for a round to be "
        f"({EPSILON}, {DELTA:g})-DP. That of Theorem 4.1 (as the paper evaluates it) is no such guarantee: the loss "
        "of a round lies between the worse of two possible pairs of data sets (the client's other gradients "
        "orthogonal to the sample's, or parallel) and WCS.",
    ]


def table(
    scenario: PublishedScenario,
    task: TrainingTask,
    noise: Mapping[str, float],
    rates: Mapping[str, float],
    results: Mapping[str, AccuracyCurves],
) -> pd.DataFrame:
    """Return each scheme's noise, privacy cost of a round and of all rounds, learning rate and accuracy.

    Args:
        scenario: the paper's scenario.
        task: the learning task.
        noise: sigma by scheme.
        rates: learning rate by scheme.
        results: accuracy by scheme.
    """
    rows = []
    for scheme, sigma in noise.items():
        row: dict[str, Any] = {"scheme": scheme, "sigma": sigma, "sigma (paper)": scenario.sigmas.get(scheme, 0.0)}
        for bound, (one_round, many_rounds) in _BOUNDS.items():
            in_round, in_all = float("inf"), float("inf")
            if sigma:
                in_round = max(epsilon_at(delta, scenario.participation, sigma, DELTA) for delta in one_round)
                losses = [loss(scenario.participation, sigma).self_compose(task.rounds) for loss in many_rounds]
                in_all = max(float(loss.get_epsilon_for_delta(DELTA)) for loss in losses)
            row[f"epsilon of a round, {bound}"], row[f"of {task.rounds}, {bound}"] = in_round, in_all
        row["learning rate"], row["learning rate (paper)"] = rates[scheme], scenario.rates[scheme]
        interval = mean_interval(results[scheme].late)
        row["accuracy [%]"], row["±"] = interval.mean, interval.half_width
        rows.append(row)
    return pd.DataFrame.from_records(rows)


_BOUNDS: Mapping[str, tuple[tuple[Delta, ...], tuple[composed.Composed, ...]]] = {
    "at least": ((orthogonal_pair, as_printed), (composed.orthogonal_pair, composed.as_printed)),
    "guaranteed": ((weak_client_sampling,), (composed.weak_client_sampling,)),
}
"""Lower and upper bound on the privacy loss: the worse of two possible pairs of data sets, and the guarantee for all
pairs."""


def accuracy_claims(scenario: PublishedScenario, results: Mapping[str, AccuracyCurves]) -> list[PaperClaim]:
    """Return the claims on the order of the curves, seed by seed.

    Args:
        scenario: the paper's scenario.
        results: accuracy by scheme.
    """
    first = {
        MANY_CLIENTS.name: "the proposed scheme's noise gives much higher accuracy than WCS's",
        FEW_CLIENTS.name: "the proposed scheme has the best accuracy of the private ones",
    }[scenario.name]
    claims = [
        (first, PROPOSED, WCS),
        ("WCS improves on OLS", WCS, OLS),
        ("without privacy the accuracy is the highest", NONE, PROPOSED),
    ]
    stated = []
    for says, better, worse in claims:
        difference = mean_interval(results[better].late - results[worse].late)
        mean, half = difference.mean, difference.half_width
        assert mean is not None
        shown = f"{better} {mean:+.1f}{'' if half is None else f' ± {half:.1f}'} points above {worse}"
        stated.append(
            PaperClaim(says, shown, [above("points of difference", difference)], seeds=len(results[better].late))
        )
    return stated


def privacy_claim(scenario: PublishedScenario, frame: pd.DataFrame) -> PaperClaim:
    """Return the claim on the guarantee of the proposed scheme's noise.

    Args:
        scenario: scenario of the table.
        frame: as `table` makes it; a column names the number of rounds.
    """
    (rounds,) = (str(name).split()[1].rstrip(",") for name in frame if re.fullmatch(r"of \d+, guaranteed", str(name)))
    row = frame[frame["scheme"] == PROPOSED].iloc[0]
    least, most = (float(row[f"epsilon of a round, {bound}"]) for bound in ("at least", "guaranteed"))
    all_least, all_most = (float(row[f"of {rounds}, {bound}"]) for bound in ("at least", "guaranteed"))
    return PaperClaim(
        f"the proposed scheme's sigma = {scenario.sigmas[PROPOSED]} makes every round ({EPSILON}, {DELTA:g})-DP",
        f"at sigma = {row['sigma']:.4g} a round loses epsilon {least:.3g} at least, and {most:.3g} at most (WCS); "
        f"{rounds} rounds {all_least:.3g} to {all_most:.3g}",
        [between("epsilon that two data sets lose in a round", least, most=EPSILON)],
        counted_in="random-participation-unsound",
    )


def draw(
    scenario: PublishedScenario,
    noise: Mapping[str, float],
    results: Mapping[str, AccuracyCurves],
    frame: pd.DataFrame,
    out: Path,
) -> list[Path]:
    """Draw accuracy over the iterations; the legend has the privacy loss of a round.

    Args:
        scenario: the paper's scenario.
        noise: sigma by scheme.
        results: accuracy by scheme.
        frame: as `table` makes it.
        out: existing directory.
    """
    rows = frame.set_index("scheme")
    with one_panel(3.2, columns=2) as (figure, axes):
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
        participation = scenario.participation
        axes.set_title(
            f"{scenario.title}: noise for p = {participation.client_rate:g}, q = {participation.sample_rate:g}, "
            f"d = {participation.local_samples}"
        )
        axes.grid()
        figure.legend(loc="outside lower center", ncols=1)
        return save(figure, out / scenario.name, plot_data(figure))


def _reproduction(scenario: PublishedScenario, figure: str) -> Reproduction:
    return Reproduction(
        scenario.name,
        f"Random participation: accuracy at the noise of four analyses, {scenario.title}",
        f"{PAPER}, {figure}",
        partial(run_training, scenario),
        data_files="EMNIST ByClass, idx files; --scale real: MNIST, too",
        scales=("small", "real", "paper"),
        takes_seeds=True,
        claims_of=lambda table, seeds: [None, None, None, privacy_claim(scenario, table)],  # others need each seed's
    )


REPRODUCTIONS = (
    _reproduction(MANY_CLIENTS, "Figure 6"),
    _reproduction(FEW_CLIENTS, "Figure 7"),
)
