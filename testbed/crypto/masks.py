"""Masks of secure aggregation: vectors over the integers modulo 2**bits, expanded from 32-byte seeds.

The generator (PRG of Bonawitz et al., CCS 2017, section 3.3) is a key stream under the seed, read as little-endian
unsigned integers of the smallest word (16, 32 or 64 bits) that holds ``bits``. Arithmetic runs modulo the word's range,
which 2**bits divides, and the result is cut to ``bits`` at the end. A seed must be fresh for each round and purpose:
two vectors under the same mask are not hidden.

There are two generators. ``aes-256-ctr`` counts from 0 (NIST SP 800-38A). ``aegis-256x4`` (CFRG, The AEGIS Family of
Authenticated Encryption Algorithms) encrypts zeros, 2**18 bytes under each nonce; the nonce counts from 0, 32 bytes,
little-endian. It is several times as fast on CPUs with vectorised AES, and needs the package `aeg` (libaegis).

Safe to call from several threads at once: buffers are per thread, and both generators release Python's global lock.
"""

import importlib.util
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from testbed.crypto import require_length

SEED_BYTES = 32

Prg = Literal["aes-256-ctr", "aegis-256x4"]
"""Names of the generators."""

_CHUNK_BYTES = 1 << 18
"""Bytes of key stream computed at once.

Long enough that AES releases the global lock and calls cost little; short enough that a part of the accumulator, the
stream and the zeros fit a core's cache.
"""

_BLOCK_BYTES = 16
_AEGIS_NONCE_BYTES = 32
STREAM_SLACK = _BLOCK_BYTES
"""Extra bytes that a buffer for key stream needs (the cipher asks for one more block)."""

_COUNTER_ZERO = CTR(bytes(_BLOCK_BYTES))
_ZEROS = memoryview(bytes(_CHUNK_BYTES))


class _Buffers(threading.local):
    """A buffer for one chunk of key stream for each thread."""

    def __init__(self) -> None:
        self.stream = np.empty(_CHUNK_BYTES + STREAM_SLACK, np.uint8)


_buffers = _Buffers()


def word_dtype(bits: int) -> type[np.uint16] | type[np.uint32] | type[np.uint64]:
    """Return the unsigned type that stores ring elements modulo 2**bits.

    Returns:
        uint16 up to 16 bits, uint32 up to 32, uint64 up to 64.

    Raises:
        ValueError: ``bits`` is not between 1 and 64.
    """
    if not 1 <= bits <= 64:
        raise ValueError(f"the ring's bit width must be between 1 and 64, got {bits}")
    if bits <= 16:
        return np.uint16
    return np.uint32 if bits <= 32 else np.uint64


def is_installed(prg: Prg) -> bool:
    """Return whether a generator is installed."""
    return prg == "aes-256-ctr" or importlib.util.find_spec("aeg") is not None


def add_masks(
    accumulator: NDArray[np.unsignedinteger],
    seeds: Sequence[bytes],
    signs: Sequence[int],
    bits: int,
    prg: Prg = "aes-256-ctr",
) -> None:
    """Add masks to a vector, in place: accumulator + sum_k signs[k] * PRG(seeds[k]) modulo 2**bits.

    Args:
        accumulator: (d,) of ``word_dtype(bits)``, contiguous, writable; on return all elements are below 2**bits.
        seeds: 32 secret bytes each.
        signs: +1 or -1 for each seed.
        bits: the ring is the integers modulo 2**bits, 1 to 64.
        prg: the generator.

    Raises:
        InvalidKey: a seed is not 32 bytes long.
        ModuleNotFoundError: the generator is not installed (`is_installed`).
        ValueError: the accumulator, the signs or ``bits`` are not as described; nothing is added then.
    """
    word = word_dtype(bits)
    if accumulator.ndim != 1 or accumulator.dtype != word:
        got = f"{accumulator.shape} {accumulator.dtype}"
        raise ValueError(f"the accumulator must be (d,) {word.__name__}, got {got}")
    if not (accumulator.flags.c_contiguous and accumulator.flags.writeable):
        raise ValueError("the accumulator must be contiguous and writable: it is changed in place")
    if len(seeds) != len(signs) or any(sign not in (1, -1) for sign in signs):
        raise ValueError(f"one sign, +1 or -1, is needed for each of the {len(seeds)} seeds")
    # Check everything before the first addition: an error leaves the accumulator unchanged.
    for seed in seeds:
        require_length(seed, SEED_BYTES, "a mask's seed")

    itemsize = accumulator.itemsize
    stream = _buffers.stream
    # Little-endian on every machine: all parties must read the same elements.
    words = stream[:_CHUNK_BYTES].view(f"<u{itemsize}")
    elements = _CHUNK_BYTES // itemsize
    largest = word(2**bits - 1) if bits < 8 * itemsize else None
    start = _aes_256_ctr if prg == "aes-256-ctr" else _aegis_256x4
    masks = [(start(seed), np.add if sign == 1 else np.subtract) for seed, sign in zip(seeds, signs, strict=True)]
    for begin in range(0, len(accumulator), elements):  # all streams for one stretch, so that it stays in the cache
        part = accumulator[begin : begin + elements]
        values = words[: len(part)]
        for next_chunk, combine in masks:
            next_chunk(stream, part.nbytes)
            combine(part, values, out=part)
        # Once for all masks: 2**bits divides the word's range.
        if largest is not None:
            np.bitwise_and(part, largest, out=part)


