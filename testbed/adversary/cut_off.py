"""Search a graph of masks for honest clients that a server can cut off by calling their honest neighbours offline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Flags = npt.NDArray[np.bool_]

_PAIRS = 64  # pairs, or groups of one size, that are checked before the next size


@dataclass(frozen=True)
class CutOff:
    """A sum of few honest clients that the server can recover, as indices into the list of participants.

    Attributes:
        group: the clients.
        offline: the honest neighbours of the group, which the server calls offline.
    """

    group: tuple[int, ...]
    offline: tuple[int, ...]


def smallest_cut_off(
    adjacency: Flags,
    dishonest: Flags,
    present: Flags,
    budget: int,
    is_accepted: Callable[[Flags], bool],
    *,
    largest: int = 12,
    member: int | None = None,
) -> CutOff | None:
    """Find a small group of honest clients that labels cut off from all other honest clients.

    Single clients and pairs are tried exhaustively; larger groups are grown greedily from each client by the client
    that adds the fewest neighbours outside.

    Args:
        adjacency: `(n, n)` the graph of masks, symmetric.
        dishonest: `(n,)` the server's accomplices.
        present: `(n,)` clients that have sent their input; only these can be labelled online.
        budget: the most clients that are present and may be labelled offline.
        is_accepted: whether honest parties accept these `(n,)` clients as online.
        largest: largest size of groups that are tried.
        member: an honest client that the group must contain; None: any.

    Returns:
        The group of the smallest size, with the fewest labels; None if there is none.
    """
    honest = present & ~dishonest
    inside = adjacency[np.ix_(honest, honest)]
    places = np.flatnonzero(honest)
    # The smallest groups first: a sum over fewer clients reveals more.
    for groups in (_single_clients(inside, budget), _pairs(inside, budget), _grown(inside, budget, largest)):
        for group, offline in groups:
            candidate = CutOff(tuple(places[group].tolist()), tuple(places[offline].tolist()))
            if member is not None and member not in candidate.group:
                continue
            if len(candidate.group) + len(candidate.offline) == len(places):
                continue  # all others are offline, so the group is the whole sum
            online = present.copy()
            online[list(candidate.offline)] = False
            if is_accepted(online):
                return candidate
    return None


def _single_clients(inside: Flags, budget: int) -> Iterator[tuple[Any, Any]]:
    degrees = inside.sum(axis=1)
    for client in np.argsort(degrees, kind="stable"):
        if degrees[client] > budget:
            return
        yield [client], np.flatnonzero(inside[client])


def _pairs(inside: Flags, budget: int) -> Iterator[tuple[Any, Any]]:
    degrees, counts = inside.sum(axis=1), inside.astype(np.float32)
    common = (counts @ counts).astype(np.int64)
    # Inclusion and exclusion: common neighbours count once, and the two are no neighbours outside the pair.
    outside = degrees[:, None] + degrees[None, :] - common - 2 * inside
    first, second = np.nonzero(np.triu(outside <= budget, 1))
    order = np.argsort(outside[first, second], kind="stable")[:_PAIRS]
    for pair in zip(first[order], second[order], strict=True):
        group = np.array(pair)
        yield group, _neighbours_outside(inside, group)


def _grown(inside: Flags, budget: int, largest: int) -> Iterator[tuple[Any, Any]]:
    """Yield groups of three and more, by size: each extends a smaller group by the best further client."""
    clients = len(inside)
    members = np.eye(clients, dtype=np.bool_)  # one row for each group
    reached = inside.copy()  # one row for each group: clients with a neighbour in the group
    for size in range(2, min(largest, clients) + 1):
        new = (~reached & ~members).astype(np.float32) @ inside.astype(np.float32)  # neighbours that a client adds
        change = new - (reached & ~members)
        # A member cannot be added again.
        change[members] = np.inf
        chosen = change.argmin(axis=1)
        rows = np.arange(clients)
        members[rows, chosen] = True
        reached |= inside[chosen]
        outside = (reached & ~members).sum(axis=1)
        if size < 3:
            continue
        order = np.argsort(outside, kind="stable")[:_PAIRS]
        for row in order[outside[order] <= budget]:
            yield np.flatnonzero(members[row]), np.flatnonzero(reached[row] & ~members[row])


def _neighbours_outside(inside: Flags, group: Any) -> Any:
    reached = inside[group].any(axis=0)
    reached[group] = False
    return np.flatnonzero(reached)
