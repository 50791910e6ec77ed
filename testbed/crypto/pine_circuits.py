"""The checks of a PINE measurement: draft-chen-cfrg-vdaf-pine-01, section 4; see `testbed.crypto.pine`.

A measurement is the vector; V (the squared norm) and B**2 - V in bits; for each wraparound check the bits of its
product minus the smallest allowed product, and a bit that marks success; and last the products themselves, which the
aggregators compute from their shares.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.crypto import field64
from testbed.crypto.field64 import PRIME, Elements
from testbed.crypto.linear_proofs import Products, Squares


@dataclass(frozen=True)
class NormEquality:
    """V is the squared norm, modulo the prime.

    Attributes:
        dimension: d.
        norm_bound: B.
        chunk: squares in a gadget.
        checks: wraparound checks.
        check_bound: upper bound of products, which are also above its negative. A power of two.
        successes: checks that a valid measurement passes.
    """

    dimension: int
    norm_bound: int
    chunk: int
    checks: int
    check_bound: int
    successes: int

    @cached_property
    def gadget(self) -> Squares:
        return Squares(self.chunk)

    @property
    def calls(self) -> int:
        return -(-self.dimension // self.chunk)

    @property
    def norm_width(self) -> int:
        """Bits of a squared norm."""
        return (self.norm_bound**2).bit_length()

    @property
    def norm_bits_length(self) -> int:
        """Number of bits for V and B**2 - V."""
        return 2 * self.norm_width

    @property
    def check_width(self) -> int:
        """Bits of a product."""
        return (2 * self.check_bound - 1).bit_length()

    @property
    def bits(self) -> int:
        """Elements of a measurement that are bits."""
        return self.norm_bits_length + self.checks * (self.check_width + 1)

    def inputs(self, measurement: Elements, joint: Elements, shares: int) -> Elements:
        return chunked(measurement[: self.dimension], self.chunk)

    def output(self, measurement: Elements, joint: Elements, outputs: Elements, shares: int) -> int:
        first = self.dimension
        return (integer(measurement[first : first + self.norm_width]) - int(field64.total(outputs))) % PRIME

    def norm_bits(self, vector: npt.NDArray[np.int64]) -> Elements:
        """Return the bits of V and of B**2 - V, `(norm_bits_length,)`; only the lowest bits if a value does not fit."""
        residues = field64.from_signed(vector)
        squared = int(field64.total(field64.multiply(residues, residues)))
        both = squared, (self.norm_bound**2 - squared) % PRIME
        return np.concatenate([bits_of(value, self.norm_width) for value in both])

    def product_bits(self, products: list[int]) -> Elements:
        """Return the bits of each check, `(checks (check_width + 1),)`; only the lowest bits if a product does not fit.

        The last bit of a check marks success: it is set for the first `successes` checks with a product in range.
        """
        in_range = np.array([-self.check_bound < product <= self.check_bound for product in products])
        succeeded = (in_range & (np.cumsum(in_range) <= self.successes)).astype(np.uint64)
        # The range of 2 w integers, shifted to begin at 0, is exactly the range of the bits.
        rows = [bits_of(product + self.check_bound - 1, self.check_width) for product in products]
        return np.concatenate([np.append(row, bit) for row, bit in zip(rows, succeeded, strict=True)])

    def magnitude(self, vector: npt.NDArray[np.int64]) -> int:
        """Return the bits of the vector's elements, including the sign."""
        return 1 + max(int(vector.max(initial=0)), -int(vector.min(initial=0))).bit_length()


@dataclass(frozen=True)
class RemainingChecks:
    """Bits are bits, V is at most B**2, products are in range, and exactly the required number of checks succeeds.

    Attributes:
        norm: layout of the measurement.
        chunk: products in a gadget.
        joint: number of random elements.
    """

    norm: NormEquality
    chunk: int
    joint: int = 3

    @cached_property
    def gadget(self) -> Products:
        return Products(self.chunk)

    @property
    def calls(self) -> int:
        return self._calls_for_bits - (-self.norm.checks // self.chunk)

    @property
    def _calls_for_bits(self) -> int:
        return -(-self.norm.bits // self.chunk)

    def inputs(self, measurement: Elements, joint: Elements, shares: int) -> Elements:
        norm, share = self.norm, pow(shares, -1, PRIME)
        bits = measurement[norm.dimension : norm.dimension + norm.bits]
        # The sum of r**i b_i (b_i - 1) is zero if all b_i are bits; else with probability at most n / p.
        scaled = field64.multiply(field64.powers(int(joint[0]), len(bits)), bits)
        # A public constant is shared as 1 / shares of it, so that the shares sum to it.
        of_bits = np.stack([scaled, field64.subtract(bits, field64.element(share))], axis=1)
        least = (norm.check_bound - 1) * share
        differing = [
            (int(product) - integer(some) + least) % PRIME
            for product, some in zip(measurement[norm.dimension + norm.bits :], self._checks(bits), strict=True)
        ]
        weights = field64.powers(int(joint[1]), norm.checks)
        # Difference times success bit: a check counts only where the client claims success.
        of_checks = np.stack([field64.multiply(weights, np.array(differing, np.uint64)), self._successes(bits)], axis=1)
        wide = 2 * self.chunk
        return np.concatenate([chunked(pairs.reshape(-1), wide) for pairs in (of_bits, of_checks)])

    def output(self, measurement: Elements, joint: Elements, outputs: Elements, shares: int) -> int:
        norm, share, final = self.norm, pow(shares, -1, PRIME), int(joint[2])
        bits = measurement[norm.dimension : norm.dimension + norm.bits]
        # V and B**2 - V have only bits, so neither is negative: V is at most B**2.
        both = integer(bits[: norm.norm_width]) + integer(bits[norm.norm_width : norm.norm_bits_length])
        of_bits, of_checks = np.split(outputs, [self._calls_for_bits])
        to_be_zero = (
            int(field64.total(of_bits)),
            both - norm.norm_bound**2 * share,
            int(field64.total(of_checks)),
            int(field64.total(self._successes(bits))) - norm.successes * share,
        )
        # Powers of a random element: values that are not all zero sum to zero with probability at most 3 / p.
        return sum(pow(final, power, PRIME) * value for power, value in enumerate(to_be_zero)) % PRIME

    def _rows(self, bits: Elements) -> Elements:
        return bits[self.norm.norm_bits_length :].reshape(self.norm.checks, self.norm.check_width + 1)

    def _checks(self, bits: Elements) -> Iterator[Elements]:
        return iter(self._rows(bits)[:, :-1])

    def _successes(self, bits: Elements) -> Elements:
        return self._rows(bits)[:, -1]


def chunked(elements: Elements, width: int) -> Elements:
    """Return elements as rows, `(n, width)`, the last row padded with zeros.

    Args:
        elements: `(d,)`.
        width: of a row.
    """
    rows = -(-len(elements) // width)
    padded = np.zeros((rows, width), np.uint64)
    padded.reshape(-1)[: len(elements)] = elements
    return padded


def bits_of(value: int, width: int) -> Elements:
    """Return the lowest bits of a value, the lowest first.

    Args:
        value: not negative.
        width: number of bits.

    Returns:
        `(width,)` uint64.

    Example:
        >>> bits_of(6, 4).tolist()
        [0, 1, 1, 0]
    """
    return np.array([value >> place & 1 for place in range(width)], np.uint64)


def integer(bits: Elements) -> int:
    """Return the integer of bits from `bits_of`, modulo the prime; for a share of the bits, a share of it."""
    value = 0
    for place, bit in enumerate(bits.tolist()):
        value += int(bit) << place
    return value % PRIME
