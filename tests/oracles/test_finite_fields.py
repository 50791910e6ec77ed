"""Fields, transforms, Shamir's shares and Reed-Solomon decoding against FLINT, by other algorithms; all exact."""

import random

import numpy as np
import pytest

from testbed.crypto import InvalidShares, dealing, edwards25519, feldman, field64, prime_field, ring_lwe, shamir
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.negacyclic_ntt import DEGREE, Limbs, transform
from testbed.crypto.reed_solomon import wrong_values

flint = pytest.importorskip("flint", reason="needs python-flint: make oracles")
from tests.oracles import polynomials  # noqa: E402

BELOW_2_32, ABOVE_2_256 = prime_field.PRIME, int(shamir.PRIME)
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493  # RFC 8032, section 5.1


def test_the_primes_are_prime_and_the_nearest_to_their_powers_of_two() -> None:
    assert flint.fmpz(BELOW_2_32).is_prime()
    assert not any(flint.fmpz(number).is_prime() for number in range(BELOW_2_32 + 1, 2**32))
    assert flint.fmpz(ABOVE_2_256).is_prime()
    assert not any(flint.fmpz(number).is_prime() for number in range(2**256, ABOVE_2_256))
    assert flint.fmpz(field64.PRIME).is_prime()
    assert all(flint.fmpz(prime).is_prime() for prime in ring_lwe.PRIMES)


def extremes_and_random(rng: np.random.Generator, shape: tuple[int, ...], prime: int) -> np.ndarray:
    """Return elements, a third of which are 0, 1 or the three largest."""
    elements = rng.integers(0, prime, shape, np.uint64)
    ends = rng.choice(np.array([0, 1, prime - 3, prime - 2, prime - 1], np.uint64), shape)
    return np.where(rng.random(shape) < 1 / 3, ends, elements)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 119, 2), (3, 120, 2), (2, 121, 5), (40, 241, 7), (2, 700, 70)])
def test_matrix_products_modulo_the_prime_below_2_32(shape: tuple[int, int, int]) -> None:
    """120 products are summed before a reduction: lengths on either side, and products all large, odd and positive."""
    rng, (rows, inner, columns) = np.random.default_rng(inner_seed(shape)), shape
    for left, right in (
        (extremes_and_random(rng, (rows, inner), BELOW_2_32), extremes_and_random(rng, (inner, columns), BELOW_2_32)),
        (np.full((rows, inner), BELOW_2_32 - 1), np.full((inner, columns), BELOW_2_32 - 1)),
        (np.full((rows, inner), 0x7FFF7FFF), np.full((inner, columns), 2**31 - 3)),
    ):
        theirs = flint.nmod_mat(rows, inner, left.ravel().tolist(), BELOW_2_32) * flint.nmod_mat(
            inner, columns, right.ravel().tolist(), BELOW_2_32
        )
        ours = prime_field.product(left.astype(np.uint32), right.astype(np.uint32))
        assert ours.ravel().tolist() == [int(entry) for entry in theirs.entries()]


def inner_seed(shape: tuple[int, ...]) -> int:
    return sum(1000**place * size for place, size in enumerate(shape))


@pytest.mark.parametrize("count", [1, 2, 7, 60, 150])
def test_interpolation_modulo_the_prime_below_2_32(count: int) -> None:
    rng = np.random.default_rng(count)
    points = [*rng.choice(10**6, count - 1, replace=False).tolist(), BELOW_2_32 - 1]
    ordinates = extremes_and_random(rng, (count,), BELOW_2_32)
    whole = polynomials.interpolated(polynomials.field(BELOW_2_32), points, ordinates.tolist())
    theirs = [int(coefficient) for coefficient in whole.coeffs()]
    theirs += [0] * (count - len(theirs))
    for rows in {1, count}:
        matrix = prime_field.interpolation(points, rows)
        assert prime_field.product(ordinates.astype(np.uint32)[None], matrix)[0].tolist() == theirs[:rows]


@pytest.mark.parametrize(("needed", "private", "length"), [(1, 0, 1), (3, 1, 4), (40, 10, 301), (90, 10, 79)])
def test_coded_masks_are_values_of_the_polynomials_of_their_pieces(needed: int, private: int, length: int) -> None:
    code = MaskCode(length, needed, private)
    points, ring = tuple(range(1, needed + 4)), polynomials.field(BELOW_2_32)
    pieces, coded = code.pieces(b"m" * 32), code.coded(b"m" * 32, points)
    for column in range(code.piece_length):
        assert coded[:, column].tolist() == polynomials.values(ring, pieces[:, column].tolist(), points)


