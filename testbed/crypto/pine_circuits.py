"""What is to hold of a measurement of PINE: draft-chen-cfrg-vdaf-pine-01, section 4; see `testbed.crypto.pine`.

A measurement is the vector; V, the squared norm, and B**2 - V in bits; for each wraparound check its product less its
least value in bits, and a bit that says that it has succeeded; and last the products themselves, which the aggregators
compute from their shares.
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
        chunk: squares to a gadget.
        checks: of wraparound.
        check_bound: what a product is at most; it is above the negative of that. A power of two.
        successes: checks that a valid measurement says to have passed.
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
        """Of the bits that the norm has."""
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
        """`(norm_bits_length,)` V, and B**2 - V; of what does not fit, the lowest bits."""
        residues = field64.from_signed(vector)
        squared = int(field64.total(field64.multiply(residues, residues)))
        both = squared, (self.norm_bound**2 - squared) % PRIME
        return np.concatenate([bits_of(value, self.norm_width) for value in both])

    def product_bits(self, products: list[int]) -> Elements:
        """`(checks (check_width + 1),)` those of each check; of what does not fit, the lowest bits.

        The last bit of a check says that it has succeeded: of the first `successes` whose product is in range.
        """
        in_range = np.array([-self.check_bound < product <= self.check_bound for product in products])
        succeeded = (in_range & (np.cumsum(in_range) <= self.successes)).astype(np.uint64)
        rows = [bits_of(product + self.check_bound - 1, self.check_width) for product in products]
        return np.concatenate([np.append(row, bit) for row, bit in zip(rows, succeeded, strict=True)])

    def magnitude(self, vector: npt.NDArray[np.int64]) -> int:
        """Bits of the vector's elements, with their sign."""
        return 1 + max(int(vector.max(initial=0)), -int(vector.min(initial=0))).bit_length()


@dataclass(frozen=True)
class RemainingChecks:
    """Bits are bits, V is at most B**2, products are in range, and as many checks as there must have succeeded.

    Attributes:
        norm: what the measurement consists of.
        chunk: products to a gadget.
        joint: random elements that it takes.
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
        scaled = field64.multiply(field64.powers(int(joint[0]), len(bits)), bits)
        of_bits = np.stack([scaled, field64.subtract(bits, field64.element(share))], axis=1)
        least = (norm.check_bound - 1) * share
        differing = [
            (int(product) - integer(some) + least) % PRIME
            for product, some in zip(measurement[norm.dimension + norm.bits :], self._checks(bits), strict=True)
        ]
        weights = field64.powers(int(joint[1]), norm.checks)
        of_checks = np.stack([field64.multiply(weights, np.array(differing, np.uint64)), self._successes(bits)], axis=1)
        wide = 2 * self.chunk
        return np.concatenate([chunked(pairs.reshape(-1), wide) for pairs in (of_bits, of_checks)])

    def output(self, measurement: Elements, joint: Elements, outputs: Elements, shares: int) -> int:
        norm, share, final = self.norm, pow(shares, -1, PRIME), int(joint[2])
        bits = measurement[norm.dimension : norm.dimension + norm.bits]
        both = integer(bits[: norm.norm_width]) + integer(bits[norm.norm_width : norm.norm_bits_length])
        of_bits, of_checks = np.split(outputs, [self._calls_for_bits])
        to_be_zero = (
            int(field64.total(of_bits)),
            both - norm.norm_bound**2 * share,
            int(field64.total(of_checks)),
            int(field64.total(self._successes(bits))) - norm.successes * share,
        )
        return sum(pow(final, power, PRIME) * value for power, value in enumerate(to_be_zero)) % PRIME

    def _rows(self, bits: Elements) -> Elements:
        return bits[self.norm.norm_bits_length :].reshape(self.norm.checks, self.norm.check_width + 1)

    def _checks(self, bits: Elements) -> Iterator[Elements]:
        return iter(self._rows(bits)[:, :-1])

    def _successes(self, bits: Elements) -> Elements:
        return self._rows(bits)[:, -1]


def chunked(elements: Elements, width: int) -> Elements:
    """`(n, width)` rows of them, the last one filled up with zeros."""
    rows = -(-len(elements) // width)
    found = np.zeros((rows, width), np.uint64)
    found.reshape(-1)[: len(elements)] = elements
    return found


def bits_of(value: int, width: int) -> Elements:
    """`(width,)` the lowest bits, the lowest first."""
    return np.array([value >> place & 1 for place in range(width)], np.uint64)


def integer(bits: Elements) -> int:
    """What `bits_of` was given, modulo the prime; of a share of the bits, a share of it."""
    found = 0
    for place, bit in enumerate(bits.tolist()):
        found += int(bit) << place
    return found % PRIME
