"""Vectors under masks that nobody has looked at yet: what they hide, and which masks hide it.

Most masks of secure aggregation are expanded only to cancel: the pairwise mask of two survivors is added by one and
subtracted by the other, and the server takes off the rest with the seeds that it has reconstructed. An emulator that
holds both ends need not expand them. A `MaskedVector` keeps the elements and, by seed, how often its mask is to be
added; sums of them (`testbed.network.sums`) add the elements and count the seeds. Where the count of a seed ends at 0
nothing is left to expand, and where it does not (a wrong share, a mask whose other end has gone) its mask is expanded
then, with the very bits that it would have had all along.

Nor need anybody know a seed that two clients agree on. It follows from their public keys, so it is counted by these,
and agreed on when its mask is expanded, with the private key of either. The elements of one input are made when they
are needed, too: `Elements` are added to a sum without lying anywhere in between.

Whoever asks for the elements, `MaskedVector.values`, gets them with all masks in them: to an adversary, a socket or a
subclass it is a vector like any other. What the work would have cost is charged by who masks, whichever way it goes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from testbed.crypto import memo, require_length
from testbed.crypto.key_agreement import PUBLIC_KEY_BYTES, PrivateKey
from testbed.crypto.masks import SEED_BYTES, Prg, add_masks
from testbed.errors import ProtocolError
from testbed.messages import Vector

AgreedSeed = tuple[bytes, bytes, bytes]
"""The seed that two agree on: its purpose, and their public keys in ascending order."""

Seed = bytes | AgreedSeed


def agreed_seed(own_public: bytes, peer_public: bytes, purpose: bytes) -> AgreedSeed:
    """What `PrivateKey.agree` gives to the owner of either key for this purpose, without computing it."""
    return (purpose, own_public, peer_public) if own_public < peer_public else (purpose, peer_public, own_public)


class Masks:
    """Masks of one generator that nobody has expanded.

    Args:
        seeds: of each mask.
        signs: how often it is added, aligned; negative: subtracted.
        prg: what expands them.
        keys: whose seeds are agreed on: for each of these one of its two ends.

    Attributes:
        counts: by seed, how often its mask is added; none is 0.

    Raises:
        InvalidKey: a seed or a public key is not 32 bytes long.
    """

    __slots__ = ("_keys", "counts", "prg")

    def __init__(
        self,
        seeds: Sequence[Seed] = (),
        signs: Sequence[int] = (),
        prg: Prg = "aes-256-ctr",
        keys: Iterable[PrivateKey] = (),
    ) -> None:
        self.prg = prg
        self.counts: dict[Seed, int] = {}
        self._keys = {key.public: key for key in keys}
        for seed, sign in zip(seeds, signs, strict=True):
            if isinstance(seed, bytes):
                require_length(seed, SEED_BYTES, "a mask's seed")
            else:
                require_length(seed[1], PUBLIC_KEY_BYTES, "an X25519 public key")
                require_length(seed[2], PUBLIC_KEY_BYTES, "an X25519 public key")
            left = self.counts.pop(seed, 0) + sign
            if left:
                self.counts[seed] = left

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, more: "Masks") -> None:
        """Count some more; what cancels is gone. Raises `ProtocolError` when they are of another generator."""
        if not more.counts:
            return
        if self.counts and more.prg != self.prg:
            raise ProtocolError(f"masks to sum differ: some are expanded by {self.prg}, some by {more.prg}")
        self.prg = more.prg
        self._keys |= more._keys
        counts = self.counts
        for seed, count in more.counts.items():
            left = counts.pop(seed, 0) + count
            if left:
                counts[seed] = left

    def expanded(self) -> tuple[list[bytes], list[int]]:
        """Seeds and signs, aligned, as `testbed.crypto.masks.add_masks` takes them: a seed as often as it counts."""
        seeds = [known for seed, count in self.counts.items() for known in [self._known(seed)] * abs(count)]
        signs = [1 if count > 0 else -1 for count in self.counts.values() for _ in range(abs(count))]
        return seeds, signs

    def _known(self, seed: Seed) -> bytes:
        if isinstance(seed, bytes):
            return seed
        purpose, first, second = seed
        if first in self._keys:
            return memo.agree(self._keys[first], second, purpose)
        return memo.agree(self._keys[second], first, purpose)

    def add_to(self, elements: npt.NDArray[Any], bits: int) -> None:
        """Add the masks to `(d,)` `elements` modulo 2**bits, in place; see `add_masks`."""
        add_masks(elements, *self.expanded(), bits, self.prg)


class Elements(Protocol):
    """`(d,)` ring elements that are made when they are needed, each time the same."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The words of the ring."""

    def __len__(self) -> int: ...

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """`(d,)` all of them."""

    def add_to(self, total: npt.NDArray[Any]) -> None:
        """Add them to `(d,)` `total` of the same words, in place, modulo their range."""


class MaskedVector(Vector):
    """Ring elements under masks, which are expanded when the elements are asked for.

    Args:
        plain: `(d,)` of `word_dtype(bits)`, what the masks hide; below ``2**bits``.
        bits: of the ring, 1 to 64.
        masks: what hides it.
    """

    __slots__ = ("_masked", "_plain", "masks")

    def __init__(self, plain: npt.NDArray[Any] | Elements, bits: int, masks: Masks) -> None:
        super().__init__(plain if isinstance(plain, np.ndarray) else np.empty(0, plain.dtype), bits)
        self._plain = plain
        self._masked: npt.NDArray[Any] | None = None
        self.masks = masks

    def __len__(self) -> int:
        return len(self._plain)

    @property
    def plain(self) -> npt.NDArray[Any] | Elements:
        """`(d,)` what the masks hide: for sums over whole sets of masks only."""
        return self._plain

    @property
    def values(self) -> npt.NDArray[Any]:
        """`(d,)` the elements, all masks in them; read-only: a sum would not have what is changed here."""
        if self._masked is None:
            masked = np.array(self._plain)
            self.masks.add_to(masked, self.bits)
            masked.setflags(write=False)
            self._masked = masked
        return self._masked
