"""A test that dealt shares are consistent: all columns of all holders' rows lie on polynomials of degree below U.

SCRAPE (Cascudo and David, SCRAPE: Scalable Randomness Attested by Public Entities, ACNS 2017) multiplies commitments to
the shares by a random word of the dual code, in a group of the field's order. Shares here are rows of a hundred and
more elements of a 32-bit field. So hashes commit to the shares, and random combinations of the columns are tested
against polynomials that the dealer reveals: the interleaved test of Ligero (Ames, Hazay, Ishai, Venkitasubramaniam, CCS
2017), with a random polynomial added to each combination, which hides everything else.

1. The dealer adds k uniform polynomials to the shared ones, so that a row has k more elements, the *blinds*.
2. It commits to each row. The root of the commitments gives the *challenge*, k rows of random elements.
3. It reveals k *responses*: the combinations of its polynomials by the rows of the challenge, each plus one of the k.
4. A holder's row passes if its combinations, plus its blinds, are the values of the responses at its point.

T holders, together with all observers of the responses, learn only the T rows.
"""

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import PRIME, Elements, product, reduce_words, uniform, vandermonde

# A dealer can try roots offline: 2**60 of them leave 2**-40.
SECURITY_BITS = 100
"""Security of one root [bits]."""
ROOT_BYTES = 32

_CHALLENGE_DOMAIN = b"testbed/share-test/challenge/v1"
_ROOT_DOMAIN = b"testbed/share-test/root/v1"


@dataclass(frozen=True)
class ShareTest:
    """The test of shares by one code to one number of holders.

    Attributes:
        code: of the shares.
        holders: M, number of shares.
    """

    code: MaskCode
    holders: int

    @property
    def combinations(self) -> int:
        """k, number of tested combinations, and of blinds in a row."""
        return _combinations(self.holders, self.code.needed)

    @property
    def row_length(self) -> int:
        """Elements of a row: a share, and the blinds."""
        return self.code.piece_length + self.combinations

    @property
    def response_length(self) -> int:
        """Elements of the responses, k polynomials of U coefficients."""
        return self.combinations * self.code.needed

    def polynomials(self, elements: Elements, seed: bytes, blinding_seed: bytes) -> Elements:
        """Return the coefficients of the shared and of the blinding polynomials, `(U, row_length)`.

        Args:
            elements: `(d,)` elements to share.
            seed: 32 secret bytes, for these elements alone, as in `MaskCode.shared`.
            blinding_seed: 32 secret bytes, for this test alone.
        """
        # The blinds make the responses uniform among the polynomials that fit the blinds of T holders.
        blinding = uniform(blinding_seed, self.response_length).reshape(self.code.needed, self.combinations)
        return np.concatenate([self.code.polynomials(elements, seed), blinding], axis=1)

    def challenge(self, root: bytes, context: bytes) -> Elements:
        """Return the factors of each column in each combination, `(k, piece_length)`.

        Args:
            root: of the commitments to the rows (`root_of`).
            context: everything else that the dealer could vary, of fixed length.
        """
        code = self.code
        statement = (code.length, code.needed, code.private, self.holders, self.combinations)
        numbers = b"".join(number.to_bytes(8, "big") for number in statement)
        # From the root: a party that chose the challenge could make a holder test a combination of its choice.
        seed = hashlib.sha256(_CHALLENGE_DOMAIN + numbers + context + root).digest()
        return uniform(seed, self.combinations * self.code.piece_length).reshape(self.combinations, -1)

    def response(self, polynomials: Elements, challenge: Elements) -> Elements:
        """Return the coefficients of the combined polynomials, `(k, U)`.

        Args:
            polynomials: `(U, row_length)`, as `polynomials` returns them.
            challenge: `(k, piece_length)`.
        """
        shared, blinding = np.split(polynomials, [self.code.piece_length], axis=1)
        return reduce_words(product(challenge, shared.T).astype(np.uint64) + blinding.T)

    def values(self, responses: Elements, points: tuple[int, ...]) -> Elements:
        """Return the values that rows of n dealers must have at the holders' points, `(n, k, M)`.

        Args:
            responses: `(n, k, U)`.
            points: of the M holders.
        """
        dealers, combinations, needed = responses.shape
        flat = product(responses.reshape(-1, needed), vandermonde(points, needed))
        return flat.reshape(dealers, combinations, len(points))

    def passes(self, rows: Elements, challenges: Sequence[Elements], values: Elements) -> npt.NDArray[np.bool_]:
        """Return for each of n dealers whether one holder's row passes, `(n,)` bool.

        Args:
            rows: `(n, row_length)`.
            challenges: of each dealer, `(k, piece_length)`.
            values: `(n, k)` values of each dealer's responses at the holder's point.
        """
        length = self.code.piece_length
        passed = np.empty(len(rows), np.bool_)
        for place, (row, challenge) in enumerate(zip(rows, challenges, strict=True)):
            combined = reduce_words(challenge.astype(np.uint64) * row[:length]).sum(axis=1, dtype=np.uint64)
            combined += row[length:]
            passed[place] = np.array_equal(combined % np.uint64(PRIME), values[place])
        return passed


def root_of(commitments: Sequence[bytes]) -> bytes:
    """Return 32 bytes that commit to these commitments, in their order."""
    return hashlib.sha256(_ROOT_DOMAIN + b"".join(commitments)).digest()


@functools.lru_cache(maxsize=64)
def _combinations(holders: int, needed: int) -> int:
    # U + 1 inconsistent rows: one word of the dual code shows it in some column, and all k combinations hide it with
    # probability p**-k. k covers all binomial(M, U + 1) sets of such rows.
    sets = max(1, math.comb(holders, needed + 1))
    return math.ceil((SECURITY_BITS + math.log2(sets)) / math.log2(PRIME))
