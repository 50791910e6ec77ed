"""Learning tasks of Multi-RoundSecAgg's training experiments, at each scale.

The paper has three tasks (appendices E and F). Smaller tasks stand in for them on two cores: they keep N, K, the six
schemes, the dropouts, one local epoch, and about as many local steps per round as the paper's clients take, with
smaller models and fewer samples. Scale real has the paper's images (or real images instead), partitions, batches and
models, for fewer rounds and seeds: hours on two cores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.reproduction.contract import Scale
from analysis.reproduction.multi_round_secagg.published import (
    DECAY,
    LEARNING_RATES,
    MILESTONES,
    PARTICIPANTS,
    POPULATION,
    SEEDS,
    Setting,
)
from testbed.errors import ExperimentError


@dataclass(frozen=True)
class Task:
    """Learning task and its duration.

    Attributes:
        workload: keys of the experiments' workload in both settings.
        settings: keys of each setting that is run, such as its partition.
        rounds: number of rounds of each run.
        rates: learning rates; the best of several is taken, by setting, as in the paper (`training.best_rate`).
        by_label: in the non-IID setting a client's dropout probability depends on its label (first version of the
            paper, section 6); otherwise it is drawn.
        evaluations: number of evaluations of the model, evenly over the rounds.
        population: N.
        participants: K.
        seeds: number of repetitions.
        notes: differences from the paper, as text.
        is_papers: whether data, model and rounds are the paper's, so that accuracies are compared with its tables.
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
    is_papers: bool = False

    @property
    def evaluate_every(self) -> int:
        """Rounds from one evaluation to the next."""
        return max(1, self.rounds // self.evaluations)


_SHARDS = {"scheme": "label-shards", "shards_per_client": 1}
_IID: Mapping[Setting, Mapping[str, Any]] = {"IID": {"partition": {"scheme": "iid"}}}
_ONE_LABEL: Mapping[Setting, Mapping[str, Any]] = {**_IID, "non-IID": {"partition": _SHARDS}}
_DIRICHLET: Mapping[Setting, Mapping[str, Any]] = {
    **_IID,
    "non-IID": {"partition": {"scheme": "dirichlet", "alpha": 0.5}},
}


def _shared(samples: int) -> Mapping[Setting, Mapping[str, Any]]:
    """Return one label per client, plus samples that all clients share."""
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
_NO_CNN = "Instead of the CNN, two hidden layers of 200 units."
MNIST_TEST_FILES = replace(
    DIGITS,
    workload={"dataset": "mnist", "model": "mlp", "epochs": 1, "batch_size": 14},
    rounds=100,
    evaluations=25,
    notes=(
        f"{_NO_CNN} Batches of 14: where only the test files are there, a client has 66 samples, which makes 5 local "
        "steps a round, as in the paper (500 in batches of 100).",
    ),
)
MNIST_SMALL = replace(
    MNIST_TEST_FILES,
    workload={"dataset": "mnist", "model": "mlp", "epochs": 1, "batch_size": 100},
    rounds=150,
    evaluations=50,
    notes=(f"{_NO_CNN} Images, clients, batches and local steps are the paper's.",),
)
MNIST = Task(
    {"dataset": "mnist", "model": "mnist-cnn", "epochs": 1, "batch_size": 100},
    _ONE_LABEL,
    rounds=200,
    rates=LEARNING_RATES,
    by_label=True,
    evaluations=40,
    is_papers=True,
)
MNIST_REAL = replace(
    MNIST,
    rounds=150,
    rates=(0.1,),
    evaluations=50,
    seeds=3,
    notes=("Left out: rounds after the 150th, and the search for the learning rate.",),
    is_papers=False,
)
CIFAR10 = Task(
    {"dataset": "cifar10", "model": "lenet", **_CIFAR},
    _shared(200),
    rounds=1000,
    rates=LEARNING_RATES,
    by_label=True,
    evaluations=100,
    is_papers=True,
)
CIFAR10_REAL = replace(
    CIFAR10,
    rounds=300,
    rates=(0.03,),
    evaluations=60,
    seeds=3,
    notes=(
        "Left out: rounds after the 300th, and so the decay of the learning rate, which begins at round 400; "
        "and the search for the learning rate.",
    ),
    is_papers=False,
)
CIFAR100 = Task(
    {"dataset": "cifar100", "model": "vgg11", **_CIFAR},
    _DIRICHLET,
    rounds=1000,
    rates=LEARNING_RATES,
    evaluations=100,
    is_papers=True,
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
CIFAR10_FEW = replace(
    GENERATED10,
    workload={**GENERATED10.workload, "dataset": "cifar10", "samples_per_client": 100},
    rounds=150,
    evaluations=30,
    notes=(
        "Of the 417 samples of a client (208 with 240 clients) 100, in batches of 10, which makes 10 local steps a "
        "round (the paper: 9 and 5, in batches of 50); 500 test images; rounds after the 150th are left out.",
    ),
)
DIGITS_DIRICHLET = replace(
    DIGITS,
    settings=_DIRICHLET,
    by_label=False,
    notes=(
        "Instead of CIFAR-100, the 8x8 digits: 12 samples for each client, in batches of 3, which makes 4 local steps "
        "a round (the paper: 417 in batches of 50, 9 steps). Instead of VGG-11, two hidden layers of 64 units. On 100 "
        "generated classes LeNet was still guessing after 60 rounds at a rate of 0.1.",
        "The IID runs are those that multiround-fig7 makes where it has no files.",
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
    """Return the same task with real images."""
    return replace(task, workload={**task.workload, "dataset": dataset})


@dataclass(frozen=True)
class Tasks:
    """Tasks of one reproduction by scale.

    Attributes:
        built_in: small, without files.
        small: small, with files.
        paper: the paper's own task.
        real: the paper's data and model, with as much training as two cores do in hours; None: no such scale.
    """

    built_in: Task
    small: Task
    paper: Task
    real: Task | None = None

    @property
    def every(self) -> list[Task]:
        """All tasks that exist."""
        return [task for task in (self.built_in, self.small, self.paper, self.real) if task is not None]


TASKS = {
    "multiround-fig7": Tasks(DIGITS, MNIST_SMALL, MNIST, MNIST_REAL),
    "multiround-fig8": Tasks(GENERATED10, _of_files(GENERATED10, "cifar10"), CIFAR10, CIFAR10_REAL),
    "multiround-fig5": Tasks(DIGITS_DIRICHLET, CIFAR100_LENET, CIFAR100),
    "multiround-fig9": Tasks(
        _iid(DIGITS, rounds=60, evaluations=20, notes=(_ABLATED,)),
        _iid(CIFAR10_FEW),
        _iid(CIFAR10),
        _iid(CIFAR10_REAL),
    ),
}
"""Tasks by reproduction."""


def scales_of(name: str) -> tuple[Scale, ...]:
    """Return the scales of a reproduction."""
    return ("small", "paper") if TASKS[name].real is None else ("small", "real", "paper")


def task_of(name: str, scale: Scale, data: Path | None) -> Task:
    """Return the task of a reproduction.

    Args:
        name: name of the reproduction.
        scale: scale at which it runs.
        data: folder with the data; None: built-in or generated data.

    Raises:
        ExperimentError: the scale needs the paper's data.
    """
    tasks = TASKS[name]
    task = {"small": tasks.small, "real": tasks.real, "paper": tasks.paper}[scale]
    assert task is not None
    if data is not None:
        if task is MNIST_SMALL and not _has_training_files(data):
            task = MNIST_TEST_FILES
        return replace(task, workload={**task.workload, "path": str(data)})
    if scale == "small":
        return tasks.built_in
    raise ExperimentError(
        f"{name}: --scale {scale} learns {task.workload['dataset']} itself; give the folder of its files with "
        "--data DIR"
    )


def _has_training_files(data: Path) -> bool:
    return any(True for folder in ("", "MNIST/raw", "raw") for _ in (data / folder).glob("train-images-idx3-ubyte*"))
