"""Reconstructing every update of 40 clients out of 40 rounds' sums, d = 62,006 (LeNet): least squares and report.

    python -m benchmarks.reconstruct

The floor is the one multiplication that cannot be left out, (40, 40) by (40, d).
"""

import time

import numpy as np

from analysis.attacks.reconstruction import View, measured
from analysis.attacks.reconstruction_output import row
from benchmarks.report import arguments, emit

CLIENTS, PARTICIPANTS, ROUNDS, DIMENSION = 40, 8, 40, 62_006


def main() -> None:
    """Print seconds of CPU and the ratio to the floor."""
    options = arguments(__doc__.splitlines()[0]).parse_args()
    coin = np.random.default_rng(0)
    truth = coin.normal(size=(CLIENTS, DIMENSION)).astype(np.float32)
    chosen = np.array([coin.permutation(CLIENTS) < PARTICIPANTS for _ in range(ROUNDS)])
    seen = View(np.arange(1, ROUNDS + 1), 0, chosen, chosen @ truth.astype(np.float64), truth[0])
    began = time.process_time()
    told = row(measured(seen, np.ones(CLIENTS), truth))
    spent = time.process_time() - began
    square = coin.normal(size=(CLIENTS, ROUNDS))
    began = time.process_time()
    _ = square @ seen.sums
    floor = time.process_time() - began
    result = {
        "seconds": spent, "floor_seconds": floor, "ratio": spent / floor, "clients": CLIENTS, "rounds": ROUNDS,
        "dimension": DIMENSION, "rank": told["rank"], "mean_error": told["mean_error"],
    }  # fmt: skip
    emit(result, [], options.format == "json")


if __name__ == "__main__":
    main()
