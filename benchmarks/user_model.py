"""One client's local epoch with a torch module and arrays of the user's own, against the built-in path of that shape.

    python -m benchmarks.user_model

The modules are stacks of torch's own layers, in the order of the built-in models (`workloads.models.classifiers`),
which pool before ReLU: with ReLU first an epoch of ``mnist-cnn`` takes longer, for torch, too. Both are `train` of a
workload, from a flat model to a flat change, on as many samples. The images are noise: time does not depend on them.
Both take turns; the minimum of the CPU time of one thread counts.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.local_training import emit_worst, workload_of
from benchmarks.report import arguments
from testbed.workload.section import WorkloadSection
from workloads import build


def mlp() -> nn.Module:
    """As ``mlp`` of 28x28 images: 199,210 parameters."""
    layers = (nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    return nn.Sequential(nn.Flatten(), *layers)


def cnn() -> nn.Module:
    """As ``mnist-cnn``: 1,663,370 parameters."""
    convolutions = (nn.Conv2d(1, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2))
    layers = [part for one in convolutions for part in (one, nn.MaxPool2d(2), nn.ReLU())]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10))


def lenet() -> nn.Module:
    """As ``lenet`` of 32x32 images in colour: 62,006 parameters."""
    convolutions = (nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5))
    layers = [part for one in convolutions for part in (one, nn.MaxPool2d(2), nn.ReLU())]
    dense = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def noise(shape: tuple[int, ...], samples: int, classes: int) -> tuple[Any, Any]:
    """Return the data of a user-defined loader: a training part and a small test part."""
    x = np.random.default_rng(0).normal(size=(samples, *shape)).astype(np.float32)
    y = np.arange(samples) % classes
    return (x, y), (x[:20], y[:20])


CASES: tuple[tuple[str, Callable[[], nn.Module], tuple[int, ...], tuple[int, ...], int, int], ...] = (
    ("mlp", mlp, (28, 28), (28, 28), 500, 20),
    ("mnist-cnn", cnn, (28, 28), (1, 28, 28), 500, 100),
    ("lenet", lenet, (32, 32, 3), (3, 32, 32), 615, 50),
)
"""The built-in model, the user's, the shape of an image for each, samples of the client, batch size."""


def measured(number: int, turns: int) -> dict[str, object]:
    """CPU seconds of the user's and of the built-in path, the least of several turns."""
    name, model, built_in_shape, shape, samples, batch_size = CASES[number]
    theirs = workload_of(name, built_in_shape, 10, samples, batch_size, 0.9)
    section = WorkloadSection(
        dataset="benchmarks.user_model:noise",
        options={"shape": shape, "samples": samples, "classes": 10},
        model=f"benchmarks.user_model:{model.__name__}",
        batch_size=batch_size,
        learning_rate=0.01,
        momentum=0.9,
    )
    own = build(section, 1, 1)
    assert own.dimension == theirs.dimension
    start = own.initial_model()
    seconds: dict[Any, list[float]] = {own: [], theirs: []}
    for turn in range(turns + 1):
        for workload, times in seconds.items():
            started = time.process_time()
            workload.train(0, start, turn)
            times.append(time.process_time() - started)
    least, floor = (min(times[1:]) for times in seconds.values())  # the first turn warms up
    return {
        "model": name, "samples": samples, "batch_size": batch_size, "seconds": least, "floor_seconds": floor,
        "ratio": least / floor,
    }  # fmt: skip


def main() -> None:
    """Measure all three and print them; the result's ratio is the largest."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7, help="turns that are measured")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measured(number, given.turns) for number in range(len(CASES))]
    emit_worst(rows, given.format == "json")


if __name__ == "__main__":
    main()
