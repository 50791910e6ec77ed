"""Reconstructing every update of 40 clients out of 40 rounds' sums, d = 62,006 (LeNet): least squares and report.

    python -m benchmarks.reconstruct

The floor is the one multiplication that cannot be left out, (40, 40) by (40, d).
"""

import time

import numpy as np

from analysis.attacks.reconstruction import View, measured, row

CLIENTS, PARTICIPANTS, ROUNDS, DIMENSION = 40, 8, 40, 62_006


def main() -> None:
    """Print seconds of CPU and the ratio to the floor."""
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
    print(f"{CLIENTS} clients, {ROUNDS} rounds, d = {DIMENSION}: rank {told['rank']}, error {told['mean_error']:.1e}")
    print(f"least squares and report {spent:.3f} s of CPU, floor {floor:.3f} s, ratio {spent / floor:.1f}")


if __name__ == "__main__":
    main()
