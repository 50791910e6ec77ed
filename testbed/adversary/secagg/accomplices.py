"""What the accomplices of a malicious SecAgg server do for it, and the messages in which they do."""

from typing import Annotated, ClassVar

from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import (
    SURVIVORS_DOMAIN,
    AdvertiseKeys,
    CheckSurvivors,
    KeyAdvert,
    Many,
    ShareOf,
    SurvivorsSignature,
    survivors_content,
)
from testbed.aggregation.secagg_plus.client import SecAggPlusClient
from testbed.crypto.shamir import SHARE_BYTES
from testbed.errors import Refusal
from testbed.messages import Key32, Message, RoundNumber
from testbed.parties.client import handles


class HandedOver(Message, frozen=True):
    """A client's own mask key, and both shares of every peer's secrets."""

    mask_key: Key32
    mask_keys: Annotated[list[ShareOf], Many]
    self_masks: Annotated[list[ShareOf], Many]


class HandOver(Message, frozen=True):
    """Hand over what no honest client would."""

    stage: ClassVar[str] = "adversary/hand-over"
    Answer: ClassVar[type[Message] | None] = HandedOver

    round: RoundNumber


class SecAggAccomplice(SecAggClient, answers=(*SecAggClient.questions, HandOver)):
    """An honest client in everything that others can see, up to the survivors; it begins as often as it is asked to."""

    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        """Also when it has taken part in another sum of this round."""
        self._next_step = 0
        return super().on_advertise_keys(message)

    def _check_size(self, participants: int) -> None:
        """Any list will do."""

    @handles(CheckSurvivors)
    def on_check_survivors(self, message: CheckSurvivors) -> SurvivorsSignature:
        """Sign every set of survivors, as often as asked; the last one is what it would unmask."""
        self._survivors = set(message.survivors)
        self._next_step = 4
        self._survivors_content = survivors_content(message.round, sorted(message.survivors), self._digest)
        return SurvivorsSignature(self._sign(SURVIVORS_DOMAIN, self._survivors_content))

    @handles(HandOver)
    def on_hand_over(self, message: HandOver) -> HandedOver:
        """Both shares of every peer."""
        if self._next_step is None or self._next_step < 3 or message.round != self._round:
            raise Refusal("secagg.out-of-order", "no shares have been received yet")
        opened = sorted(self._open_shares().items())
        return HandedOver(
            self._mask_secret,
            [ShareOf(peer, shares[:SHARE_BYTES]) for peer, shares in opened],
            [ShareOf(peer, shares[SHARE_BYTES : 2 * SHARE_BYTES]) for peer, shares in opened],
        )


class AmongNeighbours(SecAggPlusClient):
    """An accomplice where masks are shared among neighbours: it begins as often as it is asked to, with any list."""

    @handles(AdvertiseKeys)
    def on_advertise_keys(self, message: AdvertiseKeys) -> KeyAdvert:
        """Also when it has taken part in another sum of this round."""
        self._next_step = 0
        self.client.agreed_participants = None
        return super().on_advertise_keys(message)

    def _check_size(self, participants: int) -> None:
        """Any list will do."""
