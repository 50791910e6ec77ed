"""Extendable output functions: from a seed, for what, and bound to what, a stream of bytes or of field elements.

`XofHmacSha256Aes128` is that of draft-chen-cfrg-vdaf-pine (`poc/xof_hmac_sha256_aes128.py`) and libprio: AES-128 in
counter mode, under a key and from a counter that HMAC-SHA-256 derives.
"""

import hmac
from typing import ClassVar, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from testbed.crypto import require_length
from testbed.crypto.field64 import ELEMENT_BYTES, PRIME, Elements

_ZEROS = bytes(1 << 16)


class Xof(Protocol):
    """A stream.

    Attributes:
        seed_bytes: how long a seed is.
    """

    seed_bytes: ClassVar[int]

    def __init__(self, seed: bytes, domain: bytes, *binder: bytes | memoryview) -> None:
        """The stream of a seed, for what `domain` says, bound to the concatenation of `binder`."""

    def read(self, count: int) -> bytes | bytearray:
        """The next bytes."""


class XofHmacSha256Aes128:
    """See `Xof`; raises `InvalidKey` for a seed that is not 32 bytes long."""

    seed_bytes: ClassVar[int] = 32

    def __init__(self, seed: bytes, domain: bytes, *binder: bytes | memoryview) -> None:
        require_length(seed, self.seed_bytes, "an XOF's seed")
        keyed = hmac.new(seed, len(domain).to_bytes(1, "little") + domain, "sha256")
        for part in binder:
            keyed.update(part)
        derived = keyed.digest()
        # The counter is 64 bits wide in the draft and 128 here, which differs once in 2**40 streams of a gigabyte.
        self._stream = Cipher(algorithms.AES128(derived[:16]), modes.CTR(derived[16:])).encryptor()

    def read(self, count: int) -> bytearray:
        found, zeros = bytearray(count + 15), memoryview(_ZEROS)
        view = memoryview(found)
        for first in range(0, count, len(_ZEROS)):
            some = min(len(_ZEROS), count - first)
            self._stream.update_into(zeros[:some], view[first : first + some + 15])
        view.release()
        del found[count:]
        return found


def elements(stream: Xof, count: int) -> Elements:
    """`(count,)` the next uniform ones: words, little-endian, those below the prime (draft-irtf-cfrg-vdaf, 6.2)."""
    parts, missing = [], count
    while missing:
        words = np.frombuffer(stream.read(ELEMENT_BYTES * missing), "<u8").astype(np.uint64, copy=False)
        fitting = words if int(words.max()) < PRIME else words[words < np.uint64(PRIME)]
        parts.append(fitting)
        missing -= len(fitting)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def derived_seed(kind: type[Xof], seed: bytes, domain: bytes, *binder: bytes | memoryview) -> bytes:
    """The first bytes of a stream, as many as a seed has."""
    return bytes(kind(seed, domain, *binder).read(kind.seed_bytes))
