"""Local training of a round's participants on one device, several at once: pfl-research's CIFAR-10 setup.

    python -m benchmarks.batched_training [--clients-at-once 50]

The workload is the setup of pfl-research's benchmark (Granqvist et al. 2024, arXiv 2404.06430; in its repository
benchmarks/image_classification/configs/baseline.yaml): 50 participants a round, of 1,000 clients with 50 samples each,
one local epoch in batches of 10, SGD at 0.1 without momentum, its CNN of 1,626,442 parameters with dropout; 1,500 such
rounds are its experiment. The images are noise: time does not depend on them. ``--model`` takes a smaller network
instead, for grey images of 8x8.

Ours is `train_together` of the workload, from images in main memory and a flat model to flat changes in main memory;
the table has `train`, one client after the other, too. The floor is a bare torch loop on the same device, one client
after the other, with its images in place. The variants take turns, and the minimum counts: CPU seconds of one thread
on a CPU, wall seconds on a GPU. The device is CUDA's where there is one.
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

CLIENTS, ROUNDS = 1000, 1500
SAMPLES, BATCH, RATE = 50, 10, 0.1
SHAPES = {"cifar-cnn": (32, 32, 3), "cnn": (8, 8), "mlp": (8, 8), "logistic": (8, 8)}


def workloads_of(model: str, *clients_at_once: int) -> list[ImageClassification]:
    """Return workloads with noise as images, one for each number of clients that train together."""
    random = np.random.default_rng(0)
    total = CLIENTS * SAMPLES
    images = random.integers(0, 256, (total, *SHAPES[model]), dtype=np.uint8)
    noise = LabelledImages(images, np.arange(total, dtype=np.int64) % 10)
    made = []
    for at_once in clients_at_once:
        section = WorkloadSection(batch_size=BATCH, learning_rate=RATE, momentum=0.0, clients_at_once=at_once)
        data = PartitionedDataset(
            noise, noise, classes=10, scaling=Scaling(127.0, 74.0), description="noise", section=section,
            population=CLIENTS, seed=1,
        )  # fmt: skip
        made.append(ImageClassification("noise", data, model, section, 1))
    return made


def main() -> None:
    """Measure and print: seconds for the participants of a round."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--model", choices=tuple(SHAPES), default="cifar-cnn", help="the network that is trained")
    parser.add_argument("--participants", type=int, default=50, help="of the round")
    parser.add_argument("--clients-at-once", type=int, default=50, help="trained as one computation")
    parser.add_argument("--turns", type=int, default=3, help="turns that are measured")
    given = parser.parse_args()
    torch.set_num_threads(1)
    single, batched = workloads_of(given.model, 1, given.clients_at_once)
    model = single.initial_model()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    clock = time.process_time if device == "cpu" else time.perf_counter

    def seconds_of(work: Callable[[], object]) -> float:
        started = clock()
        work()  # its results are in main memory in the end: nothing is left to be waited for
        return clock() - started

    turns = []
    for number in range(1, given.turns + 2):
        chosen = np.random.default_rng(number).choice(CLIENTS, given.participants, replace=False).tolist()

        def together(chosen: list[int] = chosen, number: int = number) -> object:
            return batched.train_together(chosen, model, number)

        def one_by_one(chosen: list[int] = chosen, number: int = number) -> object:
            return [single.train(client, model, number) for client in chosen]

        shards = [single.data.shard(client) for client in chosen]
        floor = bare_training_loop(given.model, shards, 1, BATCH, RATE, 0.0, 1, clock, device)
        turns.append((seconds_of(together), seconds_of(one_by_one), floor))
    seconds, one_at_a_time, floor_seconds = (min(taken) for taken in zip(*turns[1:], strict=True))  # the first warms up
    rows = [
        {
            "clients at once": at_once,
            "seconds": taken,
            "ratio": taken / floor_seconds,
            "hours of 1,500 rounds": taken * ROUNDS / 3600,
        }
        for at_once, taken in ((given.clients_at_once, seconds), (1, one_at_a_time))
    ]
    emit(
        {
            "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
            "model": given.model,
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
