"""What Multi-RoundSecAgg's clients learn: the paper's three tasks, and what stands in for them on two cores.

So et al., Securing Secure Aggregation, arXiv 2106.03328, appendices E (data), F (hyperparameters) and G (ablation). The
stand-ins keep N, K, the six schemes, the dropouts, one local epoch, and about as many local steps per round as the
paper's clients take; they have smaller models and fewer samples.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.reproduction.contract import Scale
from analysis.reproduction.multi_round_secagg.published import DECAY, LEARNING_RATES, MILESTONES, Setting
from analysis.reproduction.multi_round_secagg.training import Task
from testbed.errors import ExperimentError

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
