"""LightSecAgg's code: any U coded pieces determine the mask, any T reveal nothing about it."""

import itertools

import numpy as np
import pytest

from testbed.crypto import InvalidShares
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import PRIME, product, total, vandermonde
from tests.messages_named import naming

POINTS = (1, 2, 3, 5, 8, 13)
SEEDS = [bytes([number]) * 32 for number in range(1, 4)]


@pytest.mark.parametrize(("length", "needed", "private"), [(10, 4, 2), (1, 5, 3), (12, 3, 0), (7, 6, 5), (3, 1, 0)])
def test_any_u_pieces_give_the_sum_of_the_masks(length, needed, private):
    code = MaskCode(length, needed, private)
    coded = [code.coded(seed, POINTS) for seed in SEEDS]
    assert coded[0].shape == (len(POINTS), -(-length // (needed - private)))
    held = {point: total([one[i] for one in coded]) for i, point in enumerate(POINTS)}
    expected = total([code.mask(seed) for seed in SEEDS]).tolist()
    for some in itertools.combinations(POINTS, needed):
        assert code.decoded({point: held[point] for point in some}).tolist() == expected
    assert code.decoded(held).tolist() == expected


def test_a_holders_piece_is_the_polynomials_value_at_its_point():
    code = MaskCode(5, 4, 2)
    pieces = code.pieces(SEEDS[0]).tolist()
    assert [element for piece in pieces[:2] for element in piece] == [*code.mask(SEEDS[0]).tolist(), 0]
    for point, coded in zip(POINTS, code.coded(SEEDS[0], POINTS).tolist(), strict=True):
        for column, element in enumerate(coded):
            assert element == sum(piece[column] * point**k for k, piece in enumerate(pieces)) % PRIME


def test_t_pieces_are_consistent_with_every_mask():
    """T holders' pieces fit each mask, with other uniform pieces: the same number for each mask."""
    code = MaskCode(6, 4, 2)
    mask, other = code.pieces(SEEDS[0]), code.pieces(SEEDS[1])
    for some in itertools.combinations(POINTS, code.private):
        powers = vandermonde(some, code.needed)
        held = product(powers.T, mask)
        lower = powers[2:].astype(object)  # (2, 2): invertible, or there would be holders that tell masks apart
        determinant = int(lower[0, 0] * lower[1, 1] - lower[0, 1] * lower[1, 0]) % PRIME
        assert determinant
        scale = pow(determinant, -1, PRIME)
        inverted = np.array([[lower[1, 1], -lower[0, 1]], [-lower[1, 0], lower[0, 0]]], object) * scale % PRIME
        left = (held.astype(object) - product(powers[:2].T, other[:2]).astype(object)) % PRIME
        explained = np.concatenate([other[:2], (inverted.T.dot(left) % PRIME).astype(np.uint32)])
        assert product(powers.T, explained).tolist() == held.tolist()
        assert explained[:2].tolist() != mask[:2].tolist()


def test_too_few_pieces_or_of_another_length_are_refused():
    code = MaskCode(6, 4, 2)
    held = dict(zip(POINTS, code.coded(SEEDS[0], POINTS), strict=True))
    with pytest.raises(InvalidShares, match=naming("3 coded pieces", 4)):
        code.decoded({point: held[point] for point in POINTS[:3]})
    with pytest.raises(InvalidShares, match=naming("3 elements")):
        code.decoded(held | {1: held[1][:2]})


@pytest.mark.parametrize("points", [(0, 1, 2, 3), (1, 2, 3, PRIME), (1, 2, 3, PRIME + 1), (1, 2, 2, 3)])
def test_points_that_would_reveal_a_piece_are_refused(points):
    with pytest.raises(InvalidShares, match=naming("distinct", "1 to 4294967290")):
        MaskCode(6, 4, 2).coded(SEEDS[0], points)
