"""Generation of a strategy's noise, a round at a time: C^-1 z from the vectors that earlier rounds have left.

Both recurrences solve C w = z for the newest w, from the top: a BLT keeps a vector for each buffer (Dvijotham et al.,
arXiv 2404.16706, Algorithm 1), a band keeps the last noise vectors. Nothing else of the past is needed. The order of
the additions is fixed: the same z gives the same noise, bit for bit.
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
    """The matrix C of n rounds.

    Attributes:
        rounds: n.
    """

    rounds: int

    @cached_property
    @abstractmethod
    def coefficients(self) -> Floats:
        """First column of C, `(n,)`."""

    @property
    @abstractmethod
    def vectors(self) -> int:
        """Number of vectors that are kept from round to round."""

    @property
    def takes_back(self) -> bool:
        """Whether rounds cancel noise of earlier ones; if not, the noise of a round without a sum is not released."""
        return self.vectors > 0

    @cached_property
    def largest_release(self) -> float:
        """Largest standard deviation of the noise of a release, over that of z.

        A release has the noise of its own row and of the earlier rows of rounds that ended early.
        """
        return largest_sum(self.coefficients) if self.takes_back else 1.0

    @abstractmethod
    def correlate(self, noise: Floats, memory: Floats, step: int) -> None:
        """Turn the independent noise of a round into its correlated noise, in place.

        Args:
            noise: `(d,)` row `step` of z; becomes that of C^-1 z.
            memory: `(vectors, d)` left by the last step, see `beginning`; updated.
            step: from 0, one after the other.
        """

    def beginning(self, dimension: int) -> Floats:
        """Return the vectors that are kept before the first step: `(vectors, d)` zeros."""
        return np.zeros((self.vectors, dimension))


@dataclass(frozen=True)
class BufferedStrategy(Strategy):
    """A BLT; independent noise and prefix sums are two of them.

    Attributes:
        buffers: decays and scales.
    """

    buffers: Buffers

    @cached_property
    def coefficients(self) -> Floats:
        """First column of C, `(n,)`."""
        return self.buffers.coefficients(self.rounds)

    @property
    def vectors(self) -> int:
        """Number of buffers."""
        return len(self.buffers.decays)

    def correlate(self, noise: Floats, memory: Floats, step: int) -> None:
        """Turn independent into correlated noise: (C w)_t = w_t + sum_i omega_i s_i, s_i sums theta_i^(t-1-j) w_j."""
        # One buffer for all products: each has the size of the model.
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
        band: c_0 = 1, c_1, ...; the coefficients that are not 0.
    """

    band: tuple[float, ...]

    @cached_property
    def coefficients(self) -> Floats:
        """First column of C, `(n,)`: the band, and zeros."""
        padded = np.zeros(self.rounds)
        padded[: len(self.band)] = self.band
        return padded

    @property
    def vectors(self) -> int:
        """Number of noise vectors that are kept."""
        return len(self.band) - 1

    def correlate(self, noise: Floats, memory: Floats, step: int) -> None:
        """Turn independent into correlated noise; row t modulo `vectors` of the memory has the noise of step t."""
        part = np.empty_like(noise)
        for ago, coefficient in enumerate(self.band[1:], 1):
            noise -= np.multiply(memory[(step - ago) % self.vectors], coefficient, out=part)
        if self.vectors:
            memory[step % self.vectors] = noise


@lru_cache(maxsize=64)
def strategy(
    name: Name, size: int | None, rounds: int, separation: int, participations: int, error: str = "mean"
) -> Strategy:
    """Return the strategy of a name, optimised for clients with up to `participations` rounds.

    Args:
        name: ``blt``, ``band``, ``identity`` (independent noise) or ``prefix-sum`` (C = A).
        size: buffers of a BLT, bands of a band (None: b, at most n); ignored for the others.
        rounds: n.
        separation, participations: b and k, see `toeplitz.sensitivity`.
        error: the error that is minimised, see `toeplitz.expected_error`.

    Example:
        >>> band = strategy("band", size=None, rounds=16, separation=4, participations=4)
        >>> len(band.coefficients), band.vectors
        (16, 3)
    """
    if name == "band":
        bands = min(separation, rounds) if size is None else size
        return BandedStrategy(rounds, banded.optimised(bands, rounds, separation, participations, error))
    if name == "blt" and rounds > 1:
        assert size is not None
        return BufferedStrategy(rounds, buffered.optimised(size, rounds, separation, participations, error))
    return BufferedStrategy(rounds, PREFIX_SUMS if name == "prefix-sum" else INDEPENDENT)
