"""Vectors under masks that nobody has looked at yet: what they hide, and which masks hide it.

Most masks of secure aggregation are expanded only to cancel: the pairwise mask of two survivors is added by one and
subtracted by the other, and the server takes off the rest with the seeds that it has reconstructed. An emulator that
holds both ends need not expand them. A `MaskedVector` keeps the elements and, by seed, how often its mask is to be
added; sums of them (`testbed.network.sums`) add the elements and count the seeds. Where the count of a seed ends at 0
nothing is left to expand, and where it does not (a wrong share, a mask whose other end has gone) its mask is expanded
then, with the very bits that it would have had all along.

Whoever asks for the elements, `MaskedVector.values`, gets them with all masks in them: to an adversary, a socket or a
subclass it is a vector like any other. What the work would have cost is charged by who masks, whichever way it goes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from testbed.crypto import require_length
from testbed.crypto.masks import SEED_BYTES, Prg, add_masks
from testbed.messages import Vector

Masks = Mapping[bytes, int]
"""By seed, how often its mask is added; negative: subtracted. None is 0."""


def counted(seeds: Sequence[bytes], signs: Sequence[int]) -> dict[bytes, int]:
    """The masks of `seeds`, each with its sign.

    Raises `InvalidKey` for a seed that is not 32 bytes long.
    """
    found: dict[bytes, int] = {}
    for seed, sign in zip(seeds, signs, strict=True):
        require_length(seed, SEED_BYTES, "a mask's seed")
        found[seed] = found.get(seed, 0) + sign
    return {seed: count for seed, count in found.items() if count}


def add_counts(total: dict[bytes, int], masks: Masks) -> None:
    """Add `masks` to `total`, in place; what cancels leaves it."""
    for seed, count in masks.items():
        left = total.pop(seed, 0) + count
        if left:
            total[seed] = left


def expanded(masks: Masks) -> tuple[list[bytes], list[int]]:
    """Seeds and signs, aligned, as `testbed.crypto.masks.add_masks` takes them: a seed as often as it counts."""
    seeds = [seed for seed, count in masks.items() for _ in range(abs(count))]
    signs = [1 if count > 0 else -1 for count in masks.values() for _ in range(abs(count))]
    return seeds, signs


class MaskedVector(Vector):
    """Ring elements under masks, which are expanded when the elements are asked for.

    Args:
        plain: `(d,)` of `word_dtype(bits)`, what the masks hide; below ``2**bits``.
        bits: of the ring, 1 to 64.
        masks: what hides it.
        prg: what expands them.
    """

    __slots__ = ("_plain", "masks", "prg")

    def __init__(self, plain: npt.NDArray[Any], bits: int, masks: Masks, prg: Prg = "aes-256-ctr") -> None:
        super().__init__(plain, bits)
        self._plain = plain
        self.masks = masks
        self.prg = prg

    @property
    def plain(self) -> npt.NDArray[Any]:
        """`(d,)` what the masks hide: for sums over whole sets of masks only."""
        return self._plain

    @property
    def values(self) -> npt.NDArray[Any]:
        """`(d,)` the elements, all masks in them."""
        if self._values is self._plain:
            masked = self._plain.copy()
            add_masks(masked, *expanded(self.masks), self.bits, self.prg)
            self._values = masked
        return self._values
