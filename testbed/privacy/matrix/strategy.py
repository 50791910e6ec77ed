"""How a strategy's noise is made, a round at a time: C^-1 z from what earlier rounds have left.

Both recurrences solve C w = z for the newest w, from the top: a BLT keeps a vector for each buffer (Dvijotham et al.,
arXiv 2404.16706, Algorithm 1), a band keeps the last noise vectors. Nothing else of the past is needed, and the order
of the additions is fixed: of the same z comes the same noise, bit for bit.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from testbed.arrays import Floats
from testbed.privacy.matrix import banded, buffered
from testbed.privacy.matrix.buffered import INDEPENDENT, PREFIX_SUMS, Buffers
from testbed.privacy.matrix.toeplitz import largest_sum

Name = Literal["blt", "band", "identity", "prefix-sum"]


@dataclass(frozen=True)
class Strategy(ABC):
    """The matrix C of so many rounds.

    Attributes:
        rounds: n.
    """

    rounds: int

    @cached_property
    @abstractmethod
    def coefficients(self) -> Floats:
        """`(n,)` its first column."""

    @property
    @abstractmethod
    def vectors(self) -> int:
        """How many are kept from round to round."""

    @property
    def takes_back(self) -> bool:
        """Whether rounds take back noise of earlier ones; else that of a round without a sum need not be released."""
        return self.vectors > 0

    @cached_property
    def largest_release(self) -> float:
        """Standard deviation, over that of z, of the noise of a release, at most: its row, and those before it of
        rounds that ended early.
        """
        return largest_sum(self.coefficients) if self.takes_back else 1.0

    @abstractmethod
    def correlate(self, noise: Floats, memory: Floats, step: int) -> None:
        """Turn the independent noise of a round into its correlated noise, both in place.

        Args:
            noise: `(d,)` row `step` of z; becomes that of C^-1 z.
            kept: `(vectors, d)` what the last step has left, 0 before the first.
            step: from 0, one after the other.
        """

    def beginning(self, dimension: int) -> Floats:
        """`(vectors, d)` what is kept before the first step."""
        return np.zeros((self.vectors, dimension))


@dataclass(frozen=True)
class BufferedStrategy(Strategy):
    """A BLT; independent noise and prefix sums are two of them.

    Attributes:
        buffers: its decays and scales.
    """

    buffers: Buffers

    @cached_property
    def coefficients(self) -> Floats:
        """See `Strategy.coefficients`."""
        return self.buffers.coefficients(self.rounds)

    @property
    def vectors(self) -> int:
        """See `Strategy.vectors`."""
        return len(self.buffers.decays)

    def correlate(self, noise: Floats, memory: Floats, step: int) -> None:
        """See `Strategy.correlate`: (C w)_t = w_t + sum_i omega_i s_i, where s_i sums theta_i^(t-1-j) w_j."""
        part = np.empty_like(noise)
        for scale, own in zip(self.buffers.scales, memory, strict=True):
            noise -= np.multiply(own, scale, out=part)
        for decay, own in zip(self.buffers.decays, memory, strict=True):
            own *= decay
            own += noise


@dataclass(frozen=True)
class BandedStrategy(Strategy):
    """A band.

    Attributes:
        band: c_0 = 1, c_1, ...
    """

    band: tuple[float, ...]

    @cached_property
    def coefficients(self) -> Floats:
        """`(n,)` the band, and zeros."""
        padded = np.zeros(self.rounds)
        padded[: len(self.band)] = self.band
        return padded

    @property
    def vectors(self) -> int:
        """See `Strategy.vectors`."""
        return len(self.band) - 1

    def correlate(self, noise: Floats, memory: Floats, step: int) -> None:
        """See `Strategy.correlate`; the noise of step t is kept in row t modulo their number."""
        part = np.empty_like(noise)
        for ago, coefficient in enumerate(self.band[1:], 1):
            noise -= np.multiply(memory[(step - ago) % self.vectors], coefficient, out=part)
        if self.vectors:
            memory[step % self.vectors] = noise


@lru_cache(maxsize=64)
def strategy(
    name: Name, size: int | None, rounds: int, separation: int, participations: int, error: str = "mean"
) -> Strategy:
    """The strategy of this name, optimised for clients with so many rounds.

    Args:
        name: ``blt``, ``band``, ``identity`` (independent noise) or ``prefix-sum`` (C = A).
        size: buffers of a BLT, bands of a band (none: b, at most n); not read of the others.
        rounds: n.
        separation, participations: b and k, see `toeplitz.sensitivity`.
        error: which is made small, see `toeplitz.expected_error`.
    """
    if name == "band":
        bands = min(separation, rounds) if size is None else size
        return BandedStrategy(rounds, banded.optimised(bands, rounds, separation, participations, error))
    if name == "blt" and rounds > 1:
        assert size is not None
        return BufferedStrategy(rounds, buffered.optimised(size, rounds, separation, participations, error))
    return BufferedStrategy(rounds, PREFIX_SUMS if name == "prefix-sum" else INDEPENDENT)
