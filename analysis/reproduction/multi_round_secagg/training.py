"""Training experiments of Multi-RoundSecAgg: six selections, each on the same data and with the same dropouts.

So et al., Securing Secure Aggregation, arXiv 2106.03328, section 6 and appendices E (data), F (hyperparameters) and G
(ablation). Each seed and setting has one sweep over the schemes. Its points share the data, the first model, the
dropout probabilities and the absences in each round, so that schemes are compared seed by seed.

The learning tasks are in `tasks`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.experiments import declared
from analysis.reproduction.multi_round_secagg.published import RANDOM, SCHEMES, SEEDS, SETTINGS, UNAVAILABLE, Setting
from analysis.reproduction.multi_round_secagg.tasks import Task
from analysis.reproduction.training_runs import AccuracyCurves, best_of, describe_data, late_recalls, runs_by_scheme
from testbed.arrays import Floats, Ids
from testbed.errors import RunError
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords


@dataclass(frozen=True)
class TrainedRun:
    """Result of one scheme's runs.

    Attributes:
        curves: accuracy over the rounds, by seed.
        skipped: `(seeds,)` int64 rounds without a sum.
        privacy: smallest weak multi-round privacy T among the seeds' runs; None if no round was completed.
        certified: whether nothing smaller exists in that run.
        strong: smallest strong T among the runs.
        fairness: `(seeds,)` F after the last round.
        fairness_completed: `(seeds,)` F over completed rounds.
        cardinality: `(seeds,)` C after the last round.
        recalls: `(seeds, labels)` in percent, at the end; NaN if a run's records have no recalls.
    """

    curves: AccuracyCurves
    skipped: Ids
    privacy: int | None
    certified: bool
    strong: int | None
    fairness: Floats
    fairness_completed: Floats
    cardinality: Floats
    recalls: Floats

    @property
    def worst(self) -> Floats:
        """Recall of the worst label at the end, `(seeds,)` in percent."""
        return np.asarray(self.recalls.min(axis=1), np.float64)


Results = Mapping[Setting, Mapping[str, TrainedRun]]


def dropout_probabilities(population: int, seed: int) -> list[float]:
    """Return the paper's p_i, `(n,)`, each one of five values, uniformly at random.

    Args:
        population: n.
        seed: seed of the run.
    """
    # A stream of its own, by the paper's number: no draw within a run of this seed repeats it.
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(2106, 3328))))
    return [float(p) for p in generator.choice(UNAVAILABLE, population)]


def experiment(
    task: Task, setting: Setting, seed: int, selections: Sequence[Mapping[str, Any]], rates: Sequence[float]
) -> Experiment:
    """Return one seed's sweep over selections and learning rates.

    Users are away for a whole round, before selection, as in the paper: the server selects among the others. Sums are
    in the clear, since no accuracy depends on masks.

    Args:
        task: the learning task.
        setting: IID or non-IID.
        seed: seed of the runs.
        selections: sections `selection`, without the participants.
        rates: learning rates.
    """
    availability: dict[str, Any] = {"model": "bernoulli"}
    if task.by_label and setting == "non-IID":
        availability = {"model": "label-dependent", "lowest": UNAVAILABLE[0], "highest": UNAVAILABLE[-1]}
    else:
        availability["unavailable"] = dropout_probabilities(task.population, seed)
    return declared(
        f"{setting}, seed {seed}",
        "{workload: {momentum: 0.0}, aggregation: {protocol: plain}, time: {deadline_s: 86400.0}}",
        {
            "seed": seed,
            "rounds": task.rounds,
            "population": task.population,
            "workload": {"evaluate_every": task.evaluate_every, **task.workload, **task.settings[setting]},
            "selection.participants": task.participants,
            "availability": availability,
            "sweep": {
                "workload.learning_rate": list(rates),
                "selection": [dict(selection) for selection in selections],
            },
        },
    )


def train(context: ReproductionContext, task: Task, folder: str = "runs") -> tuple[Results, dict[Setting, float]]:
    """Run all schemes, and return the results by setting and scheme, and the learning rate of each setting.

    Args:
        context: where and how to run.
        task: the learning task.
        folder: folder of the runs, below the context's directory.
    """
    results: dict[Setting, dict[str, TrainedRun]] = {}
    rates: dict[Setting, float] = {}
    for setting in [setting for setting in SETTINGS if setting in task.settings]:
        rates[setting] = best_rate(context, task, setting, folder)
        swept = partial(experiment, task, setting, selections=list(SCHEMES.values()), rates=[rates[setting]])
        runs = runs_by_scheme(context, SCHEMES, task.rounds, task.seeds, swept, setting, folder)
        results[setting] = {scheme: trained(of_scheme) for scheme, of_scheme in runs.items()}
    return results, rates


def remarks(task: Task, rates: Mapping[Setting, float]) -> list[str]:
    """Return the data, the training, and the inputs that the paper does not state.

    Args:
        task: the learning task.
        rates: learning rate by setting.
    """
    data = describe_data({**task.workload, **next(iter(task.settings.values()))}, task.population)
    chosen = ", ".join(f"{setting} {rate:g}" for setting, rate in rates.items())
    grid = "chosen beforehand from the paper's grid" if len(task.rates) == 1 else f"the best of {_listed(task.rates)}"
    away = f"drawn from {_listed(UNAVAILABLE)} for each seed"
    if task.by_label:
        away += f", in the non-IID setting growing with the client's label from {UNAVAILABLE[0]} to {UNAVAILABLE[-1]}"
    return [
        f"Data: {data}.",
        *task.notes,
        f"{task.rounds} rounds (the paper's text does not say how many), {_format_seeds(task.seeds)}; "
        f"N = {task.population}, K = {task.participants}. Learning rate, one for all schemes: {chosen}, {grid}; "
        "SGD without momentum.",
        "An accuracy is the mean over the evaluations of a run's last tenth of rounds, as one round's is noisy. ± "
        "and bands: 95% intervals over the seeds. Schemes are compared seed by seed: equal data, model and dropouts.",
        f"Dropout probabilities: {away}. A client is away for a whole round, before selection.",
        "Updates are summed in the clear: masks cancel, and no accuracy depends on them.",
    ]


def _format_seeds(seeds: int) -> str:
    return f"{seeds} seeds" if seeds >= SEEDS else f"{seeds} of the paper's {SEEDS} seeds"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def best_rate(context: ReproductionContext, task: Task, setting: Setting, folder: str) -> float:
    """Return the learning rate at which random selection learns best, the larger of equals.

    The paper takes the best of its grid "for a fair comparison between 6 schemes". One rate for all schemes of a
    setting, chosen with a seed that is not compared, favours none of them.

    Args:
        context: where and how to run.
        task: the learning task.
        setting: IID or non-IID.
        folder: folder of the runs, below the context's directory.
    """
    if len(task.rates) == 1:
        return task.rates[0]
    context.progress(f"{setting}: which of {len(task.rates)} learning rates")
    swept = experiment(task, setting, 0, [SCHEMES[RANDOM]], task.rates)  # seed 0 is not compared
    runs = context.run_experiment(swept, context.out / folder / f"{setting}-rates".lower())
    reached = [float(AccuracyCurves.of([run]).late[0]) for run in runs]
    return best_of(task.rates, reached)


def trained(runs: Sequence[RunRecords]) -> TrainedRun:
    """Return the result of one scheme's runs, which differ in their seeds."""
    summaries = [_summary(run) for run in runs]
    with_privacy = [summary for summary in summaries if summary["multi_round_privacy_weak"] is not None]
    least = min(with_privacy, key=lambda summary: int(summary["multi_round_privacy_weak"]), default=None)
    return TrainedRun(
        curves=AccuracyCurves.of(runs),
        skipped=np.array([summary["rounds_skipped"] for summary in summaries], np.int64),
        privacy=None if least is None else int(least["multi_round_privacy_weak"]),
        certified=least is not None and bool(least["multi_round_privacy_weak_certified"]),
        strong=min((int(summary["multi_round_privacy_strong"]) for summary in with_privacy), default=None),
        fairness=np.array([summary["fairness_gap"] for summary in summaries], np.float64),
        fairness_completed=np.array([summary["fairness_gap_completed"] or 0.0 for summary in summaries], np.float64),
        cardinality=np.array([summary["aggregation_cardinality"] for summary in summaries], np.float64),
        recalls=late_recalls(runs),
    )


def _summary(run: RunRecords) -> dict[str, Any]:
    """Return the run's summary."""
    path = run.path / "summary.json"
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        raise RunError(f"{path}: cannot be read; delete the run's directory and start again") from None
