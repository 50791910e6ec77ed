"""The training experiments of Multi-RoundSecAgg: six selections, each on the same data and with the same dropouts.

So et al., Securing Secure Aggregation, arXiv 2106.03328, section 6 and appendices E (data), F (hyperparameters) and G
(ablation). For each seed and setting there is one sweep over the schemes. Its points have the data, the first model,
the dropout probabilities, and who is away in which round in common, so that schemes are compared seed by seed.

What clients learn are the paper's three tasks, and what stands in for them on two cores. The stand-ins keep N, K, the
six schemes, the dropouts, one local epoch, and about as many local steps per round as the paper's clients take; they
have smaller models and fewer samples.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.reproduction.contract import ReproductionContext, Scale
from analysis.reproduction.multi_round_secagg.published import (
    DECAY,
    LEARNING_RATES,
    MILESTONES,
    PARTICIPANTS,
    POPULATION,
    RANDOM,
    SCHEMES,
    SEEDS,
    SETTINGS,
    UNAVAILABLE,
    Setting,
)
from analysis.reproduction.training_runs import AccuracyCurves, best_of, describe_data, runs_by_scheme
from testbed.arrays import Floats, Ids
from testbed.errors import ExperimentError, RunError
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords


@dataclass(frozen=True)
class Task:
    """What the clients learn, and for how long.

    Attributes:
        workload: keys of the experiments' workload in both settings.
        settings: the keys of each setting that is run, such as its partition.
        rounds: of each run.
        rates: learning rates; of several the best is taken, by setting, as the paper does (`best_rate`).
        by_label: in the non-IID setting a client's dropout probability depends on its label (first version of the
            paper, section 6); otherwise it is drawn.
        evaluations: of the model, evenly over the rounds.
        population: N.
        participants: K.
        seeds: repetitions.
        notes: what differs from the paper, for people.
    """

    workload: Mapping[str, Any]
    settings: Mapping[Setting, Mapping[str, Any]]
    rounds: int
    rates: tuple[float, ...]
    by_label: bool = False
    evaluations: int = 50
    population: int = POPULATION
    participants: int = PARTICIPANTS
    seeds: int = SEEDS
    notes: tuple[str, ...] = ()

    @property
    def evaluate_every(self) -> int:
        """Rounds from one evaluation to the next."""
        return max(1, self.rounds // self.evaluations)


@dataclass(frozen=True)
class Trained:
    """What one scheme's runs came to.

    Attributes:
        curves: accuracy over the rounds, by seed.
        skipped: `(seeds,)` int64 rounds without a sum.
        privacy: smallest weak multi-round privacy T among the seeds' runs; None where no round was completed.
        certified: whether nothing smaller exists in that run.
        strong: smallest strong T among the runs.
        fairness: `(seeds,)` F after the last round.
        cardinality: `(seeds,)` C after the last round.
    """

    curves: AccuracyCurves
    skipped: Ids
    privacy: int | None
    certified: bool
    strong: int | None
    fairness: Floats
    cardinality: Floats


Results = Mapping[Setting, Mapping[str, Trained]]


def dropout_probabilities(population: int, seed: int) -> list[float]:
    """`(n,)` the paper's p_i, each one of five values, uniformly at random."""
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(2106, 3328))))
    return [float(p) for p in generator.choice(UNAVAILABLE, population)]


def experiment(
    task: Task, setting: Setting, seed: int, selections: Sequence[Mapping[str, Any]], rates: Sequence[float]
) -> Experiment:
    """One seed's sweep over selections and learning rates. Sums are in the clear, which no accuracy depends on.

    Users are away for a whole round, before selection, as the paper has it: the server selects among the others.
    """
    availability: dict[str, Any] = {"model": "bernoulli"}
    if task.by_label and setting == "non-IID":
        availability = {"model": "label-dependent", "lowest": UNAVAILABLE[0], "highest": UNAVAILABLE[-1]}
    else:
        availability["unavailable"] = dropout_probabilities(task.population, seed)
    return Experiment.model_validate(
        {
            "name": f"{setting}, seed {seed}",
            "seed": seed,
            "rounds": task.rounds,
            "population": task.population,
            "workload": {
                "momentum": 0.0,
                "evaluate_every": task.evaluate_every,
                **task.workload,
                **task.settings[setting],
            },
            "selection": {"participants": task.participants},
            "aggregation": {"protocol": "plain"},
            "availability": availability,
            "time": {"compute": "modelled", "deadline_s": 86_400.0},
            "sweep": {
                "workload.learning_rate": list(rates),
                "selection": [dict(selection) for selection in selections],
            },
        }
    )


