"""Audits with one training run against JAX-Privacy's, by the same theorem (Steinke et al., arXiv 2305.08846)."""

import numpy as np
import pytest

from analysis.privacy.guesses import epsilon_proven

pytest.importorskip("jax_privacy", reason="needs jax-privacy: make oracles")
from jax_privacy import auditing

SEARCH = 2e-6
"""Both search for a root: JAX-Privacy to 1e-6."""


def theirs(canaries: int, guesses: int, right: int, delta: float, error: float) -> float:
    """Return their epsilon for canaries with scores of 1 where guessed, else 0."""
    inserted = np.zeros(max(right, canaries // 2))
    absent = np.zeros(canaries - len(inserted))
    inserted[:right], absent[: guesses - right] = 1, 1
    auditor = auditing.CanaryScoreAuditor(inserted, absent)
    return float(auditor.epsilon_one_run(error, delta, threshold_strategy=auditing.Explicit(0.5)))


GRID = [(20, 10, 10), (100, 10, 10), (100, 50, 40), (1000, 100, 100), (1000, 500, 260), (1000, 500, 250), (500, 40, 0),
        (5000, 200, 199), (100_000, 2000, 1500)]  # fmt: skip


@pytest.mark.parametrize("delta", [0.0, 1e-10, 1e-5, 1e-3])
@pytest.mark.parametrize(("canaries", "guesses", "right"), GRID)
def test_epsilon_that_guesses_prove(canaries: int, guesses: int, right: int, delta: float) -> None:
    for error in (0.05, 0.001):
        own = epsilon_proven(canaries, guesses, right, delta, 1 - error)
        # Their function wants a delta above 0.
        expected = theirs(canaries, guesses, right, max(delta, 1e-300), error)
        assert own == pytest.approx(expected, abs=SEARCH)


def test_random_guesses() -> None:
    rng = np.random.default_rng(60)
    for _ in range(60):
        canaries = int(rng.integers(4, 3000))
        guesses = int(rng.integers(1, canaries // 2))
        right = int(rng.integers(guesses // 2, guesses + 1))
        delta, error = float(10 ** rng.uniform(-12, -2)), float(rng.uniform(0.001, 0.3))
        expected = theirs(canaries, guesses, right, delta, error)
        assert epsilon_proven(canaries, guesses, right, delta, 1 - error) == pytest.approx(expected, abs=SEARCH)
