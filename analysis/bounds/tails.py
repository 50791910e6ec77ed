"""Binomial tails that are right to the last digit, however small.

Guarantees lie far out in the tails, where ``1 - cdf`` is nothing but rounding. Here a tail is computed by its
definition, a sum of positive terms, taken from its largest term outwards in 160-bit floating point (MPFR, with
exponents far beyond those of a double). Nothing cancels; the result is the correctly rounded double for all but ties,
0.0 only below the smallest double (5e-324), and its logarithm is available even then.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import gmpy2

_BITS = 160
_NEGLIGIBLE = 2.0**-80  # of the sum so far: a term that small, and all that follow it, leave the double unchanged

Probability = Fraction | float


def survival(k: int, trials: int, p: Probability) -> float:
    """Return Pr[X > k] for X ~ Binomial(trials, p).

    Args:
        k: may be negative (then 1) or at least `trials` (then 0).
        trials: number of trials, at least 0.
        p: probability of success in [0, 1], taken as the exact number that it is.

    Raises:
        ValueError: if `trials` or `p` is out of range.

    Example:
        >>> survival(1, 2, 0.5)
        0.25
    """
    with _arithmetic():
        return float(_survival(k, trials, _exact(p)))


def cdf(k: int, trials: int, p: Probability) -> float:
    """Return Pr[X <= k] for X ~ Binomial(trials, p); as precise near 0 as `survival`.

    Args:
        k, trials, p: see `survival`.
    """
    with _arithmetic():
        return float(_survival(trials - k - 1, trials, 1 - _exact(p)))  # of the failures: a sum of positive terms


def log10_survival(k: int, trials: int, p: Probability) -> float:
    """Return the decimal logarithm of `survival`, also below the smallest double; -inf where it is 0.

    Args:
        k, trials, p: see `survival`.
    """
    with _arithmetic():
        exact = _exact(p)
        if not (0 < exact < 1 and trials * exact < k + 1 <= trials):
            return float(gmpy2.log10(_survival(k, trials, exact)))
        # computed apart, as the tail may be below all exponents: MPFR's functions end at about 10^-323,000,000
        largest, sum_ = _log_mass(k + 1, trials, exact), _falling_sum(k + 1, trials, exact)
        return float((largest + gmpy2.log(sum_)) / gmpy2.log(gmpy2.mpfr(10)))


def survivals(last: int, trials: int, p: Probability) -> list[float]:
    """Return Pr[X > k] for k = 0, 1, ..., `last`, in one pass.

    Args:
        last: largest k.
        trials, p: see `survival`.
    """
    with _arithmetic():
        exact = _exact(p)
        above, mass = _survival(last, trials, exact), gmpy2.mpfr(0)
        against = gmpy2.mpfr(0) if exact == 0 else _real((1 - exact) / exact)
        backwards = [float(above)]
        # From the far tail inwards, so that every step adds a positive term.
        for k in range(last, 0, -1):
            mass = mass * against * (k + 1) / (trials - k) if mass else _mass(k, trials, exact)
            above += mass
            backwards.append(float(above))
        return backwards[::-1]


def survivals_over_trials(k: int, last: int, p: Probability) -> list[float]:
    """Return Pr[X_m > k] for X_m ~ Binomial(m, p), m = 0, 1, ..., `last`, in one pass.

    Args:
        k: at least 0.
        last: largest m.
        p: see `survival`.
    """
    # With one more trial, X exceeds k if it did before, or if it was k and the trial succeeds.
    with _arithmetic():
        exact = _exact(p)
        success, failure = _real(exact), _real(1 - exact)
        above = gmpy2.mpfr(0)
        reached = success**k  # Pr[X_m = k], from m = k on
        survivals = [0.0] * min(k, last + 1)
        for m in range(k, last + 1):
            survivals.append(float(above))
            above += success * reached
            reached *= failure * (m + 1) / (m + 1 - k)
        return survivals


def cdfs_over_trials(k: int, first: int, last: int, p: Probability) -> list[float]:
    """Return Pr[X_m <= k] for X_m ~ Binomial(m, p), m = `first`, ..., `last`, in one pass.

    Args:
        k: at least 0.
        first, last: range of m, both included.
        p: see `survival`.
    """
    # With one trial fewer, X is within k if it was before, or if the others reach k and the trial succeeds.
    with _arithmetic():
        exact = _exact(p)
        within = _survival(last - k - 1, last, 1 - exact)
        backwards = [float(within)]
        # Downwards in m, since every step adds; upwards it would subtract, and small values would lose digits.
        for m in range(last - 1, first - 1, -1):
            within += _real(exact) * _mass(k, m, exact)
            backwards.append(float(within))
        return backwards[::-1]


def survival_of_sum(k: int, first: tuple[int, Probability], second: tuple[int, Probability]) -> float:
    """Return Pr[X + Y > k] for independent X and Y; time grows with k.

    Args:
        k: see `survival`.
        first, second: (trials, p) of X and Y.
    """
    with _arithmetic():
        (trials, p), (others, q) = (first[0], _exact(first[1])), (second[0], _exact(second[1]))
        above = _survival(k, trials, p)
        for i in range(min(k, trials) + 1):
            above += _mass(i, trials, p) * _survival(k - i, others, q)
        return float(above)


def masses(first: int, last: int, trials: int, p: Probability) -> list[float]:
    """Return Pr[X = i] for i = `first`, ..., `last`; X ~ Binomial(trials, p).

    Args:
        first, last: range of i, both included.
        trials, p: see `survival`.
    """
    with _arithmetic():
        exact = _exact(p)
        return [float(_mass(i, trials, exact)) for i in range(first, last + 1)]


def hypergeometric_survival(k: int, population: int, marked: int, sample: int) -> float:
    """Return Pr[X > k], X the number of marked elements in a sample without replacement.

    Args:
        k: may be negative.
        population: number of elements.
        marked: number of marked elements.
        sample: size of the sample.
    """
    with _arithmetic():
        return float(_hypergeometric_survival(k, population, marked, sample))


def log10_hypergeometric_survival(k: int, population: int, marked: int, sample: int) -> float:
    """Return the decimal logarithm of `hypergeometric_survival`; -inf where it is 0.

    Args:
        k, population, marked, sample: see `hypergeometric_survival`.
    """
    with _arithmetic():
        return float(gmpy2.log10(_hypergeometric_survival(k, population, marked, sample)))


def hypergeometric_masses(first: int, last: int, population: int, marked: int, sample: int) -> list[float]:
    """Return Pr[X = i] for i = `first`, ..., `last`; X as in `hypergeometric_survival`.

    Args:
        first, last: range of i, both included.
        population, marked, sample: see `hypergeometric_survival`.
    """
    with _arithmetic():
        return [float(_hypergeometric_mass(i, population, marked, sample)) for i in range(first, last + 1)]


def _hypergeometric_mass(i: int, population: int, marked: int, sample: int) -> Any:
    if not max(0, sample + marked - population) <= i <= min(marked, sample):
        return gmpy2.mpfr(0)
    log_ways = _log_ways(marked, i) + _log_ways(population - marked, sample - i)
    return gmpy2.exp(log_ways - _log_ways(population, sample))


def _hypergeometric_survival(k: int, population: int, marked: int, sample: int) -> Any:
    first, last = max(k + 1, sample + marked - population, 0), min(marked, sample)
    if k < max(0, sample + marked - population):
        return gmpy2.mpfr(1)
    term = total = _hypergeometric_mass(first, population, marked, sample)
    for i in range(first, last):
        term *= gmpy2.mpfr((marked - i) * (sample - i)) / ((i + 1) * (population - marked - sample + i + 1))
        total += term
        # The terms rise up to the mode: a small term may end the sum only behind it.
        if term < total * _NEGLIGIBLE and (marked - i) * (sample - i) < (i + 1) * (population - marked - sample + i):
            break
    return total


def _log_ways(of: int, taken: int) -> Any:
    """Return the natural logarithm of C(of, taken)."""
    return gmpy2.lgamma(of + 1)[0] - gmpy2.lgamma(taken + 1)[0] - gmpy2.lgamma(of - taken + 1)[0]


@contextmanager
def _arithmetic() -> Iterator[None]:
    # Tails may be as small as 10^-1,000,000, and the exponents of doubles end at 10^-308.
    with gmpy2.context(precision=_BITS, emin=gmpy2.get_emin_min(), emax=gmpy2.get_emax_max()):
        yield


def _exact(p: Probability) -> Fraction:
    if not 0 <= p <= 1:
        raise ValueError(f"p: {p} is not a probability")
    return Fraction(p)


def _survival(k: int, trials: int, p: Fraction) -> Any:
    """Return Pr[X > k] in MPFR."""
    if trials < 0:
        raise ValueError(f"trials: {trials}; must be at least 0")
    if k < 0:
        return gmpy2.mpfr(1)
    if k >= trials or p == 0:
        return gmpy2.mpfr(0)
    if p == 1:
        return gmpy2.mpfr(1)
    if k + 1 > trials * p:  # the terms fall from the first on
        return _mass(k + 1, trials, p) * _falling_sum(k + 1, trials, p)
    below = _mass(k, trials, p) * _falling_sum(trials - k, trials, 1 - p)
    return 1 - below  # at least about a half: nothing is lost


def _falling_sum(first: int, trials: int, p: Fraction) -> Any:
    """Return the sum of Pr[X = i] over i >= first, in units of Pr[X = first]; the terms fall.

    At most about ten standard deviations of terms count: half a million for 10^10 trials.
    """
    odds = _real(p / (1 - p))
    term = total = gmpy2.mpfr(1)
    for i in range(first, trials):
        term *= odds * (trials - i) / (i + 1)
        total += term
        if term < total * _NEGLIGIBLE:
            break
    return total


def _mass(i: int, trials: int, p: Fraction) -> Any:
    """Return Pr[X = i] in MPFR; 0 below about 10^-323,000,000."""
    if i > trials or p in (0, 1):
        return gmpy2.mpfr(i == trials * p)
    return gmpy2.exp(_log_mass(i, trials, p))


def _log_mass(i: int, trials: int, p: Fraction) -> Any:
    """Return the natural logarithm of Pr[X = i], for 0 <= i <= trials and 0 < p < 1."""
    ways = gmpy2.lgamma(trials + 1)[0] - gmpy2.lgamma(i + 1)[0] - gmpy2.lgamma(trials - i + 1)[0]
    return ways + i * gmpy2.log(_real(p)) + (trials - i) * gmpy2.log(_real(1 - p))


def _real(value: Fraction) -> Any:
    return gmpy2.mpfr(gmpy2.mpq(value.numerator, value.denominator))
