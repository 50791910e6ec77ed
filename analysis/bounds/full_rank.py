"""When random selection has told the server everything: the participation matrix P has full rank N.

So et al., Multi-RoundSecAgg, arXiv 2106.03328, appendix H, Theorem 3. For K users chosen uniformly the theorem has an
unstated constant c', so there is no number. For users chosen independently it has (30), in which o(1) is unstated;
`independent_bound` leaves it out, so it says what (30) says for N large enough, and is no proven bound for a given N.

`rounds_until_full_rank` simulates both. It computes ranks modulo a prime, exactly. That rank is never above the one
over the rationals, so what is counted as full is full.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
_PRIME = 2**31 - 1


def independent_bound(users: int, selected: int) -> float:
    """(30) without o(1): 1 - 2N(1-t)^N - N(N-1)(t^2 + (1-t)^2)^N at t = K/N, for P of N rounds.

    At most 0 where it says nothing: from K = ln(2N) downwards, roughly, as somebody is then likely to be in no round.

    Raises:
        ValueError: K/N is not in (0, 1/2), where the theorem is stated.
    """
    if not 0 < 2 * selected < users:
        raise ValueError(f"selected: K = {selected} of {users} users; Theorem 3 is stated for K below N/2")
    t = selected / users
    nobody, twins = 2 * users * (1 - t) ** users, users * (users - 1) * (t * t + (1 - t) ** 2) ** users
    return 1 - nobody - twins


def uniform_round(users: int, selected: int) -> Callable[[np.random.Generator], Integers]:
    """Draws a round of K users, uniformly: `random` where enough users are there and all drop out equally often."""
    return lambda rng: np.isin(np.arange(users), rng.choice(users, selected, replace=False)).astype(np.int64)


def independent_round(users: int, selected: int) -> Callable[[np.random.Generator], Integers]:
    """Draws a round of each user with probability K/N: `bernoulli`, K/(N(1-p)) of those there, who are 1-p of all."""
    return lambda rng: (rng.random(users) < selected / users).astype(np.int64)


def rounds_until_full_rank(
    draw: Callable[[np.random.Generator], Integers], users: int, trials: int, most: int, seed: int
) -> Integers:
    """`(trials,)` the round after which P has rank N (counted from 1), or `most` + 1 where `most` rounds did not do.

    Args:
        draw: gives a round, `(users,)` 0 or 1.
        users: N.
        trials: how many runs.
        most: rounds of a run.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    return np.array([_full_at(np.array([draw(rng) for _ in range(most)]), users) for _ in range(trials)], np.int64)


def _full_at(rounds: Integers, users: int) -> int:
    """Eliminate the users one by one, each time with the earliest round that is left: the last one is the answer.

    The rounds that are independent of all before them are the pivots, whatever the order of the users.
    """
    matrix, last = rounds.T.copy(), 0
    for done in range(users):
        nonzero = (matrix[done:] != 0).any(axis=0)
        if not nonzero.any():
            return len(rounds) + 1
        column = int(nonzero.argmax())
        row = done + int((matrix[done:, column] != 0).argmax())
        matrix[[done, row]] = matrix[[row, done]]
        matrix[done] = matrix[done] * pow(int(matrix[done, column]), -1, _PRIME) % _PRIME
        below = matrix[done + 1 :]
        below[:] = (below - below[:, column, None] * matrix[done]) % _PRIME
        last = max(last, column + 1)
    return last
