"""The bound against exact integers, and against every possible set of dishonest and missing clients."""

from fractions import Fraction
from itertools import combinations
from math import comb, inf, log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.secagg_plus.bound import (
    FailureBits,
    NeighbourhoodRequirements,
    failure_bits,
    log_tails,
    smallest_neighbourhood,
    smallest_threshold,
    with_neighbours,
)
from testbed.aggregation.secagg_plus.graph import NeighbourGraph, list_digest
from tests.messages_named import naming
from tests.thoroughness import examples

ROUNDING = 1 + 1e-9  # some bounds are met exactly


def at_least(least: int, total: int, marked: int, drawn: int) -> Fraction:
    """Pr[X >= least], exactly."""
    ways = sum(comb(marked, x) * comb(total - marked, drawn - x) for x in range(max(0, least), drawn + 1))
    return Fraction(ways, comb(total, drawn))


def bits_of(probability: Fraction) -> float:
    return inf if probability == 0 else log2(probability.denominator) - log2(probability.numerator)


def exact_bits(s: int, k: int, t: int, requirements: NeighbourhoodRequirements) -> FailureBits:
    """The three union bounds in integers."""
    c, d = requirements.counts(s)
    contradiction = (s - c) * at_least(2 * t - k - 1, s - 1, c, k)
    pairs = Fraction(s * max(0, s - k - 1), 2)
    disconnected = pairs * Fraction(comb(s - k, c + d - k), comb(s, c + d)) if c + d >= k else Fraction(0)
    too_few = d * (1 - at_least(t, s - 1, s - d, k)) if d else Fraction(0)
    too_few += (s - d) * (1 - at_least(t - 1, s - 1, s - d - 1, k))
    return FailureBits(bits_of(contradiction), bits_of(disconnected), bits_of(too_few))


@given(st.integers(1, 400), st.data())
@settings(max_examples=examples(60))
def test_tails_are_those_of_the_hypergeometric_distribution(total: int, data: st.DataObject) -> None:
    marked, drawn = data.draw(st.integers(0, total)), data.draw(st.integers(0, total))
    below, above = log_tails(total, marked, drawn)
    for x in range(drawn + 2):
        upper = at_least(x, total, marked, drawn)
        for found, exact in ((above[x], upper), (below[x], 1 - upper)):
            expected = -bits_of(exact)
            assert found / np.log(2) == pytest.approx(expected, rel=1e-9, abs=1e-8) or (exact == 0 and found < -600)


def test_tails_far_below_the_smallest_float() -> None:
    _, above = log_tails(10_000, 1_000, 800)
    assert above[700] / np.log(2) == pytest.approx(-bits_of(at_least(700, 10_000, 1_000, 800)), rel=1e-10)
    assert above[700] < np.log(1e-300)


@pytest.mark.parametrize(
    ("s", "k", "t", "dishonest", "dropouts"),
    [(70, 22, 16, 0.1, 0.1), (200, 54, 38, 0.1, 0.1), (700, 88, 62, 0.1, 0.1), (300, 20, 14, 0.33, 0.05),
     (2000, 104, 73, 0.1, 0.1), (40, 10, 8, 0.3, 0.3), (30, 4, 3, 0.2, 0.0), (25, 24, 15, 0.1, 0.2)],
)  # fmt: skip
def test_failures_are_the_union_bounds_of_exact_tails(
    s: int, k: int, t: int, dishonest: float, dropouts: float
) -> None:
    requirements = NeighbourhoodRequirements(dishonest, dropouts, 40, 20)
    found, exact = failure_bits(s, k, t, requirements), exact_bits(s, k, t, requirements)
    for name in ("contradiction", "disconnected", "too_few"):
        assert getattr(found, name) == pytest.approx(getattr(exact, name), rel=1e-9, abs=1e-8)


