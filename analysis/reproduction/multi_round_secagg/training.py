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
import pandas as pd

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.contract import Setting as MeasuredSetting
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
        worst: `(seeds,)` recall of the worst label at the end, in percent; NaN if a run's records have no recalls.
    """

    curves: AccuracyCurves
    skipped: Ids
    privacy: int | None
    certified: bool
    strong: int | None
    fairness: Floats
    fairness_completed: Floats
    cardinality: Floats
    worst: Floats


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


def train(
    context: ReproductionContext, task: Task, folder: str = "runs"
) -> tuple[pd.DataFrame, pd.DataFrame, list[float]]:
    """Run all schemes.

    Args:
        context: where and how to run.
        task: the learning task.
        folder: folder of the runs, below the context's directory.

    Returns:
        A table with one row per setting, scheme and seed; a table with one row per evaluation; and the learning rate
        of each setting.
    """
    of_runs, of_evaluations, rates = list[dict[str, Any]](), list[pd.DataFrame](), list[float]()
    for setting in [setting for setting in SETTINGS if setting in task.settings]:
        rates.append(best_rate(context, task, setting, folder))
        swept = partial(experiment, task, setting, selections=list(SCHEMES.values()), rates=[rates[-1]])
        for scheme, runs in runs_by_scheme(context, SCHEMES, task.rounds, task.seeds, swept, setting, folder).items():
            for seed, run in enumerate(runs, 1):
                key: dict[str, Any] = {"setting": setting, "scheme": scheme, "seed": seed}
                of_runs.append(key | _of_run(run))
                evaluated = run.rounds.dropna(subset=["accuracy"])[["round", "accuracy"]]
                of_evaluations.append(evaluated.assign(**key)[[*key, "round", "accuracy"]])
    return pd.DataFrame(of_runs), pd.concat(of_evaluations, ignore_index=True), rates


def _of_run(run: RunRecords) -> dict[str, Any]:
    """Return the metrics of a run."""
    summary = _summary(run)
    weak = summary["multi_round_privacy_weak"]
    return {
        "rounds": len(run.rounds),
        "skipped": int(summary["rounds_skipped"]),
        "T weak": None if weak is None else float(weak),
        "T certified": weak is not None and bool(summary["multi_round_privacy_weak_certified"]),
        "T strong": None if weak is None else float(summary["multi_round_privacy_strong"]),
        "F": float(summary["fairness_gap"]),
        "F completed": float(summary["fairness_gap_completed"] or 0.0),
        "C": float(summary["aggregation_cardinality"]),
        "worst label": float(late_recalls([run])[0].min()),
    }


def results_of(runs: pd.DataFrame, evaluations: pd.DataFrame) -> Results:
    """Return the results by setting and scheme.

    Args:
        runs: one row per setting, scheme and seed.
        evaluations: one row per setting, scheme, seed and round with an evaluation; accuracies as shares.
    """
    results: dict[Setting, dict[str, TrainedRun]] = {}
    for setting in SETTINGS:
        of_setting = runs[runs["setting"] == setting]
        for scheme, rows in of_setting.groupby("scheme", sort=False):
            evaluated = evaluations[(evaluations["setting"] == setting) & (evaluations["scheme"] == scheme)]
            results.setdefault(setting, {})[str(scheme)] = _trained(rows, evaluated)
    return results


def _trained(rows: pd.DataFrame, evaluated: pd.DataFrame) -> TrainedRun:
    accuracies = evaluated.pivot(index="seed", columns="round", values="accuracy")
    curves = AccuracyCurves(
        accuracies.columns.to_numpy(np.int64), 100 * accuracies.to_numpy(np.float64), int(rows["rounds"].max())
    )
    with_privacy = rows.dropna(subset=["T weak"]).sort_values("T weak", kind="stable")
    least = with_privacy.iloc[0] if len(with_privacy) else None
    return TrainedRun(
        curves=curves,
        skipped=rows["skipped"].to_numpy(np.int64),
        privacy=None if least is None else int(least["T weak"]),
        certified=least is not None and bool(least["T certified"]),
        strong=int(with_privacy["T strong"].min()) if len(with_privacy) else None,
        fairness=rows["F"].to_numpy(np.float64),
        fairness_completed=rows["F completed"].to_numpy(np.float64),
        cardinality=rows["C"].to_numpy(np.float64),
        worst=rows["worst label"].to_numpy(np.float64, na_value=np.nan),
    )


def measured_setting(task: Task, rates: Sequence[float], is_papers_data: bool) -> MeasuredSetting:
    """Return the setting of measurements.

    Args:
        task: the learning task.
        rates: learning rate of each setting.
        is_papers_data: whether the data are the paper's.
    """
    settings = [setting for setting in SETTINGS if setting in task.settings]
    sizes = {"population": task.population, "participants": task.participants, "rounds": task.rounds}
    return MeasuredSetting(
        "paper" if is_papers_data else "stand-in",
        data=describe_data({**task.workload, **task.settings[settings[0]]}, task.population),
        seeds=list(range(1, task.seeds + 1)),
        sizes=sizes,
        differs=list(task.notes),
        choices={
            "learning rates": dict(zip(settings, rates, strict=True)),
            "grid": list(task.rates),
            "by label": task.by_label,
            "is paper's": task.is_papers,
        },
    )


def remarks(setting: MeasuredSetting) -> list[str]:
    """Return the data, the training, and the inputs that the paper does not state.

    Args:
        setting: setting of the measurements.
    """
    sizes, choices, seeds = setting.sizes, setting.choices, len(setting.seeds)
    chosen = ", ".join(f"{name} {rate:g}" for name, rate in choices["learning rates"].items())
    grid = choices["grid"]
    from_grid = "chosen beforehand from the paper's grid" if len(grid) == 1 else f"the best of {_listed(grid)}"
    away = f"drawn from {_listed(UNAVAILABLE)} for each seed"
    if choices["by label"]:
        away += f", in the non-IID setting growing with the client's label from {UNAVAILABLE[0]} to {UNAVAILABLE[-1]}"
    return [
        f"Data: {setting.data}.",
        *setting.differs,
        f"{sizes['rounds']:.0f} rounds (the public runs: 200 for MNIST, 1,000 for CIFAR), "
        + (f"{seeds} seeds" if seeds >= SEEDS else f"{seeds} of the paper's {SEEDS} seeds")
        + f"; N = {sizes['population']:.0f}, K = {sizes['participants']:.0f}. Learning rate, one for all schemes: "
        f"{chosen}, {from_grid}; SGD without momentum.",
        "Batches are chosen by the least sum of participations, as in the public code, and not by Algorithm 2 as "
        "printed.",
        "An accuracy is the mean over the evaluations of a run's last tenth of rounds, as one round's is noisy. ± "
        "and bands: 95% intervals over the seeds. Schemes are compared seed by seed: equal data, model and dropouts.",
        f"Dropout probabilities: {away}. A client is away for a whole round, before selection.",
        "Updates are summed in the clear: masks cancel, and no accuracy depends on them.",
    ]


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


def _summary(run: RunRecords) -> dict[str, Any]:
    """Return the run's summary."""
    path = run.path / "summary.json"
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        raise RunError(f"{path}: cannot be read; delete the run's directory and start again") from None
