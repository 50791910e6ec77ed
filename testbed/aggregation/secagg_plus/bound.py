"""Failure bound of `secagg-plus`: the number of neighbours, and the number of them that must remain.

Source: Bell, Bonawitz, Gascon, Lepoint, Raykova: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS
2020 (IACR ePrint 2020/704), section 3: the tails of hypergeometric distributions, and the Harary graph that stays
connected.

The graph is a circle in random order; the neighbours of a client are the k/2 nearest on either side. Of s participants
c = floor(dishonest s) are dishonest and d = floor(dropouts s) drop out, chosen without regard to the order. Let m = k +
1, a client and its neighbours, which hold its shares. Three events count as failures:

- *contradiction*: some honest client has 2t - m or more dishonest neighbours. With a server that tells its honest
  neighbours two different sets of survivors, they could reconstruct both of its secrets. (Each set needs t holders; an
  honest holder is told one.) This is the condition against a malicious server; against an honest-but-curious server,
  fewer than t dishonest neighbours would be enough.
- *disconnected*: the honest survivors fall apart, and the sum shows the sums of the parts. The circle breaks only where
  k/2 in a row are dishonest or dropouts, at two places at once.
- *too few*: fewer than t of a client's holders remain, and its mask cannot be removed: no result.

The first two together happen with probability at most 2**-security (half for each), the third with at most
2**-correctness. A malicious server may try lists of participants or round numbers before it takes one, 2**tries of
them: no contradiction is possible in any of these graphs, except with probability 2**-(security + 1). It also chooses
the clients that it calls dropouts, with the graph in view, and so can take the honest survivors apart. The smallest
part is bounded without probability (docs/explanation/secagg-plus-argument.md), so *disconnected* assumes a server that
reports dropouts truthfully. All probabilities are union bounds over clients, or over pairs of places, of exact tails,
summed in logarithms.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf, log
from typing import Any

import numpy as np

from testbed.arrays import Floats

_LN2 = log(2)


@dataclass(frozen=True)
class NeighbourhoodRequirements:
    """Requirements on the graph, and the probabilities with which it may fail them.

    Attributes:
        dishonest: largest fraction of dishonest participants (the paper's gamma).
        dropouts: largest fraction of dropouts (the paper's delta).
        security: sigma; the server learns more than the sum with probability at most 2**-sigma.
        correctness: eta; there is no sum with probability at most 2**-eta.
        tries: the server can try 2**tries graphs before it takes one; counts for *contradiction*.
    """

    dishonest: float
    dropouts: float
    security: float
    correctness: float
    tries: float = 0

    @property
    def contradiction_bits(self) -> float:
        """x: in one graph, a contradiction may be possible with probability at most 2**-x."""
        return self.security + 1 + self.tries

    def counts(self, participants: int) -> tuple[int, int]:
        """Return (c, d) for s participants: the dishonest ones and the dropouts."""
        dishonest, dropouts = (Fraction(str(part)) for part in (self.dishonest, self.dropouts))
        return int(dishonest * participants), int(dropouts * participants)


@dataclass(frozen=True)
class Neighbourhood:
    """Size and threshold of the neighbourhoods of a round.

    Attributes:
        participants: s.
        neighbours: k, even unless all clients are neighbours of each other.
        threshold: t, of the k + 1 holders of a client's shares (itself and its neighbours).
        survivors: fewest clients that must send their input; the bound does not cover rounds with fewer.
    """

    participants: int
    neighbours: int
    threshold: int
    survivors: int

    @property
    def complete(self) -> bool:
        """Whether all clients are neighbours of each other, as in `secagg`."""
        return self.neighbours == self.participants - 1


@dataclass(frozen=True)
class FailureBits:
    """Bounds of the failures: each happens with probability at most 2**-bits (infinite: never; <= 0: no bound)."""

    contradiction: float
    disconnected: float
    too_few: float

    def meets(self, requirements: NeighbourhoodRequirements) -> bool:
        """Return whether the requirements hold."""
        consistent = self.contradiction >= requirements.contradiction_bits
        connected = self.disconnected >= requirements.security + 1
        return consistent and connected and self.too_few >= requirements.correctness


def log_tails(total: int, marked: int, draws: int) -> tuple[Floats, Floats]:
    """Return the tails of a hypergeometric distribution X: the marked items among `draws` drawn without replacement.

    Args:
        total: number of items.
        marked: number of marked items.
        draws: number of drawn items.

    Returns:
        Two arrays `(draws+2,)`: natural logarithms of Pr[X <= x-1] and of Pr[X >= x], for x = 0 .. draws + 1.
    """
    x = np.arange(draws + 1, dtype=np.float64)
    possible = (x <= marked) & (draws - x <= total - marked)
    x = np.where(possible, x, max(0, draws - (total - marked)))  # any possible value; the result is not used
    logs = (
        _log_choose(np.float64(marked), x)
        + _log_choose(np.float64(total - marked), draws - x)
        - _log_choose(np.float64(total), np.float64(draws))
    )
    logs = np.where(possible, logs, -inf)
    below = np.concatenate(([-inf], np.logaddexp.accumulate(logs)))
    above = np.concatenate((np.logaddexp.accumulate(logs[::-1])[::-1], [-inf]))
    return np.minimum(below, 0.0), np.minimum(above, 0.0)


def _log_choose(of: "np.float64 | Floats", chosen: "np.float64 | Floats") -> Floats:
    logarithm: Floats = _log_factorial(of) - _log_factorial(chosen) - _log_factorial(of - chosen)
    return logarithm


def _log_factorial(n: "int | np.float64 | Floats") -> Any:
    from scipy.special import gammaln  # imported here, as commands that only read need not load scipy

    return gammaln(n + 1)


def failure_bits(
    participants: int, neighbours: int, threshold: int, requirements: NeighbourhoodRequirements
) -> FailureBits:
    """Return the bounds of the failures for k neighbours and threshold t.

    Args:
        participants: s.
        neighbours: k.
        threshold: t.
        requirements: fractions of dishonest clients and dropouts.
    """
    dishonest, _ = requirements.counts(participants)
    above = log_tails(participants - 1, dishonest, neighbours)[1]
    bits = _contradiction_bits(participants - dishonest, above)
    at = 2 * threshold - neighbours - 1
    return FailureBits(
        float(bits[min(max(at, 0), neighbours + 1)]),
        _disconnected_bits(participants, neighbours, requirements),
        _too_few_bits(participants, neighbours, threshold, requirements),
    )


def _contradiction_bits(honest: int, above: Floats) -> Floats:
    bits: Floats = -(np.log(max(honest, 1)) + above) / _LN2
    return bits


def _disconnected_bits(s: int, k: int, requirements: NeighbourhoodRequirements) -> float:
    """Return the union bound over pairs of places on the circle of all k clients there being dishonest or dropouts."""
    bad = min(s, sum(requirements.counts(s)))
    if k >= s - 1 or bad < k:
        return inf
    places = s * (s - k - 1) / 2
    all_bad = _log_factorial(bad) - _log_factorial(bad - k) + _log_factorial(s - k) - _log_factorial(s)
    return float(-(log(places) + all_bad) / _LN2)


def _too_few_bits(s: int, k: int, t: int, requirements: NeighbourhoodRequirements) -> float:
    """Return the union bound over dropouts (k holders) and survivors (which also hold a share of their own)."""
    gone = requirements.counts(s)[1]
    there = s - gone
    of_gone = log_tails(s - 1, there, k)[0][min(t, k + 1)] if gone else -inf
    of_survivors = log_tails(s - 1, there - 1, k)[0][min(t - 1, k + 1)]
    union = np.logaddexp((log(gone) if gone else 0.0) + of_gone, log(there) + of_survivors)
    return float(-union / _LN2)


def smallest_threshold(participants: int, neighbours: int, requirements: NeighbourhoodRequirements) -> int | None:
    """Return the smallest t that excludes contradictions; None if even t = k is unsafe.

    Args:
        participants: s.
        neighbours: k.
        requirements: properties and probabilities.
    """
    dishonest, _ = requirements.counts(participants)
    bits = _contradiction_bits(participants - dishonest, log_tails(participants - 1, dishonest, neighbours)[1])
    fitting = np.flatnonzero(bits >= requirements.contradiction_bits)  # improbable enough numbers
    t = (neighbours + 1 + max(1, int(fitting[0])) + 1) // 2
    return t if t <= neighbours else None


@lru_cache(maxsize=1024)
def smallest_neighbourhood(participants: int, requirements: NeighbourhoodRequirements) -> Neighbourhood:
    """Return the smallest even k with its smallest t that meet the requirements; k = s - 1 if none does.

    Args:
        participants: s.
        requirements: properties and probabilities.

    Raises:
        ValueError: even with k = s - 1 too few clients remain for a safe threshold.
    """
    s = participants
    gone = requirements.counts(s)[1]
    for k in range(2, s - 1, 2):
        if _disconnected_bits(s, k, requirements) < requirements.security + 1:
            continue
        t = smallest_threshold(s, k, requirements)
        if t is not None and _too_few_bits(s, k, t, requirements) >= requirements.correctness:
            return Neighbourhood(s, k, t, s - gone)
    return with_neighbours(s, s - 1, None, requirements)


def with_neighbours(
    participants: int, neighbours: int, t: int | None, requirements: NeighbourhoodRequirements
) -> Neighbourhood:
    """Return a neighbourhood of given size and threshold.

    Args:
        participants: s.
        neighbours: k; s - 1 if that is smaller.
        t: threshold, not checked; None: the smallest safe one.
        requirements: properties and probabilities.

    Raises:
        ValueError: no threshold is safe, or too few clients remain for it.
    """
    s = participants
    k = min(neighbours, s - 1)
    dishonest, gone = requirements.counts(s)
    complete = k == s - 1
    if t is None:
        t = (s + dishonest) // 2 + 1 if complete else smallest_threshold(s, k, requirements)
        if t is None or (complete and t > s - gone):
            advice = "leave out neighbours"
            if complete and t is not None:
                advice = f"with {dishonest} dishonest, at most {s - t} of {s} may drop out: lower dropouts or dishonest"
            raise ValueError(
                f"dishonest, dropouts: {dishonest} dishonest of {s} participants, {gone} dropouts and k = {k} "
                f"neighbours leave no safe threshold; {advice}"
            )
    return Neighbourhood(s, k, t, t if complete else s - gone)


def described(bits: FailureBits) -> str:
    """Return the bounds as one line of text."""
    parts = (("contradiction", bits.contradiction), ("disconnected", bits.disconnected), ("too few", bits.too_few))
    return ", ".join(f"{name} {'never' if value == inf else f'2^-{max(value, 0):.1f}'}" for name, value in parts)
