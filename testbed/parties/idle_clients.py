"""Clients of a host of whom nobody has wanted to know anything by themselves: what is kept of them instead of objects.

Their secrets, if they have registered (96 bytes), or nothing, where keys follow from the seed; the VRF public keys of
those whom an announcement has reached (32 bytes); and up to which round they have heard (8 bytes). What a whole group
has answered alike in the present round is kept as the question: a client that then is asked by itself first handles it
for real, and so stands where it would have stood.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crypto import vrf
from testbed.crypto.threads import thread_map
from testbed.network.hosts import Delivery
from testbed.parties.client import Client, Environment
from testbed.parties.derived_keys import vrf_seed
from testbed.parties.pki import SECRETS_BYTES, Identity

_BLOCK = 512
_NONE = bytes(vrf.PUBLIC_KEY_BYTES)
_VRF_SEED = slice(SECRETS_BYTES - vrf.SEED_BYTES, SECRETS_BYTES)


@dataclass(frozen=True)
class DeferredQuestion:
    """A question that clients have answered alike.

    Attributes:
        delivery: it, to all of these clients and perhaps others.
        clients: `(m,)` they, sorted.
        last_round: what their `Client.last_round` is from then on.
    """

    delivery: Delivery
    clients: Ids
    last_round: int


class IdleClients:
    """See above.

    Args:
        numbers: the host's clients, sorted.
        environment: what they share.
        last_round: rounds up to this one are over.

    Attributes:
        heard: what groups have answered alike in this round.
    """

    def __init__(self, numbers: Ids, environment: Environment, last_round: int) -> None:
        self.numbers = numbers
        self._environment = environment
        self._last_round = last_round
        self._last_rounds: Ids | None = None  # (m,), from the first question on that was answered alike
        self._secrets: npt.NDArray[np.uint8] | None = None  # (m, 96), of the clients that are `_registered`, (m,)
        self._registered = np.zeros(0, np.bool_)
        self._vrf_keys: npt.NDArray[np.uint8] | None = None  # (m, 32), zeros where it has not been made yet
        self._own = np.ones(len(numbers), np.bool_)  # who is idle
        self.heard: list[DeferredQuestion] = []

    def keep(self, number: int, identity: Identity) -> None:
        """Keep the secrets of a client that is registered."""
        if self._secrets is None:  # zeros: memory that is not written to yet is none
            self._secrets = np.zeros((len(self.numbers), SECRETS_BYTES), np.uint8)
            self._registered = np.zeros(len(self.numbers), np.bool_)
        row = int(np.searchsorted(self.numbers, number))
        self._secrets[row] = np.frombuffer(identity.secrets, np.uint8)
        self._registered[row] = True

    def identity(self, number: int) -> Identity | None:
        """The identity of a client that is registered, recreated from its secrets or derived."""
        if self._secrets is None:
            derives = self._environment.derives_identities
            return Identity.derived(number, self._environment.randomness) if derives else None
        row = int(np.searchsorted(self.numbers, number))
        if row == len(self.numbers) or self.numbers[row] != number or not self._registered[row]:
            return None
        return Identity.restored(number, self._secrets[row].tobytes())

    def leave(self, number: int) -> Client:
        """A client is idle no more: its object, as it stood when the round began."""
        row = int(np.searchsorted(self.numbers, number))
        if row < len(self.numbers):
            self._own[row] = False
        last_round = self._last_round if self._last_rounds is None else int(self._last_rounds[row])
        client = Client(number, self._environment, last_round)
        client.identity = self.identity(number)
        return client

    def begin_round(self) -> None:
        """What was heard in the round before has come to stay."""
        for heard in self.heard:
            if self._last_rounds is None:
                self._last_rounds = np.full(len(self.numbers), self._last_round, np.int64)
            self._last_rounds[np.searchsorted(self.numbers, heard.clients)] = heard.last_round
        self.heard.clear()

    def in_initial_state(self, delivery: Delivery) -> Ids:
        """`(k,)` positions among the recipients of those that are idle and stand where the first of them does.

        Nobody after a question that many have answered alike: that is not looked at more than once in a round.
        """
        rows = np.searchsorted(self.numbers, delivery.recipients)
        at = np.flatnonzero(self._own[rows]) if not self.heard else np.zeros(0, np.int64)
        if self._last_rounds is not None and len(at):
            last = self._last_rounds[rows[at]]
            at = at[last == last[0]]
        if delivery.last_announced is not None and len(at):
            known = delivery.last_announced[at]
            at = at[known == known[0]]
        return at

    def certain(self, clients: Ids, is_certain: Callable[[bytes, bytes], bool]) -> npt.NDArray[np.bool_]:
        """`(m,)` for which clients this is true of their VRF seed and the public key that belongs to it."""
        rows = np.searchsorted(self.numbers, clients)
        if self._vrf_keys is None:
            self._vrf_keys = np.zeros((len(self.numbers), vrf.PUBLIC_KEY_BYTES), np.uint8)
        found = np.zeros(len(clients), np.bool_)

        def look(part: slice) -> None:
            for at, row, number in zip(
                range(len(found))[part], rows[part].tolist(), clients[part].tolist(), strict=True
            ):
                found[at] = is_certain(*self._vrf_pair(row, number))

        parts = [slice(first, first + _BLOCK) for first in range(0, len(clients), _BLOCK)]
        for _ in thread_map(look, parts):
            pass
        return found

    def _vrf_pair(self, row: int, number: int) -> tuple[bytes, bytes]:
        assert self._vrf_keys is not None
        if self._secrets is None:
            seed = vrf_seed(self._environment.randomness, number)
        else:
            seed = self._secrets[row, _VRF_SEED].tobytes()
        public = self._vrf_keys[row].tobytes()
        if public == _NONE:
            public = vrf.public_key(seed)
            self._vrf_keys[row] = np.frombuffer(public, np.uint8)
        return seed, public