NextChunk = Callable[[NDArray[np.uint8], int], None]
"""Writes the next bytes of a key stream to the start of a buffer; the second argument is their number."""


def key_stream(seed: bytes) -> NextChunk:
    """Return AES-256-CTR from counter 0, at most 2**18 bytes for each call.

    Buffers must have room for `STREAM_SLACK` more bytes.

    Raises:
        InvalidKey: the seed is not 32 bytes long.
    """
    require_length(seed, SEED_BYTES, "a key stream's seed")
    return _aes_256_ctr(seed)


def _aes_256_ctr(seed: bytes) -> NextChunk:
    encrypt_into = Cipher(AES(seed), _COUNTER_ZERO).encryptor().update_into

    def next_chunk(stream: NDArray[np.uint8], count: int) -> None:
        encrypt_into(_ZEROS[:count], stream.data)

    return next_chunk


def _aegis_256x4(seed: bytes) -> NextChunk:
    write = aegis_256x4_writer()
    chunk = 0

    def next_chunk(stream: NDArray[np.uint8], count: int) -> None:
        # libaegis computes a stream from its beginning only, so each chunk has a nonce of its own.
        nonlocal chunk
        write(stream, count, chunk.to_bytes(_AEGIS_NONCE_BYTES, "little"), seed)
        chunk += 1

    return next_chunk


@cache
def aegis_256x4_writer() -> Callable[[NDArray[np.uint8], int, bytes, bytes], None]:
    """Return a function that writes key stream to the start of a buffer, from a nonce and a key of 32 bytes each.

    Calls libaegis directly where the package exposes it: the package's own function takes 1.5 times as long to check
    arguments, and holds Python's global lock meanwhile.
    """
    from aeg import aegis256x4

    try:
        # A private module of `aeg`: another version may not have it.
        from aeg._loader import ffi, lib

        stream_into = lib.aegis256x4_stream
    except (ImportError, AttributeError):
        return lambda stream, count, nonce, key: aegis256x4.stream(key, nonce, into=stream[:count].data)

    def write(stream: NDArray[np.uint8], count: int, nonce: bytes, key: bytes) -> None:
        stream_into(ffi.from_buffer("uint8_t[]", stream, require_writable=True), count, nonce, key)

    return write


def mask(seed: bytes, length: int, bits: int, prg: Prg = "aes-256-ctr") -> NDArray[np.unsignedinteger]:
    """Return the mask of one seed.

    Args:
        seed: 32 secret bytes.
        length: d, the number of elements.
        bits: 1 to 64.
        prg: the generator.

    Returns:
        (d,) of ``word_dtype(bits)``, uniform modulo 2**bits.

    Raises:
        InvalidKey: the seed is not 32 bytes long.
        ValueError: ``bits`` is out of range.

    Example:
        >>> seed = bytes(32)  # agreed by two clients; one adds the mask, the other subtracts it
        >>> inputs = np.array([5, 1], np.uint32), np.array([2, 9], np.uint32)
        >>> masked = inputs[0] + mask(seed, length=2, bits=32), inputs[1] - mask(seed, length=2, bits=32)
        >>> (masked[0] + masked[1]).tolist()
        [7, 10]
    """
    vector = np.zeros(length, word_dtype(bits))
    add_masks(vector, [seed], [1], bits, prg)
    return vector
