"""The Gaussian mechanism of DP-SGD: its noise and the coins of sampling, from a cryptographic key stream, and what its
rounds cost.

Noise in floating point can betray what it hides by its last bits (Mironov 2012, "On significance of the least
significant bits for differential privacy"): not every number is a sum of this value and some noise. Here values and
noise lie on one grid of 2**-32 before they are added, so that every grid point can come from every value, and what is
sent is the exact Gaussian mechanism's output rounded: post-processing. What is left is how well the noise follows its
distribution: it is made of 53-bit uniform numbers by Box and Muller's transform in 64-bit floating point, and never
beyond 8.57 standard deviations, which true noise is with probability 1e-17 per element.

Its rounds are the Poisson-subsampled Gaussian mechanism, composed: privacy-loss distributions (Koskela, Jalko and
Honkela 2020, arXiv 1906.03049), by dp_accounting, which rounds losses up: what comes out is an upper bound.

Neighbours differ in one sample of one client, which in one of them is replaced by a null sample: one that is drawn like
any other and has no gradient ("zero-out"; Ponomareva et al., arXiv 2303.00654). So it is public how many samples each
client holds: clients tell it, and the server's step depends on their sum. The formulas are those of one sample more or
less. The server sees sums and who takes part, and not how long a client takes.

Of the rounds in which a client takes part, each is the subsampled mechanism of its sample rate q (OLS of Hasircioglu
and Gunduz, arXiv 2205.01556, Theorem 5.1): who takes part does not depend on the data. Before it is known who will, a
round is that with the client rate p and nothing otherwise, also for observers who see which (WCS, Theorem 5.2).
Theorem 4.1, which promises more, is no guarantee: see docs/papers/random-participation.md.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.crypto.masks import mask

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

GRID = 2.0**-32
"""The distance between values that noise is added to; `testbed.network.sums` sums on the same grid."""

_UNIFORM_BITS = 53


def gaussian(seed: bytes, count: int) -> Floats:
    """`(count,)` independent standard normal numbers, a function of the seed.

    Args:
        seed: 32 secret bytes, used for nothing else.
        count: how many.
    """
    pairs = (count + 1) // 2
    words = mask(seed, 2 * pairs, 64) >> np.uint64(64 - _UNIFORM_BITS)
    uniform = (words[:pairs] + np.uint64(1)) * 2.0**-_UNIFORM_BITS  # in (0, 1]: has a logarithm
    radius = np.sqrt(-2.0 * np.log(uniform))
    angle = words[pairs:] * (2 * math.pi * 2.0**-_UNIFORM_BITS)
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count]


def with_noise(values: npt.NDArray[np.floating], sigma: float, seed: bytes) -> Floats:
    """`(d,)` the Gaussian mechanism: values plus independent noise of standard deviation `sigma`, on the grid.

    Noise is exact up to 2**21, hence `sigma` up to 2**17; a sum beyond that is rounded afterwards.

    Args:
        values: `(d,)` finite.
        sigma: much more than the grid's step, and at most 2**17; 0 adds nothing.
        seed: as of `gaussian`.
    """
    on_grid: Floats = np.rint(np.asarray(values, np.float64) / GRID) * GRID
    if sigma:
        on_grid += np.rint(gaussian(seed, len(on_grid)) * (sigma / GRID)) * GRID
    return on_grid


def coins(seed: bytes, count: int, rate: float) -> npt.NDArray[np.bool_]:
    """`(count,)` independent coins that are true with probability `rate` (to 2**-53), a function of the seed.

    Args:
        seed: 32 secret bytes, used for nothing else.
        count: how many.
        rate: in [0, 1].
    """
    uniform = (mask(seed, count, 64) >> np.uint64(64 - _UNIFORM_BITS)) * 2.0**-_UNIFORM_BITS
    return uniform < rate


INTERVAL = 1e-4
"""Between the losses of a distribution, per round; wider where little noise makes losses large (`interval_for`)."""
_MOST_LOSSES = 200_000
_MOST_INTERVAL = 700.0  # e to the power of more is no double


class SubsampledGaussianAccountant:
    """An `Accountant` of `dp-sgd-random-participation`.

    Args:
        noise_multiplier: standard deviation of a round's noise over the clip, sigma / C; 0: no noise.
        sample_rate: q, with which a participant uses each of its samples.
        client_rate: p, with which a client takes part in one of the rounds that are counted; 1.0: they are those in
            which it did.
    """

    unit: ClassVar[Literal["client", "sample"]] = "sample"
    mechanism: ClassVar[str] = "dp-sgd-random-participation"

    def __init__(self, noise_multiplier: float, sample_rate: float, client_rate: float = 1.0) -> None:
        self.noise_multiplier = noise_multiplier
        self.sample_rate = sample_rate
        self.client_rate = client_rate

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """See `Accountant.epsilon`. With a client rate below 1 `rounds` counts all, whether it took part or not."""
        counted = tuple(
            (self.noise_multiplier * math.sqrt(share), count) for share, count in sorted(rounds.items()) if count
        )
        return _epsilon(counted, self.sample_rate, self.client_rate, delta)


@lru_cache(maxsize=4096)
def _epsilon(counted: tuple[tuple[float, int], ...], sample_rate: float, client_rate: float, delta: float) -> float:
    """Epsilon of so many rounds at each noise multiplier; kept, as many clients have been in as many rounds."""
    if not counted:
        return 0.0
    if any(noise <= 0 for noise, _ in counted):
        return math.inf
    composed: PrivacyLossDistribution | None = None
    interval = interval_for(min(noise for noise, _ in counted))
    if interval > _MOST_INTERVAL:
        return math.inf
    for noise, count in counted:
        several = _round(noise, sample_rate, client_rate, interval).self_compose(count)
        composed = several if composed is None else composed.compose(several)
    assert composed is not None
    return float(composed.get_epsilon_for_delta(delta))


def interval_for(noise: float) -> float:
    """The distance of losses that keeps a round's at two hundred thousand: they reach to some (1/2z + 12)/z.

    Losses are rounded up, so a wide one gives a larger epsilon, and never one that is too small.
    """
    return max(INTERVAL, (0.5 / noise + 12) / noise / _MOST_LOSSES)


@lru_cache(maxsize=64)
def _round(noise: float, sample_rate: float, client_rate: float, interval: float) -> "PrivacyLossDistribution":
    """The loss of one round."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism, identity  # takes 1.5 s

    local = from_gaussian_mechanism(noise, sampling_prob=sample_rate, value_discretization_interval=interval)
    return local if client_rate == 1 else local.compute_mixture(identity(interval), client_rate)
