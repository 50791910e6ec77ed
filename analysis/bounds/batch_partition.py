"""Batch partition's guarantees: So et al., Securing Secure Aggregation (Multi-RoundSecAgg), arXiv 2106.03328.

N users in batches of T, rounds of K/T whole batches (section 4, Theorem 1).
"""

import math

from scipy import stats


def family_size(users: int, selected: int, privacy: int) -> int:
    """The number of sets that a round can be, C(N/T, K/T), exactly (section 4, Table 1).

    When T does not divide N there are floor(N/T) batches.

    Raises:
        ValueError: "name: what is wrong", when T does not divide K or K exceeds N.
    """
    _check(users, selected, privacy)
    return math.comb(users // privacy, selected // privacy)


def average_cardinality(users: int, selected: int, privacy: int, dropout: float) -> float:
    """The expected number of users in a round, C of Theorem 1, when everybody is away with the same probability.

    A round has K users if K/T of the N/T batches are whole, each with probability (1 - p)^T, and else none.

    Args:
        dropout: p, in [0, 1].

    Raises:
        ValueError: "name: what is wrong".
    """
    _check(users, selected, privacy)
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout: {dropout} is no probability")
    whole = (1 - dropout) ** privacy
    return selected * float(stats.binom.sf(selected // privacy - 1, users // privacy, whole))


def _check(users: int, selected: int, privacy: int) -> None:
    if privacy < 1:
        raise ValueError(f"privacy: {privacy}; at least 1")
    if selected < 1 or selected % privacy:
        raise ValueError(f"privacy: T = {privacy} does not divide selected K = {selected}")
    if selected > users:
        raise ValueError(f"selected: {selected} of {users} users")
