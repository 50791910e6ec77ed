"""Number-theoretic transforms of polynomials modulo X**4096 + 1, for primes below 2**31.

The transform of a polynomial is its value at the 4,096 odd powers of psi, a primitive 8,192nd root of unity modulo the
prime. A product modulo X**4096 + 1 becomes a product element by element (e.g. Longa and Naehrig, Speeding up the Number
Theoretic Transform for Faster Ideal Lattice-Based Cryptography, CANS 2016, section 2). Coefficients form a 64 x 64
matrix, and both steps of the Cooley-Tukey split are products with 64 x 64 matrices in doubles, which BLAS computes
fast. All results are exact.
"""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

DEGREE = 4096
_SIDE = 64
# Residues stay below 2**30 and limbs within 2**15 + 1, so a sum of 64 products stays within 2**51 + 2**36: doubles are
# exact in any order of summation.
_LIMB = float(1 << 15)

Residues = npt.NDArray[np.float64]
"""Integers within half the prime of zero (and 2**-10 beyond): a polynomial's 4,096 coefficients, or its values."""


@dataclass(frozen=True)
class Limbs:
    """Constants modulo the prime, split for exact products: ``high * 2**15 + low``."""

    high: Residues
    low: Residues

    @classmethod
    def of(cls, constants: Residues) -> "Limbs":
        """Split residues."""
        high = np.rint(constants / _LIMB)
        return cls(high, constants - high * _LIMB)


class Transform:
    """The transform modulo one prime, and its inverse.

    Args:
        prime: below 2**31, with a remainder of 1 modulo 8,192.

    Raises:
        ValueError: the prime has no primitive 8,192nd root of unity, or is too large.
    """

    def __init__(self, prime: int) -> None:
        if prime >= 1 << 31 or (prime - 1) % (2 * DEGREE):
            raise ValueError(f"a prime below 2**31, 1 modulo {2 * DEGREE}, is needed, not {prime}")
        self.prime = prime
        self._inverse_of_prime = 1 / prime
        self.root = _primitive_root(prime)
        rows, columns = np.arange(_SIDE)[:, None], np.arange(_SIDE)
        odd = 2 * rows + 1
        self._outer = Limbs.of(self._powers(_SIDE * odd * columns))  # (k1, n1)
        self._twiddles = Limbs.of(self._powers(odd * columns))  # (k1, n2)
        self._inner = Limbs.of(self._powers(2 * _SIDE * rows * columns))  # (n2, k2)
        self._inner_back = Limbs.of(self._powers(-2 * _SIDE * rows * columns))  # (k2, n2)
        self._twiddles_back = Limbs.of(self._powers(-odd * columns))
        # The last matrix contains the inverse's factor 1 / 4096.
        outer_back = self._powers(-_SIDE * odd * columns, pow(DEGREE, -1, prime)).T
        self._outer_back = Limbs.of(np.ascontiguousarray(outer_back))  # (n1, k1)

    def _powers(self, exponents: npt.NDArray[np.int64], factor: int = 1) -> Residues:
        """Return the root to these powers, times `factor`."""
        table = [factor]
        for _ in range(2 * DEGREE - 1):
            table.append(table[-1] * self.root % self.prime)
        return self.centred(np.array(table, np.int64)[exponents % (2 * DEGREE)])

    def centred(self, integers: npt.NDArray[np.int64]) -> Residues:
        """Return integers of any shape modulo the prime, as residues."""
        reduced = integers % self.prime
        reduced -= np.where(reduced > self.prime // 2, self.prime, 0)
        return reduced.astype(np.float64)

    def canonical(self, residues: Residues) -> npt.NDArray[np.uint32]:
        """Return the representatives from 0 to below the prime."""
        return (residues + np.where(residues < 0, self.prime, 0)).astype(np.uint32)

    def forward(self, coefficients: Residues) -> Residues:
        """Return the values of polynomials, `(b, 4096)`, in this module's own order."""
        matrices = coefficients.reshape(-1, _SIDE, _SIDE)
        outer = self._joined(self._outer.high @ matrices, self._outer.low @ matrices)
        twisted = self.product(outer, self._twiddles)
        return self._joined(twisted @ self._inner.high, twisted @ self._inner.low).reshape(-1, DEGREE)

    def inverse(self, values: Residues) -> Residues:
        """Return the coefficients, `(b, 4096)`, of polynomials from the values that `forward` returned."""
        matrices = values.reshape(-1, _SIDE, _SIDE)
        inner = self._joined(matrices @ self._inner_back.high, matrices @ self._inner_back.low)
        twisted = self.product(inner, self._twiddles_back)
        return self._joined(self._outer_back.high @ twisted, self._outer_back.low @ twisted).reshape(-1, DEGREE)

    def product(self, residues: Residues, constants: Limbs) -> Residues:
        """Multiply element by element, with numpy's broadcasting."""
        return self._joined(residues * constants.high, residues * constants.low)

    def _joined(self, high: Residues, low: Residues) -> Residues:
        """Join the products with both limbs (within 2**52) to the product; overwrites the first."""
        # Reduce before the shift by 15 bits, which would leave the exact range of doubles.
        self._near_zero(high)
        high *= _LIMB
        high += low
        self._near_zero(high)
        return high

    def _near_zero(self, values: Residues) -> None:
        """Replace integers within 2**52 by the nearest to zero that are equal modulo the prime, in place."""
        # A product is faster than a division; its rounding error matters only near a half (the 2**-10 of `Residues`).
        multiples = values * self._inverse_of_prime
        np.rint(multiples, out=multiples)
        multiples *= self.prime
        values -= multiples


@functools.cache
def transform(prime: int) -> Transform:
    """Return the transform of a prime, computed once."""
    return Transform(prime)


def _primitive_root(prime: int) -> int:
    """Return the smallest base's root of order 8,192 modulo the prime."""
    for base in range(2, prime):
        root = pow(base, (prime - 1) // (2 * DEGREE), prime)
        # -1 and not 1: the order is 8,192 itself, not a divisor.
        if pow(root, DEGREE, prime) == prime - 1:
            return root
    raise ValueError(f"{prime} is no prime")
