"""Secret sharing against textbook interpolation, and inputs that must be refused."""

import random
from itertools import combinations

import gmpy2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidShares, shamir
from testbed.errors import ProtocolError
from tests.thoroughness import examples

P = 2**256 + 297
SECRET, ENTROPY = bytes(range(32)), bytes(range(32, 64))

secrets = st.binary(min_size=32, max_size=32)
point_lists = st.lists(st.integers(1, 2**32), min_size=1, max_size=12, unique=True)


def interpolate_at(x, points, values):
    """Return the value at x of the polynomial through the points, by Lagrange's formula in Python's integers."""
    total = 0
    for i, value in zip(points, values, strict=True):
        numerator = denominator = 1
        for j in points:
            if j != i:
                numerator = numerator * (x - j) % P
                denominator = denominator * (i - j) % P
        total += value * numerator * pow(denominator, -1, P)
    return total % P


def test_the_modulus_is_the_smallest_prime_above_2_to_the_256():
    assert shamir.PRIME == P
    assert gmpy2.is_prime(P, 50)
    assert not any(gmpy2.is_prime(2**256 + offset, 50) for offset in range(297))


@given(secrets, st.data(), point_lists, secrets)
def test_any_threshold_of_the_shares_gives_the_secret(secret, data, points, entropy):
    threshold = data.draw(st.integers(1, len(points)))
    shares = shamir.share(secret, threshold, points, entropy)
    assert [len(one) for one in shares] == [shamir.SHARE_BYTES] * len(points)
    chosen = data.draw(st.permutations(range(len(points))))[:threshold]
    some_points, some_shares = [points[k] for k in chosen], [shares[k] for k in chosen]
    assert shamir.reconstruct(some_points, some_shares, threshold) == secret
    assert shamir.LagrangeWeights(some_points).reconstruct(some_shares) == secret
    assert shamir.reconstruct(points, shares, threshold) == secret
    values = [int.from_bytes(one, "big") for one in some_shares]
    assert interpolate_at(0, some_points, values) == int.from_bytes(secret, "big")


@given(secrets, st.integers(1, 6), st.lists(st.integers(1, 2**32), min_size=7, max_size=10, unique=True))
def test_shares_lie_on_one_polynomial_of_degree_below_the_threshold(secret, threshold, points):
    values = [int.from_bytes(one, "big") for one in shamir.share(secret, threshold, points, ENTROPY)]
    for point, value in zip(points, values, strict=True):
        assert value < P
        assert interpolate_at(point, points[:threshold], values[:threshold]) == value


def test_sharing_at_the_papers_sizes():
    points = list(range(1, 71))
    shares = shamir.share(SECRET, 42, points, ENTROPY)
    chosen = random.Random(1).sample(range(70), 42)  # noqa: S311 - which shares are tried, not a secret
    weights = shamir.LagrangeWeights([points[k] for k in chosen])
    assert weights.reconstruct([shares[k] for k in chosen]) == SECRET
    other = shamir.share(bytes(32), 42, points, ENTROPY)
    assert weights.reconstruct([other[k] for k in chosen]) == bytes(32)


def test_fewer_shares_are_consistent_with_every_secret():
    """Two of three shares and any claimed secret lie on one polynomial of the right degree."""
    points = [1, 2, 3]
    values = [int.from_bytes(one, "big") for one in shamir.share(SECRET, 3, points, ENTROPY)]
    for pair in combinations(range(3), 2):
        for claimed in (0, 1, 2**256 - 1):
            known = [0] + [points[k] for k in pair]
            third = ({0, 1, 2} - set(pair)).pop()
            missing = interpolate_at(points[third], known, [claimed] + [values[k] for k in pair])
            shares = [value.to_bytes(33, "big") for value in values]
            shares[third] = missing.to_bytes(33, "big")
            assert shamir.reconstruct(points, shares, 3) == claimed.to_bytes(32, "big")


def test_the_polynomial_depends_on_entropy_secret_and_threshold():
    def slope(secret, threshold, entropy):
        """Return the first coefficient above the secret, for threshold 2."""
        first, second = (int.from_bytes(one, "big") for one in shamir.share(secret, threshold, [1, 2], entropy))
        return (second - first) % P

    slopes = {slope(SECRET, 2, ENTROPY), slope(SECRET, 2, bytes(32)), slope(bytes(32), 2, ENTROPY)}
    assert len(slopes) == 3
    assert slope(SECRET, 1, ENTROPY) == 0
    assert shamir.share(SECRET, 2, [1, 2], ENTROPY) == shamir.share(SECRET, 2, [1, 2, 3], ENTROPY)[:2]
    coefficients = [shamir.coefficients(SECRET, threshold, ENTROPY)[1:] for threshold in (5, 6)]
    assert not set(coefficients[0]) & set(coefficients[1])
    assert len(set(coefficients[1])) == 5
    assert max(coefficients[1]) > 2**250


