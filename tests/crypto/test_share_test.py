"""Consistent shares pass, inconsistent shares do not; against slow arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import PRIME, Elements, uniform
from testbed.crypto.share_test import ShareTest, root_of
from tests.thoroughness import examples

SEED, BLINDING, CONTEXT = bytes(32), bytes([1] * 32), b"context"


class Dealt:
    """One dealer's rows, and the responses to the challenge of a root."""

    def __init__(self, test: ShareTest, points: tuple[int, ...], root: bytes = b"root") -> None:
        self.test, self.points = test, points
        self.polynomials = test.polynomials(uniform(b"e" * 32, test.code.length), SEED, BLINDING)
        self.rows = test.code.evaluated(self.polynomials, points)
        self.challenge = test.challenge(root, CONTEXT)
        self.response = test.response(self.polynomials, self.challenge)

    def passing(self, rows: Elements) -> list[bool]:
        """Return for each holder whether its row passes."""
        values = self.test.values(self.response[None], self.points)
        return [
            bool(self.test.passes(row[None], [self.challenge], values[:, :, place])[0])
            for place, row in enumerate(rows)
        ]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 200), st.integers(2, 9), st.integers(0, 3), st.data())
def test_shares_of_a_polynomial_pass_and_a_changed_element_does_not(
    length: int, needed: int, more: int, data: st.DataObject
) -> None:
    code = MaskCode(length, needed, data.draw(st.integers(1, needed - 1)))
    points = tuple(range(3, 3 + needed + more))
    dealt = Dealt(ShareTest(code, len(points)), points)
    assert dealt.passing(dealt.rows) == [True] * len(points)
    rows = dealt.rows.copy()
    holder = data.draw(st.integers(0, len(points) - 1))
    column = data.draw(st.integers(0, rows.shape[1] - 1))
    rows[holder, column] = (int(rows[holder, column]) + data.draw(st.integers(1, PRIME - 1))) % PRIME
    assert dealt.passing(rows) == [place != holder for place in range(len(points))]


def test_the_first_elements_of_a_row_are_the_share() -> None:
    code, points = MaskCode(100, 5, 2), (1, 4, 9, 16, 25, 36)
    dealt = Dealt(ShareTest(code, 6), points)
    shares = code.shared(uniform(b"e" * 32, 100), SEED, points)
    assert (dealt.rows[:, : code.piece_length] == shares).all()


def test_a_response_is_the_combination_of_the_polynomials() -> None:
    """Computed in Python's integers."""
    test = ShareTest(MaskCode(20, 4, 2), 6)
    dealt = Dealt(test, (1, 2, 3, 4, 5, 6))
    length = test.code.piece_length
    for combination in range(test.combinations):
        for degree in range(4):
            factors = dealt.challenge[combination].tolist()
            coefficients = dealt.polynomials[degree].tolist()
            slow = sum(map(int.__mul__, factors, coefficients[:length])) + coefficients[length + combination]
            assert dealt.response[combination, degree] == slow % PRIME


def test_no_polynomial_passes_for_all_inconsistent_rows() -> None:
    """The best response to seven uniform rows fits five of them, and passes only for these five."""
    test, points = ShareTest(MaskCode(30, 5, 2), 7), (1, 2, 3, 4, 5, 6, 7)
    dealt = Dealt(test, points)
    rows = uniform(b"r" * 32, 7 * test.row_length).reshape(7, -1)
    from testbed.crypto.prime_field import interpolation, product

    polynomials = product(interpolation(points[:5], 5).T, rows[:5])
    dealt.response = test.response(polynomials, dealt.challenge)
    assert dealt.passing(rows) == [True] * 5 + [False] * 2


def test_a_response_reveals_nothing_about_other_shares() -> None:
    """Two dealers with the same rows at T points can have the same responses, with other blinds."""
    code, points = MaskCode(8, 4, 2), (1, 2, 3, 4, 5)
    test = ShareTest(code, 5)
    dealt = Dealt(test, points)
    from testbed.crypto.prime_field import interpolation, product

    other = dealt.polynomials.copy()
    other[:, : code.piece_length] = product(  # another key, with the same shares at the first two points
        interpolation((1, 2, 900, 901), 4).T,
        np.concatenate([dealt.rows[:2, : code.piece_length], uniform(b"o" * 32, 2 * code.piece_length).reshape(2, -1)]),
    )
    combined = test.response(other, dealt.challenge).astype(np.int64)
    other[:, code.piece_length :] = (
        (other[:, code.piece_length :].T.astype(np.int64) + dealt.response - combined) % PRIME
    ).T
    assert (test.response(other, dealt.challenge) == dealt.response).all()
    assert (code.evaluated(other, points)[:2] == dealt.rows[:2]).all()
    assert (other[:, : code.piece_length] != dealt.polynomials[:, : code.piece_length]).any()


@pytest.mark.parametrize(
    ("holders", "needed", "combinations"), [(60, 40, 5), (20, 14, 4), (8, 6, 4), (4, 4, 4), (1000, 667, 32)]
)
def test_combinations_suffice_for_all_sets_of_rows(holders: int, needed: int, combinations: int) -> None:
    """binomial(60, 41) is 2**51.9."""
    assert ShareTest(MaskCode(4096, needed, 1), holders).combinations == combinations


def test_the_challenge_depends_on_everything_that_a_dealer_could_vary() -> None:
    code = MaskCode(100, 5, 2)
    found = {
        ShareTest(code, 8).challenge(root_of([b"a", b"b"]), b"x").tobytes(),
        ShareTest(code, 8).challenge(root_of([b"b", b"a"]), b"x").tobytes(),
        ShareTest(code, 8).challenge(root_of([b"a", b"b"]), b"y").tobytes(),
        ShareTest(code, 60).challenge(root_of([b"a", b"b"]), b"x").tobytes(),
    }
    assert len(found) == 4
