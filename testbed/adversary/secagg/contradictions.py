"""Planning of contradictory claims with which a malicious server learns the secrets of secure aggregation.

Each honest client gives, for each peer that has shared, one share of one kind: of the mask key if the client is told
that the peer dropped out, of the self-mask seed if it is told that the peer survived. t shares reconstruct a secret; x
accomplices give both kinds, so t - x honest clients that give the same kind are enough.

- *Both secrets of one victim*: t - x honest clients are told that it survived, t - x others that it dropped out. This
  needs h >= 2 (t - x) of the h = s - x honest clients, that is, x >= 2t - s.
- *The sum over a small set A*: the self-mask seeds of A, and the mask keys of the set R of honest clients outside A
  that share masks with A. Each member of R is declared gone to t - x others. A client believes in at least t survivors,
  so it accepts at most e = s - t peers as gone: |R| (t - x) <= h e. If A has masked with all clients, R is the rest,
  and the smallest A has h - floor(h e / (t - x)) clients. If A was told that fewer have shared (t, including itself), R
  may be as small as t - x - |A|; the clients of A, which know only t peers, then accept no peer as gone.

For x >= 2t - s all of these sums are over 1 client. If t clients must sign the same survivors, only the first attack
works, and below x = 2t - s the smallest sum is over the t - x honest clients that any such set contains
(docs/explanation/reconstruction-unsigned.md).
"""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class InconsistentView:
    """A claim about the survivors, and the clients that receive it.

    Attributes:
        survivors: sorted.
        recipients: sorted honest clients.
    """

    survivors: tuple[int, ...]
    recipients: tuple[int, ...]


def two_views(
    victim: int, honest: Collection[int], accomplices: int, survivors: Collection[int], t: int
) -> list[InconsistentView]:
    """Return a view in which the victim survived, and a view in which it did not.

    If there are too few clients for both, the first view gets its t - x clients, so that the round can be completed.

    Args:
        victim: an honest survivor.
        honest: the honest survivors.
        accomplices: x, number of accomplices among the survivors.
        survivors: all clients that have sent their input.
        t: the threshold.
    """
    enough, others = t - accomplices, sorted(set(honest) - {victim})
    first = min(enough, len(honest)) if len(honest) < 2 * enough else -(-len(honest) // 2)
    if len(survivors) == t:
        first = len(honest)  # no client would accept fewer survivors
    views = [
        InconsistentView(tuple(sorted(survivors)), tuple(sorted({victim, *others[: first - 1]}))),
        InconsistentView(tuple(sorted(set(survivors) - {victim})), tuple(others[first - 1 :])),
    ]
    return [view for view in views if view.recipients]


def denials(believes: Mapping[int, int], gone: Collection[int], each: int) -> dict[int, set[int]] | None:
    """Return the claims that tell `each` clients of every member of `gone` that it has gone.

    A client is never told that it has gone itself. A maximum flow decides whether a solution exists.

    Args:
        believes: for each client, how many peers it can be told have gone.
        gone: clients to be declared gone.
        each: t - x.

    Returns:
        For each client, the peers declared gone; None if there is no solution.
    """
    if each <= 0 or not gone:
        return {client: set() for client in believes}
    clients, targets = sorted(believes), sorted(gone)
    if sum(min(room, len(targets)) for room in believes.values()) < each * len(targets):
        return None
    from scipy.sparse import csr_array  # slow to import
    from scipy.sparse.csgraph import maximum_flow

    source, sink, first = 0, 1 + len(clients) + len(targets), 1 + len(clients)
    capacity = np.zeros((sink + 1, sink + 1), np.int32)
    capacity[source, 1:first] = [believes[client] for client in clients]
    capacity[1:first, first:sink] = [[client != target for target in targets] for client in clients]
    capacity[first:sink, sink] = each
    flow = maximum_flow(csr_array(capacity), source, sink)
    if flow.flow_value < each * len(targets):
        return None
    used_edges = flow.flow.toarray()[1:first, first:sink] > 0
    return {
        client: {target for target, used in zip(targets, row, strict=True) if used}
        for client, row in zip(clients, used_edges, strict=True)
    }


@dataclass(frozen=True)
class Isolation:
    """Honest clients with a recoverable sum, and the necessary claims.

    Attributes:
        members: A.
        gone: R, the honest clients outside A that share masks with A.
        denied: for each honest client, the peers that it is told have dropped out.
    """

    members: frozenset[int]
    gone: frozenset[int]
    denied: Mapping[int, Set[int]] = field(default_factory=dict)


def smallest_among_all(
    honest: Iterable[int], lost: Collection[int], accomplices: int, shared: int, t: int
) -> Isolation | None:
    """Return the smallest sum if all clients have masked with all; the first of `honest` stay in it.

    Args:
        honest: the honest survivors.
        lost: honest clients that have shared and sent no input: their mask keys are needed, too.
        accomplices: x.
        shared: number of clients that have shared.
        t: the threshold.
    """
    ranked, room = list(honest), max(0, shared - t)
    for size in range(1, len(ranked) + 1):
        gone = frozenset(ranked[size:]) | frozenset(lost)
        denied = denials(dict.fromkeys(ranked, room), gone, t - accomplices)
        if denied is not None:
            return Isolation(frozenset(ranked[:size]), gone, denied)
    return None


def smallest_among_few(honest: Iterable[int], accomplices: int, shared: int, t: int) -> Isolation | None:
    """Return the smallest sum if its members may be told that fewer have shared; the first of `honest` stay in it.

    Members are told that they, `gone` and the accomplices have shared; the others are told the truth.

    Args:
        honest: the honest clients.
        accomplices: x.
        shared: number of clients that have shared.
        t: the threshold.
    """
    ranked = list(honest)
    for size in range(1, len(ranked) + 1):
        for peers in range(max(0, t - accomplices - size), len(ranked) - size + 1):
            members, gone = frozenset(ranked[:size]), frozenset(ranked[size : size + peers])
            room = {client: max(0, shared - t) for client in ranked}
            room |= dict.fromkeys(members, max(0, accomplices + size + peers - t))
            denied = denials(room, gone, t - accomplices)
            if denied is not None:
                return Isolation(members, gone, denied)
    return None