@pytest.mark.parametrize("s", [12, 40, 70, 200, 700])
@pytest.mark.parametrize(("dishonest", "dropouts"), [(0.1, 0.1), (0.33, 0.05), (0.05, 0.3), (0.2, 0.2)])
def test_k_is_the_smallest_and_t_the_smallest_for_it(s: int, dishonest: float, dropouts: float) -> None:
    requirements = NeighbourhoodRequirements(dishonest, dropouts, 40, 20)
    chosen = smallest_neighbourhood(s, requirements)
    k, t = chosen.neighbours, chosen.threshold
    assert 2 * t > k + 1
    if not chosen.complete:
        assert k % 2 == 0
        assert exact_bits(s, k, t, requirements).meets(requirements)
        assert chosen.survivors == s - requirements.counts(s)[1]
    assert 2 * t - 1 <= k + 2 or exact_bits(s, k, t - 1, requirements).contradiction < 41
    smaller = range(2, k, 2) if k < 60 else range(k - 6, k, 2)
    for fewer in smaller:
        assert not any(
            exact_bits(s, fewer, other, requirements).meets(requirements) for other in range(fewer // 2 + 1, fewer + 1)
        )


def test_more_of_everything_that_is_bad_takes_more_neighbours() -> None:
    usual = NeighbourhoodRequirements(0.1, 0.1, 40, 20)
    k = smallest_neighbourhood(700, usual).neighbours
    for harder in (
        NeighbourhoodRequirements(0.2, 0.1, 40, 20),
        NeighbourhoodRequirements(0.1, 0.2, 40, 20),
        NeighbourhoodRequirements(0.1, 0.1, 80, 20),
        NeighbourhoodRequirements(0.1, 0.1, 40, 40),
    ):
        assert smallest_neighbourhood(700, harder).neighbours > k
    assert smallest_neighbourhood(7000, usual).neighbours < 2 * k


def test_where_no_k_is_enough_everybody_is_a_neighbour_or_nothing_fits() -> None:
    few = smallest_neighbourhood(10, NeighbourhoodRequirements(0.3, 0.3, 40, 20))
    assert few.complete
    assert (few.neighbours, few.threshold, few.survivors) == (9, 7, 7)
    with pytest.raises(ValueError, match=naming("dishonest", "dropouts", "threshold")):
        smallest_neighbourhood(100, NeighbourhoodRequirements(0.4, 0.4, 40, 20))
    with pytest.raises(ValueError, match=naming("dishonest", "dropouts", "threshold")):
        with_neighbours(700, 4, None, NeighbourhoodRequirements(0.3, 0.1, 40, 20))
    assert smallest_threshold(700, 4, NeighbourhoodRequirements(0.3, 0.1, 40, 20)) is None
    assert with_neighbours(5, 80, None, NeighbourhoodRequirements(0.3, 0.1, 40, 20)).complete


def connected(clients: frozenset[int], around: dict[int, frozenset[int]]) -> bool:
    if not clients:
        return True
    reached, border = set(), [min(clients)]
    while border:
        client = border.pop()
        if client not in reached:
            reached.add(client)
            border += around[client] & clients
    return reached == clients


def test_no_failure_is_more_frequent_than_the_bound_says() -> None:
    """All sets of dishonest and all sets of missing clients on a small circle, which is as good as all orders."""
    s, k = 11, 4
    requirements = NeighbourhoodRequirements(0.28, 0.28, 40, 20)
    c, d = requirements.counts(s)
    assert (c, d) == (3, 3)
    graph = NeighbourGraph(range(s), k, list_digest(b"", 1, range(s)))
    around = {client: graph.around(client) for client in range(s)}
    counted = dict.fromkeys((3, 4), 0), dict.fromkeys((3, 4), 0)
    apart = cases = 0
    for dishonest in combinations(range(s), c):
        rest = [client for client in range(s) if client not in dishonest]
        for gone in combinations(rest, d):
            cases += 1
            there = frozenset(range(s)) - set(gone)
            apart += not connected(there - set(dishonest), around)
            for t in (3, 4):
                two_stories = any(2 * t <= k + 1 + len(around[one] & set(dishonest)) for one in rest)
                lost = any(len(around[one] & there) < t for one in range(s))
                counted[0][t] += two_stories
                counted[1][t] += lost
    for t in (3, 4):
        bits = failure_bits(s, k, t, requirements)
        assert 0 < counted[0][t] / cases <= 2**-bits.contradiction * ROUNDING
        assert 0 < counted[1][t] / cases <= 2**-bits.too_few * ROUNDING
    assert 0 < apart / cases <= 2 ** -failure_bits(s, k, 3, requirements).disconnected * ROUNDING
