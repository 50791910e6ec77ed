"""Number of sets of K users that a strategy with multi-round privacy T can have: Multi-RoundSecAgg, appendix C.

Users that are always chosen together form a group (the classes of equal columns of the strategy's matrix). By (5) every
group that is ever chosen has at least T users, and a set is a union of groups. So the sets of a strategy are among the
unions with K users, and the largest strategy of a grouping consists of all these unions.
"""

from collections.abc import Iterator
from functools import cache


@cache
def best_groups(users: int, selected: int, privacy: int) -> int:
    """Return the most sets of exactly K users, over all groupings of up to N users into groups of T or more.

    Args:
        users: N.
        selected: K.
        privacy: T.
    """
    return max((unions(sizes, selected) for sizes in groupings(users, privacy)), default=0)


def groupings(users: int, smallest: int) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of groups, ascending, for all groupings of up to `users` users; the others are never chosen.

    Args:
        users: N.
        smallest: least size of a group.
    """
    yield ()
    for size in range(smallest, users + 1):
        for rest in groupings(users - size, size):  # no smaller size: each multiset once
            yield (size, *rest)


def unions(sizes: tuple[int, ...], selected: int) -> int:
    """Count the sets of groups that have `selected` users together.

    Args:
        sizes: sizes of the groups.
        selected: K.
    """
    ways = [1, *[0] * selected]
    for size in sizes:
        for total in range(selected, size - 1, -1):  # downwards: each group at most once
            ways[total] += ways[total - size]
    return ways[selected]
