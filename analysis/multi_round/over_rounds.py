"""Metrics after every round of a run, and the weak privacy with its certificate."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.multi_round.bound_search import BoundSearch, Progress, no_progress
from analysis.multi_round.participation import Integers, cardinalities, checked, fairness_gaps, strong_privacies
from analysis.multi_round.row_spaces import Chain
from testbed.arrays import Floats

TIME_LIMIT_S = 60.0
NOTHING = "nothing reachable"


@dataclass(frozen=True)
class WeakPrivacy:
    """Weak multi-round privacy T, or bounds on it.

    Attributes:
        value: fewest clients in any combination of the search; attained exactly by `combination`.
        lower_bound: no reachable combination has fewer clients.
        combination: `(rounds,)` integers z with `value` non-zero entries in P^T z; None if P is all zero, or if the
            combination was not stored.
        proof: method that proved the lower bound (see `analysis.multi_round`).
    """

    value: int
    lower_bound: int
    combination: tuple[int, ...] | None = None
    proof: str = field(default=NOTHING, compare=False)

    @property
    def certified(self) -> bool:
        """Whether `value` is T."""
        return self.value == self.lower_bound


@dataclass(frozen=True)
class OverRounds:
    """Metrics after each round; every array has one entry per round.

    Attributes:
        strong: int64, T of equation (5); N while nothing is reachable.
        weak: int64, fewest clients in any combination of the search.
        lower_bound: int64, no reachable combination has fewer clients; equal to `weak` where `weak` is T.
        rank: int64, rank of P(t).
        fairness: float64, F(t).
        fairness_completed: float64, F(t) over the rounds that gave a sum.
        cardinality: float64, C(t).
        proof: methods that proved the lower bounds.
    """

    strong: Integers
    weak: Integers
    lower_bound: Integers
    rank: Integers
    fairness: Floats
    fairness_completed: Floats
    cardinality: Floats
    proof: tuple[str, ...]
    _combinations: dict[int, tuple[int, ...]]
    _basis: Integers

    def __len__(self) -> int:
        return len(self.weak)

    @property
    def certified(self) -> npt.NDArray[np.bool_]:
        """Mask `(rounds,)` of the rounds in which `weak` is the weak T of Remark 1."""
        certified: npt.NDArray[np.bool_] = self.lower_bound == self.weak
        return certified

    def combination(self, number: int) -> dict[int, int]:
        """Return the coefficients by round of a combination that attains `weak`; empty if nothing is reachable.

        Args:
            number: round after which `weak` is attained, from 0.
        """
        combination = self._combinations.get(int(self.rank[number]), ())
        rounds = self._basis[: len(combination)].tolist()
        return {place: value for place, value in zip(rounds, combination, strict=True) if value}

    def frame(self) -> pd.DataFrame:
        """Return one row per round: its number (from 1), the metrics under their names here, certified and proof."""
        names = (
            "strong", "weak", "lower_bound", "certified", "rank", "fairness", "fairness_completed", "cardinality",
        )  # fmt: skip
        columns: dict[str, Any] = {name: getattr(self, name) for name in names}
        return pd.DataFrame({"round": np.arange(1, len(self) + 1), **columns, "proof": list(self.proof)})


def over_rounds(
    participation: npt.ArrayLike, time_limit_s: float = TIME_LIMIT_S, progress: Progress = no_progress
) -> OverRounds:
    """Compute all metrics after every round.

    Args:
        participation: `(rounds, clients)` bool or 0/1.
        time_limit_s: seconds of processor time for the searches for the weak privacy. It decides how many rounds have a
            certificate, not the certificates. Elimination takes additional time (a fraction of a second for 120
            clients).
        progress: function that is called with a line before each step that takes time.

    Raises:
        ValueError: `participation` is not a matrix of zeros and ones.
    """
    matrix = checked(participation)
    rounds, clients = matrix.shape
    chain = Chain.of(matrix)
    states = BoundSearch(chain, progress=progress).run(time_limit_s)
    weak, bound = np.full(rounds, clients, np.int64), np.full(rounds, clients, np.int64)
    proof = [NOTHING] * rounds
    for number in np.flatnonzero(chain.ranks):  # before the first sum nothing is reachable: T = N
        state = states[int(chain.ranks[number])]
        weak[number], bound[number], proof[number] = state.word.weight, state.lower_bound, state.proof
    return OverRounds(
        strong=strong_privacies(matrix),
        weak=weak,
        lower_bound=bound,
        rank=chain.ranks,
        fairness=fairness_gaps(matrix),
        fairness_completed=fairness_gaps(matrix, completed_only=True),
        cardinality=cardinalities(matrix),
        proof=tuple(proof),
        _combinations={rank: state.word.combination for rank, state in states.items()},
        _basis=chain.basis,
    )


def weak_privacy(
    participation: npt.ArrayLike, time_limit_s: float = 2.0, progress: Progress = no_progress
) -> WeakPrivacy:
    """Return the weak T of Remark 1: the fewest clients with non-zero coefficient in a reachable combination.

    If P is all zero, nothing is reachable, and the result is the number of clients, certified.

    Args:
        participation: `(rounds, clients)` bool or 0/1.
        time_limit_s: seconds of processor time for the searches; certified values do not depend on it. Elimination
            takes additional time (milliseconds; seconds for a rank of several hundred).
        progress: function that is called with a line before each step that takes time.

    Raises:
        ValueError: `participation` is not a matrix of zeros and ones.

    Example:
        >>> weak_privacy([[1, 1, 1, 0], [1, 1, 0, 0]]).value  # the difference of the two sums is client 2's update
        1
    """
    matrix = checked(participation)
    rounds, clients = matrix.shape
    chain = Chain.of(matrix)
    rank = len(chain.basis)
    if not rank:
        return WeakPrivacy(clients, clients)
    state = BoundSearch(chain, [rank], progress).run(time_limit_s)[rank]
    combination = [0] * rounds
    # A word of an earlier, smaller space has fewer coefficients.
    for row, coefficient in zip(chain.basis.tolist(), state.word.combination, strict=False):
        combination[row] = coefficient
    return WeakPrivacy(state.word.weight, state.lower_bound, tuple(combination), state.proof)