def train(context: ReproductionContext, task: Task, folder: str = "runs") -> tuple[Results, dict[Setting, float]]:
    """Run everything; the outcome by setting and scheme, and the learning rate of each setting.

    Args:
        context: where and how to run.
        task: what.
        folder: of the runs, below the context's.
    """
    results: dict[Setting, dict[str, Trained]] = {}
    rates: dict[Setting, float] = {}
    for setting in [setting for setting in SETTINGS if setting in task.settings]:
        rates[setting] = best_rate(context, task, setting, folder)
        swept = partial(experiment, task, setting, selections=list(SCHEMES.values()), rates=[rates[setting]])
        runs = runs_by_scheme(context, SCHEMES, task.rounds, task.seeds, swept, setting, folder)
        results[setting] = {scheme: trained(of_scheme) for scheme, of_scheme in runs.items()}
    return results, rates


def remarks(task: Task, rates: Mapping[Setting, float]) -> list[str]:
    """The data, how they were learned, and what the paper does not say."""
    data = describe_data({**task.workload, **next(iter(task.settings.values()))}, task.population)
    chosen = ", ".join(f"{setting} {rate:g}" for setting, rate in rates.items())
    grid = "chosen beforehand from the paper's grid" if len(task.rates) == 1 else f"the best of {_listed(task.rates)}"
    away = f"drawn from {_listed(UNAVAILABLE)} for each seed"
    if task.by_label:
        away += f", in the non-IID setting growing with the client's label from {UNAVAILABLE[0]} to {UNAVAILABLE[-1]}"
    return [
        f"Data: {data}.",
        *task.notes,
        f"{task.rounds} rounds (the paper's text does not say how many), {task.seeds} seeds; N = {task.population}, "
        f"K = {task.participants}. Learning rate, one for all schemes: {chosen}, {grid}; SGD without momentum.",
        "An accuracy is the mean over the evaluations of a run's last tenth of rounds, as one round's is noisy. ± "
        "and bands: 95% intervals over the seeds. Schemes are compared seed by seed: equal data, model and dropouts.",
        f"Dropout probabilities: {away}. A client is away for a whole round, before selection.",
        "Updates are summed in the clear: masks cancel, and no accuracy depends on them.",
    ]


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def best_rate(context: ReproductionContext, task: Task, setting: Setting, folder: str) -> float:
    """The learning rate at which random selection learns best, on a seed of its own; the larger of equal ones.

    The paper takes the best of its grid "for a fair comparison between 6 schemes". One rate for all schemes of a
    setting, chosen by another seed than those that are compared, favours none of them.
    """
    if len(task.rates) == 1:
        return task.rates[0]
    context.progress(f"{setting}: which of {len(task.rates)} learning rates")
    swept = experiment(task, setting, 0, [SCHEMES[RANDOM]], task.rates)
    runs = context.run_experiment(swept, context.out / folder / f"{setting}-rates".lower())
    reached = [float(AccuracyCurves.of([run]).late[0]) for run in runs]
    return best_of(task.rates, reached)


def trained(runs: Sequence[RunRecords]) -> Trained:
    """What one scheme's runs, of different seeds and else alike, came to."""
    summaries = [_summary(run) for run in runs]
    known = [one for one in summaries if one["multi_round_privacy_weak"] is not None]
    least = min(known, key=lambda one: int(one["multi_round_privacy_weak"]), default=None)
    return Trained(
        curves=AccuracyCurves.of(runs),
        skipped=np.array([one["rounds_skipped"] for one in summaries], np.int64),
        privacy=None if least is None else int(least["multi_round_privacy_weak"]),
        certified=least is not None and bool(least["multi_round_privacy_weak_certified"]),
        strong=min((int(one["multi_round_privacy_strong"]) for one in known), default=None),
        fairness=np.array([one["fairness_gap"] for one in summaries], np.float64),
        cardinality=np.array([one["aggregation_cardinality"] for one in summaries], np.float64),
    )


def _summary(run: RunRecords) -> dict[str, Any]:
    """What the run was summarised to when it ended."""
    path = run.path / "summary.json"
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        raise RunError(f"{path}: cannot be read; delete the run's directory and start again") from None


_SHARDS = {"scheme": "label-shards", "shards_per_client": 1}
_IID: Mapping[Setting, Mapping[str, Any]] = {"IID": {"partition": {"scheme": "iid"}}}
_ONE_LABEL: Mapping[Setting, Mapping[str, Any]] = {**_IID, "non-IID": {"partition": _SHARDS}}
_DIRICHLET: Mapping[Setting, Mapping[str, Any]] = {
    **_IID,
    "non-IID": {"partition": {"scheme": "dirichlet", "alpha": 0.5}},
}


def _shared(samples: int) -> Mapping[Setting, Mapping[str, Any]]:
    """One label each, and samples that everybody has."""
    return {**_IID, "non-IID": {"partition": {**_SHARDS, "shared_samples": samples}}}


_CIFAR = {"epochs": 1, "batch_size": 50, "learning_rate_decay": DECAY, "learning_rate_milestones": MILESTONES}
_SMALL = {"epochs": 1, "batch_size": 10, "samples_per_client": 40, "test_samples": 500}

