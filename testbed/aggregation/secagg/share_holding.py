"""Participant's shares in `secagg`: it deals shares of its secrets to its peers, and keeps theirs.

The shares are sealed under a key of the two clients; the server passes them on. `STAGES` defines the order of the
questions; each is answered once.
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
STAGES = StageTable(  # a server that could repeat a stage, or go on after a refusal, could get both shares of a peer
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
    """A participant of one round, as far as shares are concerned.

    Attributes:
        graph: of the round, once it has been announced.
        sealing: the key pair under which peers seal shares for this client.
        mask_secret: seed of its mask key.
        self_mask: seed of its own mask.
        adverts: the keys that it was shown, including its own.
        digest: equal for all clients that were shown the same keys and facts.
        sealing_keys: by peer, the key under which the two seal shares.
        own_shares: shares of its own secrets, all kinds joined.
        received: by peer that has shared, its sealed shares.
        opened: by member of its batch, its opened shares.
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
        """Return shares of all secrets, sealed for each holder but itself."""
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
        """Return, by name of the secret, one share per holder."""
        # In a complete graph all clients share among the same points: the powers are computed once.
        share = memo.share_among_all if self.graph.same_holders else share_each
        secrets_with_coins = [(secret, self.secret(f"polynomial of {name}")) for name, secret in secrets.items()]
        return dict(zip(secrets, share(secrets_with_coins, self.graph.threshold, points), strict=True))

    def associated(self, sender: int, receiver: int) -> bytes:
        """Return the associated data of sealed shares: they open only for a receiver that was shown the same keys."""
        return associated_data(self.round, sender, receiver, self.digest)

    def open_shares(self) -> dict[int, bytes]:
        """Return the shares that open, by peer that has shared."""
        opened = {self.number: self.own_shares, **self.opened}
        meter("aead.open", len(self.received) - len(self.opened))
        for peer in self.received.keys() - self.opened.keys():
            # Deviation: the paper ends the client's part here. Leaving the shares out reveals less than shares that
            # open would, and no peer can end the round for all with a bad ciphertext.
            with suppress(OpeningFailed):
                opened[peer] = self.open_shares_of(peer)
        return dict(sorted(opened.items()))

    def open_shares_of(self, peer: int) -> bytes:
        """Return all shares of a peer; raises `OpeningFailed`, also for a wrong number of shares."""
        sealed = self.received[peer]
        if len(sealed) != self.noise.sealed_bytes(self.graph.participants):
            expected = self.noise.sealed_bytes(self.graph.participants)
            raise OpeningFailed(f"{len(sealed)} bytes of sealed shares; {expected} bytes expected")
        return open_shares(self.sealing_keys[peer], peer, self.number, sealed, self.associated(peer, self.number))
