"""Local training of a round's participants on one device, several at once: pfl-research's CIFAR-10 setup.

    python -m benchmarks.batched_training [--clients-at-once 50]

What is trained is the setup of pfl-research's benchmark (Granqvist et al. 2024, arXiv 2404.06430; in its repository
benchmarks/image_classification/configs/baseline.yaml): 50 participants a round of 50 samples each, one local epoch in
batches of 10, SGD at 0.1 without momentum, its CNN of 1,626,442 parameters with dropout; 1,500 such rounds are its
experiment. The images are noise: time does not depend on them.

Ours is `train_together` of the workload, from images in main memory and a flat model to flat changes in main memory;
the table has `train`, one client after the other, too. The floor is a bare torch loop on the same device, one client
after the other, whose images are there already. All take turns, and the least counts: CPU seconds of one thread on a
CPU, wall seconds on a GPU. The device is CUDA's where there is one.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.floors import bare_training_loop
from benchmarks.report import arguments, emit
from testbed.workload.section import WorkloadSection
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling
from workloads.training.classification import ImageClassification

ROUNDS = 1500
SAMPLES, BATCH, RATE = 50, 10, 0.1


def workload_of(clients: int, clients_at_once: int) -> ImageClassification:
    """So many clients with noise for images."""
    random = np.random.default_rng(0)
    total = clients * SAMPLES
    noise = LabelledImages(
        random.integers(0, 256, (total, 32, 32, 3), dtype=np.uint8), np.arange(total, dtype=np.int64) % 10
    )
    section = WorkloadSection(
        batch_size=BATCH, learning_rate=RATE, momentum=0.0, clients_at_once=clients_at_once
    )  # the data set that it names is not used
    data = PartitionedDataset(
        noise, noise, classes=10, scaling=Scaling(127.0, 74.0), description="noise", section=section,
        population=clients, seed=1,
    )  # fmt: skip
    return ImageClassification("noise", data, "cifar-cnn", section, 1)


def main() -> None:
    """Measure and print: seconds for the participants of a round."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--participants", type=int, default=50, help="of the round")
    parser.add_argument("--clients-at-once", type=int, default=50, help="trained as one computation")
    parser.add_argument("--turns", type=int, default=3, help="turns that are measured")
    given = parser.parse_args()
    torch.set_num_threads(1)
    single, batched = workload_of(given.participants, 1), workload_of(given.participants, given.clients_at_once)
    model, clients = single.initial_model(), range(given.participants)
    shards = [single.data.shard(client) for client in clients]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    clock = time.process_time if device == "cpu" else time.perf_counter

    def seconds_of(work: Callable[[], object]) -> float:
        started = clock()
        work()  # its results are in main memory in the end: nothing is left to be waited for
        return clock() - started

    ours, alone, floor = [], [], []
    for number in range(1, given.turns + 2):
        ours.append(seconds_of(lambda number=number: batched.train_together(clients, model, number)))  # type: ignore[misc]
        alone.append(seconds_of(lambda number=number: [single.train(client, model, number) for client in clients]))  # type: ignore[misc]
        floor.append(bare_training_loop("cifar-cnn", shards, 1, BATCH, RATE, 0.0, 1, clock, device))
    seconds, one_at_a_time, floor_seconds = (min(turns[1:]) for turns in (ours, alone, floor))  # the first warms up
    rows = [
        {"clients at once": at_once, "seconds": taken, "ratio": taken / floor_seconds, "hours of 1,500 rounds": hours}
        for at_once, taken in ((given.clients_at_once, seconds), (1, one_at_a_time))
        for hours in [taken * ROUNDS / 3600]
    ]
    emit(
        {
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "participants": given.participants,
            "clients_at_once": given.clients_at_once,
            "seconds": seconds,
            "floor_seconds": floor_seconds,
            "ratio": seconds / floor_seconds,
            "one_at_a_time_seconds": one_at_a_time,
        },
        rows,
        given.format == "json",
    )


if __name__ == "__main__":
    main()
