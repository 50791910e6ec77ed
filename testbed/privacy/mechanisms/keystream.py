"""Random words from a 32-byte seed: the AES-256-CTR key stream, read as little-endian 64-bit integers.

Whoever does not know the seed cannot tell the words from uniform ones. The same seed gives the same words on every
machine. Counters from 2**127 on are a stream of their own (`word_beside`), for the rare draw that needs more bits.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from testbed.crypto.failures import require_length

SEED_BYTES = 32
CHUNK = 1 << 15  # words at a time: they and what is made of them stay in the second-level cache

_BLOCK_BYTES = 16
_WORD_BYTES = 8
_ZEROS = memoryview(bytes(CHUNK * _WORD_BYTES))
_BESIDE = 1 << 127

Words = npt.NDArray[np.uint64]


def words(seed: bytes, count: int) -> Iterator[Words]:
    """The first `count` words, `CHUNK` at a time (fewer in the last part); each part is overwritten by the next.

    Raises:
        InvalidKey: if the seed is not 32 bytes long.
    """
    require_length(seed, SEED_BYTES, "a key stream's seed")
    encryptor = Cipher(AES(seed), CTR(bytes(_BLOCK_BYTES))).encryptor()
    stream = np.empty(CHUNK * _WORD_BYTES + _BLOCK_BYTES, np.uint8)  # the cipher asks for a block of slack
    words = stream[: CHUNK * _WORD_BYTES].view("<u8")
    for begin in range(0, count, CHUNK):
        size = min(CHUNK, count - begin)
        encryptor.update_into(_ZEROS[: size * _WORD_BYTES], stream.data)
        yield words[:size]


def word_beside(seed: bytes, position: int) -> int:
    """One more word for a position, of another stream than `words`."""
    encryptor = Cipher(AES(seed), CTR((_BESIDE + position).to_bytes(_BLOCK_BYTES, "big"))).encryptor()
    return int.from_bytes(encryptor.update(bytes(_WORD_BYTES)), "little")
