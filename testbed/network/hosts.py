"""What a network needs of the place where clients run, be it this process or many machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crashes import Crash
from testbed.messages import Message, Vector
from testbed.network.packed_ids import packed, unpacked


@dataclass(frozen=True)
class Delivery:
    """One stage's messages on their way to the clients.

    Attributes:
        key: names the stage within the run: (round, position in the round).
        kind: type of the message; header and vectors as `testbed.messages.detach` makes them.
        header: the common part, encoded.
        vectors: the common part's vectors.
        recipients: sorted client numbers.
        private: encoded private part per client; all recipients have one, or none has.
        last_announced: `(m,)` int64, the last announced round that each recipient knows of (`AnnouncedRounds`); None:
            the round before.
    """

    key: tuple[int, int]
    kind: type[Message]
    header: bytes
    vectors: tuple[Vector, ...]
    recipients: Ids
    private: Mapping[int, bytes] | None = None
    last_announced: Ids | None = None

    def restricted(self, kept: npt.NDArray[np.bool_]) -> "Delivery":
        """The part of it that goes to some of the recipients, by a mask `(m,)`."""
        recipients, private, last_announced = self.recipients[kept], self.private, self.last_announced
        if private is not None:
            private = {client: private[client] for client in recipients.tolist()}
        return replace(
            self,
            recipients=recipients,
            private=private,
            last_announced=None if last_announced is None else last_announced[kept],
        )

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process."""
        return {**self.__dict__, "recipients": packed(self.recipients)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, recipients=unpacked(state["recipients"]))


@dataclass(frozen=True)
class ClientRefusal:
    """A client's refusal: which check failed, and one line."""

    client: int
    check: str
    detail: str


@dataclass
class HostAnswers:
    """What the clients did with a delivery; the arrays are aligned and sorted by client.

    Attributes:
        clients: `(m,)` int64, the clients that were handled one by one.
        answered: `(m,)` bool; False where the client stayed silent.
        sizes: `(m,)` int64 bytes of each answer on the wire (0 when silent).
        compute_s: `(m,)` seconds on the reference machine.
        pki_up, pki_down: `(m,)` int64 bytes exchanged with the PKI by the handler.
        headers: encoded answers (vectors detached) of those that answered.
        refusals: those whose answer is a refusal (they count as answered).
        crashes: of the clients whose handler crashed.
        attacks: what dishonest clients did otherwise than the protocol says, for the records: (client, one line).
        alike: clients that all give one same answer: (clients, header, size, compute_s of each).
    """

    clients: Ids
    answered: npt.NDArray[np.bool_]
    sizes: Ids
    compute_s: npt.NDArray[np.float64]
    pki_up: Ids
    pki_down: Ids
    headers: dict[int, bytes] = field(default_factory=dict)
    refusals: list[ClientRefusal] = field(default_factory=list)
    crashes: list[Crash] = field(default_factory=list)
    attacks: list[tuple[int, str]] = field(default_factory=list)
    alike: tuple[Ids, bytes, int, float] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process."""
        alike = self.alike
        return {**self.__dict__, "alike": None if alike is None else (packed(alike[0]), *alike[1:])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        alike = state["alike"]
        self.__dict__.update(state, alike=None if alike is None else (unpacked(alike[0]), *alike[1:]))

    @classmethod
    def empty(cls) -> "HostAnswers":
        """Answers of nobody."""
        ids = np.empty(0, np.int64)
        return cls(ids, np.empty(0, np.bool_), ids, np.empty(0), ids, ids)

    @classmethod
    def merged(cls, parts: Sequence["HostAnswers"]) -> "HostAnswers":
        """The answers of several hosts as one, sorted by client whatever the order of `parts`."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.empty()
        order = np.argsort(np.concatenate([part.clients for part in parts]), kind="stable")

        def join(name: str) -> Any:
            return np.concatenate([getattr(part, name) for part in parts])[order]

        merged = cls(*(join(name) for name in ("clients", "answered", "sizes", "compute_s", "pki_up", "pki_down")))
        for part in parts:
            merged.headers.update(part.headers)
            merged.refusals += part.refusals
            merged.crashes += part.crashes
            merged.attacks += part.attacks
        merged.refusals.sort(key=lambda refusal: refusal.client)
        merged.crashes.sort(key=lambda crash: crash.client)
        merged.attacks.sort(key=lambda attack: attack[0])
        alike = [part.alike for part in parts if part.alike is not None]
        if alike:
            clients = np.sort(np.concatenate([part[0] for part in alike]))
            merged.alike = (clients, alike[0][1], alike[0][2], max(part[3] for part in alike))
        return merged


class Hosts(Protocol):
    """The place where clients run: in this process, or actors on a Ray cluster."""

    async def begin_round(self, round_number: int) -> None:
        """Forget the protocol state of earlier rounds."""

    async def deliver(self, delivery: Delivery) -> HostAnswers:
        """Run the clients' handlers; their answers' vectors stay on the hosts under `delivery.key`."""

    async def total(
        self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[Any], float]:
        """Sum of the vectors that `clients` answered at stage `key`, summed where they lie.

        Ring vectors are summed modulo their ring. Float vectors are multiplied with the clients' `weights` and
        summed in 64-bit fixed point, so that no grouping changes the result; see `testbed.parties.sums`.

        Returns:
            `(d,)` sum, and CPU seconds it took.
        """

    async def vectors(self, key: tuple[int, int], clients: Ids) -> dict[int, Vector]:
        """Single vectors, for attacks and debugging; moves them to the caller."""
