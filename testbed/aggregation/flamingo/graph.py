"""Graph of the masks in a round of `flamingo`: a random graph that every party derives from public information.

The paper's public seed v is `Directory.public_seed`, drawn after registration has closed. In the paper v also draws the
participants; here selection does.
"""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.aggregation.flamingo.bound import STEPS, Density
from testbed.crypto import memo
from testbed.crypto.masks import STREAM_SLACK, key_stream
from testbed.messages import signed_content

_DOMAIN = b"testbed/flamingo/graph/v2"
_WORDS = 1 << 16  # of 4 bytes, written by one call of `key_stream`


class RoundGraph:
    """The graph of one round.

    Args:
        participants: sorted client numbers, n of them.
        density: density of the edges.
        seed: 32 public bytes.

    Attributes:
        listed: the participants.
        density: as given.
    """

    def __init__(self, participants: Sequence[int], density: Density, seed: bytes) -> None:
        self.listed = list(participants)
        self.density = density
        self._seed = seed
        self._participants = np.asarray(self.listed, np.int64)

    @cached_property
    def adjacency(self) -> npt.NDArray[np.bool_]:
        """`(n, n)` bool: whether two participants are neighbours, by their positions in the list."""
        n = len(self.listed)
        if self.density.steps == STEPS:
            complete = np.ones((n, n), np.bool_)
            np.fill_diagonal(complete, False)
            return complete
        edges = self._edges(n * (n - 1) // 2)
        adjacency = np.zeros((n, n), np.bool_)
        begin = 0
        for place in range(n - 1):
            row = edges[begin : begin + n - 1 - place]
            adjacency[place, place + 1 :] = adjacency[place + 1 :, place] = row
            begin += len(row)
        return adjacency

    def _edges(self, pairs: int) -> npt.NDArray[np.bool_]:
        """Return `(pairs,)` bool: the pairs that are edges, as their word of the key stream is below epsilon."""
        edges = np.empty(pairs, np.bool_)
        buffer, write = np.empty(4 * _WORDS + STREAM_SLACK, np.uint8), key_stream(self._seed)
        # Exact: epsilon is a multiple of 2**-10, so no rounding makes graphs differ between machines.
        limit = np.uint32(self.density.steps * (2**32 // STEPS))
        for begin in range(0, pairs, _WORDS):
            part = edges[begin : begin + _WORDS]
            write(buffer, 4 * len(part))
            # Little-endian on every machine: all parties must derive the same graph.
            np.less(buffer[: 4 * len(part)].view("<u4"), limit, out=part)
        return edges

    def places(self, clients: Iterable[int]) -> npt.NDArray[np.int64]:
        """Return the `(m,)` positions of sorted clients in the list; raises `KeyError` for other clients."""
        numbers = np.fromiter(clients, np.int64)
        places = np.searchsorted(self._participants, numbers)
        inside = places < len(self._participants)
        # `searchsorted` finds a place for other clients, too.
        if not inside.all() or (self._participants[places] != numbers).any():
            raise KeyError("a client that is not a participant")
        return places

    def neighbours(self, client: int) -> list[int]:
        """Return a client's sorted neighbours; raises `KeyError` if it is not a participant."""
        (place,) = self.places([client])
        neighbours: list[int] = self._participants[self.adjacency[place]].tolist()
        return neighbours

    def cut(self, online: Iterable[int]) -> list[tuple[int, int]]:
        """Return the edges between clients online and offline, sorted: (online, offline)."""
        here = np.zeros(len(self.listed), np.bool_)
        here[self.places(online)] = True
        ends = np.argwhere(self.adjacency & here[:, None] & ~here[None, :])
        return [(self.listed[first], self.listed[second]) for first, second in ends.tolist()]

    def weakness(self, online: Sequence[int]) -> str:
        """Return the reason against a sum over these sorted participants; empty: the sum is safe (section 4.4)."""
        if len(online) < max(2, self.density.survivors):
            return f"{len(online)} clients online; at least {max(2, self.density.survivors)} needed"
        if self.density.steps == STEPS:
            return ""
        places = self.places(online)
        among: npt.NDArray[np.bool_] = self.adjacency[np.ix_(places, places)]
        fewest = int(among.sum(axis=1).min())
        if fewest < self.density.neighbours:
            return f"a client has {fewest} neighbours online; at least {self.density.neighbours} needed"
        if not _is_connected(among):
            return "the graph of the clients online is not connected"
        return ""


def round_graph(public_seed: bytes, round_number: int, participants: Sequence[int], density: Density) -> RoundGraph:
    """Return the graph of a round, computed once per process.

    Args:
        public_seed: 32 bytes of the PKI.
        round_number: the round.
        participants: sorted client numbers.
        density: density of the edges.
    """
    # The list is part of the seed: a server that may choose among lists has to try them one by one.
    seed = hashlib.sha256(_DOMAIN + signed_content(public_seed, round_number, list(participants))).digest()
    key = "flamingo graph", seed, density
    return memo.cached(key, lambda: RoundGraph(participants, density, seed))


def _is_connected(adjacency: npt.NDArray[np.bool_]) -> bool:
    reached = np.zeros(len(adjacency), np.bool_)
    reached[0] = True
    newest = reached
    while newest.any():
        newest = adjacency[newest].any(axis=0) & ~reached
        reached = reached | newest
    return bool(reached.all())
