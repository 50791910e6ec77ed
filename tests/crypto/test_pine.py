"""PINE: honest reports and invalid reports; the published vectors are in test_pine_draft_vectors.py."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidProof, InvalidShares, field64
from testbed.crypto.field64 import PRIME
from testbed.crypto.pine import PineVdaf, Prepared, Report, largest_norm_bound
from testbed.crypto.ternary_products import ternary_products
from tests.crypto.draft_pine import DraftPine
from tests.messages_named import naming
from tests.thoroughness import examples

KEY, NONCE = bytes(range(32)), bytes(range(16))

# -- the function as it is used ----------------------------------------------------------------------------------------


def seeds(of: int) -> list[bytes]:
    return [bytes([of, number] * 16) for number in range(7)]


def prepared(pine: PineVdaf, report: Report, key: bytes = KEY) -> list[Prepared]:
    return [pine.prepare(i, key, NONCE, report.public, share) for i, share in enumerate([report.leader, report.helper])]


def decided(pine: PineVdaf, report: Report) -> list[Prepared]:
    """Return both aggregators' result for a report; raise their errors."""
    both = prepared(pine, report)
    message = pine.combined(both[0].share, both[1].share)
    if not message == both[0].seeds == both[1].seeds:
        raise InvalidProof("other joint randomness")
    return both


def within(bound: int, dimension: int, seed: int) -> npt.NDArray[np.int64]:
    """Return a vector with a norm just below the bound."""
    drawn = np.random.default_rng(seed).normal(size=dimension)
    return np.trunc(drawn / np.linalg.norm(drawn) * bound).astype(np.int64)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 90), st.integers(0, 25), st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 40))
def test_honest_reports_are_valid_and_give_the_vector(d: int, bits: int, seed: int, chunk: int, norm: int) -> None:
    bound = min(2**bits, largest_norm_bound())
    pine = PineVdaf(d, bound, chunk, norm)
    vector = within(bound, d, seed)
    report = pine.shard(vector, NONCE, seeds(1))
    assert (len(report.leader), len(report.helper), len(report.public)) == (pine.leader_bytes, 128, 128)
    leader, helper = decided(pine, report)
    assert (field64.to_signed(field64.add(leader.output, helper.output)) == vector).all()
    assert len(leader.share) == pine.prepare_bytes


@pytest.mark.parametrize("bound", [1, 1000, 2**24])
def test_the_norm_bound_is_exact(bound: int) -> None:
    pine = PineVdaf(20, bound, 50, 4)
    vector = np.zeros(20, np.int64)
    vector[3] = -bound
    decided(pine, pine.shard(vector, NONCE, seeds(2)))
    vector[4] = 1
    with pytest.raises(InvalidProof):
        decided(pine, pine.shard(vector, NONCE, seeds(2)))


def test_a_norm_that_wraps_around_the_prime_is_detected() -> None:
    """Four squares sum to the prime plus 1 (Lagrange): the norm is 1 in the field, and only the products reveal it."""
    roots = four_squares_of_prime_plus_one()
    assert sum(root**2 for root in roots) == PRIME + 1
    pine = PineVdaf(20, 2**24, 50, 4)
    vector = np.zeros(20, np.int64)
    vector[:4] = roots
    assert int(field64.total(field64.multiply(field64.from_signed(vector), field64.from_signed(vector)))) == 1
    with pytest.raises(InvalidProof, match="wraparound"):
        decided(pine, pine.shard(vector, NONCE, seeds(3)))


def test_at_most_half_of_the_products_of_a_norm_that_wraps_around_are_in_range() -> None:
    """Lemma 3.3; all products of an honest report are in range."""
    pine = PineVdaf(20, 2**24, 50, 4)
    most, rng = pine.circuits[0].check_bound, np.random.default_rng(5)
    wrapped = np.array([*four_squares_of_prime_plus_one(), *[0] * 16], np.int64)
    for vector, least, largest in ((wrapped, 0.0, 0.5), (within(2**24, 20, 3), 1.0, 1.0)):
        products = ternary_products(vector, 33, rng.bytes(5 * 4000), 4000)
        assert least <= np.mean([-most < product <= most for product in products]) <= largest


def wrapped_around(dimension: int, times: int, seed: int) -> npt.NDArray[np.int64]:
    """Return a vector in a random direction with a squared norm slightly above a multiple of the prime."""
    drawn, goal = np.random.default_rng(seed).normal(size=dimension), times * PRIME
    vector = np.rint(drawn / np.linalg.norm(drawn) * goal**0.5).astype(np.int64)
    missing = goal - sum(int(entry) ** 2 for entry in vector) + int(vector[0]) ** 2
    vector[0] = math.isqrt(missing - 1) + 1
    return vector


@pytest.mark.parametrize("times", [1, 2, 7])
def test_under_the_largest_bound_a_norm_that_wraps_around_is_detected(times: int) -> None:
    """A bound of 2.4e9 accepts it: products of a vector seven times as long are in range."""
    pine = PineVdaf(1000, largest_norm_bound(), 50, 32)
    vector = wrapped_around(1000, times, 6)
    squared = sum(int(entry) ** 2 for entry in vector)
    assert 0 <= squared - times * PRIME <= pine.norm_bound**2
    with pytest.raises(InvalidProof, match="wraparound"):
        decided(pine, pine.shard(vector, NONCE, seeds(3)))


