"""Shares dealt by matrix products equal shares dealt one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidShares, dealing, shamir
from testbed.crypto.dealing import canonical, limbs, share_each, share_to_many
from tests.thoroughness import examples

P = 2**256 + 297
SECRET, ENTROPY = bytes(range(32)), bytes(range(32, 64))
bytes32 = st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32]))
points = st.one_of(st.integers(1, 20), st.integers(1, 2**32), st.integers(2**32 - 9, 2**32))


def dealt_alone(secret: bytes, threshold: int, to: Any, entropy: bytes) -> list[bytes]:
    (shares,) = share_to_many([(secret, entropy)], threshold, to)
    return shares


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(bytes32, bytes32), max_size=2 * dealing.TOGETHER + 1),
    st.lists(points, min_size=1, max_size=20, unique=True),
    st.data(),
)
def test_the_shares_are_the_same(secrets: Any, to: list[int], data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, len(to)))
    one_by_one = [shamir.share(secret, threshold, to, entropy) for secret, entropy in secrets]
    assert share_to_many(secrets, threshold, to) == share_each(secrets, threshold, to) == one_by_one


@pytest.mark.parametrize("threshold", [511, 512, 513, 700])
def test_sums_beyond_a_doubles_precision_are_split(threshold: int) -> None:
    to = [*range(1, 701), *range(2**32 - 3, 2**32 + 1)]
    dealt, other = share_to_many([(SECRET, ENTROPY), (ENTROPY, SECRET)], threshold, to)
    assert other[-4:] == shamir.share(ENTROPY, threshold, to, SECRET)[-4:]
    some = slice(0, None, 70)
    assert dealt[some] == shamir.share(SECRET, threshold, to, ENTROPY)[some]
    assert dealt[-4:] == shamir.share(SECRET, threshold, to, ENTROPY)[-4:]


def test_the_largest_sum_of_a_part_is_exact() -> None:
    largest = np.full(dealing._EXACT, float(dealing._MASK))
    assert int(largest @ largest) == dealing._EXACT * dealing._MASK**2 < 2**53


def test_points_beyond_the_memory_limit_are_dealt_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "LARGEST_MATRIX", 12 * 3 * 5 - 1)
    monkeypatch.setattr(dealing, "_powers", None)
    assert dealt_alone(SECRET, 3, range(1, 6), ENTROPY) == shamir.share(SECRET, 3, range(1, 6), ENTROPY)


@pytest.mark.parametrize("threshold", [0, 4])
def test_invalid_dealings_are_refused(threshold: int) -> None:
    with pytest.raises(InvalidShares, match="threshold"):
        dealt_alone(SECRET, threshold, [1, 2, 3], ENTROPY)
    with pytest.raises(InvalidShares, match="same point"):
        dealt_alone(SECRET, 1, [1, 1], ENTROPY)


@given(st.lists(st.integers(0, 2**264 - 1), min_size=1, max_size=5))
def test_limbs_represent_the_numbers(numbers: list[int]) -> None:
    found = limbs(numbers)
    assert found.shape == (len(numbers), 12)
    assert [sum(int(limb) << 22 * place for place, limb in enumerate(row)) for row in found] == numbers


near = st.builds(lambda k, off: max(0, k * P + off), st.sampled_from([0, 1, 2, 255, 2**250]), st.integers(-400, 400))


@given(st.lists(st.one_of(near, st.integers(0, 2**527), st.just(2**527)), min_size=1, max_size=5), st.data())
def test_numbers_are_reduced_for_any_limbs(numbers: list[int], data: st.DataObject) -> None:
    """Rows hold more than a limb: each may have borrowed from the next."""
    columns = np.array([[number >> 22 * place & 2**22 - 1 for number in numbers] for place in range(24)], np.int64)
    for place in range(23):
        for at in range(len(numbers)):
            borrowed = data.draw(st.integers(0, min(2**37, int(columns[place + 1, at]))))
            columns[place + 1, at] -= borrowed
            columns[place, at] += borrowed << 22
    assert canonical(columns) == b"".join((number % P).to_bytes(33, "big") for number in numbers)


def test_powers_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    dealing._powers.cache_clear()
    for secret in (SECRET, ENTROPY, bytes(32)):
        dealt_alone(secret, 4, range(1, 9), ENTROPY)
    assert dealing._powers.cache_info().misses == 1


def test_memory_is_bounded() -> None:
    held: Any = dealing._powers(tuple(range(1, 11)), 7)
    assert held.nbytes == 8 * 7 * 10 * 12
    assert (dealing._powers.cache_info().maxsize or 0) * 8 * dealing.LARGEST_MATRIX <= 2**28
