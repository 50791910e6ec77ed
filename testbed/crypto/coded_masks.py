"""The code of LightSecAgg: a mask in pieces, coded so that any U coded pieces give it back and any T say nothing of it.

So et al., LightSecAgg: a Lightweight and Versatile Design for Secure Aggregation in Federated Learning, MLSys 2022,
arXiv 2109.14236, section 4. A mask z of d elements is cut into U - T pieces; T uniform pieces are put below them;
holder j gets the sum of all U pieces, the k-th times the k-th power of j's point. That is a Vandermonde matrix, so that
any U columns are invertible (whoever has U coded pieces has z), and so are any T columns of the T lowest rows (the
uniform pieces hide z from T holders): the paper's T-private MDS code.

The code is linear: the sum of a holder's coded pieces of many masks is its coded piece of the sum of these masks. So U
holders that add up what they hold give the sum of the masks, and no single one.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from testbed.crypto import InvalidShares
from testbed.crypto.prime_field import PRIME, Elements, interpolation, product, uniform, vandermonde
from testbed.crypto.reed_solomon import elimination_steps, wrong_values

_COINS_DOMAIN = b"testbed/coded-masks/check/v1"


@dataclass(frozen=True)
class MaskCode:
    """How masks of a round are coded.

    Attributes:
        length: d, elements of a mask.
        needed: U, coded pieces that give a mask back.
        private: T, coded pieces that say nothing of it; below U.
    """

    length: int
    needed: int
    private: int

    @property
    def piece_length(self) -> int:
        """Elements of a piece, coded or not: d / (U - T), rounded up."""
        return -(-self.length // (self.needed - self.private))

    def mask(self, seed: bytes) -> Elements:
        """`(d,)` the mask of a seed."""
        return uniform(seed, self.length)

    def pieces(self, seed: bytes) -> Elements:
        """`(U, piece_length)` the mask's pieces, zeros behind the last, and below them T uniform ones."""
        drawn = uniform(seed, self.length + self.private * self.piece_length)
        return self._stacked(drawn[: self.length], drawn[self.length :])

    def _stacked(self, elements: Elements, hiding: Elements) -> Elements:
        own = self.needed - self.private
        pieces = np.zeros((self.needed, self.piece_length), np.uint32)
        pieces[:own].reshape(-1)[: self.length] = elements
        pieces[own:] = hiding.reshape(self.private, self.piece_length)
        return pieces

    def coded(self, seed: bytes, points: tuple[int, ...]) -> Elements:
        """`(n, piece_length)` the coded piece of each holder.

        Args:
            seed: of the mask, 32 secret bytes.
            points: of the holders, distinct, from 1 to below the prime.

        Raises:
            InvalidShares: points that are not so: modulo the prime one would have a piece of the mask itself.
        """
        return self.evaluated(self.pieces(seed), points)

    def shared(self, elements: Elements, seed: bytes, points: tuple[int, ...]) -> Elements:
        """`(n, piece_length)` the share of each holder of `(d,)` elements that are given: packed secret sharing.

        Franklin and Yung, Communication Complexity of Secure Computation, STOC 1992, with the packed elements as a
        polynomial's lowest coefficients where they have them as values.

        Args:
            elements: what is shared.
            seed: 32 secret bytes, for these elements alone: of the uniform pieces.
            points: of the holders, as in `coded`.
        """
        return self.evaluated(self.polynomials(elements, seed), points)

    def polynomials(self, elements: Elements, seed: bytes) -> Elements:
        """`(U, piece_length)` the coefficients, lowest first, of the polynomials that `shared` evaluates.

        Args:
            elements, seed: as in `shared`.
        """
        return self._stacked(elements, uniform(seed, self.private * self.piece_length))

    def evaluated(self, pieces: Elements, points: tuple[int, ...]) -> Elements:
        """`(n, c)` the values, at n holders' points, of c polynomials of which `(U, c)` are the coefficients.

        Raises:
            InvalidShares: points as in `coded`.
        """
        if len(set(points)) < len(points) or not all(0 < point < PRIME for point in points):
            raise InvalidShares(f"holders' points must be distinct, from 1 to {PRIME - 1}")
        return product(vandermonde(points, self.needed).T, pieces)

    def decoded(self, coded: Mapping[int, Elements]) -> Elements:
        """`(d,)` the mask, or the sum of masks, whose coded pieces these are, by the holders' points.

        The first U are taken, in the order of their points.

        Raises:
            InvalidShares: fewer than U, or one of another length.
        """
        return self._interpolated(coded, self.needed - self.private).reshape(-1)[: self.length]

    def wrong(self, coded: Mapping[int, Elements]) -> list[int]:
        """The points whose coded pieces do not belong to the mask of all others: of n, at most (n - U) / 2 are found.

        Of U pieces nothing can be said.

        Raises:
            InvalidShares: fewer than U, one of another length, or more wrong ones than can be found.
        """
        points = sorted(coded)
        others = tuple(points[self.needed :])
        pieces = self._interpolated(coded, self.needed)
        if not others or np.array_equal(self.evaluated(pieces, others), [coded[point] for point in others]):
            return []
        every = np.stack([coded[point] for point in points])
        coins = uniform(hashlib.sha256(_COINS_DOMAIN + every.tobytes()).digest(), self.piece_length)
        combined = product(every, coins[:, None])[:, 0].tolist()  # one word: nobody can choose pieces that fit it
        return [points[place] for place in wrong_values(points, combined, self.needed)]

    def search_steps(self, pieces: int) -> int:
        """Multiplications and additions of `wrong` where so many pieces do not fit each other: those that make one
        word of each, and `wrong_values`'.
        """
        return pieces * self.piece_length + elimination_steps(pieces, self.needed)

    def _interpolated(self, coded: Mapping[int, Elements], rows: int) -> Elements:
        points = sorted(coded)[: self.needed]
        if len(points) < self.needed:
            raise InvalidShares(f"{len(points)} coded pieces of a mask, {self.needed} are needed")
        if any(len(coded[point]) != self.piece_length for point in coded):
            raise InvalidShares(f"a coded piece of a mask that does not have {self.piece_length} elements")
        values = np.stack([coded[point] for point in points])
        return product(interpolation(points, rows).T, values)