@pytest.mark.parametrize("shape", ["one", "just under twice the range", "the range", "random"])
def test_under_the_largest_bound_a_product_is_in_range_half_of_the_time_at_most(shape: str) -> None:
    """The cases of `largest_norm_bound`, none shorter than the prime's square root."""
    most = PineVdaf(4, largest_norm_bound(), 50, 1).circuits[0].check_bound
    repeated = {"one": 2**32, "just under twice the range": 2 * most - 1, "the range": most}
    vector = wrapped_around(400, 1, 7)
    if shape in repeated:
        vector = np.repeat(np.array([repeated[shape]], np.int64), math.ceil(PRIME / repeated[shape] ** 2))
    assert sum(int(entry) ** 2 for entry in vector) >= PRIME
    products = ternary_products(vector, 35, np.random.default_rng(8).bytes(-(-len(vector) // 4) * 20_000), 20_000)
    assert np.mean([-most < product <= most for product in products]) < 0.5 + 0.02


def four_squares_of_prime_plus_one() -> list[int]:
    """Find four squares by searching for a remainder that is the sum of two squares."""
    goal, first = PRIME + 1, 2**31
    for second in range(2**31, 2**31 + 100_000):
        left = goal - first**2 - second**2
        third = int(left**0.5)
        for some in range(third, max(third - 200, 0), -1):
            rest = left - some**2
            root = int(max(rest, 0) ** 0.5 + 0.5)
            if rest >= 0 and root**2 == rest:
                return [first, second, some, root]
    raise AssertionError("not found")


def test_other_random_vectors_give_other_joint_randomness() -> None:
    """Otherwise a client could search both independently, as in the draft: 2**120 pairs from 2**60 tries each."""
    report = PineVdaf(20, 1000, 50, 4).shard(within(1000, 20, 1), NONCE, seeds(4))
    other = bytes(32) + report.public[32:]  # the leader's part of the random vectors' seed, as the helper is told it
    for kind, same in ((PineVdaf, False), (DraftPine, True)):
        pine = kind(20, 1000, 50, 4)
        told = [pine.prepare(1, KEY, NONCE, public, report.helper).seeds for public in (report.public, other)]
        assert told[0][:32] != told[1][:32]
        assert (told[0][32:] == told[1][32:]) is same


@pytest.mark.parametrize("other", [{"norm_bound": 1001}, {"chunk": 51}, {"norm_chunk": 5}, {"successes": 99}])
def test_another_statement_gives_other_seeds(other: dict[str, int]) -> None:
    """In the draft, one share gives the same seeds under another bound, or with other proofs."""
    given = {"norm_bound": 1000, "chunk": 50, "norm_chunk": 4}
    report = PineVdaf(20, **given).shard(within(1000, 20, 1), NONCE, seeds(4))
    for kind, same in ((PineVdaf, False), (DraftPine, True)):
        found = [
            kind(20, **numbers).prepare(1, KEY, NONCE, report.public, report.helper).seeds
            for numbers in (given, given | other)
        ]
        assert (found[0][:32] == found[1][:32]) is same
        assert (found[0][32:] == found[1][32:]) is same


@pytest.mark.parametrize("place", [0, 30, 8 * 20 + 8 * 70, -100, -40])
def test_a_changed_byte_of_the_leaders_share_is_detected(place: int) -> None:
    pine = PineVdaf(20, 1000, 50, 4)
    report = pine.shard(within(1000, 20, 1), NONCE, seeds(4))
    changed = bytearray(report.leader)
    changed[place] ^= 1
    with pytest.raises((InvalidProof, InvalidShares)):
        decided(pine, Report(report.public, bytes(changed), report.helper))


@pytest.mark.parametrize("place", [0, 40, 70, 100])
def test_a_changed_byte_of_the_helpers_or_public_share_is_detected(place: int) -> None:
    pine = PineVdaf(20, 1000, 50, 4)
    report = pine.shard(within(1000, 20, 1), NONCE, seeds(4))
    helper, public = bytearray(report.helper), bytearray(report.public)
    helper[place] ^= 1
    public[place] ^= 1
    with pytest.raises(InvalidProof):
        decided(pine, Report(report.public, report.leader, bytes(helper)))
    with pytest.raises(InvalidProof):
        decided(pine, Report(bytes(public), report.leader, report.helper))


def test_aggregators_with_different_keys_do_not_accept() -> None:
    pine = PineVdaf(20, 1000, 50, 4)
    report = pine.shard(within(1000, 20, 1), NONCE, seeds(5))
    leader, helper = prepared(pine, report)[0], prepared(pine, report, bytes(32))[1]
    with pytest.raises(InvalidProof):
        pine.combined(leader.share, helper.share)


def test_shares_of_other_lengths_are_refused() -> None:
    pine = PineVdaf(20, 1000, 50, 4)
    report = pine.shard(within(1000, 20, 1), NONCE, seeds(6))
    for i, share in enumerate([report.leader, report.helper]):
        with pytest.raises(InvalidShares):
            pine.prepare(i, KEY, NONCE, report.public, share[:-1])
        with pytest.raises(InvalidShares):
            pine.prepare(i, KEY, NONCE, report.public[:-1], share)
    with pytest.raises(InvalidShares, match="elements"):
        pine.prepare(0, KEY, NONCE, report.public, b"\xff" * pine.leader_bytes)
    both = prepared(pine, report)
    with pytest.raises(InvalidShares):
        pine.combined(both[0].share, both[1].share[8:])


def test_bounds_that_the_field_cannot_hold_are_refused() -> None:
    largest = largest_norm_bound()
    assert 74 * PineVdaf(20, largest, 50, 4).circuits[0].check_bound ** 2 <= PRIME
    assert 3 * largest**2 + 2 < PRIME
    with pytest.raises(ValueError, match="norm"):
        PineVdaf(20, largest_norm_bound() + 1, 50, 4)
    with pytest.raises(ValueError, match="norm"):
        PineVdaf(20, 0, 50, 4)
    with pytest.raises(ValueError, match=naming("successes", "checks")):
        PineVdaf(21, 1000, 50, 4, successes=101)
