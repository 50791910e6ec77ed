"""The interface between a network and the processes that run clients, in this process or on many machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.crashes import Crash
from testbed.messages import Message, Vector
from testbed.network.sums import Sum

Packed = Ids | tuple[int, int, int] | tuple[int, npt.NDArray[np.uint8]]

_FEW = 1000  # clients; below this number, packing saves less than it costs


def packed(ids: Ids) -> Packed:
    """Return sorted client numbers in a compact form for transfers between processes.

    A stage that asks the whole population would otherwise move 8 bytes per client to the hosts and back. An evenly
    spaced range (all clients of a host) takes three numbers. Any other set takes one bit per number of its span, where
    that is smaller. An array that is not strictly ascending is returned unchanged.

    Args:
        ids: `(m,)` int64, sorted client numbers.

    Returns:
        (first, step, count) of an evenly spaced range; (first, bits of the numbers from `first` on); or `ids`.
    """
    count = len(ids)
    if count < _FEW:
        return ids
    first, step, last = int(ids[0]), int(ids[1] - ids[0]), int(ids[-1])
    gaps = np.diff(ids)
    if step > 0 and last - first == step * (count - 1) and (gaps == step).all():
        return first, step, count
    span = last - first + 1
    # A bit per number of the span against 8 bytes per client: worth it if at least half is saved.
    if span > 32 * count or not (gaps > 0).all():
        return ids
    there = np.zeros(span, np.bool_)
    there[ids - first] = True
    return first, np.packbits(there)


def unpacked(parcel: Packed) -> Ids:
    """Inverse of `packed`."""
    if isinstance(parcel, np.ndarray):
        return parcel
    if len(parcel) == 3:
        first, step, count = parcel
        return np.arange(first, first + step * count, step, dtype=np.int64)
    first, bits = parcel
    return np.flatnonzero(np.unpackbits(bits)).astype(np.int64, copy=False) + first


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The messages of one stage, on their way to the clients.

    Attributes:
        key: identifies the stage within the run: (round, position in the round).
        kind: type of the message; header and vectors as `testbed.messages.detach` makes them.
        header: the common part, encoded.
        vectors: the vectors of the common part.
        recipients: `(m,)` int64, sorted client numbers.
        private: encoded private part per client; None if the message has no private part.
        last_announced: `(m,)` int64, the last announced round that each recipient knows of (`AnnouncedRounds`); None:
            the previous round.
    """

    key: tuple[int, int]
    kind: type[Message]
    header: bytes
    vectors: tuple[Vector, ...]
    recipients: Ids
    private: Mapping[int, bytes] | None = None
    last_announced: Ids | None = None

    def restricted(self, selected: npt.NDArray[np.bool_]) -> "Delivery":
        """Return the delivery to the recipients that the `(m,)` mask `selected` selects."""
        recipients, private, last_announced = self.recipients[selected], self.private, self.last_announced
        if private is not None:
            private = {client: private[client] for client in recipients.tolist()}
        if last_announced is not None:
            last_announced = last_announced[selected]
        return replace(self, recipients=recipients, private=private, last_announced=last_announced)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, with packed client numbers."""
        return {**self.__dict__, "recipients": packed(self.recipients)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, recipients=unpacked(state["recipients"]))


@dataclass(frozen=True)
class ClientRefusal:
    """A client's refusal: which check failed, and one line."""

    client: int
    check: str
    detail: str


