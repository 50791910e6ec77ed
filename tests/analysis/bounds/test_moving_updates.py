"""The theorem on moving updates: its two halves by construction, its corollary, and the variance by simulation."""

import numpy as np
import pytest

from analysis.bounds.moving_updates import independent_error, least_amplification, recoveries, recovery

DELTA = 0.3


def random_rounds(clients: int, selected: int, rounds: int, seed: int) -> np.ndarray:
    """Return P of uniformly drawn rounds."""
    rng = np.random.default_rng(seed)
    return np.array([np.isin(np.arange(clients), rng.choice(clients, selected, False)) for _ in range(rounds)], float)


def unequal_rounds(clients: int, rounds: int, seed: int) -> np.ndarray:
    """Return P of rounds of different sizes, each with a client."""
    matrix = (np.random.default_rng(seed).random((rounds, clients)) < 0.4).astype(float)
    return matrix[matrix.any(axis=1)]


@pytest.mark.parametrize("matrix", [random_rounds(10, 3, 14, 1), random_rounds(12, 4, 40, 2), unequal_rounds(9, 15, 3)])
def test_the_estimator_is_never_off_by_more_and_two_worlds_are_not_told_apart(matrix: np.ndarray) -> None:
    rng = np.random.default_rng(5)
    sizes = matrix.sum(axis=1)
    targets = np.vstack([np.eye(matrix.shape[1]), rng.normal(size=(2, matrix.shape[1]))])
    for target, best in zip(targets, recoveries(matrix, targets), strict=True):
        assert best.coefficients is not None
        assert best.indistinguishable is not None
        assert np.allclose(matrix.T @ best.coefficients, target)
        assert (np.abs(best.coefficients) * sizes).sum() == pytest.approx(best.amplification)
        # Upper half: any changes of length delta.
        reference = rng.normal(size=(matrix.shape[1], 4))
        changes = rng.normal(size=(*matrix.shape, 4))
        changes *= DELTA / np.linalg.norm(changes, axis=2, keepdims=True)
        sums = np.einsum("ti,tid->td", matrix, reference + changes)
        error = np.linalg.norm(best.coefficients @ sums - target @ reference)
        assert error <= DELTA * best.amplification * (1 + 1e-9)
        # Lower half: in both worlds all sums are zero, no change is longer than delta, the targets are 2 delta A apart.
        world = DELTA * best.indistinguishable
        change = -(matrix @ world) / sizes
        assert np.abs(change).max() <= DELTA * (1 + 1e-7)
        assert np.allclose(matrix @ world + sizes * change, 0)
        assert target @ world == pytest.approx(DELTA * best.amplification)


def test_the_worst_changes_are_attained() -> None:
    """The bound of the estimator is tight: changes along the signs of c make the whole error."""
    matrix = random_rounds(10, 3, 14, 1)
    best = recovery(matrix, np.eye(10)[0])
    assert best.coefficients is not None
    sums = matrix.sum(axis=1) * DELTA * np.sign(best.coefficients)  # of updates 0 that move by delta
    assert best.coefficients @ sums == pytest.approx(DELTA * best.amplification)


@pytest.mark.parametrize(("clients", "selected"), [(12, 3), (20, 4)])
def test_no_number_of_rounds_goes_below_the_corollary_and_many_reach_it(clients: int, selected: int) -> None:
    least = least_amplification(selected)
    found = []
    for rounds in (clients, 2 * clients, 20 * clients):
        matrix = random_rounds(clients, selected, rounds, rounds)
        found.append(min(best.amplification for best in recoveries(matrix, np.eye(clients))))
        assert found[-1] >= least * (1 - 1e-9)
    assert found[-1] == pytest.approx(least)
    # Two sums that differ by one client show that equal sizes are needed.
    assert recovery([[1, 1, 1], [0, 1, 1]], [1, 0, 0]).amplification == 5


def test_members_of_a_batch_are_never_recovered_and_its_mean_has_its_own_corollary() -> None:
    size, count, taken = 3, 8, 2
    batches = random_rounds(count, taken, 60, 4)
    matrix = np.repeat(batches, size, axis=1)
    single, mean = np.eye(size * count)[0], np.repeat(np.eye(count)[0], size) / size
    assert recovery(matrix, single).amplification == np.inf
    assert recovery(matrix, single).coefficients is None
    assert recovery(matrix, mean).amplification == pytest.approx(least_amplification(taken * size, size)) == 3
    assert np.isinf(independent_error(matrix)).all()


def test_the_variance_of_independent_changes_is_that_of_a_simulation() -> None:
    matrix = unequal_rounds(8, 20, 7)
    rng = np.random.default_rng(8)
    scale = np.sqrt(matrix.sum(axis=1))
    trials = 4000
    noise = np.einsum("ti,nti->nt", matrix, rng.normal(size=(trials, *matrix.shape)))
    estimates = np.linalg.lstsq(matrix / scale[:, None], (noise / scale).T, rcond=None)[0]
    measured = np.sqrt((estimates**2).mean(axis=1))
    assert measured == pytest.approx(independent_error(matrix), rel=0.06)
    # Equal weights are no better (Gauss and Markov).
    ordinary = np.sqrt((np.linalg.lstsq(matrix, noise.T, rcond=None)[0] ** 2).mean(axis=1))
    assert (ordinary > independent_error(matrix) * 0.97).all()


def test_what_is_not_determined_is_infinite() -> None:
    assert recovery([[1, 1, 0]], [1, 0, 0]).amplification == np.inf
    assert np.isinf(independent_error([[1, 1, 0]])).tolist() == [True, True, True]
    assert independent_error([[1, 1, 0], [1, 0, 0]])[:2] == pytest.approx([1, np.sqrt(3)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recovery([[1, 2]], [1, 0]), "participation: "),
        (lambda: recovery([[1, 1]], [1, 0, 0]), "target: 3 weights for 2 clients"),
        (lambda: least_amplification(12, 5), "privacy: T = 5 does not divide K = 12"),
    ],
)
def test_bad_input_is_one_line(call, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
