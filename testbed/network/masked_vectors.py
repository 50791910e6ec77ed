"""Vectors with unexpanded masks: the plain elements, and the seeds of the masks that hide them.

Most masks of secure aggregation cancel: one survivor adds the pairwise mask and the other one subtracts it, and the
server removes the remaining masks with reconstructed seeds. An emulator that holds both ends need not expand them. A
`MaskedVector` keeps the plain elements and, by seed, how often its mask is added. Sums of such vectors
(`testbed.network.sums`) add the elements and count the seeds. Seeds with a final count other than 0 are expanded then,
to exactly the bits that eager expansion gives. The client that masks is charged for the full work of masking.
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
"""The seed that two clients agree on: its purpose, and their public keys in ascending order."""

Seed = bytes | AgreedSeed


def agreed_seed(own_public: bytes, peer_public: bytes, purpose: bytes) -> AgreedSeed:
    """Return the symbolic form of the seed that `PrivateKey.agree` computes for this pair of keys.

    Args:
        own_public: 32 bytes, X25519 public key.
        peer_public: 32 bytes, X25519 public key.
        purpose: domain separator of the agreement.

    Returns:
        (purpose, smaller key, larger key): the same for both ends.
    """
    return (purpose, own_public, peer_public) if own_public < peer_public else (purpose, peer_public, own_public)


class Masks:
    """Unexpanded masks of one generator.

    Args:
        seeds: the seed of each mask.
        signs: how often each mask is added, aligned with `seeds`; negative: subtracted.
        prg: the generator that expands the masks.
        keys: for each agreed seed, the private key of one of its two ends.

    Attributes:
        counts: by seed, how often its mask is added; seeds with count 0 are absent.

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
            # A count of 0 means that the masks cancel: the seed goes, and is never expanded.
            left = self.counts.pop(seed, 0) + sign
            if left:
                self.counts[seed] = left

    def __bool__(self) -> bool:
        return bool(self.counts)

    def add(self, more: "Masks") -> None:
        """Add the counts of more masks; drop seeds that cancel.

        Raises:
            ProtocolError: the masks are of different generators.
        """
        if not more.counts:
            return
        if self.counts and more.prg != self.prg:
            raise ProtocolError(f"masks to sum differ: some are expanded by {self.prg}, some by {more.prg}")
        # The generator of an empty `Masks` is only the default.
        self.prg = more.prg
        self._keys |= more._keys
        counts = self.counts
        for seed, count in more.counts.items():
            left = counts.pop(seed, 0) + count
            if left:
                counts[seed] = left

    def expanded(self) -> tuple[list[bytes], list[int]]:
        """Return aligned seeds and signs for `testbed.crypto.masks.add_masks`; seeds repeat as often as they count."""
        seeds = [secret for seed, count in self.counts.items() for secret in [self._seed_bytes(seed)] * abs(count)]
        signs = [1 if count > 0 else -1 for count in self.counts.values() for _ in range(abs(count))]
        return seeds, signs

    def _seed_bytes(self, seed: Seed) -> bytes:
        if isinstance(seed, bytes):
            return seed
        purpose, first, second = seed
        # Both ends agree on the same secret, so the private key of either will do.
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
    """Ring elements under masks that are expanded when the elements are read.

    Args:
        plain: `(d,)` of `word_dtype(bits)`, the unmasked elements; below ``2**bits``.
        bits: bits of the ring, 1 to 64.
        masks: the masks.
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
        """The `(d,)` unmasked elements, for sums over whole sets of masks only."""
        return self._plain

    @property
    def values(self) -> npt.NDArray[Any]:
        """The `(d,)` elements with all masks added; read-only, since a sum would ignore changes."""
        if self._masked is None:
            # For an adversary, a socket or a subclass the vector must look like any other, with its masks in it.
            masked = np.array(self._plain)
            self.masks.add_to(masked, self.bits)
            masked.setflags(write=False)
            self._masked = masked
        return self._masked
