"""Decisions of a server as a list of small numbers: recorded, replayed, and reduced.

Every decision is a pick among a number of options. Option 0 is always the honest decision, so a list of zeros is an
honest round, and after the end of the list all decisions are honest.
"""

import random
from collections.abc import Callable, Sequence


class Choices:
    """Source of decisions.

    Args:
        given: the first decisions (a value too large for its options counts as 0).
        source: draws the further decisions; None: all zeros.

    Attributes:
        taken: the decisions so far.
    """

    def __init__(self, given: Sequence[int] = (), source: random.Random | None = None) -> None:
        self._given = given
        self._source = source
        self._honest = 0.5  # probability of option 0, beside its share of the rest, unless a pick says otherwise
        self.taken: list[int] = []

    def begin(self) -> None:
        """Begin a stage: the server deviates often in some stages, and rarely in most.

        Otherwise clients would refuse nearly every round.
        """
        if self._source is not None and len(self.taken) >= len(self._given):
            self._honest = self._source.choice((0.97, 0.95, 0.6, 0.2))

    def pick(self, options: int, honest: float | None = None) -> int:
        """Return a number from 0 to options - 1."""
        at, chosen = len(self.taken), 0
        if at < len(self._given):
            chosen = self._given[at] if self._given[at] < options else 0
        elif self._source is not None and options > 1:
            stay = self._honest if honest is None else honest
            chosen = 0 if self._source.random() < stay else self._source.randrange(options)
        self.taken.append(chosen)
        return chosen

    def some(self, of: Sequence[int], least: int = 0) -> frozenset[int]:
        """Return a subset of at least `least`: all (0), all but one, one half, exactly `least`, or any."""
        form, clients = self.pick(5), list(of)
        if form == 0 or len(clients) <= least:
            return frozenset(clients)
        if form == 1:
            left_out = self.pick(len(clients), 0)
            return frozenset(clients[:left_out] + clients[left_out + 1 :])
        if form in (2, 3):
            size = max(least, len(clients) // 2) if form == 2 else least
            begin = self.pick(len(clients), 0)
            return frozenset((clients[begin:] + clients[:begin])[:size])
        kept = [client for client in clients if not self.pick(2, 0.3)]
        kept += [client for client in clients if client not in kept][: max(0, least - len(kept))]
        return frozenset(kept)

    def exactly(self, of: Sequence[int], size: int) -> frozenset[int]:
        """Return any subset of this size."""
        left = list(of)
        taken: list[int] = []
        while left and len(taken) < size:
            taken.append(left.pop(self.pick(len(left), 0)))
        return frozenset(taken)

    def parted(self, clients: Sequence[int], stories: int) -> dict[int, int]:
        """Assign each client one of the stories: one client another story, the first few, or any assignment."""
        form = self.pick(3, 0)
        if form == 0:
            other = self.pick(len(clients), 0)
            return {client: int(place == other) for place, client in enumerate(clients)}
        if form == 1:
            begin = self.pick(len(clients), 0)
            return {client: int(place >= begin) for place, client in enumerate(clients)}
        return {client: self.pick(stories, 0) for client in clients}


def fewer(decisions: Sequence[int], still: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return a shorter and more honest list for which `still` holds, too."""
    found = _without_zeros_at_the_end(decisions)
    size = max(1, len(found) // 2)
    while size:
        changed = False
        for begin in range(0, len(found), size):
            candidate = [*found[:begin], *([0] * len(found[begin : begin + size])), *found[begin + size :]]
            if candidate != found and still(candidate):
                found, changed = _without_zeros_at_the_end(candidate), True
                break
        if not changed:
            size //= 2
    for place in range(len(found)):
        for lower in range(found[place]):
            candidate = [*found[:place], lower, *found[place + 1 :]]
            if still(candidate):
                found = candidate
                break
    return _without_zeros_at_the_end(found)


def _without_zeros_at_the_end(decisions: Sequence[int]) -> list[int]:
    kept = list(decisions)
    while kept and not kept[-1]:
        kept.pop()
    return kept
