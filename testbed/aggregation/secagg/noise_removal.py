"""Noise that stays as planned when participants drop out (`privacy.mechanisms.removable`) within secure aggregation.

Each participant shares the secrets of its removable components among its peers, sealed with its other shares (stage
share-keys). Once t clients have signed the survivors, everybody reveals, with its share of a survivor's self-mask seed,
one of that survivor's secret number D + 1, where D is how many participants are missing among the survivors that it has
signed itself. The server names no number, so it cannot have more removed than these drop-outs leave over; a second set
of survivors, with another D, t clients would not sign. A survivor that has left meanwhile is no special case.

The published protocol lets survivors send their seeds and asks for shares of the seeds of those who have left, in one
more stage. Here shares serve for both, as for the self-masks: no stage more, and a wrong share is found and left out.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.noisy import NoisyClient
from testbed.aggregation.secagg.mask_threads import add_in_threads
from testbed.aggregation.secagg.messages import Many, ShareOf, Shares, Unmask
from testbed.aggregation.secagg.share_correction import recover
from testbed.arrays import Ids
from testbed.crypto.shamir import SHARE_BYTES
from testbed.errors import Refusal
from testbed.messages import Message
from testbed.parties.client import Client
from testbed.privacy.mechanisms.noise import Noise, NoiseShare
from testbed.privacy.mechanisms.removable import chain, seed_of

_OTHER_SHARES = 2  # of the mask key and the self-mask seed, before those of the noise


class SharesAndNoise(Shares, frozen=True):
    """`Shares`, and shares of the secrets of the survivors' first component that is to go (none: all stay)."""

    noise: Annotated[list[ShareOf], Many]


class UnmaskAndRemove(Unmask, frozen=True):
    """The signatures on the set of survivors; reveal the shares that it calls for, and those of the noise to go."""

    Answer: ClassVar[type[Message] | None] = SharesAndNoise


class RemovingClient(NoisyClient):
    """Client side: what it adds, deals, and reveals."""

    def __init__(self, client: Client, parameters: Any) -> None:
        super().__init__(client, parameters)
        self._removable: bytes | None = None

    def noise_shares(self, participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """See `NoisyClient.noise_shares`: with all removable components, where the experiment has them."""
        shares = super().noise_shares(participants, dimension, round_number)
        noise = self.parameters.noise
        plan = None if noise is None else noise.removable(participants)
        if noise is not None and plan is not None:
            for number, secret in enumerate(self.noise_chain(participants, round_number), 1):
                shares.append(noise.component(plan, dimension, number, seed_of(secret)))
        return shares

    def noise_chain(self, participants: int, round_number: int) -> list[bytes]:
        """The secrets of the removable components, to be shared among the peers; none where noise stays.

        The first is drawn once in a round: without a seed a second draw would be another secret, and what is removed
        would be noise that nobody has added.
        """
        noise = self.parameters.noise
        plan = None if noise is None else noise.removable(participants)
        if plan is None:
            return []
        if self._removable is None:
            self._removable = self._noise_secret(round_number, "removable")
        return chain(self._removable, plan.tolerated)

    def noise_to_reveal(
        self, participants: int, survivors: Collection[int], dealt: Mapping[int, bytes]
    ) -> list[ShareOf]:
        """Shares of the survivors' noise: of each that has dealt some, the one that is called for.

        Args:
            participants: s.
            survivors: whom t clients have signed, this one among them.
            dealt: all shares of a peer, by peer.
        """
        noise = self.parameters.noise
        plan = None if noise is None else noise.removable(participants)
        if plan is None:
            raise Refusal("secagg.nothing-to-remove", "in this experiment all noise stays")
        first = plan.first_removed(len(survivors))
        if first is None:
            return []
        begin = (_OTHER_SHARES + first - 1) * SHARE_BYTES
        return [
            ShareOf(peer, shares[begin : begin + SHARE_BYTES]) for peer, shares in dealt.items() if peer in survivors
        ]


def shares_each(noise: Noise | None, participants: int) -> int:
    """How many secrets each of so many participants shares: mask key, self-mask seed, and those of its noise."""
    plan = None if noise is None else noise.removable(participants)
    return _OTHER_SHARES if plan is None else _OTHER_SHARES + plan.tolerated


def remove_noise(
    noise: Noise | None,
    round_: AggregationRound,
    total: npt.NDArray[Any],
    bits: int,
    t: int,
    survivors: Ids,
    revealed: Mapping[int, Shares],
) -> None:
    """Take from `total` (in place) what the survivors have added beyond the planned noise.

    Args:
        noise: the experiment's section.
        round_: how many plan to take part; where wrong shares are recorded.
        total: `(D+1,)` sum of the survivors' updates without masks.
        bits: of the ring.
        t: the secret-sharing threshold.
        survivors: whose updates are in the sum.
        revealed: the answers to `UnmaskAndRemove`, by client.

    Raises:
        RoundAborted: too few shares.
    """
    plan = None if noise is None else noise.removable(len(round_.participants))
    first = None if plan is None else plan.first_removed(len(survivors))
    if noise is None or plan is None or first is None or round_.dimension is None:
        return
    shares = {client: answer.noise for client, answer in revealed.items() if isinstance(answer, SharesAndNoise)}
    found = recover(t, np.sort(survivors).tolist(), shares)
    for client, holder in found.wrong:
        detail = f"unmask: wrong share of the noise of client {client}, dealt so by it or changed by client {holder}"
        round_.network.record_event(f"client:{holder}", "misbehaviour", detail)
    for client, why in found.undecided.items():  # more noise than planned protects no less
        detail = f"unmask: the shares of its noise contradict each other ({why}): it stays in the sum"
        round_.network.record_event(f"client:{client}", "misbehaviour", detail)
    excess = [
        noise.component(plan, round_.dimension, number, seed_of(later))
        for secret in found.secrets.values()
        for number, later in enumerate(chain(secret, plan.tolerated - first + 1), first)
    ]

    def take_away(part: npt.NDArray[Any], shares: Sequence[NoiseShare]) -> None:
        for share in shares:
            share.add_to(part, -1)

    add_in_threads(total, excess, take_away, bits, at_least=2)