@dataclass(frozen=True)
class SharedAnswer:
    """One answer given by many clients, because it depends on no client's own state.

    Attributes:
        clients: `(m,)` int64, sorted client numbers.
        header: the encoded answer; None: the clients stay silent.
        size: bytes of the answer on the wire.
        compute_s: seconds of work per client on the reference machine.
    """

    clients: Ids
    header: bytes | None
    size: int
    compute_s: float

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process, with packed client numbers."""
        return {**self.__dict__, "clients": packed(self.clients)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, clients=unpacked(state["clients"]))


@dataclass(kw_only=True)
class HostAnswers:
    """The clients' answers to a delivery; the arrays are aligned and sorted by client.

    Attributes:
        clients: `(m,)` int64, the clients that were handled one by one.
        answered: `(m,)` bool; False where the client stayed silent.
        sizes: `(m,)` int64 bytes of each answer on the wire (0 when silent).
        compute_s: `(m,)` seconds on the reference machine.
        pki_up: `(m,)` int64 bytes that the handler sent to the PKI.
        pki_down: `(m,)` int64 bytes that the handler received from the PKI.
        headers: encoded answers (vectors detached) of the clients that answered.
        refusals: clients whose answer is a refusal (they count as answered).
        crashes: crashes of clients' handlers.
        attacks: deviations of malicious clients from the protocol, for the records: (client, one line).
        shared: the answer of the clients that were not handled one by one; None if there are none.
    """

    clients: Ids
    answered: npt.NDArray[np.bool_]
    sizes: Ids
    compute_s: Floats
    pki_up: Ids
    pki_down: Ids
    headers: dict[int, bytes] = field(default_factory=dict)
    refusals: list[ClientRefusal] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    attacks: list[tuple[int, str]] = field(default_factory=list)
    shared: SharedAnswer | None = None

    @classmethod
    def silent(cls, clients: Ids) -> "HostAnswers":
        """Return the answers of clients that stay silent and do no work.

        Args:
            clients: `(m,)` int64, sorted client numbers.
        """
        count = len(clients)
        return cls(
            clients=clients,
            answered=np.zeros(count, np.bool_),
            sizes=np.zeros(count, np.int64),
            compute_s=np.zeros(count),
            pki_up=np.zeros(count, np.int64),
            pki_down=np.zeros(count, np.int64),
        )

    @classmethod
    def empty(cls) -> "HostAnswers":
        """Return the answers of no clients."""
        return cls.silent(np.empty(0, np.int64))

    @classmethod
    def merged(cls, parts: Sequence["HostAnswers"]) -> "HostAnswers":
        """Merge the answers of several hosts, sorted by client; the order of `parts` does not matter."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        order = np.argsort(np.concatenate([part.clients for part in parts]), kind="stable")
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])[order]
            for name in ("clients", "answered", "sizes", "compute_s", "pki_up", "pki_down")
        }
        merged = cls(**columns)
        for part in parts:
            merged.headers.update(part.headers)
            merged.refusals += part.refusals
            merged.crashes += part.crashes
            merged.attacks += part.attacks
        # By client: hosts answer in any order, and the records must not show it.
        merged.refusals.sort(key=lambda refusal: refusal.client)
        merged.crashes.sort(key=lambda crash: crash.client)
        merged.attacks.sort(key=lambda attack: attack[0])
        shared = [part.shared for part in parts if part.shared is not None]
        if shared:
            clients = np.sort(np.concatenate([answer.clients for answer in shared]))
            # Measured seconds differ between hosts; the slowest one stands for all.
            compute_s = max(answer.compute_s for answer in shared)
            merged.shared = SharedAnswer(clients, shared[0].header, shared[0].size, compute_s)
        return merged


class Hosts(Protocol):
    """The processes that run clients: this process, or actors on a Ray cluster."""

    async def begin_round(self, round_number: int) -> None:
        """Forget the protocol state of earlier rounds."""

    async def deliver(self, delivery: Delivery) -> HostAnswers:
        """Run the clients' handlers; their answers' vectors stay on the hosts under `delivery.key`."""

    async def total(
        self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None
    ) -> tuple[Sum, float]:
        """Return the sum of the vectors that `clients` answered with at stage `key`, computed on the hosts.

        Ring vectors are summed modulo their ring. Float vectors are multiplied with the clients' `weights` and
        summed in 64-bit fixed point, so that no grouping changes the result; see `testbed.network.sums`.

        Args:
            key: the stage, as in `Delivery`.
            clients: `(m,)` int64, sorted client numbers.
            weights: `(m,)` int64 factors for float vectors; None for ring vectors.

        Returns:
            The sum, and the CPU seconds that it took.
        """

    async def vectors(self, key: tuple[int, int], clients: Ids) -> dict[int, Vector]:
        """Return single vectors by client, for attacks and debugging; this moves them to the caller."""
