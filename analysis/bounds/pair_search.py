"""Search for the neighbouring data sets that lose most under DP-SGD with random participation.

The search covers configurations of gradients: the client's other samples in one to three groups of equal gradients, in
two or three dimensions, and the gradient of x'. All cosines are free. Norms are C and other clients silent, which is no
restriction (see `gradient_configurations`). Each restart climbs by L-BFGS with exact derivatives. Its objective is the
delta of all rounds as a function of one round's configuration, where the other rounds have the worst angled pair. That
pair is a maximum only if neither a small change of it nor another pair in some of the rounds makes delta larger.

Every pair that the search returns can occur, so its loss is a lower bound on the loss that a guarantee must allow. The
search does not prove that no worse pair exists.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from analysis.bounds import random_participation_composed as many_rounds
from analysis.bounds.gradient_configurations import GradientConfiguration, OtherRounds, round_delta, used_samples
from analysis.bounds.random_participation import Participation
from testbed.arrays import Floats

_MOST_GROUPS = 3
_ITERATIONS = 100  # of one restart
_STEPS = {2: 0.3, 3: 0.6}  # of the integrals, by dimension, in standard deviations
_FINE_STEPS = {2: 0.05, 3: 0.2}  # of the integrals that judge the result of a restart
_MOST_CELLS = 30_000_000  # components times points of two axes, for a search in three dimensions
_COSINE_STEP = 0.2  # of the integrals that find the worst angle
_COSINES = np.linspace(0.0, 1.0, 21)
_STABLE = 0.003  # change of the cosine that ends its search
_REFINEMENTS = 5
_TIED = 5e-3  # of the gain, about the error of the integrals: two configurations count as equally bad


@dataclass(frozen=True)
class WorstAngle:
    """Worst pair whose other gradients are all parallel.

    Attributes:
        cosine: between the gradient of x' and the others.
        epsilon: of all rounds.
    """

    cosine: float
    epsilon: float


@dataclass(frozen=True)
class SearchResult:
    """Worst pair of a search.

    Attributes:
        configuration: its gradients.
        gain: increase of delta by one round with that pair, over the increase by the worst angled pair.
        gains: `(restarts,)` the same of each restart's end, sorted.
        exceeds: whether the gain is above 1 by more than the error of the integrals.
    """

    configuration: GradientConfiguration
    gain: float
    gains: Floats
    exceeds: bool

    @property
    def agreeing(self) -> int:
        """Number of restarts that end within 1% of the largest gain."""
        return int((self.gains >= 0.99 * self.gain).sum())


def angled_configuration(participation: Participation, cosine: float) -> GradientConfiguration:
    """Return the configuration with parallel gradients and x' at an angle to them.

    Args:
        participation: its number of samples counts.
        cosine: in [-1, 1].
    """
    sine = float(np.sqrt(max(0.0, 1 - cosine * cosine)))
    return GradientConfiguration((participation.local_samples,), np.array([[1.0, 0.0], [cosine, sine]]))


def worst_cosine(participation: Participation, sigma: float, others: OtherRounds) -> float:
    """Return the cosine whose pair in one round makes delta of all rounds largest, to about 1e-3.

    Args:
        participation, sigma: as of `Delta`.
        others: the other rounds.
    """

    def lost(cosine: float) -> float:
        return round_delta(angled_configuration(participation, cosine), participation, sigma, others, _COSINE_STEP)[0]

    deltas = [lost(float(cosine)) for cosine in _COSINES]
    best = int(np.argmax(deltas))
    bounds = (_COSINES[max(best - 1, 0)], _COSINES[min(best + 1, len(_COSINES) - 1)])
    solution = minimize_scalar(
        lambda cosine: -lost(float(cosine)), bounds=bounds, method="bounded", options={"xatol": 1e-3}
    )
    return float(solution.x) if -solution.fun > deltas[best] else float(_COSINES[best])


def coarse_interval(rounds: int) -> float:
    """Return a distance of losses that suffices to compare pairs, not to compute epsilon."""
    return float(min(1e-3, 0.03 / np.sqrt(rounds)))


def worst_angle_of_rounds(participation: Participation, sigma: float, delta: float, rounds: int) -> WorstAngle:
    """Return the worst angled pair, the same in all rounds.

    Args:
        participation, sigma: as of `Delta`.
        delta: in (0, 1), of all rounds together.
        rounds: number of rounds.
    """
    cosine = 0.0
    for _ in range(_REFINEMENTS):
        loss = many_rounds.angled_pair(participation, sigma, cosine, coarse_interval(rounds))
        epsilon = float(loss.self_compose(rounds).get_epsilon_for_delta(delta))
        if not np.isfinite(epsilon):
            break
        previous, cosine = cosine, worst_cosine(participation, sigma, OtherRounds.alike(loss, rounds, epsilon))
        if abs(cosine - previous) < _STABLE:
            break
    loss = many_rounds.angled_pair(participation, sigma, cosine)
    return WorstAngle(cosine, float(loss.self_compose(rounds).get_epsilon_for_delta(delta)))


def search_pairs(
    participation: Participation, sigma: float, rounds: int, worst: WorstAngle, restarts: int, seed: int = 0
) -> SearchResult:
    """Search all cosines between the gradients of one to three groups of samples and x'.

    Args:
        participation, sigma: as of `Delta`.
        rounds: number of rounds; the others have the pair of `worst`.
        worst: the worst angled pair, to which the results are compared.
        restarts: random starts, at least 1.
        seed: of the starts.

    Raises:
        ValueError: if the client has no other samples, or epsilon is infinite.
    """
    if not participation.local_samples:
        raise ValueError("local_samples: 0; a search needs at least one other sample")
    if not np.isfinite(worst.epsilon):
        raise ValueError(f"sigma: {sigma}; a search needs noise that gives a finite epsilon")
    loss = many_rounds.angled_pair(participation, sigma, worst.cosine, coarse_interval(rounds))
    others = OtherRounds.alike(loss, rounds, worst.epsilon)
    angled = angled_configuration(participation, worst.cosine)

    def gain(configuration: GradientConfiguration) -> float:
        """Compare by integrals of the same dimension and step."""
        dimensions = configuration.gradients.shape[1]
        step, padding = _FINE_STEPS[dimensions], ((0, 0), (0, dimensions - 2))
        reference = GradientConfiguration(angled.sizes, np.pad(angled.gradients, padding))
        values = [round_delta(pair, participation, sigma, others, step)[0] for pair in (configuration, reference)]
        return (values[0] - others.unchanged) / (values[1] - others.unchanged)

    random = np.random.default_rng(seed)
    ends = []
    for restart in range(restarts):
        start = _random_start(participation, sigma, restart, random)
        end = _climb(start, participation, sigma, others)
        ends.append((gain(end), end))
    best, configuration = max(ends, key=lambda end: end[0])
    return SearchResult(configuration, best, np.sort([value for value, _ in ends]), best > 1 + _TIED)


def _random_start(
    participation: Participation, sigma: float, restart: int, random: np.random.Generator
) -> GradientConfiguration:
    """Return groups of random sizes, or one of a single sample, with random gradients that often point one way."""
    samples = participation.local_samples
    groups = min(1 + restart % _MOST_GROUPS, samples)
    cuts = np.sort(random.choice(np.arange(1, samples), groups - 1, replace=False)) if groups > 1 else np.empty(0, int)
    if groups > 1 and restart // _MOST_GROUPS % 2:
        cuts[0] = 1
        cuts[1:] = np.maximum(cuts[1:], 2)
    sizes = tuple(np.diff(np.concatenate([[0], cuts, [samples]])).astype(int).tolist())
    dimensions = 3 if groups > 1 and restart % 4 > 1 and _fits(participation, sigma, sizes) else 2
    gradients = random.normal(size=(groups + 1, dimensions))
    if restart % 2:
        gradients[:-1, 0] += 1.5
    return GradientConfiguration(sizes, gradients / np.linalg.norm(gradients, axis=1, keepdims=True))


def _fits(participation: Participation, sigma: float, sizes: tuple[int, ...]) -> bool:
    counts, _ = used_samples(sizes, participation.sample_rate)
    reach = 2 * counts.sum(1).max() * participation.clip / sigma + 12
    return bool(len(counts) * (reach / _STEPS[3]) ** 2 < _MOST_CELLS)


def _climb(
    start: GradientConfiguration, participation: Participation, sigma: float, others: OtherRounds
) -> GradientConfiguration:
    """Return the local maximum above a start; gradients stay on the sphere."""
    shape, step = start.gradients.shape, _STEPS[start.gradients.shape[1]]
    scale = max(others.unchanged, round_delta(start, participation, sigma, others, step)[0]) or 1.0

    def loss(flat: Floats) -> tuple[float, Floats]:
        vectors = flat.reshape(shape)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        directions = vectors / norms
        value, by_gradients = round_delta(
            GradientConfiguration(start.sizes, directions), participation, sigma, others, step
        )
        radial = (by_gradients * directions).sum(1, keepdims=True)
        gain = (value - others.unchanged) / scale
        return -1e3 * gain, (-1e3 / scale * (by_gradients - radial * directions) / norms).ravel()

    solution = minimize(loss, start.gradients.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
    vectors = solution.x.reshape(shape)
    return GradientConfiguration(start.sizes, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
