"""The XOF (AES-128-CTR with key and counter from HMAC-SHA-256) against its two primitives."""

import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from testbed.crypto import InvalidKey
from testbed.crypto.field64 import PRIME
from testbed.crypto.xof import XofHmacSha256Aes128, derived_seed, elements


def stream(seed: bytes, domain: bytes, binder: bytes, count: int) -> bytes:
    """Return block after block with a counter computed by hand."""
    derived = hmac.digest(seed, bytes([len(domain)]) + domain + binder, "sha256")
    block = Cipher(algorithms.AES128(derived[:16]), modes.ECB()).encryptor()  # an oracle of counter mode
    first = int.from_bytes(derived[24:], "big")
    counters = [derived[16:24] + ((first + i) % 2**64).to_bytes(8, "big") for i in range(-(-count // 16))]
    return b"".join(map(block.update, counters))[:count]


@pytest.mark.parametrize("count", [1, 16, 17, 70_000])
def test_the_stream_follows_the_draft(count: int) -> None:
    expected = stream(b"s" * 32, b"domain", b"bound to this", count)
    assert bytes(XofHmacSha256Aes128(b"s" * 32, b"domain", b"bound to", b" this").read(count)) == expected
    pieces = XofHmacSha256Aes128(b"s" * 32, b"domain", b"bound to this")
    assert bytes(pieces.read(count // 3) + pieces.read(count - count // 3)) == expected
    assert derived_seed(XofHmacSha256Aes128, b"s" * 32, b"domain", b"bound to this")[:count] == expected[:32]


def test_elements_are_the_words_below_the_prime() -> None:
    class Words:
        seed_bytes = 0

        def __init__(self, *parts: object) -> None:
            words = [5, PRIME, PRIME - 1, 2**64 - 1, 7, 9, 11]
            self._left = b"".join(word.to_bytes(8, "little") for word in words)

        def read(self, count: int) -> bytes:
            found, self._left = self._left[:count], self._left[count:]
            return found

    assert elements(Words(), 4).tolist() == [5, PRIME - 1, 7, 9]


def test_an_array_is_hashed_in_memory_order() -> None:
    words = np.arange(5, dtype="<u8")
    left = XofHmacSha256Aes128(bytes(32), b"", memoryview(words).cast("B")).read(8)
    assert left == XofHmacSha256Aes128(bytes(32), b"", words.tobytes()).read(8)


def test_a_seed_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidKey):
        XofHmacSha256Aes128(bytes(31), b"")
