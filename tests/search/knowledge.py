"""What the server has seen: masked inputs, shares, its accomplices' secrets. And what secrets that gives it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from testbed.crypto.key_agreement import PrivateKey

PRIME = 2**256 + 297
SHARE = 33


class Secret(NamedTuple):
    """One of a client's secrets of a round: its mask key, its self-mask seed, or number n of its noise."""

    client: int
    round: int
    kind: str


class Mask(NamedTuple):
    """What hides an input: the mask of two public keys (in ascending order), or a client's own of a round."""

    first: object
    second: object


class Update(NamedTuple):
    """What a client has learned in a round: the unknown that the server is after (another one, if it trained twice)."""

    client: int
    round: int
    variant: int = 0


@dataclass(frozen=True)
class Input:
    """A masked input that an honest client has sent.

    Attributes:
        update: whose.
        key: the client's public mask key.
        peers: whom it has masked with, and under which public keys.
        vector: `(d+1,)` ring elements.
        plain: the same without masks, which only the search knows.
        bits: of the ring.
        threshold, participants: t and s, as the client was told.
        around: the participants that it knows: those agreed on, or those that its secrets are shared among.
    """

    update: Update
    key: bytes
    peers: Mapping[int, bytes]
    vector: Any
    plain: Any
    bits: int
    threshold: int
    participants: int
    around: frozenset[int]

    @property
    def masks(self) -> dict[Mask, int]:
        """What is added (1) or subtracted (-1)."""
        found = {Mask("self", self.update[:2]): 1}
        for peer, key in self.peers.items():
            found[Mask(*sorted((self.key, key)))] = 1 if peer > self.update.client else -1
        return found


@dataclass
class Knowledge:
    """What one server and its accomplices know.

    Attributes:
        inputs: the masked inputs.
        crafted: updates from a model that the server has crafted: it knows them.
        asked_last: who was asked anything in the last stage, by round.
        agreed: (round, client) -> the list of participants that it has agreed on.
        skipped: (client, the last round that it had heard of, the round that it agreed on): numbers lie between.
        stuffed: (client, round, who) of lists that it has agreed on with somebody who was no candidate.
    """

    inputs: list[Input] = field(default_factory=list)
    crafted: set[Update] = field(default_factory=set)
    asked_last: dict[int, set[int]] = field(default_factory=dict)
    agreed: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    skipped: list[tuple[int, int, int]] = field(default_factory=list)
    stuffed: list[tuple[int, int, list[int]]] = field(default_factory=list)
    _accomplices: dict[bytes, PrivateKey] = field(default_factory=dict)
    _keys: dict[Secret, bytes] = field(default_factory=dict)
    _shares: dict[Secret, dict[int, bytes]] = field(default_factory=dict)
    _thresholds: dict[Secret, int] = field(default_factory=dict)

    def own(self, key: PrivateKey) -> None:
        """An accomplice's mask key."""
        self._accomplices[key.public] = key

    def advertised(self, client: int, round_number: int, key: bytes) -> None:
        """An honest client's public mask key."""
        self._keys[Secret(client, round_number, "mask key")] = key

    def shared(self, client: int, round_number: int, threshold: int) -> None:
        """A client has dealt shares, so many of which make a secret."""
        for kind in ("mask key", "self-mask seed"):
            self._thresholds[Secret(client, round_number, kind)] = threshold

    def opened(self, dealer: int, round_number: int, holder: int, shares: bytes) -> None:
        """What an accomplice holds of a dealer's secrets: all kinds."""
        kinds = ["mask key", "self-mask seed", *(f"noise {n}" for n in range(1, len(shares) // SHARE - 1))]
        for place, kind in enumerate(kinds):
            self.share(Secret(dealer, round_number, kind), holder, shares[place * SHARE : (place + 1) * SHARE])

    def share(self, of: Secret, holder: int, share: bytes) -> None:
        """One share; a dealer's polynomial is one for all its holders."""
        self._shares.setdefault(of, {})[holder + 1] = share

    def had(self, of: Secret) -> bytes | None:
        """A secret, if there are shares enough; for mask keys it is checked against the public key."""
        shares, t = self._shares.get(of, {}), self._thresholds.get(of)
        if t is None or len(shares) < t:
            return None
        secret = interpolated({point: int.from_bytes(share, "big") for point, share in list(shares.items())[:t]})
        if secret >= 2**256:
            return None
        found = secret.to_bytes(32, "big")
        if of.kind == "mask key" and PrivateKey.from_seed(found).public != self._keys.get(of):
            return None
        return found

    @property
    def progress(self) -> tuple[object, ...]:
        """How far the server has come: shares of either kind of each client's secrets, whoever they are."""
        held = [
            tuple(len(self._shares.get(Secret(client, number, kind), ())) for kind in ("mask key", "self-mask seed"))
            for client, number, _ in self._keys
        ]
        inputs = len({one.update for one in self.inputs}), len(self.crafted), len(self.agreed)
        return (*inputs, len(set(self.agreed.values())), tuple(sorted(held)))

    def private_keys(self) -> dict[bytes, PrivateKey]:
        """All mask keys that are known, by their public halves."""
        found = dict(self._accomplices)
        for of in self._keys:
            secret = self.had(of)
            if secret is not None:
                found[self._keys[of]] = PrivateKey.from_seed(secret)
        return found

    def seeds(self, updates: Iterable[Update]) -> dict[tuple[int, int], bytes]:
        """The self-mask seeds that are known, by client and round."""
        found = {}
        for client, round_number, _ in updates:
            secret = self.had(Secret(client, round_number, "self-mask seed"))
            if secret is not None:
                found[client, round_number] = secret
        return found


def interpolated(shares: Mapping[int, int]) -> int:
    """The polynomial's value at 0, by Lagrange, modulo the prime of the sharing."""
    total = 0
    for point, value in shares.items():
        above, below = 1, 1
        for other in shares:
            if other != point:
                above = above * other % PRIME
                below = below * (other - point) % PRIME
        total = (total + value * above * pow(below, -1, PRIME)) % PRIME
    return total


def ring(values: Any, bits: int) -> Any:
    """`values` modulo 2**bits, as 64-bit integers."""
    whole = np.asarray(values).astype(np.uint64)
    return whole if bits == 64 else whole & np.uint64(2**bits - 1)
