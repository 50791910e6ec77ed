"""The server's observations (masked inputs, shares, accomplices' secrets) and the secrets that follow."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from testbed.crypto.key_agreement import PrivateKey

PRIME = 2**256 + 297
SHARE = 33


class Secret(NamedTuple):
    """One of a client's secrets in a round: its mask key, its self-mask seed, or number n of its noise."""

    client: int
    round: int
    kind: str


class Mask(NamedTuple):
    """A mask of an input: of two public keys (in ascending order), or a client's self-mask of a round."""

    first: object
    second: object


class Update(NamedTuple):
    """A client's update in a round, the server's unknown (a second unknown if the client trained twice)."""

    client: int
    round: int
    variant: int = 0


@dataclass(frozen=True)
class Input:
    """A masked input that an honest client has sent.

    Attributes:
        update: its update.
        key: the client's public mask key.
        peers: peers of its pairwise masks, with their public keys.
        vector: `(d+1,)` ring elements.
        plain: the same without masks, known only to the search.
        bits: of the ring.
        threshold: t, as the client was told.
        participants: s, as the client was told.
        around: the participants known to it: those agreed on, or those that its secrets are shared among.
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
        """Return the masks with their signs: added (1) or subtracted (-1)."""
        found = {Mask("self", self.update[:2]): 1}
        for peer, key in self.peers.items():
            found[Mask(*sorted((self.key, key)))] = 1 if peer > self.update.client else -1
        return found


@dataclass
class Knowledge:
    """The knowledge of one server and its accomplices.

    Attributes:
        inputs: the masked inputs.
        crafted: updates from a model that the server has crafted, which it knows.
        asked_last: clients asked in the last stage, by round.
        agreed: (round, client) -> the list of participants that the client agreed on.
        skipped: (client, the last round announced to it, the round that it agreed on) with numbers between them.
        stuffed: (client, round, other client) of agreed lists with another client that was no candidate.
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
        """Note an accomplice's mask key."""
        self._accomplices[key.public] = key

    def advertised(self, client: int, round_number: int, key: bytes) -> None:
        """Note an honest client's public mask key."""
        self._keys[Secret(client, round_number, "mask key")] = key

    def shared(self, client: int, round_number: int, threshold: int) -> None:
        """Note that a client has dealt shares, with their threshold."""
        for kind in ("mask key", "self-mask seed"):
            self._thresholds[Secret(client, round_number, kind)] = threshold

    def opened(self, dealer: int, round_number: int, holder: int, shares: bytes) -> None:
        """Note an accomplice's shares of a dealer's secrets of all kinds."""
        kinds = ["mask key", "self-mask seed", *(f"noise {n}" for n in range(1, len(shares) // SHARE - 1))]
        for place, kind in enumerate(kinds):
            self.share(Secret(dealer, round_number, kind), holder, shares[place * SHARE : (place + 1) * SHARE])

    def share(self, of: Secret, holder: int, share: bytes) -> None:
        """Note one share; a dealer has one polynomial for all holders."""
        self._shares.setdefault(of, {})[holder + 1] = share

    def had(self, of: Secret) -> bytes | None:
        """Return a secret if there are enough shares; mask keys are checked against the public key."""
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
        """Return the server's progress: the shares of both kinds of each client's secrets, whichever the clients."""
        held = [
            tuple(len(self._shares.get(Secret(client, number, kind), ())) for kind in ("mask key", "self-mask seed"))
            for client, number, _ in self._keys
        ]
        inputs = len({one.update for one in self.inputs}), len(self.crafted), len(self.agreed)
        return (*inputs, len(set(self.agreed.values())), tuple(sorted(held)))

    def private_keys(self) -> dict[bytes, PrivateKey]:
        """Return all known mask keys, by their public halves."""
        found = dict(self._accomplices)
        for of in self._keys:
            secret = self.had(of)
            if secret is not None:
                found[self._keys[of]] = PrivateKey.from_seed(secret)
        return found

    def seeds(self, updates: Iterable[Update]) -> dict[tuple[int, int], bytes]:
        """Return the known self-mask seeds, by client and round."""
        found = {}
        for client, round_number, _ in updates:
            secret = self.had(Secret(client, round_number, "self-mask seed"))
            if secret is not None:
                found[client, round_number] = secret
        return found


def interpolated(shares: Mapping[int, int]) -> int:
    """Return the polynomial's value at 0, by Lagrange, modulo the prime of the sharing."""
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
    """Return `values` modulo 2**bits, as 64-bit integers."""
    whole = np.asarray(values).astype(np.uint64)
    return whole if bits == 64 else whole & np.uint64(2**bits - 1)