DIGITS = Task(
    {"dataset": "digits", "model": "mlp", "epochs": 1, "batch_size": 3},
    _ONE_LABEL,
    rounds=150,
    rates=(0.1,),
    by_label=True,
    notes=(
        "Instead of MNIST's 60,000 images, the 8x8 digits: 12 samples for each client, in batches of 3, which makes 4 "
        "local steps a round (the paper: 500 in batches of 100, 5 steps). Instead of the CNN, two hidden layers of 64 "
        "units.",
    ),
)
MNIST_TEST_FILES = Task(
    {"dataset": "mnist", "model": "mlp", "epochs": 1, "batch_size": 14},
    _ONE_LABEL,
    rounds=100,
    rates=(0.1,),
    by_label=True,
    evaluations=25,
    notes=(
        "Instead of the CNN, two hidden layers of 200 units. Batches of 14: where only the test files are there, a "
        "client has 66 samples, which makes 5 local steps a round, as in the paper (500 in batches of 100).",
    ),
)
MNIST = Task(
    {"dataset": "mnist", "model": "mnist-cnn", "epochs": 1, "batch_size": 100},
    _ONE_LABEL,
    rounds=400,
    rates=LEARNING_RATES,
    by_label=True,
    evaluations=80,
)
CIFAR10 = Task(
    {"dataset": "cifar10", "model": "lenet", **_CIFAR},
    _shared(200),
    rounds=1000,
    rates=LEARNING_RATES,
    by_label=True,
    evaluations=100,
)
CIFAR100 = Task(
    {"dataset": "cifar100", "model": "vgg11", **_CIFAR}, _DIRICHLET, rounds=1000, rates=LEARNING_RATES, evaluations=100
)
_FEW = (
    "Of the 417 (IID) and 200 + 415 samples of a client 40 and 20 + 20, in batches of 10, which makes 4 local steps a "
    "round (the paper: 50, 9 and 13 steps); 500 test images; no decay of the learning rate, which begins at round 400."
)
GENERATED10 = Task(
    {"dataset": "synthetic-cifar10", "model": "lenet", **_SMALL},
    _shared(20),
    rounds=60,
    rates=(0.03,),
    by_label=True,
    evaluations=20,
    notes=(_FEW,),
)
DIGITS_DIRICHLET = replace(
    DIGITS,
    settings=_DIRICHLET,
    by_label=False,
    notes=(
        "Instead of CIFAR-100, the 8x8 digits: 12 samples for each client, in batches of 3, which makes 4 local steps "
        "a round (the paper: 417 in batches of 50, 9 steps). Instead of VGG-11, two hidden layers of 64 units. On 100 "
        "generated classes LeNet was still guessing after 60 rounds at a rate of 0.1.",
    ),
)
CIFAR100_LENET = Task(
    {"dataset": "cifar100", "model": "lenet", **_SMALL, "samples_per_client": 100},
    _DIRICHLET,
    rounds=300,
    rates=(0.03,),
    evaluations=30,
    notes=("Instead of VGG-11, LeNet; of the 417 samples of a client 100, in batches of 10; 500 test images.",),
)


_ABLATED = (
    "Instead of CIFAR-10, the 8x8 digits: 6 samples for each of 240 clients, 12 for each of 120, in batches of 3. "
    "Instead of LeNet, two hidden layers of 64 units."
)


def _iid(task: Task, **changed: Any) -> Task:
    return replace(task, settings=_IID, by_label=False, **changed)


def _of_files(task: Task, dataset: str) -> Task:
    """The same with real images."""
    return replace(task, workload={**task.workload, "dataset": dataset})


TASKS: dict[str, tuple[Task, Task, Task]] = {
    "multiround-fig7": (DIGITS, MNIST_TEST_FILES, MNIST),
    "multiround-fig8": (GENERATED10, _of_files(GENERATED10, "cifar10"), CIFAR10),
    "multiround-fig5": (DIGITS_DIRICHLET, CIFAR100_LENET, CIFAR100),
    "multiround-fig9": (
        _iid(DIGITS, rounds=60, evaluations=20, notes=(_ABLATED,)),
        _iid(_of_files(GENERATED10, "cifar10")),
        _iid(CIFAR10),
    ),
}
"""By reproduction: small without files, small with files, and the paper's."""


def task_of(name: str, scale: Scale, data: Path | None) -> Task:
    """What a reproduction runs; raises `ExperimentError` where the paper's scale lacks the paper's data."""
    built_in, small, paper = TASKS[name]
    if data is not None:
        return _reading(small if scale == "small" else paper, data)
    if scale == "small":
        return built_in
    raise ExperimentError(
        f"{name}: --scale paper learns {paper.workload['dataset']} itself; give the folder of its files with --data DIR"
    )


def _reading(task: Task, data: Path) -> Task:
    return replace(task, workload={**task.workload, "path": str(data)})
