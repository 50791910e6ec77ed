"""Messages under the masks of `ring_lwe`: several elements in a coefficient, above the errors.

A coefficient is ``(x_1 + x_2 2**w + ... + x_K 2**((K - 1) w)) 2**shift`` (Willow also packs its inputs this way). Sums
of n coefficients can be decoded if each sum of elements stays below 2**w and the sum of n errors within 2**(shift - 1):
then no element carries into the next, and nothing wraps modulo q, since ``K w + shift`` is less than the bits of q.
"""

from dataclasses import dataclass
from math import ceil, log, sqrt

import numpy as np
import numpy.typing as npt

from testbed.crypto import OpeningFailed
from testbed.crypto.negacyclic_ntt import DEGREE
from testbed.crypto.ring_lwe import DEVIATION, MODULUS, PRIMES, gaussian, products

USABLE_BITS = MODULUS.bit_length() - 1
LEAST_SHIFT = 11
"""Bits for the errors of 250 clients (`noise_bound`)."""
MOST_WIDTH = 31
MOST_CLIENTS = 1 << 24
"""Limit: the coefficients of the sum of that many keys stay within 2**30 of zero, as `negacyclic_ntt` requires."""

_FAILURE_BITS = 40
_COEFFICIENT_BITS = 31  # 2**31 coefficients are more than the message of an update can hold
# A discrete Gaussian is sub-Gaussian with its own sigma (Canonne, Kamath, Steinke, The Discrete Gaussian for
# Differential Privacy, NeurIPS 2020, Fact 19), so a sum of n exceeds t with probability at most
# 2 exp(-t**2 / (2 n sigma**2)). Over 2**31 coefficients this is 2**-40 for t = sigma sqrt(2 n 72 ln 2).
_BOUND_OF_ONE = DEVIATION * sqrt(2 * (_FAILURE_BITS + _COEFFICIENT_BITS + 1) * log(2))
_CHUNK = 1 << 14  # coefficients computed at once: they fit a core's cache
_FIELD = np.uint64(31)
_OTHER_KEY = "this key does not open the sum: the remainder is larger than the errors of that many clients"


def noise_bound(clients: int) -> int:
    """Return a bound on the coefficients of the sum of `clients` errors; exceeded with probability 2**-40 overall."""
    return ceil(_BOUND_OF_ONE * sqrt(clients))


