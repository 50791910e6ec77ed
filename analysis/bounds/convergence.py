"""Convergence of batch partition: Theorem 2 of Multi-RoundSecAgg, as printed and repaired.

So et al., arXiv 2106.03328, Theorem 2 and appendix B, after Li, Huang, Yang, Wang, Zhang, On the Convergence of FedAvg
on Non-IID Data, arXiv 1907.02189.

Losses L_1, ..., L_N are rho-smooth and mu-strongly convex, all users weigh 1/N, step j has the learning rate
2 / (mu (gamma + j)), and all users drop out with the same probability. Four things in the paper do not follow; the
comments below name them. `printed` is the paper's bound with the corrected Gamma; `repaired` has batches in beta and
the mean over the number M of completed rounds.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from analysis.bounds.checks import require_at_least, require_positive
from testbed.arrays import Floats

_LEAST_CONVEXITY = 1e-12  # of the smoothness


@dataclass(frozen=True)
class Problem:
    """The constants of the losses in Theorem 2.

    Attributes:
        smoothness: rho.
        convexity: mu, in (0, rho].
        gradient_variance: mean over the users of sigma_i^2, the variance of their stochastic gradients.
        gradient_bound: G^2, bound on the mean squared norm of stochastic gradients.
        heterogeneity: Gamma = L* - (1/N) sum L_i*, at least 0; 0 when all losses have the same minimiser.
        initial_distance: E ||x_0 - x*||^2.
    """

    smoothness: float
    convexity: float
    gradient_variance: float
    gradient_bound: float
    # The paper prints L* - sum L_i*, which changes if a constant is added to all losses; that of Li et al. does not.
    heterogeneity: float
    initial_distance: float

    def __post_init__(self) -> None:
        require_positive(smoothness=self.smoothness, convexity=self.convexity)
        if self.convexity > self.smoothness:
            raise ValueError(f"convexity: mu = {self.convexity:g} is above rho = {self.smoothness:g}")
        if self.convexity < _LEAST_CONVEXITY * self.smoothness:
            raise ValueError(
                f"convexity: mu = {self.convexity:g}; must be at least {_LEAST_CONVEXITY:g} of rho = "
                f"{self.smoothness:g}: with less the bound says nothing"
            )
        require_at_least(
            0,
            gradient_variance=self.gradient_variance,
            gradient_bound=self.gradient_bound,
            heterogeneity=self.heterogeneity,
            initial_distance=self.initial_distance,
        )

    def gamma(self, local_steps: int) -> float:
        """Return max(8 rho / mu, E)."""
        return max(8 * self.smoothness / self.convexity, float(local_steps))


def printed(problem: Problem, users: int, selected: int, local_steps: int, completed: float, rounds: int) -> float:
    """Return Theorem 2's bound on E[L(x_J)] - L*, equation (8), with the mean in Gamma.

    Args:
        problem: the losses.
        users: N.
        selected: K, at most N.
        local_steps: E, at least 1.
        completed: C / K, the share of rounds that are not skipped.
        rounds: J.
    """
    _check(users, selected, 1, local_steps, completed, rounds)
    return float(_rate(problem, local_steps, _beta(problem, users, selected, 1, local_steps), completed * rounds))


def repaired(
    problem: Problem, users: int, selected: int, privacy: int, local_steps: int, completed: float, rounds: int
) -> float:
    """Return the bound that the proof gives for batches of T and a random number of completed rounds.

    Args:
        problem, users, selected, local_steps, completed, rounds: see `printed`.
        privacy: T, which divides N and K.
    """
    _check(users, selected, privacy, local_steps, completed, rounds)
    beta = _beta(problem, users, selected, privacy, local_steps)
    # Equation (24) puts the mean C J / K in the place of M. The rate is convex in M: by Jensen that is too small.
    counts = np.arange(rounds + 1)
    rates = _rate(problem, local_steps, beta, counts.astype(np.float64))
    return float(binom.pmf(counts, rounds, completed) @ rates)


def _beta(problem: Problem, users: int, selected: int, privacy: int, local_steps: int) -> float:
    if selected == users:
        return 0.0
    # The printed beta has T = 1: K users chosen one by one (Li et al., Lemma 5). Members of a batch come together, and
    # the same argument over N/T batches gives up to T times as much. Real variances exceed the printed
    # one (tests: T = 8).
    spread = 4 * privacy * (users - selected) / (selected * (users - privacy))
    return spread * local_steps**2 * problem.gradient_bound


def _rate(problem: Problem, local_steps: int, beta: float, completed: Floats | float) -> Floats | float:
    rho, mu, gamma = problem.smoothness, problem.convexity, problem.gamma(local_steps)
    drift = 8 * (local_steps - 1) ** 2 * problem.gradient_bound
    # The mean of sigma_i^2, as printed, where Li et al. have 1/N of it: larger, so this is still a bound.
    alpha = problem.gradient_variance + 6 * rho * problem.heterogeneity + drift
    start = gamma / 2 * problem.initial_distance
    return rho / (gamma + completed * local_steps - 1) * (2 * (alpha + beta) / mu**2 + start)


def _check(users: int, selected: int, privacy: int, local_steps: int, completed: float, rounds: int) -> None:
    if not 1 <= selected <= users:
        raise ValueError(f"selected: K = {selected} of {users} users")
    if selected % privacy or users % privacy:
        raise ValueError(f"privacy: T = {privacy} must divide K = {selected} and N = {users} in Theorem 2")
    require_at_least(1, local_steps=local_steps)
    if not 0 <= completed <= 1:
        raise ValueError(f"completed: {completed:g} is not a share of the rounds")
    require_at_least(0, rounds=rounds)