@pytest.mark.parametrize(("count", "threshold"), [(1, 1), (2, 1), (3, 1), (9, 4), (10, 4), (31, 20), (60, 24)])
def test_reed_solomon_decoding_against_the_euclidean_algorithm(count: int, threshold: int) -> None:
    """Every number of wrong values: up to half of the spare ones both find the same, beyond both refuse or agree."""
    rng, ring = random.Random(count), polynomials.field(BELOW_2_32)  # noqa: S311  # a test's own cases
    refused = 0
    for wrong in range(min(count, (count - threshold) // 2 + 3) + 1):
        for degenerate in (False, True):  # all coefficients but the first are 0
            coefficients = [rng.randrange(BELOW_2_32), *(0 if degenerate else rng.randrange(BELOW_2_32)
                                                        for _ in range(threshold - 1))]  # fmt: skip
            points = rng.sample(range(1, 2**31), count)
            received = polynomials.values(ring, coefficients, points)
            places = sorted(rng.sample(range(count), wrong))
            for place in places:
                received[place] = (received[place] + rng.randrange(1, BELOW_2_32)) % BELOW_2_32
            theirs = polynomials.decoded(ring, points, received, threshold)
            if 2 * wrong <= count - threshold:
                assert theirs == places
            if theirs is None:
                refused += 1
                with pytest.raises(InvalidShares):
                    wrong_values(points, received, threshold)
            else:
                assert wrong_values(points, received, threshold) == theirs
    assert refused or count - threshold < 2  # otherwise no word was far from the code


@pytest.mark.parametrize(("holders", "threshold"), [(1, 1), (2, 2), (5, 1), (5, 3), (100, 67), (300, 300)])
def test_shamir_shares_are_values_of_a_polynomial_with_the_secret_at_0(holders: int, threshold: int) -> None:
    rng, ring = random.Random(holders), polynomials.field(ABOVE_2_256)  # noqa: S311  # a test's own cases
    points = [*rng.sample(range(1, 2**31), holders - 1), 2**32]
    for secret in (bytes(32), b"\xff" * 32, rng.randbytes(32)):
        entropy = rng.randbytes(32)
        shares = shamir.share(secret, threshold, points, entropy)
        assert dealing.share_to_many([(secret, entropy)], threshold, points) == [shares]
        numbers = [int.from_bytes(share, "big") for share in shares]
        whole = polynomials.interpolated(ring, points, numbers)
        assert whole.degree() < threshold
        assert int(whole[0]) == int.from_bytes(secret, "big")
        some = rng.sample(range(holders), threshold)
        own = [points[place] for place in some]
        assert shamir.reconstruct(own, [shares[place] for place in some], threshold) == secret
        assert int(polynomials.interpolated(ring, own, [numbers[place] for place in some])[0]) == int(whole[0])


@pytest.mark.parametrize(("holders", "threshold"), [(1, 1), (6, 4), (40, 21)])
def test_feldman_shares_and_their_weights_modulo_the_group_order(holders: int, threshold: int) -> None:
    ring, points = polynomials.field(GROUP_ORDER), [*range(1, holders), 2**32]
    secret = feldman.random_scalar(b"s" * 32)
    coefficients = feldman.polynomial(secret, threshold, b"e" * 32)
    numbers = [int.from_bytes(feldman.share_at(coefficients, point), "little") for point in points]
    whole = polynomials.interpolated(ring, points, numbers)
    assert [int(number) for number in whole.coeffs()] == [int.from_bytes(each, "little") for each in coefficients]
    weights = feldman.lagrange_weights(points)
    assert sum(map(int.__mul__, weights, numbers)) % GROUP_ORDER == int.from_bytes(secret, "little")
    assert edwards25519.reduce_scalar(GROUP_ORDER.to_bytes(64, "little")) == bytes(32)


@pytest.mark.parametrize("operation", ["add", "subtract", "multiply"])
def test_field64_element_by_element(operation: str) -> None:
    prime, rng = field64.PRIME, np.random.default_rng(5)
    ends = [0, 1, 2, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**63, prime - 2**32, prime - 2, prime - 1]
    numbers = np.array([*ends, *rng.integers(0, prime, 60, np.uint64).tolist()], np.uint64)
    ours = getattr(field64, operation)(numbers[:, None], numbers[None, :])
    flint_operation = {"add": "__add__", "subtract": "__sub__", "multiply": "__mul__"}[operation]
    for row, left in zip(ours.tolist(), numbers.tolist(), strict=True):
        theirs = [int(getattr(flint.nmod(left, prime), flint_operation)(flint.nmod(right, prime)))
                  for right in numbers.tolist()]  # fmt: skip
        assert row == theirs


@pytest.mark.parametrize("length", [1, 2, 4, 64, 1024])
def test_field64_transforms_are_values_at_roots_of_unity(length: int) -> None:
    ring, rng = polynomials.field(field64.PRIME), np.random.default_rng(length)
    coefficients = extremes_and_random(rng, (length, 3), field64.PRIME)
    ours = field64.transform(coefficients)
    assert field64.inverse_transform(ours).tolist() == coefficients.tolist()
    between = field64.at_points_between(ours)
    for column in range(3):
        own = coefficients[:, column].tolist()
        for table, step, first in ((ours, 1, 0), (between, 2, 1)):
            root = field64.root_of_unity(length * step)
            points = [pow(root, place * step + first, field64.PRIME) for place in range(length)]
            assert table[:, column].tolist() == polynomials.values(ring, own, points)


@pytest.mark.parametrize("prime", ring_lwe.PRIMES)
def test_products_modulo_x_4096_plus_1(prime: int) -> None:
    """The number-theoretic transform in doubles against FLINT's multiplication of polynomials, at the extremes, too."""
    rng, of_prime = np.random.default_rng(prime), transform(prime)
    half = prime // 2
    largest = [np.full(DEGREE, half), np.tile([half, -half], DEGREE // 2)]
    modulus = flint.nmod_poly([1] + [0] * (DEGREE - 1) + [1], prime)
    for left, right in (
        (rng.integers(-half, half + 1, DEGREE), rng.integers(-half, half + 1, DEGREE)),
        (largest[0], largest[1]),
        (largest[1], largest[1]),
        (np.eye(1, DEGREE, DEGREE - 1, dtype=np.int64)[0], rng.integers(-half, half + 1, DEGREE)),
    ):
        values = [of_prime.forward(of_prime.centred(each)[None]) for each in (left, right)]
        ours = of_prime.canonical(of_prime.inverse(of_prime.product(values[0], Limbs.of(values[1]))))[0]
        theirs = flint.nmod_poly(left.tolist(), prime) * flint.nmod_poly(right.tolist(), prime) % modulus
        coefficients = [int(coefficient) for coefficient in theirs.coeffs()]
        assert ours.tolist() == coefficients + [0] * (DEGREE - len(coefficients))
