"""The argument of `batch_policy`, tested against all contradictory facts that a malicious server may tell.

A masked input is its client's update plus masks. The server can remove those whose secrets it can rebuild from what it
is given; the others must cancel. Over the honest clients, what it can have is the inputs of all or none of each set of
clients that unknown masks tie together, and of nobody whose self-mask stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.batch_policy import AtomicBatches
from testbed.batches import Batches
from testbed.errors import Refusal
from tests.thoroughness import examples


@dataclass(frozen=True)
class Telling:
    """Facts that a server tells the honest clients of one round.

    Attributes:
        batches: the members of each batch.
        t: the threshold.
        accomplices: clients of the server, which reveal both shares of all clients.
        peers: by honest client, the clients that have shared, as it is told.
        survivors: by honest client, the survivors, as it is told.
        own_batch, whole: the clients' two checks.
    """

    batches: Batches
    t: int
    accomplices: frozenset[int]
    peers: Mapping[int, frozenset[int]]
    survivors: Mapping[int, frozenset[int]]
    own_batch: bool = True
    whole: bool = True

    def sends(self, client: int) -> bool:
        return not self.own_batch or AtomicBatches(self.batches).batch_peers(client) <= self.peers[client]

    def reveals(self, client: int) -> bool:
        if not self.survivors[client] <= self.peers[client] | {client}:
            return False
        if not self.whole:
            return client in self.survivors[client]
        try:
            AtomicBatches(self.batches).check_survivors(sorted(self.survivors[client]))
        except Refusal:
            return False
        return True

    def rebuilt(self, of: int, *, seed: bool) -> bool:
        """Whether t shares of a client's mask key, or seed, are known."""
        giving = [one for one in self.peers if (of == one or of in self.peers[one]) and self.reveals(one)]
        shares = sum((of in self.survivors[one]) == seed for one in giving)
        return len(self.accomplices) + shares >= self.t

    def to_be_had(self) -> list[frozenset[int]]:
        """The smallest sets of honest clients over which the server can have a sum."""
        senders = {client for client in self.peers if self.sends(client)}
        key_known = {client for client in self.peers if self.rebuilt(client, seed=False)}
        group = {client: frozenset({client}) for client in senders}
        hidden = {client for client in senders if not self.rebuilt(client, seed=True)}
        for one in senders - key_known:
            for other in (self.peers[one] & self.peers.keys()) - key_known:
                if other not in senders or one not in self.peers[other]:
                    hidden.add(one)  # a mask that nobody else adds
                    continue
                joined = group[one] | group[other]
                group |= dict.fromkeys(joined, joined)
        return sorted({members for members in group.values() if not members & hidden}, key=sorted)

    def broken(self) -> list[frozenset[int]]:
        """Those of them that hold some honest members of a batch, and not all."""
        honest = frozenset(self.peers)
        found = []
        for members in self.to_be_had():
            full = frozenset(self.batches.members(sorted({self.batches.of[one] for one in members})).tolist())
            if members != full & honest:
                found.append(members)
        return found


@st.composite
def tellings(draw: st.DrawFn) -> Telling:
    size, count = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    n = size * count
    batches = Batches.consecutive(n, size)
    t = draw(st.integers(n // 2 + 1, n))
    clients = list(range(n))
    accomplices = frozenset(draw(st.permutations(clients))[: draw(st.integers(0, max(0, 2 * t - n - 1)))])
    honest = [client for client in clients if client not in accomplices]
    # Few different stories and views, since it takes many clients that are told the same; most are told one of each.
    everybody = frozenset(clients)
    taken = st.lists(st.booleans(), min_size=count, max_size=count)
    unions = taken.map(lambda of: frozenset(batches.members(np.flatnonzero(of)).tolist()))
    anybody = st.lists(st.booleans(), min_size=n, max_size=n).map(lambda of: frozenset(np.flatnonzero(of).tolist()))
    few = draw(st.one_of(unions, anybody))
    beside = frozenset(batches.members([b for b in range(count) if few.isdisjoint(batches.members([b]))]).tolist())
    stories = [
        beside,
        everybody - {draw(st.sampled_from(clients))},
        *draw(st.lists(st.one_of(unions, anybody), max_size=2)),
    ]
    mostly = draw(st.sampled_from(stories))
    peers = {client: draw(st.sampled_from([everybody, everybody, everybody, few])) - {client} for client in honest}
    peers = {client: told if len(told) + 1 >= t else everybody - {client} for client, told in peers.items()}
    survivors = {client: draw(st.sampled_from([mostly, mostly, mostly, *stories])) for client in honest}
    return Telling(batches, t, accomplices, peers, survivors)


@settings(max_examples=examples(600))
@given(tellings())
def test_below_2t_minus_s_accomplices_no_batch_is_broken_whatever_the_server_says(telling: Telling) -> None:
    assert len(telling.accomplices) < 2 * telling.t - len(telling.batches.of)
    assert telling.broken() == []


def told_alike(t: int, survivors: set[int], **checks: bool) -> Telling:
    everybody = frozenset(range(9))
    peers = {client: everybody - {client} for client in everybody}
    said = dict.fromkeys(everybody, frozenset(survivors))
    return Telling(Batches.consecutive(9, 3), t, frozenset(), peers, said, **checks)


def test_an_honest_server_has_its_sum() -> None:
    assert told_alike(5, set(range(9))).to_be_had() == [frozenset(range(9))]
    assert told_alike(5, set(range(6))).to_be_had() == [frozenset(range(6))]


def test_without_the_check_of_the_survivors_batches_fall() -> None:
    assert told_alike(5, set(range(8)), whole=False).broken() == [frozenset(range(8))]
    assert told_alike(5, set(range(8))).broken() == []


@pytest.mark.parametrize("own_batch", [False, True])
def test_without_the_check_of_the_own_batch_one_client_falls_to_those_that_help_from_outside(own_batch: bool) -> None:
    """Client 0 is told that only 3 to 6 have shared; these are then left out of the sum, and reveal."""
    everybody, few = frozenset(range(9)), frozenset({3, 4, 5, 6})
    batches = Batches([0, 0, 0, 1, 1, 2, 2, 3, 3])
    peers = {client: everybody - {client} for client in everybody} | {0: few}
    survivors = dict.fromkeys(everybody, frozenset({0, 1, 2, 7, 8}))
    telling = Telling(batches, 5, frozenset(), peers, survivors, own_batch=own_batch)
    assert telling.broken() == ([] if own_batch else [frozenset({0})])


def test_at_2t_minus_s_accomplices_two_stories_are_enough() -> None:
    """As in `secagg`: then both secrets of a client can be rebuilt, whole batches or not."""
    clients = frozenset(range(9))
    accomplices = frozenset({6, 7, 8})
    peers = {client: clients - {client} for client in clients - accomplices}
    survivors = {client: clients if client < 3 else frozenset(range(3, 9)) for client in peers}
    telling = Telling(Batches.consecutive(9, 3), 6, accomplices, peers, survivors)
    assert telling.broken() != []
