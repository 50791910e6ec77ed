"""Random check-ins: Balle, Kairouz, McMahan, Thakkar, Thakurta, Privacy Amplification via Random Check-Ins, NeurIPS
2020, arXiv 2007.06605, section 3 (fixed window).

There are m steps. A client has one sample, checks in with probability p0 at one step that it draws uniformly, and sends
its update through a local randomiser; at every step the server takes the update of one of those who have come, and
makes a dummy where nobody has.

The formulas of `fixed_window` and `fixed_window_approximate` are those of the theorem on the fixed window **as known to
the authors of this project, who had no copy of the paper to compare them with**; tests check the former against exact
divergences. `pure_privacy_assumed` is not theirs.
"""

from collections.abc import Callable
from math import exp, inf, log

import numpy as np
from scipy.optimize import brentq

from analysis.bounds.random_participation import gaussian_delta
from testbed.arrays import Floats

_LOCAL = np.geomspace(1e-4, 40, 10_000)  # local epsilons among which the best is looked for


def fixed_window(local_epsilon: float, rate: float, steps: int, delta: float) -> float:
    """The epsilon of all steps together at `delta`, for local randomisers of pure differential privacy.

    Args:
        local_epsilon: eps0.
        rate: p0, with which a client checks in.
        steps: m.
        delta: in (0, 1).
    """
    return float(_over_local(np.array([local_epsilon]), rate, steps, delta)[0])


def fixed_window_approximate(sigma: float, rate: float, steps: int, delta: float) -> float:
    """The same for Gaussian local randomisers, which have approximate differential privacy only: as published.

    A randomiser of (eps0, delta0) is near one of 8 eps0. With delta1 such that
    delta0 <= (1 - e^-eps0) delta1 / (4 e^eps0 (2 + ln(2 / delta1) / ln(1 / (1 - e^(-5 eps0))))), epsilon is that of
    8 eps0, at delta + m (e^epsilon + 1) delta1. Least over eps0, half of delta for either part.

    Args:
        sigma: of the noise that a client adds, over the clipping norm.
        rate: p0.
        steps: m.
        delta: in (0, 1).
    """
    epsilon = _over_local(8 * _LOCAL, rate, steps, delta / 2)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        delta1 = delta / 2 / steps / (np.exp(epsilon) + 1)
        until = 2 + np.log(2 / delta1) / -np.log(-np.expm1(-5 * _LOCAL))
        allowed = -np.expm1(-_LOCAL) * delta1 / (4 * np.exp(_LOCAL) * until)
    there = (allowed > 0) & (gaussian_delta(_LOCAL, 1 / sigma) <= allowed)
    return float(epsilon[there].min(initial=inf))


def pure_privacy_assumed(sigma: float, rate: float, steps: int, delta: float) -> float:
    """More than Balle et al. claim: (eps0, delta0) is taken for pure eps0, at delta + delta0. No guarantee.

    Least over how delta is split.

    Args:
        sigma: of the noise that a client adds, over the clipping norm.
        rate: p0.
        steps: m.
        delta: in (0, 1).
    """
    rest = delta - gaussian_delta(_LOCAL, 1 / sigma)
    kept = rest > 0
    return float(_over_local(_LOCAL[kept], rate, steps, rest[kept]).min(initial=inf))


def _over_local(local: Floats, rate: float, steps: int, delta: float | Floats) -> Floats:
    """`fixed_window` for `(k,)` local epsilons."""
    with np.errstate(over="ignore"):  # inf: too much to say anything
        grown = np.exp(local) * np.square(np.expm1(local))
        return rate**2 * grown / (2 * steps) + rate * np.sqrt(2 * grown * np.log(1 / np.asarray(delta)) / steps)


def steps_to(bound: Callable[[int], float], target: float, most: int = 10**30) -> float:
    """The steps at which a bound that falls with them is `target`; inf where it never is up to `most`."""
    if bound(most) > target:
        return inf
    if bound(1) <= target:
        return 1.0
    return float(exp(brentq(lambda x: bound(round(exp(x))) - target, 0.0, log(most), xtol=1e-4)))
