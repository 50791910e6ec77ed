"""Dishonest clients of secure aggregation: accomplices of a malicious server, and a client that deals invalid shares.

Accomplices answer additional messages with which they help the server. Masks of a client with invalid shares cannot be
removed from the sum.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from testbed.adversary.misbehaviour import ClientMisbehaviour
from testbed.aggregation.kit.message_parts import Many, ShareOf
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import AdvertiseKeys, CheckSurvivors, SurvivorsSignature
from testbed.aggregation.secagg.share_holding import STATES
from testbed.aggregation.secagg_plus.graph import AnnounceGraph
from testbed.aggregation.secagg_plus.protocol import SecAggPlusClient
from testbed.crypto.shamir import SHARE_BYTES
from testbed.messages import Key32, Message, RoundNumber
from testbed.parties.client import Role, StageTable, Transition, handles


class HandedOver(Message, frozen=True):
    """A client's own mask key, and both shares of every peer's secrets."""

    mask_key: Key32
    mask_keys: Annotated[list[ShareOf], Many]
    self_masks: Annotated[list[ShareOf], Many]


class HandOver(Message, frozen=True):
    """Ask an accomplice for secrets that an honest client never reveals."""

    stage: ClassVar[str] = "adversary/hand-over"
    Answer: ClassVar[type[Message] | None] = HandedOver

    round: RoundNumber


_ORDER = "secagg.out-of-order"
_ALWAYS = {*STATES, "refused"}
_BEGINS = Transition(
    sources=_ALWAYS, target="advertised", refusal=_ORDER, starts_round=True
)  # also after another sum of this round


class SecAggAccomplice(SecAggClient, answers=(*SecAggClient.questions, HandOver)):
    """A client that appears honest up to the survivors, but begins as often as the server asks."""

    STAGES: ClassVar[StageTable] = SecAggClient.STAGES.extended(
        {
            AdvertiseKeys: _BEGINS,
            CheckSurvivors: Transition(sources=_ALWAYS, target="signed", refusal=_ORDER),
            HandOver: Transition(sources={"masked", "signed", "revealed"}, target="", refusal=_ORDER),
        }
    )

    def check_size(self, participants: int) -> None:
        """Accept any list."""

    @handles(CheckSurvivors)
    def on_check_survivors(self, message: CheckSurvivors) -> SurvivorsSignature:
        """Sign every set of survivors, as often as asked; the last set is the one that it would unmask."""
        with self.progress.answering(message, message.round):
            # Unlike an honest client, which signs one set only: t signatures for each of two sets are the attack.
            self.survivors = set(message.survivors)
            return self.sign_survivors(message.survivors)

    @handles(HandOver)
    def on_hand_over(self, message: HandOver) -> HandedOver:
        """Reveal both shares of every peer."""
        self.progress.check(message, message.round)
        opened = sorted(self.open_shares().items())
        return HandedOver(
            self.mask_secret,
            [ShareOf(peer, shares[:SHARE_BYTES]) for peer, shares in opened],
            [ShareOf(peer, shares[SHARE_BYTES : 2 * SHARE_BYTES]) for peer, shares in opened],
        )


class SecAggPlusAccomplice(SecAggPlusClient):
    """An accomplice with masks shared among neighbours: begins as often as asked, with any list."""

    STAGES: ClassVar[StageTable] = SecAggPlusClient.STAGES.extended({AnnounceGraph: _BEGINS})

    def check_size(self, participants: int) -> None:
        """Accept any list, also after agreeing on another."""
        self.client.agreed_participants = None


class DealInconsistentShares(ClientMisbehaviour, SecAggClient):
    """Deals a different number to each holder instead of shares; left out after the first round that this ends."""

    name: ClassVar[str] = "deal-inconsistent-shares"
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")
    extends: ClassVar[type[Role]] = SecAggClient

    def deal(self, secrets: Mapping[str, bytes], points: Sequence[int]) -> dict[str, list[bytes]]:
        """Return values that look like shares."""
        if not self.attacks(self.round):
            return super().deal(secrets, points)
        self.record_attack(DealInconsistentShares, f"{len(points)} shares that belong to no secret")
        return {name: [_number(secret, point) for point in points] for name, secret in secrets.items()}


def _number(secret: bytes, point: int) -> bytes:
    # As long as a share and below the field's prime, so that only reconstruction shows the fault.
    return hashlib.sha256(secret + point.to_bytes(8, "big")).digest().rjust(SHARE_BYTES, b"\0")
