"""The code of LightSecAgg: any U coded pieces of a mask determine the mask, any T reveal nothing about it.

So et al., LightSecAgg: a Lightweight and Versatile Design for Secure Aggregation in Federated Learning, MLSys 2022,
arXiv 2109.14236, section 4. A mask z of d elements is cut into U - T pieces, and T uniform pieces are appended. Holder
j receives the sum of all U pieces, the k-th piece times the k-th power of j's point. The code is a Vandermonde matrix:
any U columns are invertible (U coded pieces determine z), and so are any T columns of the T lowest rows (the uniform
pieces hide z from T holders). This is the paper's T-private MDS code.

The code is linear: a holder's coded pieces of several masks add up to its coded piece of the sum of the masks. So U
holders that publish their sums reveal the sum of the masks and no single mask.
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
    """The code of a round's masks.

    Attributes:
        length: d, elements of a mask.
        needed: U, coded pieces that determine a mask.
        private: T, coded pieces that reveal nothing; less than U.

    Example:
        >>> code = MaskCode(length=4, needed=3, private=1)
        >>> pieces = code.coded(bytes(32), points=(1, 2, 3, 4))
        >>> code.decoded({point: pieces[point - 1] for point in (1, 3, 4)}).tolist() == code.mask(bytes(32)).tolist()
        True
    """

    length: int
    needed: int
    private: int

    @property
    def piece_length(self) -> int:
        """Elements of a piece, coded or not: d / (U - T), rounded up."""
        return -(-self.length // (self.needed - self.private))

    def mask(self, seed: bytes) -> Elements:
        """Return the mask of a seed, `(d,)`."""
        return uniform(seed, self.length)

    def pieces(self, seed: bytes) -> Elements:
        """Return the pieces of the mask, padded with zeros, followed by T uniform pieces: `(U, piece_length)`."""
        # `uniform` reads a stream: its first d elements are `mask(seed)`.
        stream = uniform(seed, self.length + self.private * self.piece_length)
        return self._stacked(stream[: self.length], stream[self.length :])

    def _stacked(self, elements: Elements, hiding: Elements) -> Elements:
        own = self.needed - self.private
        pieces = np.zeros((self.needed, self.piece_length), np.uint32)
        pieces[:own].reshape(-1)[: self.length] = elements
        # In the rows of the highest powers: any T columns of them are invertible, so T holders learn nothing.
        pieces[own:] = hiding.reshape(self.private, self.piece_length)
        return pieces

    def coded(self, seed: bytes, points: tuple[int, ...]) -> Elements:
        """Return the coded piece of each holder, `(n, piece_length)`.

        Args:
            seed: of the mask, 32 secret bytes.
            points: of the holders, distinct, from 1 to below the prime.

        Raises:
            InvalidShares: points out of range (a point 0 modulo the prime would receive a piece of the mask itself).
        """
        return self.evaluated(self.pieces(seed), points)

    def shared(self, elements: Elements, seed: bytes, points: tuple[int, ...]) -> Elements:
        """Return the share of each holder of given elements (packed secret sharing), `(n, piece_length)`.

        The packed elements are the lowest coefficients of a polynomial; in the paper they are values.

        Args:
            elements: `(d,)` elements to share.
            seed: 32 secret bytes, for these elements alone: of the uniform pieces.
            points: of the holders, as in `coded`.

        Source:
            Franklin and Yung, Communication Complexity of Secure Computation, STOC 1992.
        """
        return self.evaluated(self.polynomials(elements, seed), points)

    def polynomials(self, elements: Elements, seed: bytes) -> Elements:
        """Return the coefficients, lowest first, of the polynomials that `shared` evaluates: `(U, piece_length)`.

        Args:
            elements: as in `shared`.
            seed: as in `shared`.
        """
        return self._stacked(elements, uniform(seed, self.private * self.piece_length))

    def evaluated(self, pieces: Elements, points: tuple[int, ...]) -> Elements:
        """Return the values of c polynomials at n holders' points, `(n, c)`.

        Args:
            pieces: `(U, c)` coefficients.
            points: of the holders.

        Raises:
            InvalidShares: points as in `coded`.
        """
        # The value at point 0 is the first piece of the mask in clear.
        if len(set(points)) < len(points) or not all(0 < point < PRIME for point in points):
            raise InvalidShares(f"holders' points must be distinct, from 1 to {PRIME - 1}")
        return product(vandermonde(points, self.needed).T, pieces)

    def decoded(self, coded: Mapping[int, Elements]) -> Elements:
        """Return the mask, or the sum of masks, of the coded pieces: `(d,)`.

        Uses the first U pieces in the order of their points.

        Args:
            coded: coded pieces by the holders' points.

        Raises:
            InvalidShares: there are fewer than U pieces, or a piece has another length.
        """
        # The T last pieces only hide the mask, so nothing needs them.
        return self._interpolated(coded, self.needed - self.private).reshape(-1)[: self.length]

    def wrong(self, coded: Mapping[int, Elements]) -> list[int]:
        """Return the points of coded pieces that do not belong to the mask of the others.

        Of n pieces, at most (n - U) / 2 wrong pieces can be found; with U pieces none.

        Args:
            coded: coded pieces by the holders' points.

        Raises:
            InvalidShares: there are fewer than U pieces, a piece has another length, or too many pieces are wrong.
        """
        points = sorted(coded)
        others = tuple(points[self.needed :])
        pieces = self._interpolated(coded, self.needed)
        # Encoding again takes one product. The search takes O(n**3) steps, so only a mismatch starts the search.
        if not others or np.array_equal(self.evaluated(pieces, others), [coded[point] for point in others]):
            return []
        # One random combination of the columns makes each piece one value of a Reed-Solomon code.
        # A wrong piece keeps a right value with probability 2**-32.
        every = np.stack([coded[point] for point in points])
        coins = uniform(hashlib.sha256(_COINS_DOMAIN + every.tobytes()).digest(), self.piece_length)
        # The coins depend on all pieces, so no holder can fit its piece to them.
        combined = product(every, coins[:, None])[:, 0].tolist()
        return [points[place] for place in wrong_values(points, combined, self.needed)]

    def search_steps(self, pieces: int) -> int:
        """Return the multiplications and additions of `wrong` for this many pieces that do not fit each other.

        They combine each piece to one word, then run `wrong_values`.
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
