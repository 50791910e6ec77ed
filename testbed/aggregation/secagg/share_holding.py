"""How a participant of `secagg` deals shares of its secrets to its peers, and keeps those that they have dealt to it;
and which question it answers when: once each and in order.

Each peer's shares are sealed for it, under a key that the two agree on; the server passes them on.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

from testbed.aggregation.kit.message_parts import point_of
from testbed.aggregation.kit.participant import Participant, row
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    MaskInput,
    ProveShare,
    ShareKeys,
    SharesFor,
    Unmask,
    UnmaskSurvivors,
    associated_data,
    open_shares,
    seal_shares,
)
from testbed.aggregation.secagg.noise import SecAggNoise, UnmaskAndRemove
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.round import PeerGraph
from testbed.crypto import OpeningFailed, memo
from testbed.crypto.dealing import share_each
from testbed.crypto.key_agreement import PrivateKey
from testbed.emulation.compute.cost import meter
from testbed.parties.client import Client, StageTable

SEALING_PURPOSE = b"testbed/secagg/sealing/v1"
STATES = ("new", "advertised", "shared", "masked", "signed", "revealed")
STAGES = StageTable(  # who could ask for a stage again, or go on after a refusal, could have both shares of a peer
    start="new",
    rows={
        AdvertiseKeys: row("new", "advertised"),
        ShareKeys: row("advertised", "shared"),
        MaskInput: row("shared", "masked"),
        CheckSurvivors: row("masked", "signed"),
        Unmask: row("signed", "revealed"),
        UnmaskAndRemove: row("signed", "revealed"),
        UnmaskSurvivors: row("masked", "revealed"),  # not "signed", in which it would reveal more
        ProveShare: row("revealed", "revealed"),
    },
)


class ShareHolder(Participant):
    """One participant of one round, as far as shares are concerned.

    Attributes:
        graph: who are peers, once it has been told.
        sealing: the key pair under which shares are sealed for it.
        mask_secret, self_mask: its secrets: the seed of its mask key, and that of the mask of its own.
        adverts: the keys that it was shown, its own among them.
        digest: what it has in common with those that were shown the same.
        sealing_keys: by peer, the key under which the two seal shares.
        own_shares: of its own secrets, all kinds joined.
        received: by peer that has shared, its sealed shares.
        opened: those of its batch, opened.
    """

    STAGES: ClassVar[StageTable] = STAGES
    parameters: SecAggParameters
    noise: SecAggNoise
    graph: PeerGraph
    sealing: PrivateKey
    mask_secret: bytes
    self_mask: bytes
    adverts: dict[int, AdvertOf]
    digest: bytes
    own_shares: bytes

    def __init__(self, client: Client, parameters: SecAggParameters) -> None:
        super().__init__(client, parameters)
        self.sealing_keys: dict[int, bytes] = {}
        self.received: dict[int, bytes] = {}
        self.opened: dict[int, bytes] = {}

    def share_among(self, holders: list[int]) -> list[SharesFor]:
        """Shares of all secrets, sealed for each holder but itself."""
        points, t = [point_of(holder) for holder in holders], self.graph.threshold
        secrets = {"the mask key": self.mask_secret, "the self-mask seed": self.self_mask}
        noise = self.noise.secrets_of(self, self.graph.participants, self.round)
        secrets |= {f"the noise {number}": secret for number, secret in enumerate(noise, 1)}
        shares = self.deal(secrets, points).values()
        meter("shamir.share.term", len(secrets) * t * len(points))
        sealed = []
        for holder, dealt in zip(holders, map(b"".join, zip(*shares, strict=True)), strict=True):
            if holder == self.number:
                self.own_shares = dealt
                continue
            key = memo.agree(self.sealing, self.adverts[holder].sealing_key, SEALING_PURPOSE)
            self.sealing_keys[holder] = key
            associated = self.associated(self.number, holder)
            sealed.append(SharesFor(holder, seal_shares(key, self.number, holder, dealt, associated)))
        meter("x25519.agree", len(sealed))
        meter("aead.seal", min(len(secrets), 3) * len(sealed))
        return sealed

    def deal(self, secrets: Mapping[str, bytes], points: Sequence[int]) -> dict[str, list[bytes]]:
        """A share of each of the secrets, which have names, for each holder."""
        share = memo.share_among_all if self.graph.same_holders else share_each
        secrets_with_coins = [(secret, self.secret(f"polynomial of {name}")) for name, secret in secrets.items()]
        return dict(zip(secrets, share(secrets_with_coins, self.graph.threshold, points), strict=True))

    def associated(self, sender: int, receiver: int) -> bytes:
        """What sealed shares are bound to: they open for a receiver that was shown the same keys."""
        return associated_data(self.round, sender, receiver, self.digest)

    def open_shares(self) -> dict[int, bytes]:
        """All shares of every peer that has shared, by peer.

        Shares that do not open are left out, where the paper ends the client's part: this reveals less than shares
        that open would, and no single peer can end everybody's round with a bad ciphertext.
        """
        opened = {self.number: self.own_shares, **self.opened}
        meter("aead.open", len(self.received) - len(self.opened))
        for peer in self.received.keys() - self.opened.keys():
            with suppress(OpeningFailed):
                opened[peer] = self.open_shares_of(peer)
        return dict(sorted(opened.items()))

    def open_shares_of(self, peer: int) -> bytes:
        """All shares of a peer; raises `OpeningFailed`, also for more or fewer than everybody deals."""
        sealed = self.received[peer]
        if len(sealed) != self.noise.sealed_bytes(self.graph.participants):
            raise OpeningFailed(f"{len(sealed)} bytes of sealed shares, not those of as many secrets as everybody has")
        return open_shares(self.sealing_keys[peer], peer, self.number, sealed, self.associated(peer, self.number))
