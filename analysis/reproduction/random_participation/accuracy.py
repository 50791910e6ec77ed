"""Accuracies of Hasircioglu and Gunduz, Privacy Amplification via Random Participation (arXiv 2205.01556), section 6:
Figures 6 and 7.

DP-SGD with random participation at the noise that each analysis asks for: the same algorithm four times. Noise wants
smaller steps, so each scheme gets the learning rate that is best for it, of a grid and on a seed that is not compared.
For each further seed there is one sweep over the schemes. Its points have data, first model, participants and samples
in common, so that schemes are compared seed by seed. The guarantee of the proposed analysis' noise stands beside its
curve: see docs/papers/random-participation.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

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
from analysis.reproduction.contract import Measurements, Reproduction, ReproductionContext, Setting
from analysis.reproduction.random_participation.accuracy_claims import (
    EPSILON_LEAST,
    EPSILON_MOST,
    accuracies,
    best_rates,
    conclude_training,
)
from analysis.reproduction.random_participation.published import (
    DELTA,
    EPSILON,
    NONE,
    OLS,
    PAPER,
    PROPOSED,
    SCENARIOS,
    WCS,
    PublishedScenario,
)
from analysis.reproduction.random_participation.tasks import TrainingTask, task_of, training_experiment
from analysis.reproduction.training_runs import AccuracyCurves, describe_data, evaluations_of, runs_by_scheme
from analysis.style import one_panel, save
from testbed.experiment.schema import Experiment

ANALYSES: Mapping[str, Delta] = {PROPOSED: recentred, WCS: weak_client_sampling, OLS: only_local_sampling}
"""Analysis that gives each scheme's sigma; the paper evaluates Theorem 4.1 centred on x'."""

_SEARCH_SEED = 0
"""Seed with which learning rates are tried; compared seeds count from 1."""
_MOMENTUM = 0.9
"""Momentum of the server's steps (Appendix B.2)."""


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
    return training_experiment(f"{title}, seed {seed}", task, {"sigma": 0.0, "momentum": _MOMENTUM}, points, seed)


def measure_training(context: ReproductionContext) -> Measurements:
    """Train both scenarios with every scheme's noise, and compute the privacy loss of that noise."""
    evaluations, tried, privacy = list[pd.DataFrame](), list[pd.DataFrame](), list[pd.DataFrame]()
    tasks, figures = dict[str, TrainingTask](), list[Path]()
    for scenario in SCENARIOS:
        task, noise = task_of(scenario, context.scale, context.data), required_noise(scenario)
        task = replace(task, seeds=context.seeds or task.seeds)
        tried.append(search_rates(context, scenario, task, noise))
        evaluations.append(train(context, scenario, task, noise, best_rates(tried[-1], scenario)))
        context.progress(f"{scenario.figure}: guarantee of the noise, and loss of two data sets")
        privacy.append(privacy_loss(scenario, noise, task.rounds))
        tasks[scenario.figure] = task
        curves = accuracies(evaluations[-1], scenario, task.rounds)
        figures += draw(scenario, noise, curves, privacy[-1], context.out)
    return Measurements(
        _setting(tasks),
        {
            "evaluations": pd.concat(evaluations, ignore_index=True),
            "learning rates": pd.concat(tried, ignore_index=True),
            "privacy": pd.concat(privacy, ignore_index=True),
        },
        figures,
    )


def _setting(tasks: Mapping[str, TrainingTask]) -> Setting:
    """Return the setting of both figures' tasks, which have their data and seeds in common."""
    data, differs, sizes = dict[str, str](), dict[str, list[str]](), dict[str, float]()
    for figure, task in tasks.items():
        samples = task.participation.local_samples
        data[figure] = describe_data({**task.workload, "samples_per_client": samples}, task.population)
        for line in task.differs:
            differs.setdefault(line, []).append(figure)
        sizes |= {
            f"clients, {figure}": task.population,
            f"samples of a client, {figure}": samples,
            f"client rate, {figure}": task.participation.client_rate,
            f"sample rate, {figure}": task.participation.sample_rate,
            f"rounds, {figure}": task.rounds,
        }
    (first, *_) = tasks.values()
    return Setting(
        first.data_kind,
        "; ".join(f"{' and '.join(figures)}: {text}" for text, figures in _by_value(data).items()),
        seeds=list(range(1, first.seeds + 1)),
        sizes=sizes,
        differs=[line if len(figures) == len(tasks) else f"{figures[0]}: {line}" for line, figures in differs.items()],
        choices={"search_seed": _SEARCH_SEED, "momentum": _MOMENTUM},
    )


