"""Extendable output functions: a stream of bytes or field elements from a seed, a domain and a binder.

`XofHmacSha256Aes128` is the function of draft-chen-cfrg-vdaf-pine (`poc/xof_hmac_sha256_aes128.py`) and libprio:
AES-128 in counter mode, with a key and an initial counter derived by HMAC-SHA-256.
"""

import hmac
from typing import ClassVar, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from testbed.crypto import require_length
from testbed.crypto.field64 import ELEMENT_BYTES, PRIME, Elements

_ZEROS = bytes(1 << 16)


class Xof(Protocol):
    """A stream of bytes.

    Attributes:
        seed_bytes: length of a seed [bytes].
    """

    seed_bytes: ClassVar[int]

    def __init__(self, seed: bytes, domain: bytes, *binder: bytes | memoryview) -> None:
        """Start the stream of a seed for one domain, bound to the concatenation of `binder`."""

    def read(self, count: int) -> bytes | bytearray:
        """Return the next bytes."""


class XofHmacSha256Aes128:
    """Implementation of `Xof`; raises `InvalidKey` for a seed that is not 32 bytes long."""

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
        # `update_into` wants room for one more block less one byte.
        output, zeros = bytearray(count + 15), memoryview(_ZEROS)
        view = memoryview(output)
        for first in range(0, count, len(_ZEROS)):
            some = min(len(_ZEROS), count - first)
            self._stream.update_into(zeros[:some], view[first : first + some + 15])
        view.release()  # a bytearray with a view cannot shrink
        del output[count:]
        return output


def elements(stream: Xof, count: int) -> Elements:
    """Return the next uniform field elements: little-endian words, rejecting those not below the prime.

    Args:
        stream: the stream.
        count: number of elements.

    Returns:
        `(count,)` uint64.

    Source:
        draft-irtf-cfrg-vdaf, section 6.2.
    """
    parts, missing = [], count
    while missing:
        # Words that follow replace the rejected words, as in the draft, which reads them one by one.
        words = np.frombuffer(stream.read(ELEMENT_BYTES * missing), "<u8").astype(np.uint64, copy=False)
        fitting = words if int(words.max()) < PRIME else words[words < np.uint64(PRIME)]
        parts.append(fitting)
        missing -= len(fitting)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def derived_seed(kind: type[Xof], seed: bytes, domain: bytes, *binder: bytes | memoryview) -> bytes:
    """Return the first bytes of a stream, as many as a seed has.

    Args:
        kind: the XOF.
        seed: of the stream.
        domain: of the stream.
        binder: of the stream.
    """
    return bytes(kind(seed, domain, *binder).read(kind.seed_bytes))
