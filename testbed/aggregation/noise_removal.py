"""Noise that stays as planned when participants drop out: `testbed.privacy.removable` within secure aggregation.

Each participant shares the secrets of its removable components among its peers, sealed with its other shares (stage
share-keys). Once t clients have signed the survivors, everybody reveals, with its share of a survivor's self-mask seed,
one of that survivor's secret number D + 1, where D is how many participants are missing among the survivors that it has
signed itself. The server names no number, so it cannot have more removed than these drop-outs leave over; a second set
of survivors, with another D, t clients would not sign. A survivor that has left meanwhile is no special case.

The published protocol lets survivors send their seeds and asks for shares of the seeds of those who have left, in one
more stage. Here shares serve for both, as for the self-masks: no stage more, and a wrong share is found and left out.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.aggregation.combining import Ids
from testbed.aggregation.secagg_messages import Many, ShareOf, Shares, Unmask
from testbed.aggregation.share_correction import recover
from testbed.crypto.shamir import SHARE_BYTES
from testbed.messages import Message
from testbed.privacy.noise import Noise, NoiseShare
from testbed.privacy.removable import RemovableNoise, chain, seed_of

_OTHER_SHARES = 2  # of the mask key and the self-mask seed, before those of the noise


class SharesAndNoise(Shares, frozen=True):
    """`Shares`, and shares of the secrets of the survivors' first component that is to go (none: all stay)."""

    noise: Annotated[list[ShareOf], Many]


class UnmaskAndRemove(Unmask, frozen=True):
    """The signatures on the set of survivors; reveal the shares that it calls for, and those of the noise to go."""

    Answer: ClassVar[type[Message] | None] = SharesAndNoise


def removable(noise: Noise | None, participants: int) -> RemovableNoise | None:
    """What the experiment says, for so many participants; None where noise stays as it was added."""
    if noise is None or noise.enforcement is None:
        return None
    return RemovableNoise(participants, noise.enforcement.tolerated_dropouts)


def components(noise: Noise, plan: RemovableNoise, dimension: int, base: bytes, secret: bytes) -> list[NoiseShare]:
    """All that one participant adds.

    Args:
        noise: the experiment's section.
        plan: of the round.
        dimension: d, before padding.
        base: seed of component 0.
        secret: the first of its chain.
    """
    seeds = [base, *map(seed_of, chain(secret, plan.tolerated))]
    return [_share(noise, plan, dimension, component, seed) for component, seed in enumerate(seeds)]


def share_to_reveal(plan: RemovableNoise, left: int, opened: bytes) -> bytes | None:
    """Of all shares that a peer has dealt, the one that so many survivors call for; None where its noise all stays."""
    first = plan.first_removed(left)
    if first is None:
        return None
    begin = (_OTHER_SHARES + first - 1) * SHARE_BYTES
    return opened[begin : begin + SHARE_BYTES]


def remove_noise(
    noise: Noise,
    plan: RemovableNoise,
    total: npt.NDArray[Any],
    dimension: int,
    t: int,
    survivors: Ids,
    revealed: Mapping[int, Shares],
) -> list[tuple[int, int]]:
    """Take from `total` (in place) what the survivors have added beyond the planned noise.

    Args:
        noise: the experiment's section.
        plan: of the round.
        total: `(D+1,)` sum of the survivors' encoded, noisy updates; may leave the ring, not its lane.
        dimension: d, before padding.
        t: the secret-sharing threshold.
        survivors: whose updates are in the sum.
        revealed: the answers to `UnmaskAndRemove`, by client.

    Returns:
        (client whose secret it is, client that revealed the share) for each wrong share.

    Raises:
        RoundAborted: too few shares, or too many wrong ones.
    """
    first = plan.first_removed(len(survivors))
    if first is None:
        return []
    shares = {client: answer.noise for client, answer in revealed.items() if isinstance(answer, SharesAndNoise)}
    found = recover(t, np.sort(survivors).tolist(), shares)
    for secret in found.secrets.values():
        for component, later in enumerate(chain(secret, plan.tolerated - first + 1), first):
            _share(noise, plan, dimension, component, seed_of(later)).add_to(total, -1)
    return found.wrong


def _share(noise: Noise, plan: RemovableNoise, dimension: int, component: int, seed: bytes) -> NoiseShare:
    return NoiseShare(noise.mechanism, noise.variance(dimension) * plan.part(component), seed)
