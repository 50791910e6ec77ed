"""The graph of `secagg-plus`: a circle in random order, everybody connected with the k/2 nearest on either side.

This is the Harary graph H(s, k) of even k under a random permutation of its vertices (Bell et al., CCS 2020, ePrint
2020/704, section 3). The permutation is no party's choice: it sorts the participants by the SHAKE-256 stream of a
digest of the experiment, the round and the list of participants, so that everybody who has the list has the graph.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.messages import signed_content

_DOMAIN = b"testbed/secagg-plus/participants/v1"
_KEY_WORDS = 2  # 128 bits to sort by: no two participants have the same


def list_digest(experiment_id: bytes, round_number: int, participants: Sequence[int]) -> bytes:
    """32 bytes that stand for a round and its (sorted) participants."""
    return hashlib.sha256(_DOMAIN + signed_content(experiment_id, round_number, list(participants))).digest()


class NeighbourGraph:
    """Who is whose neighbour.

    Args:
        participants: sorted client numbers, s of them.
        neighbours: k, even and below s - 1; or s - 1: everybody.
        digest: of the list, by `list_digest`.
    """

    def __init__(self, participants: Sequence[int], neighbours: int, digest: bytes) -> None:
        size = len(participants)
        if not (neighbours == size - 1 or (0 < neighbours < size - 1 and neighbours % 2 == 0)):
            raise ValueError(f"k = {neighbours} of {size} participants: an even number below {size - 1}, or all")
        self._participants = np.asarray(participants, np.int64)
        self._complete = neighbours == size - 1
        self._half = neighbours // 2
        stream = hashlib.shake_256(digest).digest(8 * _KEY_WORDS * size)
        words = np.frombuffer(stream, "<u8").reshape(size, _KEY_WORDS)
        self._circle = np.lexsort((words[:, 1], words[:, 0]))  # positions in the list, in the circle's order

    @cached_property
    def _place(self) -> npt.NDArray[np.int64]:
        place = np.empty_like(self._circle)
        place[self._circle] = np.arange(len(self._circle))
        return place

    def circle(self) -> list[int]:
        """The participants in the circle's order."""
        order: list[int] = self._participants[self._circle].tolist()
        return order

    def around(self, client: int) -> frozenset[int]:
        """The client and its neighbours: those who hold its shares.

        Raises:
            KeyError: the client is no participant.
        """
        position = int(np.searchsorted(self._participants, client))
        if position == len(self._participants) or self._participants[position] != client:
            raise KeyError(client)
        if self._complete:
            return frozenset(self._participants.tolist())
        steps = np.arange(-self._half, self._half + 1)
        places = (self._place[position] + steps) % len(self._circle)
        return frozenset(self._participants[self._circle[places]].tolist())
