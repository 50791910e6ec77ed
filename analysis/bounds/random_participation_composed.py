"""Many rounds of DP-SGD with random participation: privacy-loss distributions, composed by convolution.

Koskela, Jalko, Honkela 2020 (arXiv 1906.03049). The arithmetic is dp_accounting's. Losses are put on a grid by
connecting the dots (Doroshenko et al. 2022, arXiv 2207.04380): an atom between two grid points is split so that its
mass under both distributions is kept, which never makes delta smaller, and errs with the square of the interval.

The pairs that are no guarantee are first divided into cells of the server's view, which only loses information. So the
composed `orthogonal_pair` and `as_printed` are lower bounds on the truth up to the error of the grid.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism, identity
from scipy.stats import norm

from analysis.bounds.gradient_configurations import GradientConfiguration, mixture_on_grid
from analysis.bounds.random_participation import Mixture, Participation, parallel_pair, recentred_pair
from testbed.arrays import Floats

Composed = Callable[[Participation, float], PrivacyLossDistribution]
"""Computes the loss of one round from participation and sigma; its ``self_compose`` gives that of many."""

INTERVAL = 1e-4
"""Distance of the losses of a distribution, per round."""

_REACH = 12.0  # standard deviations; the mass beyond (1e-33) counts as an infinite loss, or for a lower bound as none
_PER_DEVIATION = 64  # cells of the server's view
_PER_DEVIATION_ACROSS = 8  # cells in the direction that shows participation
_LARGEST = 30.0  # larger losses are cut to it, so that a grid has at most 600,000 points


def only_local_sampling(
    participation: Participation, sigma: float, interval: float = INTERVAL
) -> PrivacyLossDistribution:
    """Return the loss of OLS: the Poisson-subsampled Gaussian mechanism of rate q.

    Args:
        participation, sigma: as of `Delta`.
        interval: distance of the losses.
    """
    return _subsampled(participation.sample_rate, sigma / participation.clip, interval)


def weak_client_sampling(
    participation: Participation, sigma: float, interval: float = INTERVAL
) -> PrivacyLossDistribution:
    """Return the loss of WCS: that of OLS with probability p, and nothing otherwise; an observer sees which.

    Args:
        participation, sigma, interval: see `only_local_sampling`.
    """
    local = only_local_sampling(participation, sigma, interval)
    return local.compute_mixture(identity(interval), participation.client_rate)


def centralized_shuffling(
    participation: Participation, sigma: float, interval: float = INTERVAL
) -> PrivacyLossDistribution:
    """Return the loss of CS: the Poisson-subsampled Gaussian mechanism of rate p q.

    Args:
        participation, sigma, interval: see `only_local_sampling`.
    """
    return _subsampled(participation.client_rate * participation.sample_rate, sigma / participation.clip, interval)


def as_printed(participation: Participation, sigma: float, interval: float = INTERVAL) -> PrivacyLossDistribution:
    """Return the loss of Theorem 4.1's pair as published: no guarantee.

    Args:
        participation, sigma, interval: see `only_local_sampling`.
    """
    return _of_pair(*parallel_pair(participation, sigma), interval)


def recentred(participation: Participation, sigma: float, interval: float = INTERVAL) -> PrivacyLossDistribution:
    """Return the loss of Theorem 4.1's pair centred on x', as in the paper's numbers: no guarantee.

    Args:
        participation, sigma, interval: see `only_local_sampling`.
    """
    return _of_pair(*recentred_pair(participation, sigma), interval)


def orthogonal_pair(participation: Participation, sigma: float, interval: float = INTERVAL) -> PrivacyLossDistribution:
    """Return the loss of the pair of `random_participation.orthogonal_pair`, a lower bound.

    Args:
        participation, sigma, interval: see `only_local_sampling`.
    """
    q, unit = participation.sample_rate, participation.clip / sigma
    means = participation.others[0] * unit
    across = _edges(means.max(), _PER_DEVIATION_ACROSS)
    present = participation.client_rate * _masses((participation.others[1], means), across)
    observed = present + (1 - participation.client_rate) * _masses((np.ones(1), np.zeros(1)), across)
    used = observed > 0
    along = _edges(unit, _PER_DEVIATION)
    without, shifted = (_masses((np.ones(1), np.array([mean])), along) for mean in (0.0, unit))
    rate = q * present[used, None] / observed[used, None]
    upper = observed[used, None] * ((1 - rate) * without + rate * shifted)
    return _of_cells(upper.ravel(), (observed[used, None] * without).ravel(), interval)


def angled_pair(
    participation: Participation, sigma: float, cosine: float, interval: float = INTERVAL
) -> PrivacyLossDistribution:
    """Return the loss of the pair of `neighbouring_pairs.angled_pair`, a lower bound.

    Args:
        participation, sigma: as of `Delta`.
        cosine: between the gradient of x' and the client's other ones, in [-1, 1].
        interval: distance of the losses.
    """
    p, q, unit = participation.client_rate, participation.sample_rate, participation.clip / sigma
    sine = sqrt(max(0.0, 1 - cosine * cosine))
    counts, weights = participation.others
    # Here x' shows in both directions, so that cells along the others are finer than those of `orthogonal_pair`.
    along = _edges(counts.max() * unit + max(0.0, cosine) * unit, 2 * _PER_DEVIATION_ACROSS)
    across = _edges(sine * unit, _PER_DEVIATION // 2)
    absent, present, with_x = (
        _masses(mixture, along)
        for mixture in (
            (np.ones(1), np.zeros(1)),
            (weights, counts * unit),
            (weights, (counts + cosine) * unit),
        )
    )
    still, moved = (_masses((np.ones(1), np.array([mean])), across) for mean in (0.0, sine * unit))
    lower = np.outer((1 - p) * absent + p * present, still)
    upper = np.outer((1 - p) * absent + p * (1 - q) * present, still) + p * q * np.outer(with_x, moved)
    return _of_cells(upper.ravel(), lower.ravel(), interval)


def configured_pair(
    configuration: GradientConfiguration, participation: Participation, sigma: float, interval: float = INTERVAL
) -> PrivacyLossDistribution:
    """Return the loss of a configuration of gradients in two or three dimensions, a lower bound.

    Args:
        configuration: groups of equal gradients.
        participation, sigma: as of `Delta`.
        interval: distance of the losses.
    """
    p, q = participation.client_rate, participation.sample_rate
    weights, present, with_x = configuration.on_principal_axes().means(participation, sigma)
    per_deviation = 16 if present.shape[1] == 2 else 6  # cells in space are many
    means = np.concatenate([present, with_x, np.zeros((1, present.shape[1]))])
    axes = [_edges(span, per_deviation) + low for low, span in zip(means.min(0), np.ptp(means, axis=0), strict=True)]

    def masses(places: Floats, shares: Floats) -> Floats:
        factors = [_cell_masses(places[:, axis], edges) for axis, edges in enumerate(axes)]
        return mixture_on_grid(shares, factors).ravel()

    absent = masses(np.zeros((1, present.shape[1])), np.ones(1))
    others = masses(present, weights)
    upper = (1 - p) * absent + p * ((1 - q) * others + q * masses(with_x, weights))
    return _of_cells(upper, (1 - p) * absent + p * others, interval)


def _cell_masses(means: Floats, edges: Floats) -> Floats:
    """Return `(means, cells)` probabilities of normal distributions of variance 1."""
    return np.stack([_masses((np.ones(1), mean[None]), edges) for mean in means])


def _subsampled(rate: float, noise: float, interval: float) -> PrivacyLossDistribution:
    return from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=interval)


def _of_pair(upper: Mixture, lower: Mixture, interval: float) -> PrivacyLossDistribution:
    """Divide two mixtures with the same means into cells."""
    means = upper[1]
    edges = _edges(means.max() - means.min(), _PER_DEVIATION) + means.min()
    return _of_cells(_masses(upper, edges), _masses(lower, edges), interval)


def _edges(furthest: float, per_deviation: int) -> Floats:
    """Return `(cells + 1,)` edges from far below 0 to far above the furthest mean; the first and last are infinite."""
    edges = np.arange(-_REACH, furthest + _REACH, 1 / per_deviation)
    edges[0], edges[-1] = -np.inf, np.inf  # the tails count in the outer cells
    return edges


def _masses(mixture: Mixture, edges: Floats) -> Floats:
    """Return `(cells,)` probabilities, each from the side on which it does not cancel."""
    total = np.zeros(len(edges) - 1)
    for weight, mean in zip(mixture[0].tolist(), mixture[1].tolist(), strict=True):
        if not weight:
            continue
        below, above = norm.cdf(edges - mean), norm.sf(edges - mean)
        total += weight * np.where(edges[:-1] > mean, above[:-1] - above[1:], below[1:] - below[:-1])
    return total


def _of_cells(upper: Floats, lower: Floats, interval: float) -> PrivacyLossDistribution:
    """Return the privacy loss of two distributions on the same cells, in both directions."""
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.clip(np.log(upper) - np.log(lower), -_LARGEST, _LARGEST)
    return PrivacyLossDistribution(_on_grid(loss, upper, interval), _on_grid(-loss, lower, interval))


def _on_grid(loss: Floats, mass: Floats, interval: float) -> pld_pmf.PLDPmf:
    """Split `(cells,)` atoms between the two grid points beside each."""
    used = mass > 0
    loss, mass = loss[used], mass[used]
    below = np.floor(loss / interval)
    # Two equations for two shares: they keep m, and m e^-loss, the mass under the other distribution.
    to_above = mass * np.expm1(below * interval - loss) / np.expm1(-interval)
    first = int(below.min())
    place = (below - first).astype(np.int64)
    size = int(place.max()) + 2
    masses = np.bincount(place, mass - to_above, size) + np.bincount(place + 1, to_above, size)
    return pld_pmf.DensePLDPmf(interval, first, masses, 0.0, True)  # no mass at infinity: losses are cut
