"""How many sets of K users a strategy can have whose multi-round privacy is T: Multi-RoundSecAgg, appendix C.

Users that are always chosen together form a group (the classes of equal columns of the strategy's matrix). By (5) every
group that is ever chosen has at least T users, and a set is a union of groups. So the sets of a strategy are among the
unions with K users, and the largest strategy of a grouping is all of them.
"""

from collections.abc import Iterator
from functools import cache


@cache
def best_groups(users: int, selected: int, privacy: int) -> int:
    """The most sets of exactly K users, over all groupings of up to N users into groups of T or more.

    Args:
        users: N.
        selected: K.
        privacy: T.
    """
    return max((unions(sizes, selected) for sizes in groupings(users, privacy)), default=0)


def groupings(users: int, smallest: int) -> Iterator[tuple[int, ...]]:
    """Sizes of groups, ascending, each at least `smallest`, of up to so many users; the others are never chosen."""
    yield ()
    for size in range(smallest, users + 1):
        for rest in groupings(users - size, size):
            yield (size, *rest)


def unions(sizes: tuple[int, ...], selected: int) -> int:
    """How many sets of groups have `selected` users together."""
    ways = [1, *[0] * selected]
    for size in sizes:
        for total in range(selected, size - 1, -1):
            ways[total] += ways[total - size]
    return ways[selected]