@pytest.mark.parametrize(
    ("secret", "threshold", "points", "entropy"),
    [
        (SECRET[:-1], 1, [1], ENTROPY),
        (SECRET + b"\x00", 1, [1], ENTROPY),
        (SECRET, 1, [1], ENTROPY[:-1]),
        (SECRET, 0, [1], ENTROPY),
        (SECRET, -1, [1], ENTROPY),
        (SECRET, 3, [1, 2], ENTROPY),
        (SECRET, 1, [], ENTROPY),
        (SECRET, 2, [1, 2, 1], ENTROPY),
        (SECRET, 1, [0, 1], ENTROPY),
        (SECRET, 1, [1, -2], ENTROPY),
        (SECRET, 1, [1, 2**32 + 1], ENTROPY),
    ],
)
def test_sharing_out_of_range_is_refused(secret, threshold, points, entropy):
    with pytest.raises(InvalidShares):
        shamir.share(secret, threshold, points, entropy)


def test_reconstruction_from_invalid_shares_is_refused():
    points = [1, 2, 2**32]
    shares = shamir.share(SECRET, 2, points, ENTROPY)
    assert shamir.reconstruct(points[1:], shares[1:], 2) == SECRET
    for bad_points, bad_shares, threshold in (
        (points[:1], shares[:1], 2),  # too few
        ([], [], 1),
        ([], [], 0),
        (points, shares, 0),
        (points, shares[:2], 2),  # not one for each point
        ([1, 1], [shares[0], shares[0]], 2),  # the same one twice
        ([1, 2, 1], shares, 2),  # the same point twice, even if not needed
        ([0, 1], shares[:2], 2),
        ([1, 2**32 + 1], shares[:2], 2),
        ([1, 2], [shares[0], shares[1][1:]], 2),
        ([1, 2], [shares[0], b"\x00" + shares[1]], 2),
        ([1, 2], [shares[0], P.to_bytes(33, "big")], 2),
        ([1, 2], [shares[0], b"\xff" * 33], 2),
    ):
        with pytest.raises(InvalidShares):
            shamir.reconstruct(bad_points, bad_shares, threshold)
    with pytest.raises(InvalidShares):
        shamir.LagrangeWeights([])
    with pytest.raises(InvalidShares):
        shamir.LagrangeWeights([1, 2]).reconstruct(shares)


def test_shares_that_give_no_32_byte_value_are_refused():
    for value in (2**256, P - 1):
        with pytest.raises(InvalidShares, match="belong together"):
            shamir.reconstruct([5], [value.to_bytes(33, "big")], 1)
    assert shamir.reconstruct([5], [(2**256 - 1).to_bytes(33, "big")], 1) == b"\xff" * 32


def test_a_wrong_share_gives_another_secret():
    shares = shamir.share(SECRET, 3, [1, 2, 3], ENTROPY)
    changed = shares[1][:-1] + bytes([shares[1][-1] ^ 1])
    assert shamir.reconstruct([1, 2, 3], [shares[0], changed, shares[2]], 3) != SECRET


@settings(max_examples=examples(300))
@given(
    st.lists(st.integers(-1, 2**33), max_size=4),
    st.lists(st.one_of(st.binary(max_size=35), st.binary(min_size=33, max_size=33)), max_size=4),
    st.integers(-1, 5),
)
def test_any_bytes_give_a_secret_or_a_typed_error(points, shares, threshold):
    try:
        secret = shamir.reconstruct(points, shares, threshold)
    except ProtocolError:
        return
    assert len(secret) == shamir.SECRET_BYTES
    assert all(len(one) == shamir.SHARE_BYTES for one in shares[:threshold])


@given(st.one_of(point_lists, st.lists(st.integers(1, 30), min_size=1, max_size=12, unique=True)))
def test_weights_follow_lagranges_formula(points):
    for own, weight in zip(points, shamir.LagrangeWeights(points)._weights, strict=True):
        assert weight == interpolate_at(0, points, [int(point == own) for point in points])
    distances = shamir.products_of_distances(points)
    for own, product, inverse in zip(points, distances, shamir.inverses(distances), strict=True):
        expected = 1
        for other in points:
            expected *= own - other if other != own else 1
        assert (product, product * inverse % P) == (expected, 1)
