"""One client's local epoch with the models of Multi-RoundSecAgg's experiments, against a bare torch loop.

    python -m benchmarks.local_training

The sizes are those of So et al. (arXiv 2106.03328, Appendix E and F): LeNet on 615 samples of CIFAR's shape (200
shared and 415 private) in batches of 50, the CNN of McMahan et al. on 500 of MNIST's in batches of 100, VGG-11 on 417
of CIFAR's in batches of 50. The images are noise: time does not depend on them. Ours is `train` of the workload, from
bytes and a flat model to a flat change; the floor has its images as tensors already. Both take turns; the minimum
of the CPU time of one thread counts.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from benchmarks.floors import bare_training_loop
from benchmarks.report import arguments, emit
from testbed.workload.section import WorkloadSection
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling
from workloads.training.classification import ImageClassification

CASES = (
    ("lenet", (32, 32, 3), 10, 615, 50),
    ("mnist-cnn", (28, 28), 10, 500, 100),
    ("vgg11", (32, 32, 3), 100, 417, 50),
)
"""Model, shape of an image, classes, samples of the client, batch size."""


def workload_of(
    model: str, shape: tuple[int, ...], classes: int, samples: int, batch_size: int, momentum: float
) -> ImageClassification:
    """One client with noise for images."""
    random = np.random.default_rng(0)
    noise = LabelledImages(
        random.integers(0, 256, (samples, *shape), dtype=np.uint8), np.arange(samples, dtype=np.int64) % classes
    )
    section = WorkloadSection(batch_size=batch_size, learning_rate=0.01, momentum=momentum)
    data = PartitionedDataset(
        noise, noise, classes=classes, scaling=Scaling(127.0, 74.0), description="noise", section=section, population=1,
        seed=1,
    )  # fmt: skip
    return ImageClassification("noise", data, model, section, 1)


def measured(case: tuple[str, tuple[int, ...], int, int, int], momentum: float, turns: int) -> dict[str, object]:
    """CPU seconds of ours and of the floor, the least of several turns."""
    name, _, _, samples, batch_size = case
    workload = workload_of(*case, momentum)
    model = workload.initial_model()
    shard = workload.data.shard(0)
    ours, floor = [], []
    for number in range(turns + 1):
        started = time.process_time()
        workload.train(0, model, number)
        ours.append(time.process_time() - started)
        floor.append(bare_training_loop(name, [shard], 1, batch_size, 0.01, momentum, 1, clock=time.process_time))
    seconds, floor_seconds = min(ours[1:]), min(floor[1:])  # the first turn warms up
    return {
        "model": name, "samples": samples, "batch_size": batch_size, "seconds": seconds,
        "floor_seconds": floor_seconds, "ratio": seconds / floor_seconds,
    }  # fmt: skip


def main() -> None:
    """Measure all three and print them; the result's ratio is the largest."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5, help="turns that are measured")
    parser.add_argument("--momentum", type=float, default=0.0, help="of SGD, on both sides")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measured(case, given.momentum, given.turns) for case in CASES]
    emit_worst(rows, given.format == "json")


def emit_worst(rows: Sequence[Mapping[str, object]], as_json: bool) -> None:
    """Print the rows, and the one with the largest ratio as the result."""
    worst = max(rows, key=lambda row: float(str(row["ratio"])))
    emit({"worst": worst["model"], **{key: worst[key] for key in ("seconds", "floor_seconds", "ratio")}}, rows, as_json)


if __name__ == "__main__":
    main()
