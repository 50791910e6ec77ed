"""Shared fixtures of the tests of primitives: published vectors, and keys that must be refused."""

import pytest


@pytest.fixture(scope="session")
def refused_edwards_keys() -> list[bytes]:
    """Return encodings that are no public keys on edwards25519: the 8 points of small order, then invalid points."""
    order_8 = ["26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"]
    order_8 += ["c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"]
    small = [(1).to_bytes(32, "little"), (2**255 - 20).to_bytes(32, "little"), bytes(32), bytes(31) + b"\x80"]
    small += [bytes.fromhex(one) for one in order_8]
    small += [one[:31] + bytes([one[31] | 0x80]) for one in small[-2:]]
    # y >= p: every such y below 2**255, with either sign bit (among them the known points of small order)
    high = [y.to_bytes(32, "little") for y in range(2**255 - 19, 2**255)]
    high += [one[:31] + b"\xff" for one in high]
    # x = 0 with a sign
    minus_zero = [b"\x01" + bytes(30) + b"\x80", (2**255 - 20 + 2**255).to_bytes(32, "little")]
    off_curve = [(2).to_bytes(32, "little")]
    return [*small, *high, *minus_zero, *off_curve]
