"""Sums of per-sample clipped gradients against an ordinary backward pass, and against torch.func.

    python -m benchmarks.per_sample_gradients

The network of Hasircioglu and Gunduz for EMNIST at their batch of 70. Images are noise: time does not depend on them.
The floor is one forward and backward pass of the mean loss; ours gives every sample's gradient norm and the clipped sum
(`workloads.training.clipped_gradients`); torch.func's vmap(grad) is the fallback for other networks, and the
usual way. They take turns; the minimum of the CPU time of one thread counts.
"""

import time
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from benchmarks.report import arguments, emit
from workloads.models import vector
from workloads.models.registry import image_model
from workloads.training.clipped_gradients import ClippedGradients
from workloads.training.objectives import sample_losses

CASES = ("emnist-cnn", "mnist-cnn", "mlp")


def measured(name: str, batch: int, turns: int) -> dict[str, object]:
    """CPU seconds of each way, the least of several turns."""
    network = image_model(name, 28, 28, 62)
    vector.attach(network, torch.from_numpy(vector.initial_vector(network, 1)))
    generator = torch.Generator().manual_seed(1)
    images, labels = torch.randn(batch, 28, 28, generator=generator), torch.arange(batch) % 62
    direct, general = ClippedGradients(network, sample_losses), ClippedGradients(network, sample_losses, direct=False)

    def ordinary() -> None:
        network.zero_grad()
        cross_entropy(network(images), labels).backward()

    ways: dict[str, Callable[[], object]] = {
        "floor_seconds": ordinary,
        "seconds": lambda: direct.sum(images, labels, 1.0),
        "torch_func_seconds": lambda: general.sum(images, labels, 1.0),
    }
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(turns + 1):
        for way, call in ways.items():
            started = time.process_time()
            call()
            spent[way].append(time.process_time() - started)
    least = {way: min(seconds[1:]) for way, seconds in spent.items()}  # the first turn warms up
    floor = least["floor_seconds"]
    ratios = {"ratio": least["seconds"] / floor, "torch_func_ratio": least["torch_func_seconds"] / floor}
    return {"model": name, "batch": batch, **least, **ratios}


def main() -> None:
    """Measure and print; the result is that of the first case, the paper's network."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=70, help="samples")
    parser.add_argument("--turns", type=int, default=20, help="turns that are measured")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measured(name, given.batch, given.turns) for name in CASES]
    emit(rows[0], rows, given.format == "json")


if __name__ == "__main__":
    main()
