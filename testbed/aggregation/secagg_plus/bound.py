"""How many neighbours, and how many of them must remain: the failure bound of `secagg-plus`.

Bell, Bonawitz, Gascon, Lepoint, Raykova: Secure Single-Server Aggregation with (Poly)Logarithmic Overhead, CCS 2020
(IACR ePrint 2020/704), section 3: the tails of hypergeometric distributions, and the Harary graph that stays
connected. The graph is a circle in random order on which everybody has the k/2 nearest on either side as neighbours.
Of s participants c = floor(dishonest s) are dishonest and d = floor(dropouts s) drop out, whoever they are, as long
as they were chosen without regard to the order. With m = k + 1 (a client and its neighbours, who hold its shares):

- *contradiction*: some honest client has 2t - m or more dishonest neighbours, who with a server that tells its honest
  neighbours two stories could rebuild both of its secrets. (Each story needs t holders; the honest ones hear one.)
  This is the condition of the malicious server; against a curious one, fewer than t dishonest would do.
- *disconnected*: the honest survivors fall apart, and the sum shows the sums of the parts. The circle breaks only
  where k/2 in a row are dishonest or gone, at two places at once.
- *too few*: fewer than t of a client's holders remain, and its mask cannot be removed: no result.

The first two together happen with at most 2**-security (half for each), the third with at most 2**-correctness. A
malicious server may try lists of participants or round numbers before it takes one, 2**tries of them: no contradiction
is possible in any of these graphs, but with probability 2**-(security + 1). It also chooses the clients that it calls
gone, with the graph in view, and can so take the honest survivors apart. The least part is bounded without probability
(docs/explanation/secagg-plus.md), so *disconnected* is for a server that reports drop-outs as they are. All
probabilities are union bounds over clients, or over pairs of places, of exact tails, summed in logarithms.
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
    """What must hold, but for these probabilities.

    Attributes:
        dishonest: largest fraction of dishonest participants (the paper's gamma).
        dropouts: largest fraction that drops out (the paper's delta).
        security: sigma; the server learns more than the sum with at most 2**-sigma.
        correctness: eta; there is no sum with at most 2**-eta.
        tries: the server can try 2**tries graphs before it takes one; counts for *contradiction*.
    """

    dishonest: float
    dropouts: float
    security: float
    correctness: float
    tries: float = 0

    @property
    def contradiction_bits(self) -> float:
        """x, where a contradiction must be possible in one graph with probability 2**-x at most."""
        return self.security + 1 + self.tries

    def counts(self, participants: int) -> tuple[int, int]:
        """(c, d): so many dishonest and so many that drop out, of s participants."""
        dishonest, dropouts = (Fraction(str(part)) for part in (self.dishonest, self.dropouts))
        return int(dishonest * participants), int(dropouts * participants)


@dataclass(frozen=True)
class Neighbourhood:
    """How the participants of a round are connected.

    Attributes:
        participants: s.
        neighbours: k, even unless everybody is everybody's neighbour.
        threshold: t, of the k + 1 holders of a client's shares (itself and its neighbours).
        survivors: so many must send their input; fewer, and the bound does not speak of this round.
    """

    participants: int
    neighbours: int
    threshold: int
    survivors: int

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour, as in `secagg`."""
        return self.neighbours == self.participants - 1


@dataclass(frozen=True)
class FailureBits:
    """Each failure happens with at most 2**-bits (infinite: never; 0 or below: the bound says nothing)."""

    contradiction: float
    disconnected: float
    too_few: float

    def meets(self, requirements: NeighbourhoodRequirements) -> bool:
        """Whether the requirements hold."""
        consistent = self.contradiction >= requirements.contradiction_bits
        connected = self.disconnected >= requirements.security + 1
        return consistent and connected and self.too_few >= requirements.correctness


def log_tails(total: int, marked: int, draws: int) -> tuple[Floats, Floats]:
    """Tails of the number of marked things among `drawn` that are drawn without replacement.

    Returns:
        `(drawn+2,)` natural logarithms of Pr[X <= x-1] and of Pr[X >= x], for x = 0 .. drawn + 1.
    """
    x = np.arange(draws + 1, dtype=np.float64)
    possible = (x <= marked) & (draws - x <= total - marked)
    x = np.where(possible, x, max(0, draws - (total - marked)))  # any value that is possible, not looked at
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
    from scipy.special import gammaln  # here: commands that only read need not wait for scipy

    return gammaln(n + 1)


def failure_bits(
    participants: int, neighbours: int, threshold: int, requirements: NeighbourhoodRequirements
) -> FailureBits:
    """What `neighbours` and `threshold` achieve among s participants, as many dishonest and gone as required."""
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
    """Every pair of places on the circle, times the probability that all k clients there are dishonest or gone."""
    bad = min(s, sum(requirements.counts(s)))
    if k >= s - 1 or bad < k:
        return inf
    places = s * (s - k - 1) / 2
    all_bad = _log_factorial(bad) - _log_factorial(bad - k) + _log_factorial(s - k) - _log_factorial(s)
    return float(-(log(places) + all_bad) / _LN2)


def _too_few_bits(s: int, k: int, t: int, requirements: NeighbourhoodRequirements) -> float:
    """Union over those that drop out (k holders) and the survivors (they hold a share of their own, too)."""
    gone = requirements.counts(s)[1]
    there = s - gone
    of_gone = log_tails(s - 1, there, k)[0][min(t, k + 1)] if gone else -inf
    of_survivors = log_tails(s - 1, there - 1, k)[0][min(t - 1, k + 1)]
    union = np.logaddexp((log(gone) if gone else 0.0) + of_gone, log(there) + of_survivors)
    return float(-union / _LN2)


def smallest_threshold(participants: int, neighbours: int, requirements: NeighbourhoodRequirements) -> int | None:
    """The smallest t with which no honest client's holders can be told two stories; None when even t = k is unsafe."""
    dishonest, _ = requirements.counts(participants)
    bits = _contradiction_bits(participants - dishonest, log_tails(participants - 1, dishonest, neighbours)[1])
    fitting = np.flatnonzero(bits >= requirements.contradiction_bits)  # so many dishonest neighbours are too improbable
    t = (neighbours + 1 + max(1, int(fitting[0])) + 1) // 2
    return t if t <= neighbours else None


@lru_cache(maxsize=1024)
def smallest_neighbourhood(participants: int, requirements: NeighbourhoodRequirements) -> Neighbourhood:
    """The smallest even k, and its smallest t, that meet the requirements; everybody (k = s - 1) where none does.

    Raises:
        ValueError: even then too few remain for a threshold that is safe.
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
    """A neighbourhood of given size (everybody, if s is smaller) and threshold (None: the smallest that is safe).

    Raises:
        ValueError: no threshold is safe, or too few remain for it; a given one is not looked at.
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
                advice = f"so many dishonest allow at most {s - t} of {s} to drop out: lower dropouts, or dishonest"
            raise ValueError(
                f"dishonest, dropouts: {dishonest} dishonest of {s} participants, {gone} that drop out and k = {k} "
                f"neighbours leave no safe threshold; {advice}"
            )
    return Neighbourhood(s, k, t, t if complete else s - gone)


def described(bits: FailureBits) -> str:
    """One line for a person."""
    parts = (("contradiction", bits.contradiction), ("disconnected", bits.disconnected), ("too few", bits.too_few))
    return ", ".join(f"{name} {'never' if value == inf else f'2^-{max(value, 0):.1f}'}" for name, value in parts)
