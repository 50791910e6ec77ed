"""Wrong values are found up to half of the spare values; words with more are refused."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidShares
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import PRIME, Elements, total
from testbed.crypto.reed_solomon import elimination_steps, wrong_values
from tests.messages_named import naming
from tests.thoroughness import examples


def values_of(polynomial: list[int], points: list[int]) -> list[int]:
    return [sum(c * point**k for k, c in enumerate(polynomial)) % PRIME for point in points]


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 7), st.integers(0, 9), st.integers(0, 2**64))
def test_up_to_the_limit_wrong_values_are_found(threshold: int, more: int, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # a test's own cases
    count = threshold + more
    polynomial = [rng.choice([0, rng.randrange(PRIME)]) for _ in range(threshold)]
    points = rng.sample(range(1, 5000), count)
    values = values_of(polynomial, points)
    wrong = sorted(rng.sample(range(count), rng.randint(0, more // 2)))
    for place in wrong:
        values[place] = (values[place] + rng.randrange(1, PRIME)) % PRIME
    assert wrong_values(points, values, threshold) == wrong


def test_one_wrong_value_too_many_is_refused() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        points = list(range(1, 10))
        values = values_of(rng.integers(0, PRIME, 4).tolist(), points)
        for place in rng.choice(9, 3, replace=False):
            values[place] = int(rng.integers(0, PRIME))
        with pytest.raises(InvalidShares, match=naming("2 of 9", "wrong")):
            wrong_values(points, values, 4)


POINTS = (1, 2, 3, 5, 8, 13, 21)
CODE = MaskCode(10, 3, 1)


def held(*secrets: Elements) -> dict[int, Elements]:
    dealt = [CODE.shared(secret, bytes([number]) * 32, POINTS) for number, secret in enumerate(secrets)]
    return {point: total([one[i] for one in dealt]) for i, point in enumerate(POINTS)}


def test_sums_of_shared_elements_round_trip() -> None:
    rng = np.random.default_rng(1)
    secrets = [rng.integers(0, PRIME, 10).astype(np.uint32) for _ in range(3)]
    said = held(*secrets)
    for some in (POINTS[:3], POINTS[2:5], POINTS[4:]):
        assert CODE.decoded({point: said[point] for point in some}).tolist() == total(secrets).tolist()
    assert CODE.wrong(said) == []
    one, other = (CODE.shared(secrets[0], seed, POINTS) for seed in (bytes(32), b"s" * 32))
    assert (one != other).mean() > 0.9  # the pieces of T holders depend on the seed


@pytest.mark.parametrize("wrong", [(), (1,), (3, 21), (1, 13)])
def test_wrong_sums_of_shares_are_found(wrong: tuple[int, ...]) -> None:
    secret = np.arange(10, dtype=np.uint32)
    said = held(secret)
    for point in wrong:
        said[point] = said[point].copy()
        said[point][-1] ^= np.uint32(1)  # one bit
    assert CODE.wrong(said) == list(wrong)
    rest = {point: share for point, share in said.items() if point not in wrong}
    assert CODE.decoded(rest).tolist() == secret.tolist()


def test_steps_of_the_search_grow_as_its_elimination_does() -> None:
    assert elimination_steps(3, 3) == 3 * 4 * 3
    assert elimination_steps(7, 3) == 7 * 8 * 7  # 5 of the quotient, 3 of the locator
    assert CODE.search_steps(7) == 7 * CODE.piece_length + 7 * 8 * 7


def test_without_spare_pieces_no_error_is_found_and_too_many_errors_are_refused() -> None:
    said = held(np.arange(10, dtype=np.uint32))
    few = {point: said[point] for point in POINTS[:3]}
    few[1] = few[1] ^ np.uint32(1)
    assert CODE.wrong(few) == []
    four = {**few, 5: said[5]}
    with pytest.raises(InvalidShares, match=naming("0 of 4")):
        CODE.wrong(four)
    with pytest.raises(InvalidShares, match=naming("2 coded pieces", 3)):
        CODE.wrong({point: said[point] for point in POINTS[:2]})