@dataclass(frozen=True)
class Packing:
    """The layout of elements in coefficients.

    Attributes:
        width: w, bits of a sum of elements, 1 to 31.

    Example:
        >>> packing, key = Packing(width=20), key_of(bytes(32))
        >>> masked = packing.masked(np.array([7, 9], np.uint32), key, error_seed=bytes(31) + b"1", seed=bytes(32))
        >>> packing.unmasked(masked.astype(np.uint64), key, bytes(32), elements=2, clients=1).tolist()
        [7, 9]
    """

    width: int

    def __post_init__(self) -> None:
        """Raise `ValueError` for a width that is out of range."""
        if not 1 <= self.width <= MOST_WIDTH:
            raise ValueError(f"a sum has 1 to {MOST_WIDTH} bits, not {self.width}")

    @property
    def together(self) -> int:
        """K, elements in a coefficient."""
        return (USABLE_BITS - LEAST_SHIFT) // self.width

    @property
    def shift(self) -> int:
        """Bits below the elements, for the errors: all bits that the elements leave."""
        return USABLE_BITS - self.together * self.width

    @property
    def most_clients(self) -> int:
        """Largest number of clients with room for their errors (`noise_bound`)."""
        return min(MOST_CLIENTS, int(((2 ** (self.shift - 1) - 1) / _BOUND_OF_ONE) ** 2))

    def coefficients(self, elements: int) -> int:
        """Return the number of coefficients that hold this many elements."""
        return -(-elements // self.together)

    def masked(
        self, elements: npt.NDArray[np.unsignedinteger], key: npt.NDArray[np.int64], error_seed: bytes, seed: bytes
    ) -> npt.NDArray[np.uint32]:
        """Return the masked elements modulo each of the primes, `(3, C)`.

        Args:
            elements: `(d,)`, each below 2**width. Coefficient c has the elements c, c + C, c + 2 C, ...
            key: `(4096,)` of the mask.
            error_seed: 32 secret bytes, used once.
            seed: of the public polynomials.
        """
        count = self.coefficients(len(elements))
        masked = products(key, seed, count)
        self.add(masked, elements, gaussian(error_seed, count))
        return masked

    def add(
        self,
        masks: npt.NDArray[np.uint32],
        elements: npt.NDArray[np.unsignedinteger],
        errors: npt.NDArray[np.int8],
    ) -> None:
        """Add elements and errors to masks, modulo each of the primes, in place.

        Args:
            masks: `(3, C)`.
            elements: `(d,)`, each below 2**width.
            errors: `(C,)`.
        """
        count = masks.shape[1]
        for prime, row in zip(PRIMES, masks, strict=True):
            factors = [np.uint64(pow(2, self.shift + k * self.width, prime)) for k in range(self.together)]
            for begin in range(0, count, _CHUNK):
                target = row[begin : begin + _CHUNK]
                summed = target.astype(np.uint64)
                # Errors may be negative and words are unsigned: add the prime.
                summed += (errors[begin : begin + len(target)].astype(np.int64) + prime).view(np.uint64)
                for k, factor in enumerate(factors):
                    part = elements[k * count + begin : min((k + 1) * count, k * count + begin + len(target))]
                    # At most K 2**(w + 31) in all, below 2**64: one reduction at the end suffices.
                    summed[: len(part)] += part.astype(np.uint64) * factor
                target[:] = _reduced(summed, prime)

    def unmasked(
        self, total: npt.NDArray[np.uint64], key: npt.NDArray[np.int64], seed: bytes, elements: int, clients: int
    ) -> npt.NDArray[np.uint64]:
        """Return the sums of elements, `(d,)`, from sums of `masked` results.

        Under another key than the sum of the keys, coefficients are nearly uniform. One of them passes for a
        coefficient of a sum with probability at most ``(2 noise_bound + 1) / 2**shift``. Without spare room for errors
        this is near 1; then only the bit above the elements and the unused elements reveal a wrong key.

        Args:
            total: `(3, C)` sums modulo 2**64, of fewer than 2**32 clients.
            key: `(4096,)` the sum of the keys.
            seed: of the public polynomials.
            elements: d.
            clients: n, clients in the sum.

        Raises:
            OpeningFailed: errors are larger than those of n clients, or an unused position is not zero.
        """
        masks = products(key, seed, total.shape[1])
        half = 1 << (self.shift - 1)
        first, second, third = (
            # Add half of the errors' range, since a field is unsigned; add the prime, since a mask may exceed the row.
            _reduced(_reduced(row, prime) + np.uint64(prime + half % prime) - mask, prime)
            for prime, row, mask in zip(PRIMES, total, masks, strict=True)
        )
        low, high = _joined(first, second, third)
        errors = _field(low, high, 0, self.shift).astype(np.int64) - half
        if int(np.abs(errors).max(initial=0)) > noise_bound(clients) or (high >> np.uint64(USABLE_BITS - 31)).any():
            raise OpeningFailed(_OTHER_KEY)
        sums = np.empty((self.together, total.shape[1]), np.uint64)
        for k in range(self.together):
            sums[k] = _field(low, high, self.shift + k * self.width, self.width)
        # Unused positions are zero in every message; a wrong key fills them.
        if sums.reshape(-1)[elements:].any():
            raise OpeningFailed(_OTHER_KEY)
        return sums.reshape(-1)[:elements]


def key_of(seed: bytes) -> npt.NDArray[np.int64]:
    """Return the key of 32 secret bytes, `(4096,)`."""
    return gaussian(seed, DEGREE).astype(np.int64)


def _reduced(words: npt.NDArray[np.uint64], prime: int) -> npt.NDArray[np.uint64]:
    return words - words // np.uint64(prime) * np.uint64(prime)  # division by a constant: faster than the remainder


def _joined(
    first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64], third: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return the number below q with these residues, as ``low + high * 2**31`` (Garner's mixed radix)."""
    p, q, r = PRIMES
    second = _reduced(_reduced(second + np.uint64(q) - first % np.uint64(q), q) * np.uint64(pow(p, -1, q)), q)
    third = _reduced(_reduced(third + np.uint64(r) - first % np.uint64(r), r) * np.uint64(pow(p, -1, r)), r)
    third = _reduced(_reduced(third + np.uint64(r) - second % np.uint64(r), r) * np.uint64(pow(q, -1, r)), r)
    # first + second p + third p q, where p q = upper 2**31 + lower
    upper, lower = np.uint64(p * q >> 31), np.uint64(p * q & (1 << 31) - 1)
    low = first + second * np.uint64(p) + third * lower
    return low & np.uint64((1 << 31) - 1), (low >> _FIELD) + third * upper


def _field(low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64], begin: int, width: int) -> npt.NDArray[np.uint64]:
    """Return bits `begin` to ``begin + width`` of ``low + high * 2**31``, at most 31 of them."""
    if begin >= 31:
        bits = high >> np.uint64(begin - 31)
    else:
        bits = low >> np.uint64(begin) | high << np.uint64(31 - begin)
    return bits & np.uint64((1 << width) - 1)
