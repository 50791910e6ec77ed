"""A test that dealt shares belong together: that all columns of all holders' rows lie on polynomials of degree below U.

SCRAPE (Cascudo and David, SCRAPE: Scalable Randomness Attested by Public Entities, ACNS 2017) multiplies commitments to
the shares by a random word of the dual code, in a group of the field's order. Shares here are rows of a hundred and
more elements of a field of 32 bits, so hashes commit to them, and random combinations of the columns are tested against
polynomials that the dealer shows: the interleaved test of Ligero (Ames, Hazay, Ishai, Venkitasubramaniam, CCS 2017),
with a random polynomial added to each combination, which hides all else.

1. The dealer adds k uniform polynomials to those that it shares, so that a row has k elements more, the *blinds*.
2. It commits to each row. The root of the commitments gives the *challenge*, k rows of random elements.
3. It shows k *responses*: the combinations of its polynomials by the rows of the challenge, each plus one of the k.
4. A holder's row passes if its combinations, plus its blinds, are the values of the responses at its point.

**Soundness.** Let U + 1 rows that were committed to lie on no such polynomials. One word of the dual code shows it in
some column, so that all k combinations of these rows lie on polynomials with probability p**-k. Of M holders there are
binomial(M, U + 1) such sets. k is such that rows which do not belong together pass for all of a set with a probability
of at most 2**-100 for each root. A dealer can try roots offline: 2**60 of them leave 2**-40.

**Zero knowledge.** The responses are uniform among the polynomials that fit what T holders have of the blinds, so that
T holders and whoever sees the responses learn nothing but the T rows. That needs a challenge that follows from the
root: whoever chose another could have a holder test a combination of its choice.
"""

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import PRIME, Elements, product, reduced, uniform, vandermonde

SECURITY_BITS = 100
"""Of one root."""
ROOT_BYTES = 32

_CHALLENGE_DOMAIN = b"testbed/share-test/challenge/v1"
_ROOT_DOMAIN = b"testbed/share-test/root/v1"


@dataclass(frozen=True)
class ShareTest:
    """The test of shares by one code to one number of holders.

    Attributes:
        code: how elements are shared.
        holders: M, how many shares there are.
    """

    code: MaskCode
    holders: int

    @property
    def combinations(self) -> int:
        """k, combinations that are tested, and blinds of a row."""
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
        """`(U, row_length)` the coefficients of what is shared, and of the blinding polynomials.

        Args:
            elements: `(d,)` what is shared.
            seed: 32 secret bytes, for these elements alone, as in `MaskCode.shared`.
            blinding_seed: 32 secret bytes, for this test alone.
        """
        blinding = uniform(blinding_seed, self.response_length).reshape(self.code.needed, self.combinations)
        return np.concatenate([self.code.polynomials(elements, seed), blinding], axis=1)

    def challenge(self, root: bytes, context: bytes) -> Elements:
        """`(k, piece_length)` the factors of each column in each combination.

        Args:
            root: of the commitments to the rows (`root_of`).
            context: all else that the dealer could vary, of one length.
        """
        code = self.code
        statement = (code.length, code.needed, code.private, self.holders, self.combinations)
        numbers = b"".join(number.to_bytes(8, "big") for number in statement)
        seed = hashlib.sha256(_CHALLENGE_DOMAIN + numbers + context + root).digest()
        return uniform(seed, self.combinations * self.code.piece_length).reshape(self.combinations, -1)

    def response(self, polynomials: Elements, challenge: Elements) -> Elements:
        """`(k, U)` the coefficients of the combined polynomials.

        Args:
            polynomials: `(U, row_length)`, as `polynomials` returns them.
            challenge: `(k, piece_length)`.
        """
        shared, blinding = np.split(polynomials, [self.code.piece_length], axis=1)
        return reduced(product(challenge, shared.T).astype(np.uint64) + blinding.T)

    def values(self, responses: Elements, points: tuple[int, ...]) -> Elements:
        """`(n, k, M)` the values of n dealers' responses at the holders' points, which a passing row has.

        Args:
            responses: `(n, k, U)`.
            points: of the M holders.
        """
        dealers, combinations, needed = responses.shape
        flat = product(responses.reshape(-1, needed), vandermonde(points, needed))
        return flat.reshape(dealers, combinations, len(points))

    def passes(self, rows: Elements, challenges: Sequence[Elements], values: Elements) -> npt.NDArray[np.bool_]:
        """`(n,)` whether one holder's rows pass, of n dealers.

        Args:
            rows: `(n, row_length)`.
            challenges: of each dealer, `(k, piece_length)`.
            values: `(n, k)` of each dealer's responses, at the holder's point.
        """
        length = self.code.piece_length
        passed = np.empty(len(rows), np.bool_)
        for place, (row, challenge) in enumerate(zip(rows, challenges, strict=True)):
            combined = reduced(challenge.astype(np.uint64) * row[:length]).sum(axis=1, dtype=np.uint64)
            combined += row[length:]
            passed[place] = np.array_equal(combined % np.uint64(PRIME), values[place])
        return passed


def root_of(commitments: Sequence[bytes]) -> bytes:
    """32 bytes that commit to all of these commitments, in their order."""
    return hashlib.sha256(_ROOT_DOMAIN + b"".join(commitments)).digest()


@functools.lru_cache(maxsize=64)
def _combinations(holders: int, needed: int) -> int:
    sets = max(1, math.comb(holders, needed + 1))
    return math.ceil((SECURITY_BITS + math.log2(sets)) / math.log2(PRIME))
