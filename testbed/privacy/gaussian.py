"""The Gaussian mechanism of DP-SGD: noise and sampling coins from a cryptographic key stream, and their accounting.

Each round is the Poisson-subsampled Gaussian mechanism. Rounds are composed as privacy-loss distributions (Koskela,
Jalko and Honkela 2020, arXiv 1906.03049).

Neighbours differ in one sample of one client, which one of them replaces by a null sample: a sample that is sampled
like any other and has no gradient ("zero-out"; Ponomareva et al., arXiv 2303.00654). So the number of samples of each
client is public: clients report it, and the server's step depends on the sum. The formulas are those of add-or-remove
neighbours. The server sees the sums and the participants, and not how long a client takes.

Each round in which a client takes part is the subsampled mechanism with its sample rate q (OLS of Hasircioglu and
Gunduz, arXiv 2205.01556, Theorem 5.1), because participation does not depend on the data. Before the participants are
known, a round is that mechanism with the client rate p and nothing otherwise, also for observers who see the
participants (WCS, Theorem 5.2). Theorem 4.1, which promises more, is no guarantee: see
docs/papers/random-participation.md.
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
    """Derive independent standard normal numbers from a seed.

    Args:
        seed: 32 secret bytes, used for nothing else.
        count: number of values.

    Returns:
        `(count,)` float64, the same for the same seed.
    """
    pairs = (count + 1) // 2
    words = mask(seed, 2 * pairs, 64) >> np.uint64(64 - _UNIFORM_BITS)
    uniform = (words[:pairs] + np.uint64(1)) * 2.0**-_UNIFORM_BITS  # in (0, 1]: has a logarithm
    # Box and Muller's transform of 53-bit numbers never exceeds 8.57 standard deviations; true noise does with
    # probability 1e-17 per element.
    radius = np.sqrt(-2.0 * np.log(uniform))
    angle = words[pairs:] * (2 * math.pi * 2.0**-_UNIFORM_BITS)
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count]


def with_noise(values: npt.NDArray[np.floating], sigma: float, seed: bytes) -> Floats:
    """Apply the Gaussian mechanism: add noise of standard deviation `sigma` to values, on the grid.

    Noise is exact up to 2**21, hence `sigma` up to 2**17; a larger sum is rounded afterwards.

    Args:
        values: `(d,)` finite.
        sigma: much more than the grid's step, and at most 2**17; 0 adds nothing.
        seed: 32 secret bytes, used for nothing else.

    Returns:
        `(d,)` float64, multiples of `GRID`.
    """
    # Noise in floating point can betray a value by its last bits (Mironov 2012, "On significance of the least
    # significant bits for differential privacy"). On one grid, every grid point can come from every value: the result
    # is the exact mechanism's output, rounded.
    on_grid: Floats = np.rint(np.asarray(values, np.float64) / GRID) * GRID
    if sigma:
        on_grid += np.rint(gaussian(seed, len(on_grid)) * (sigma / GRID)) * GRID
    return on_grid


def coins(seed: bytes, count: int, rate: float) -> npt.NDArray[np.bool_]:
    """Flip independent coins that are true with probability `rate` (to 2**-53), from a seed.

    Args:
        seed: 32 secret bytes, used for nothing else.
        count: number of coins.
        rate: in [0, 1].

    Returns:
        `(count,)` bool, the same for the same seed.
    """
    uniform = (mask(seed, count, 64) >> np.uint64(64 - _UNIFORM_BITS)) * 2.0**-_UNIFORM_BITS
    return uniform < rate


INTERVAL = 1e-4
"""Distance between the losses of a distribution, per round; wider where little noise makes losses large."""
_MOST_LOSSES = 200_000
_MOST_INTERVAL = 700.0  # exp of more overflows a double


class SubsampledGaussianAccountant:
    """The accountant of `dp-sgd-random-participation`.

    Args:
        noise_multiplier: standard deviation of a round's noise over the clip, sigma / C; 0: no noise.
        sample_rate: q, the probability with which a participant uses each of its samples.
        client_rate: p, the probability with which a client takes part in a counted round; 1.0 if only rounds in which
            it took part are counted.

    Example:
        >>> accountant = SubsampledGaussianAccountant(noise_multiplier=1.1, sample_rate=0.01)
        >>> round(accountant.epsilon({1.0: 1000}, delta=1e-5), 2)
        1.52
    """

    unit: ClassVar[Literal["client", "sample"]] = "sample"
    mechanism: ClassVar[str] = "dp-sgd-random-participation"

    def __init__(self, noise_multiplier: float, sample_rate: float, client_rate: float = 1.0) -> None:
        self.noise_multiplier = noise_multiplier
        self.sample_rate = sample_rate
        self.client_rate = client_rate

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """Return the epsilon of one client (`Accountant.epsilon`).

        Args:
            rounds: number of rounds by share of the noise variance. With a client rate below 1 these are all rounds,
                also those without the client.
            delta: in (0, 1).
        """
        counted = tuple(
            (self.noise_multiplier * math.sqrt(share), count) for share, count in sorted(rounds.items()) if count
        )
        return _epsilon(counted, self.sample_rate, self.client_rate, delta)


@lru_cache(maxsize=4096)
def _epsilon(counted: tuple[tuple[float, int], ...], sample_rate: float, client_rate: float, delta: float) -> float:
    """Return epsilon of `(noise multiplier, rounds)` pairs; cached, as many clients have been in as many rounds."""
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
    # dp_accounting rounds losses up, so this is an upper bound.
    return float(composed.get_epsilon_for_delta(delta))


def interval_for(noise: float) -> float:
    """Return the distance of losses that limits a round's distribution to 200,000 losses.

    Args:
        noise: noise multiplier z of the round; losses reach to about (1/2z + 12)/z.

    Returns:
        The distance; losses are rounded up to its multiples, so that a wide distance gives a larger epsilon, never one
        that is too small.
    """
    return max(INTERVAL, (0.5 / noise + 12) / noise / _MOST_LOSSES)


@lru_cache(maxsize=64)
def _round(noise: float, sample_rate: float, client_rate: float, interval: float) -> "PrivacyLossDistribution":
    """Return the privacy-loss distribution of one round."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism, identity  # takes 1.5 s

    local = from_gaussian_mechanism(noise, sampling_prob=sample_rate, value_discretization_interval=interval)
    return local if client_rate == 1 else local.compute_mixture(identity(interval), client_rate)
