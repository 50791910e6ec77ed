"""Configurations of a client's gradients in neighbouring data sets, and the loss of a round as a function of them.

Norms of C are no restriction. Let some gradients be shorter, and lengthen each by a component that is orthogonal to
all the others. A projection, with noise added, turns the longer gradients back into the shorter ones, so the longer
ones lose at least as much. Gradients of other clients add the same random sum in both data sets, which hides more. So a
configuration is given by the cosines between the client's gradients alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import pi, sqrt

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.stats import binom

from analysis.bounds.random_participation import Participation
from testbed.arrays import Floats

_NEGLIGIBLE = 1e-8  # probabilities of numbers of samples that a search leaves out
_MARGIN = 6.0  # standard deviations around the means
_TINY = 1e-290
_HARDLY = 0.01  # of the largest singular value: axes below it are left out
_LARGEST_LOSS, _SMALLEST_LOSS, _LOSS_STEP = (
    25.0,
    -3.0,
    0.01,
)  # losses of a round that the table of the others tells apart


@dataclass(frozen=True)
class GradientConfiguration:
    """Gradients of one client: groups of equal ones, and the gradient of x'.

    Attributes:
        sizes: samples in each group; together d.
        gradients: `(groups + 1, m)` vectors of norm 1 at most, in units of C; the last is that of x'.
    """

    sizes: tuple[int, ...]
    gradients: Floats

    @property
    def cosines(self) -> Floats:
        """`(groups + 1, groups + 1)` cosines between the gradients."""
        return np.asarray(self.gradients @ self.gradients.T)

    def on_principal_axes(self) -> "GradientConfiguration":
        """Return the gradients turned to their principal axes, without axes that hardly matter.

        Leaving an axis out shortens gradients, so that the result is a possible configuration, too.
        """
        _, sizes, axes = np.linalg.svd(self.gradients, full_matrices=False)
        relevant = np.arange(len(sizes)) < max(2, int((sizes > _HARDLY * sizes[0]).sum()))
        return GradientConfiguration(self.sizes, self.gradients @ axes[relevant].T)

    def means(self, participation: Participation, sigma: float) -> tuple[Floats, Floats, Floats]:
        """Return the mixture of a participant's sums.

        Args:
            participation, sigma: as of `Delta`.

        Returns:
            `(k,)` probabilities, and `(k, m)` means without and with x', in standard deviations of the noise.
        """
        counts, weights = used_samples(self.sizes, participation.sample_rate)
        unit = participation.clip / sigma
        present = unit * counts @ self.gradients[:-1]
        return weights / weights.sum(), present, present + unit * self.gradients[-1]


@lru_cache(maxsize=64)
def used_samples(sizes: tuple[int, ...], rate: float) -> tuple[Floats, Floats]:
    """Return the numbers of samples of each group that a participant uses, and their probabilities.

    Args:
        sizes: samples in each group.
        rate: probability that a sample is used.

    Returns:
        `(k, groups)` numbers and `(k,)` probabilities; negligible ones are left out.
    """
    of_group = [
        [
            (count, weight)
            for count, weight in enumerate(binom.pmf(np.arange(size + 1), size, rate))
            if weight > _NEGLIGIBLE
        ]
        for size in sizes
    ]
    combinations = [
        ([count for count, _ in combination], float(np.prod([weight for _, weight in combination])))
        for combination in product(*of_group)
    ]
    relevant = [(counts, weight) for counts, weight in combinations if weight > _NEGLIGIBLE]
    return np.array([counts for counts, _ in relevant], float), np.array([weight for _, weight in relevant])


def mixture_on_grid(weights: Floats, factors: Sequence[Floats]) -> Floats:
    """Return `sum_c weights[c] * factors[0][c] x factors[1][c] x ...` on the grid of all axes.

    Args:
        weights: `(k,)`.
        factors: for each axis, `(k, points)`.
    """
    columns = weights[:, None] * factors[0]
    for factor in factors[1:-1]:
        columns = np.einsum("cx,cy->cxy", columns, factor).reshape(len(weights), -1)
    shape = tuple(factor.shape[1] for factor in factors)
    return np.asarray((columns.T @ factors[-1]).reshape(shape) if len(factors) > 1 else columns.sum(0))


@dataclass(frozen=True)
class OtherRounds:
    """Delta of all rounds but one, by the epsilon that the one leaves them.

    With it the delta of all rounds is a mean over the loss L of the one: E[delta_others(epsilon - L)].

    Attributes:
        first, step: the least epsilon, and the distance of the following ones.
        deltas: `(n,)`, falling.
        epsilon: of all rounds together.
    """

    first: float
    step: float
    deltas: Floats
    epsilon: float

    @classmethod
    def alike(cls, loss: PrivacyLossDistribution, rounds: int, epsilon: float) -> "OtherRounds":
        """Return `rounds - 1` rounds that all have one pair.

        Args:
            loss: of one round with that pair.
            rounds: number of all rounds.
            epsilon: of all rounds together.
        """
        left = epsilon + np.arange(-_LARGEST_LOSS, -_SMALLEST_LOSS, _LOSS_STEP)
        if rounds == 1:
            deltas = np.maximum(-np.expm1(np.minimum(left, 0.0)), 0.0)
        else:
            deltas = np.asarray(loss.self_compose(rounds - 1).get_delta_for_epsilon(left))
        return cls(float(left[0]), _LOSS_STEP, deltas, epsilon)

    @property
    def unchanged(self) -> float:
        """Delta if the round in question loses nothing."""
        return float(self(np.zeros(1))[0][0])

    def __call__(self, loss: Floats) -> tuple[Floats, Floats]:
        """Return delta of the other rounds when the one has a given loss, and its derivative by that loss.

        Args:
            loss: log of the ratio of the densities.
        """
        place = np.clip((self.epsilon - loss - self.first) / self.step, 0, len(self.deltas) - 1.001)
        below = place.astype(np.int64)
        rise = self.deltas[below + 1] - self.deltas[below]
        return self.deltas[below] + (place - below) * rise, -rise / self.step


def round_delta(
    configuration: GradientConfiguration,
    participation: Participation,
    sigma: float,
    others: OtherRounds,
    step: float,
) -> tuple[float, Floats]:
    """Return the delta of all rounds if one of them has a given configuration, and its gradient.

    Args:
        configuration: the gradients; their norms need not be 1 here.
        participation, sigma: as of `Delta`.
        others: the other rounds.
        step: distance of the points of the integral, in standard deviations.

    Returns:
        delta, and `(groups + 1, m)` derivatives by the vectors of `configuration`.
    """
    p, q, unit = participation.client_rate, participation.sample_rate, participation.clip / sigma
    weights, present, with_x = configuration.means(participation, sigma)
    dimensions = present.shape[1]
    means = np.concatenate([present, with_x, np.zeros((1, dimensions))])
    axes = [
        np.arange(low - _MARGIN, high + _MARGIN, step) for low, high in zip(means.min(0), means.max(0), strict=True)
    ]

    def factors(places: Floats) -> list[Floats]:
        return [np.exp(-0.5 * (axis - places[:, index, None]) ** 2) / sqrt(2 * pi) for index, axis in enumerate(axes)]

    of_present, of_x = factors(present), factors(with_x)
    absent = mixture_on_grid(np.ones(1), factors(np.zeros((1, dimensions))))
    others_sum, x_sum = mixture_on_grid(weights, of_present), mixture_on_grid(weights, of_x)
    upper = (1 - p) * absent + p * ((1 - q) * others_sum + q * x_sum)
    lower = (1 - p) * absent + p * others_sum
    loss = np.log(upper + _TINY) - np.log(lower + _TINY)
    left, slope = others(loss)
    cell = step**dimensions
    by_upper, by_lower = left + slope, -np.exp(loss) * slope
    of_means_x = _by_means(p * q * by_upper, weights, of_x, axes, with_x)
    of_means = _by_means(p * ((1 - q) * by_upper + by_lower), weights, of_present, axes, present) + of_means_x
    counts, _ = used_samples(configuration.sizes, q)
    gradient = np.concatenate([counts.T @ of_means, of_means_x.sum(0)[None]])
    return float((upper * left).sum()) * cell, gradient * (unit * cell)


def _by_means(field: Floats, weights: Floats, factors: list[Floats], axes: list[Floats], means: Floats) -> Floats:
    """Return `(k, m)`: the integral of `field` times the derivative of each component's density by its mean."""
    derivatives = np.empty_like(means)
    slopes = [(axis - means[:, index, None]) * factors[index] for index, axis in enumerate(axes)]
    for index in range(len(axes)):
        terms = [slopes[axis] if axis == index else factors[axis] for axis in range(len(axes))]
        columns = (terms[0] @ field.reshape(len(axes[0]), -1)).reshape(len(weights), *field.shape[1:])
        for term in terms[1:]:
            columns = np.matmul(term[:, None], columns.reshape(len(weights), term.shape[1], -1))[:, 0]
        derivatives[:, index] = weights * columns[:, 0]
    return derivatives
