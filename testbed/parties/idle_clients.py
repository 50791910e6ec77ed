"""Compact storage for clients that have not been addressed individually.

Per client, the storage holds the secrets if it has registered (96 bytes; none if keys are derived from the seed), the
VRF public key if an announcement has reached it (32 bytes), and the last round that it has heard of (8 bytes). If a
group has given a shared answer in the current round, the question is stored. A client of the group that is addressed
individually later handles the stored question first, and so reaches the state that it would have.
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

_BLOCK = 512  # clients per task of a thread
# Marks an unset row. The point with y = 0 has order 4, so no key pair has this public key.
_NONE = bytes(vrf.PUBLIC_KEY_BYTES)
_VRF_SEED = slice(SECRETS_BYTES - vrf.SEED_BYTES, SECRETS_BYTES)


@dataclass(frozen=True)
class DeferredQuestion:
    """A question that one client has answered on behalf of a group."""

    delivery: Delivery
    clients: Ids
    last_round: int


class IdleClients:
    """The idle clients of a host: those that have not been addressed individually.

    Args:
        numbers: the host's clients, sorted.
        environment: settings shared by the clients.
        last_round: rounds up to this one are over.

    Attributes:
        deferred: questions with a shared answer in this round.
    """

    def __init__(self, numbers: Ids, environment: Environment, last_round: int) -> None:
        self.numbers = numbers
        self._environment = environment
        self._last_round = last_round
        self._last_rounds: Ids | None = None  # (m,), from the first question on that was answered alike
        self._secrets: npt.NDArray[np.uint8] | None = None  # (m, 96), of the clients that are `_registered`, (m,)
        self._registered = np.zeros(0, np.bool_)
        self._vrf_keys: npt.NDArray[np.uint8] | None = None  # (m, 32), zeros if not made yet
        self._own = np.ones(len(numbers), np.bool_)  # idle clients
        self.deferred: list[DeferredQuestion] = []

    def keep(self, number: int, identity: Identity) -> None:
        """Keep the secrets of a client that is registered."""
        if self._secrets is None:  # zeros: memory that is not written to yet is none
            self._secrets = np.zeros((len(self.numbers), SECRETS_BYTES), np.uint8)
            self._registered = np.zeros(len(self.numbers), np.bool_)
        row = int(np.searchsorted(self.numbers, number))
        self._secrets[row] = np.frombuffer(identity.secrets, np.uint8)
        self._registered[row] = True

    def identity(self, number: int) -> Identity | None:
        """Return the identity of a registered client, recreated from its secrets or derived; None if not registered."""
        if self._secrets is None:
            derives = self._environment.derives_identities
            return Identity.derived(number, self._environment.randomness) if derives else None
        row = int(np.searchsorted(self.numbers, number))
        if row == len(self.numbers) or self.numbers[row] != number or not self._registered[row]:
            return None
        return Identity.restored(number, self._secrets[row].tobytes())

    def leave(self, number: int) -> Client:
        """Remove a client from the storage; return its object in the state at the beginning of the round."""
        row = int(np.searchsorted(self.numbers, number))
        if row < len(self.numbers):
            self._own[row] = False
        last_round = self._last_round if self._last_rounds is None else int(self._last_rounds[row])
        client = Client(number, self._environment, last_round)
        client.identity = self.identity(number)
        return client

    def begin_round(self) -> None:
        """Begin a round: the effects of the previous round's shared answers become permanent."""
        for question in self.deferred:
            if self._last_rounds is None:
                self._last_rounds = np.full(len(self.numbers), self._last_round, np.int64)
            self._last_rounds[np.searchsorted(self.numbers, question.clients)] = question.last_round
        self.deferred.clear()

    def in_initial_state(self, delivery: Delivery) -> Ids:
        """Return positions among the recipients of the idle clients whose state equals that of the first one.

        Empty after the first shared answer of a round, so that the search runs once per round.
        """
        rows = np.searchsorted(self.numbers, delivery.recipients)
        at = np.flatnonzero(self._own[rows]) if not self.deferred else np.zeros(0, np.int64)
        if self._last_rounds is not None and len(at):
            last = self._last_rounds[rows[at]]
            # Clients refuse rounds that they have heard of, so equal answers need equal histories.
            at = at[last == last[0]]
        if delivery.last_announced is not None and len(at):
            announced = delivery.last_announced[at]
            at = at[announced == announced[0]]
        return at

    def certain(self, clients: Ids, is_certain: Callable[[bytes, bytes], bool]) -> npt.NDArray[np.bool_]:
        """Return for which clients the predicate holds, given their VRF seed and public key.

        Args:
            clients: `(m,)` int64, sorted client numbers.
            is_certain: see `Role.shared_answer_predicate`.

        Returns:
            `(m,)` bool.
        """
        rows = np.searchsorted(self.numbers, clients)
        if self._vrf_keys is None:
            self._vrf_keys = np.zeros((len(self.numbers), vrf.PUBLIC_KEY_BYTES), np.uint8)
        holds = np.zeros(len(clients), np.bool_)

        def look(part: slice) -> None:
            for at, row, number in zip(
                range(len(holds))[part], rows[part].tolist(), clients[part].tolist(), strict=True
            ):
                holds[at] = is_certain(*self._vrf_pair(row, number))

        parts = [slice(first, first + _BLOCK) for first in range(0, len(clients), _BLOCK)]
        # No lock: each thread writes to positions and rows of its own clients only.
        for _ in thread_map(look, parts):
            pass
        return holds

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
