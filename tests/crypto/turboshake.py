"""TurboSHAKE128 (RFC 9861), literally, for the vectors of VDAFs; not shipped.

`XofTurboShake128` is that of draft-irtf-cfrg-vdaf, section 6.2.1, in two versions.
"""

from typing import ClassVar

_RATE = 168
_WORD = 2**64 - 1
_ROTATIONS = ((0, 36, 3, 41, 18), (1, 44, 10, 45, 2), (62, 6, 43, 15, 61), (28, 55, 25, 21, 56), (27, 20, 39, 8, 14))
_CONSTANTS = (
    0x000000008000808B, 0x800000000000008B, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002,
    0x8000000000000080, 0x000000000000800A, 0x800000008000000A, 0x8000000080008081, 0x8000000000008080,
    0x0000000080000001, 0x8000000080008008,
)  # fmt: skip


def _turned(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _WORD if by else word


def _permuted(lanes: list[list[int]]) -> list[list[int]]:
    for constant in _CONSTANTS:
        parity = [column[0] ^ column[1] ^ column[2] ^ column[3] ^ column[4] for column in lanes]
        mixed = [parity[x - 1] ^ _turned(parity[(x + 1) % 5], 1) for x in range(5)]
        moved = [[0] * 5 for _ in range(5)]
        for x in range(5):
            for y in range(5):
                moved[y][(2 * x + 3 * y) % 5] = _turned(lanes[x][y] ^ mixed[x], _ROTATIONS[x][y])
        lanes = [[moved[x][y] ^ (~moved[(x + 1) % 5][y] & moved[(x + 2) % 5][y]) for y in range(5)] for x in range(5)]
        lanes[0][0] ^= constant
    return lanes


class TurboShake128:
    """The output for a message, as a stream."""

    def __init__(self, message: bytes, domain: int = 0x1F) -> None:
        padded = bytearray(message + bytes([domain]))
        padded += bytes(-len(padded) % _RATE)
        padded[-1] ^= 0x80
        self._lanes = [[0] * 5 for _ in range(5)]
        for first in range(0, len(padded), _RATE):
            for place in range(_RATE // 8):
                word = padded[first + 8 * place : first + 8 * place + 8]
                self._lanes[place % 5][place // 5] ^= int.from_bytes(word, "little")
            self._lanes = _permuted(self._lanes)
        self._block = self._squeezed()

    def _squeezed(self) -> bytes:
        return b"".join(self._lanes[place % 5][place // 5].to_bytes(8, "little") for place in range(_RATE // 8))

    def read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            if not self._block:
                self._lanes = _permuted(self._lanes)
                self._block = self._squeezed()
            some = count - len(found)
            found, self._block = found + self._block[:some], self._block[some:]
        return found


class XofTurboShake128(TurboShake128):
    """XOF with seeds of 16 bytes, as up to version 11 of the draft."""

    seed_bytes: ClassVar[int] = 16

    def __init__(self, seed: bytes, domain: bytes, *binder: bytes | memoryview) -> None:
        bound = b"".join(map(bytes, binder))
        super().__init__(len(domain).to_bytes(1, "little") + domain + seed + bound, 1)


class XofTurboShake128Of32(TurboShake128):
    """XOF with seeds of 32 bytes, as in version 12's vectors of Prio3."""

    seed_bytes: ClassVar[int] = 32

    def __init__(self, seed: bytes, domain: bytes, *binder: bytes | memoryview) -> None:
        bound = b"".join(map(bytes, binder))
        lengths = len(domain).to_bytes(1, "little"), len(seed).to_bytes(1, "little")
        super().__init__(lengths[0] + domain + lengths[1] + seed + bound, 1)
