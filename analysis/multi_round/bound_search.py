"""Search for the weak privacy of every space of a chain.

T never increases from round to round. A value that is attained in a space is therefore attained in all later spaces,
and a lower bound that is proved for a space holds for all earlier spaces. A method is applied to the largest space with
an unproved value first, and then by bisection.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.multi_round import dependent_columns, mixed_integer, small_codes
from analysis.multi_round.row_spaces import Chain, Space, Word

_LARGEST_PROGRAM = 40  # rank up to which the solver has a chance
_MOST_SECONDS = 10.0
_FEW_COLUMNS = 4  # size of the sets of columns that are tried first


@dataclass
class BoundState:
    """Best word and best lower bound for the space of one rank.

    Attributes:
        word: the lightest word so far.
        lower_bound: weight in clients; no word is lighter.
        proof: method that proved the lower bound.
    """

    word: Word
    lower_bound: int
    proof: str

    @property
    def proved(self) -> bool:
        """Whether the word is the lightest of the space."""
        return self.lower_bound == self.word.weight


Progress = Callable[[str], None]
"""Function that is called with one line before a step that takes time."""


def no_progress(line: str) -> None:
    """Ignore a line of progress."""


class BoundSearch:
    """Search for the lightest word of each space of a chain, within a time limit.

    Args:
        chain: the spaces.
        ranks: ranks of the spaces to search, ascending; None: all.
        progress: function that is called with the name of each step.
    """

    def __init__(self, chain: Chain, ranks: Sequence[int] | None = None, progress: Progress = no_progress) -> None:
        self._chain = chain
        self._progress = progress
        self._spaces: dict[int, Space] = {}
        self._attempts: set[tuple[str, int]] = set()
        self.ranks = list(range(1, len(chain.basis) + 1)) if ranks is None else list(ranks)
        self.states = {rank: self._first(rank) for rank in self.ranks}
        self._spread()

    def run(self, time_limit_s: float) -> dict[int, BoundState]:
        """Apply the methods, the cheap ones first, and return the states by rank.

        Args:
            time_limit_s: seconds of this thread's processor time, so that the load of the machine does not change the
                result.
        """
        deadline = time.thread_time() + time_limit_s
        # Large sets of columns take longest, so they come late; twice, since lighter words open new largest spaces.
        quick = (self._few_columns, self._modulo_2, self._modulo_3)
        for method in (*quick, self._columns, self._columns, self._program):
            self._sweep(method, deadline)
        return self.states

    def _first(self, rank: int) -> BoundState:
        """Return the state before any search: every word contains a class, and the smallest class may be isolated."""
        space = self._space(rank)
        word, smallest = self._chain.words[rank - 1], int(space.sizes.min())
        if word.weight > smallest and rank == len(space.sizes):  # every vector is reachable
            word = space.within([int(space.sizes.argmin())])
        return BoundState(word, smallest, "smallest class")

    def _space(self, rank: int) -> Space:
        if rank not in self._spaces:
            self._spaces[rank] = self._chain.space(rank)
        return self._spaces[rank]

    def _sweep(self, method: Callable[[int, float], None], deadline: float) -> None:
        """Apply `method` to as few spaces as needed: for each value the largest space first, then by bisection."""
        for value, ranks in self._open():
            left, right = 0, len(ranks) - 1
            middle = right
            while left <= right and time.thread_time() < deadline:
                state = self.states[ranks[middle]]
                attempt = (method.__name__, ranks[middle])
                if not state.proved and attempt not in self._attempts:
                    self._attempts.add(attempt)
                    method(ranks[middle], deadline)
                    self._spread()
                if state.lower_bound >= value:
                    left = middle + 1
                else:
                    right = middle - 1
                middle = (left + right) // 2

    def _open(self) -> list[tuple[int, list[int]]]:
        """Return the values that are not proved with their ranks, the smallest value first."""
        values: dict[int, list[int]] = {}
        for rank in self.ranks:
            if not self.states[rank].proved:
                values.setdefault(self.states[rank].word.weight, []).append(rank)
        return sorted(values.items())

    def _spread(self) -> None:
        """Carry words to later spaces and proofs to earlier spaces."""
        lightest: Word | None = None
        for rank in self.ranks:
            state = self.states[rank]
            # A space contains all earlier ones, so a word of it is a word of every later space.
            if lightest is None or state.word.weight < lightest.weight:
                lightest = state.word
            state.word = lightest
        for rank, later in zip(self.ranks[-2::-1], self.ranks[:0:-1], strict=True):
            # And a word that a later space does not have is in no earlier space.
            if self.states[later].lower_bound > self.states[rank].lower_bound:
                self.states[rank].lower_bound = self.states[later].lower_bound
                self.states[rank].proof = self.states[later].proof

    def _improve(self, rank: int, bound: int, proof: str, support: Sequence[int] | None = None) -> None:
        state = self.states[rank]
        if support is not None:
            word = self._space(rank).within(support)
            if word.weight < state.word.weight:
                state.word = word
        # A bound above the attained weight would be an error of floating point, not a proof.
        if state.lower_bound < bound <= state.word.weight:
            state.lower_bound, state.proof = bound, proof

    # -- the methods --------------------------------------------------------------------------------------------------

    def _few_columns(self, rank: int, deadline: float) -> None:
        self._exhaust(rank, deadline, _FEW_COLUMNS)

    def _columns(self, rank: int, deadline: float) -> None:
        self._exhaust(rank, deadline, dependent_columns.MOST_CLASSES)

    def _exhaust(self, rank: int, deadline: float, most: int) -> None:
        space, state = self._space(rank), self.states[rank]
        if min(dependent_columns.reach(space, most), state.word.weight) <= state.lower_bound:
            return
        self._progress(f"rank {rank}: dependent columns")
        exhausted = dependent_columns.exhaust(space, state.word.weight, deadline, most)
        self._improve(rank, exhausted.lower_bound, "dependent columns", exhausted.support)

    def _modulo_2(self, rank: int, deadline: float) -> None:
        self._modulo(2, rank)

    def _modulo_3(self, rank: int, deadline: float) -> None:
        self._modulo(3, rank)

    def _modulo(self, prime: int, rank: int) -> None:
        code = small_codes.Code.of(self._space(rank), prime)
        if code is not None:
            self._progress(f"rank {rank}: code modulo {prime}")
            state = self.states[rank]
            bound = small_codes.lower_bound(code, state.word.weight, state.lower_bound)
            self._improve(rank, bound, f"code modulo {prime}")

    def _program(self, rank: int, deadline: float) -> None:
        if rank > _LARGEST_PROGRAM:
            return
        self._progress(f"rank {rank}: mixed integer program")
        # The remaining spaces share the time, and nothing can stop the solver before its time is up.
        seconds = min(_MOST_SECONDS, max(0.0, deadline - time.thread_time()) / (1 if len(self.ranks) == 1 else 2))
        solved = mixed_integer.solve(self._space(rank), seconds)
        self._improve(rank, solved.lower_bound, "mixed integer program", solved.support)