def _by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the keys of each value."""
    keys: dict[str, list[str]] = {}
    for key, value in values.items():
        keys.setdefault(value, []).append(key)
    return keys


def search_rates(
    context: ReproductionContext, scenario: PublishedScenario, task: TrainingTask, noise: Mapping[str, float]
) -> pd.DataFrame:
    """Train every scheme at every learning rate of the grid, with a seed that is not compared.

    Args:
        context: where and how to run.
        scenario: the paper's scenario.
        task: the learning task.
        noise: sigma by scheme.

    Returns:
        Columns figure, seed, scheme, learning rate, accuracy [%] (as `AccuracyCurves.late`).
    """
    grid = [(scheme, rate) for scheme in noise for rate in task.rates[scheme]]
    context.progress(f"{scenario.figure}: learning rates: {len(grid)} runs, {task.rounds} rounds each")
    swept = experiment(scenario.title, task, [(noise[scheme], rate) for scheme, rate in grid], _SEARCH_SEED)
    runs = context.run_experiment(swept, context.out / "runs" / scenario.name / "rates")
    return pd.DataFrame.from_records(
        [
            {
                "figure": scenario.figure,
                "seed": _SEARCH_SEED,
                "scheme": scheme,
                "learning rate": rate,
                "accuracy [%]": float(AccuracyCurves.of([run]).late[0]),
            }
            for (scheme, rate), run in zip(grid, runs, strict=True)
        ]
    )


def train(
    context: ReproductionContext,
    scenario: PublishedScenario,
    task: TrainingTask,
    noise: Mapping[str, float],
    rates: Mapping[str, float],
) -> pd.DataFrame:
    """Train every scheme with its noise and its learning rate, with every seed.

    Args:
        context: where and how to run.
        scenario: the paper's scenario.
        task: the learning task.
        noise: sigma by scheme.
        rates: learning rate by scheme.

    Returns:
        Columns figure, seed, scheme, learning rate, round, accuracy [%]; one row for each evaluation.
    """
    compared = [(sigma, rates[scheme]) for scheme, sigma in noise.items()]
    swept = partial(experiment, scenario.title, task, compared)
    runs = runs_by_scheme(context, noise, task.rounds, task.seeds, swept, folder=str(Path("runs") / scenario.name))
    return pd.DataFrame.from_records(
        [
            {"figure": scenario.figure, "seed": seed, "scheme": scheme, "learning rate": rates[scheme], **evaluation}
            for scheme, of_scheme in runs.items()
            for seed, run in enumerate(of_scheme, 1)
            for evaluation in evaluations_of(run)
        ]
    )


_BOUNDS: Mapping[str, tuple[tuple[Delta, ...], tuple[composed.Composed, ...]]] = {
    EPSILON_LEAST: ((orthogonal_pair, as_printed), (composed.orthogonal_pair, composed.as_printed)),
    EPSILON_MOST: ((weak_client_sampling,), (composed.weak_client_sampling,)),
}
"""Lower and upper bound on the privacy loss: the worse of two possible pairs of data sets, and the guarantee for all
pairs."""


def privacy_loss(scenario: PublishedScenario, noise: Mapping[str, float], rounds: int) -> pd.DataFrame:
    """Return epsilon of a round and of all rounds at each scheme's noise.

    Args:
        scenario: the paper's scenario.
        noise: sigma by scheme.
        rounds: number of rounds.

    Returns:
        Columns figure, scheme, sigma, rounds, bound, epsilon of a round, epsilon of all rounds; empty cells without
        noise.
    """
    rows = []
    for scheme, sigma in noise.items():
        for bound, (one_round, many_rounds) in _BOUNDS.items():
            in_round = in_all = None
            if sigma:
                in_round = max(epsilon_at(delta, scenario.participation, sigma, DELTA) for delta in one_round)
                losses = [loss(scenario.participation, sigma).self_compose(rounds) for loss in many_rounds]
                in_all = max(float(loss.get_epsilon_for_delta(DELTA)) for loss in losses)
            row = {"figure": scenario.figure, "scheme": scheme, "sigma": sigma, "rounds": rounds, "bound": bound}
            rows.append({**row, "epsilon of a round": in_round, "epsilon of all rounds": in_all})
    return pd.DataFrame.from_records(rows)


_LOOKS = {NONE: ("#7F7F7F", ":"), PROPOSED: ("#0072B2", "--"), WCS: ("#000000", "-"), OLS: ("#56B4E9", "-")}


def draw(
    scenario: PublishedScenario,
    noise: Mapping[str, float],
    results: Mapping[str, AccuracyCurves],
    privacy: pd.DataFrame,
    out: Path,
) -> list[Path]:
    """Draw accuracy over the iterations; the legend has the privacy loss of a round.

    Args:
        scenario: the paper's scenario.
        noise: sigma by scheme.
        results: accuracy by scheme.
        privacy: as `privacy_loss` makes it.
        out: existing directory.
    """
    epsilons = privacy.set_index(["scheme", "bound"])["epsilon of a round"]
    with one_panel(3.2, columns=2) as (figure, axes):
        for scheme, of_scheme in results.items():
            colour, line = _LOOKS[scheme]
            label = scheme
            if noise[scheme]:
                least, most = (float(epsilons[scheme, bound]) for bound in (EPSILON_LEAST, EPSILON_MOST))
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


REPRODUCTIONS = (
    Reproduction(
        "random-participation-fig6",
        "Random participation: accuracy at the noise of four analyses, many clients and few clients",
        f"{PAPER}, Figures 6 and 7",
        aliases=("random-participation-fig7",),
        data_files="EMNIST ByClass, idx files; --scale real: MNIST, too",
        scales=("small", "real", "paper"),
        takes_seeds=True,
        built_in_data="stand-in",
        measure=measure_training,
        conclude=conclude_training,
    ),
)
