"""Feldman's sharing and threshold ElGamal against Python's integers and affine coordinates."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidKey, InvalidShares, OpeningFailed, edwards25519, feldman, threshold_elgamal
from testbed.crypto.edwards25519 import ORDER, PRIME, D
from tests.thoroughness import examples

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "threshold_elgamal" / "own.json").read_text())
IDENTITY = (1).to_bytes(32, "little")
SMALL_ORDER = edwards25519.encode((0, int(PRIME) - 1))
ASSOCIATED = b"who for whom"

Affine = tuple[int, int]


# -- the oracle: the group law of RFC 8032 section 5.1.4 in affine coordinates -----------------------------------------


def added(left: Affine, right: Affine) -> Affine:
    p, (x1, y1), (x2, y2) = int(PRIME), left, right
    product = int(D) * x1 * x2 * y1 * y2 % p
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, p) % p
    return x, (y1 * y2 + x1 * x2) * pow(1 - product, -1, p) % p


def times(scalar: int, point: Affine) -> Affine:
    total: Affine = (0, 1)
    while scalar:
        if scalar & 1:
            total = added(total, point)
        scalar, point = scalar >> 1, added(point, point)
    return total


def decoded(encoded: bytes) -> Affine:
    point = edwards25519.decode(encoded)
    assert point is not None
    return int(point[0]), int(point[1])


BASE = decoded(edwards25519.multiply_base((1).to_bytes(32, "little")))


def number(scalar: bytes) -> int:
    return int.from_bytes(scalar, "little")


def value_at(coefficients: list[bytes], x: int) -> int:
    return sum(number(one) * x**power for power, one in enumerate(coefficients)) % ORDER


def dealt(seed: int, threshold: int) -> list[bytes]:
    entropy = hashlib.sha256(seed.to_bytes(4, "big")).digest()
    return feldman.polynomial(feldman.random_scalar(entropy), threshold, entropy)


# -- Feldman -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 2**32))
@settings(max_examples=examples(20), deadline=None)
def test_shares_are_values_of_the_polynomial_and_match_commitments(seed: int, threshold: int, point: int) -> None:
    coefficients = dealt(seed, threshold)
    committed = feldman.commitments(coefficients)
    share = feldman.share_at(coefficients, point)
    assert number(share) == value_at(coefficients, point)
    assert [decoded(one) for one in committed] == [times(number(one), BASE) for one in coefficients]
    assert decoded(feldman.committed_at(committed, point)) == times(number(share), BASE)
    assert feldman.is_share(share, committed, point)
    assert not feldman.is_share(share, committed, point - 1 or 2) or threshold == 1
    assert not feldman.is_share(edwards25519.add_scalars(share, (1).to_bytes(32, "little")), committed, point)


@given(st.integers(0, 1000), st.lists(st.integers(1, 2**32), min_size=3, max_size=7, unique=True))
@settings(max_examples=examples(20), deadline=None)
def test_any_t_shares_give_the_secret(seed: int, points: list[int]) -> None:
    coefficients = dealt(seed, 3)
    shares = [feldman.share_at(coefficients, point) for point in points]
    for some in (slice(0, 3), slice(len(points) - 3, None)):
        weights = feldman.lagrange_weights(points[some])
        assert feldman.weighted_shares(shares[some], weights) == coefficients[0]
    two = feldman.lagrange_weights(points[:2])
    assert feldman.weighted_shares(shares[:2], two) != coefficients[0]


def test_dealings_add_up_and_can_be_dealt_again() -> None:
    """The sum of three dealings is a dealing; t of its holders deal it again, and the secret does not change."""
    dealings = [dealt(seed, 3) for seed in range(3)]
    committed = feldman.weighted_commitments([feldman.commitments(one) for one in dealings])
    holders = [1, 2, 3, 4, 5]
    shares = {x: feldman.weighted_shares([feldman.share_at(one, x) for one in dealings]) for x in holders}
    assert all(feldman.is_share(shares[x], committed, x) for x in holders)
    again = {x: feldman.polynomial(shares[x], 4, bytes([x]) * 32) for x in (2, 3, 5)}
    weights = feldman.lagrange_weights(list(again))
    sent = [feldman.commitments(one) for one in again.values()]
    assert [one[0] for one in sent] == [feldman.committed_at(committed, x) for x in again]
    handed = feldman.weighted_commitments(sent, weights)
    assert handed[0] == committed[0]
    assert handed[1:3] != committed[1:3]
    new = {x: feldman.weighted_shares([feldman.share_at(one, x) for one in again.values()], weights) for x in holders}
    assert all(feldman.is_share(new[x], handed, x) for x in holders)
    four = [1, 2, 4, 5]
    secret = feldman.weighted_shares([new[x] for x in four], feldman.lagrange_weights(four))
    assert number(secret) == sum(number(one[0]) for one in dealings) % ORDER
    mixed = [new[1], new[2], shares[4], shares[5]]  # shares of the one polynomial are no use for the other
    assert feldman.weighted_shares(mixed, feldman.lagrange_weights(four)) != secret


@pytest.mark.parametrize("points", [[], [1, 1], [0, 1], [2**32 + 1]])
def test_invalid_points_are_refused(points: list[int]) -> None:
    with pytest.raises(InvalidShares):
        feldman.lagrange_weights(points)


@pytest.mark.parametrize("bad", [IDENTITY, SMALL_ORDER, b"\xff" * 32, bytes(31)])
def test_commitments_that_are_no_points_of_prime_order_match_no_share(bad: bytes) -> None:
    coefficients = dealt(1, 3)
    committed = [*feldman.commitments(coefficients)[:2], bad]
    assert not feldman.is_share(feldman.share_at(coefficients, 5), committed, 5)
    with pytest.raises(InvalidShares):
        feldman.committed_at(committed, 5)
    with pytest.raises(InvalidShares):
        feldman.weighted_points([committed[0], bad], [2, 3])


# -- threshold ElGamal -------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.binary(max_size=64), st.permutations(range(1, 8)))
@settings(max_examples=examples(20), deadline=None)
def test_t_partial_decryptions_open_a_ciphertext(seed: int, plaintext: bytes, holders: list[int]) -> None:
    coefficients, t = dealt(seed, 4), 4
    public = feldman.commitments(coefficients)[0]
    point, sealed = threshold_elgamal.encrypt(public, plaintext, ASSOCIATED, bytes(32))
    assert len(sealed) == len(plaintext) + threshold_elgamal.OVERHEAD_BYTES
    partial = {x: threshold_elgamal.partial_decryption(feldman.share_at(coefficients, x), point) for x in holders[:t]}
    for x, one in partial.items():
        assert decoded(one) == times(value_at(coefficients, x), decoded(point))
    assert threshold_elgamal.decrypt(point, sealed, ASSOCIATED, partial) == plaintext
    few = dict(list(partial.items())[: t - 1])
    wrong = {**partial, holders[0]: threshold_elgamal.partial_decryption((2).to_bytes(32, "little"), point)}
    elsewhere = {holders[t]: partial[holders[0]], **dict(list(partial.items())[1:])}
    for bad in (few, wrong, elsewhere):
        with pytest.raises(OpeningFailed):
            threshold_elgamal.decrypt(point, sealed, ASSOCIATED, bad)
    with pytest.raises(OpeningFailed):
        threshold_elgamal.decrypt(point, sealed, b"for another", partial)


def test_reused_entropy_does_not_reuse_a_key() -> None:
    public = feldman.commitments(dealt(1, 2))[0]
    made = {threshold_elgamal.encrypt(public, m, a, bytes(32))[0] for m in (b"one", b"two") for a in (b"", b"x")}
    assert len(made) == 4
    other = feldman.commitments(dealt(2, 2))[0]
    assert threshold_elgamal.encrypt(other, b"one", b"", bytes(32))[0] not in made


@pytest.mark.parametrize("bad", [IDENTITY, SMALL_ORDER, b"\xff" * 32, bytes(31)])
def test_points_that_would_reveal_a_share_are_refused(bad: bytes) -> None:
    """A share times a point of small order reveals the share modulo 8."""
    with pytest.raises(InvalidKey):
        threshold_elgamal.partial_decryption(feldman.share_at(dealt(1, 3), 1), bad)
    with pytest.raises(InvalidKey):
        threshold_elgamal.encrypt(bad, b"message", b"", bytes(32))


@pytest.mark.parametrize("case", VECTORS["cases"])
def test_the_stored_vectors(case: dict[str, Any]) -> None:
    """Computed once by this code, so that stored ciphertexts and shares stay readable."""
    entropy = bytes.fromhex(case["entropy"])
    coefficients = feldman.polynomial(feldman.random_scalar(entropy), case["threshold"], entropy)
    assert [one.hex() for one in coefficients] == case["coefficients"]
    assert [one.hex() for one in feldman.commitments(coefficients)] == case["commitments"]
    shares = {int(x): bytes.fromhex(share) for x, share in case["shares"].items()}
    assert {x: feldman.share_at(coefficients, x) for x in shares} == shares
    plaintext, associated = bytes.fromhex(case["plaintext"]), bytes.fromhex(case["associated"])
    point, sealed = threshold_elgamal.encrypt(bytes.fromhex(case["commitments"][0]), plaintext, associated, entropy)
    assert (point.hex(), sealed.hex()) == (case["point"], case["sealed"])
    partial = {x: threshold_elgamal.partial_decryption(share, point) for x, share in shares.items()}
    assert {str(x): one.hex() for x, one in partial.items()} == case["partial"]
    assert threshold_elgamal.decrypt(point, sealed, associated, partial) == plaintext


def test_a_share_that_is_not_reduced_is_refused() -> None:
    """A share plus the group's order has the same product with the base point."""
    polynomial = dealt(1, 2)
    committed, share = feldman.commitments(polynomial), feldman.share_at(polynomial, 3)
    assert feldman.is_share(share, committed, 3)
    again = (number(share) + ORDER).to_bytes(32, "little")
    assert edwards25519.multiply_base(again) == edwards25519.multiply_base(share)
    assert not feldman.is_share(again, committed, 3)
