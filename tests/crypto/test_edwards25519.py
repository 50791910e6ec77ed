"""edwards25519 and hashing to it, against RFC 9380's vectors, libsodium, and textbook arithmetic."""

import hashlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nacl import bindings

from testbed.crypto import InvalidKey, edwards25519
from tests.crypto.published import vectors

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P

field_elements = st.integers(0, P - 1)


def add(left, right):
    """Return the sum by the addition law of RFC 8032 section 5.1, with affine coordinates."""
    (x1, y1), (x2, y2) = left, right
    t = D * x1 * x2 * y1 * y2
    return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P


def square_root(value):
    """Return a square root modulo P, or None."""
    for root in (pow(value, (P + 3) // 8, P), pow(value, (P + 3) // 8, P) * pow(2, (P - 1) // 4, P) % P):
        if root * root % P == value % P:
            return root
    return None


def elligator(u):
    """Map to the curve literally by RFC 9380 (sections 6.7.1 and 6.8.2, appendix D.1)."""
    a = 486662
    s1 = -a * pow(1 + 2 * u * u, -1, P) % P
    s2 = (-s1 - a) % P
    for s, parity in ((s1, 1), (s2, 0)):
        t = square_root(s**3 + a * s**2 + s)
        if t is not None:
            t = t if t % 2 == parity else -t % P
            break
    scale = square_root(-486664)
    scale = scale if scale % 2 == 0 else P - scale
    if t == 0 or s == P - 1:
        return 0, 1
    return scale * s * pow(t, -1, P) % P, (s - 1) * pow(s + 1, -1, P) % P


def test_hash_to_curve_gives_rfc_9380():
    suite = vectors("hash_to_curve/rfc9380")
    for vector in suite["vectors"]:
        message, domain = vector["msg"].encode(), suite["domain"].encode()
        u = edwards25519.hash_to_field(message, domain)
        assert u == int(vector["u"], 16)
        x, y, z = (int(one) for one in edwards25519.map_to_curve(u))
        q = x * pow(z, -1, P) % P, y * pow(z, -1, P) % P
        assert q == (int(vector["Q_x"], 16), int(vector["Q_y"], 16))
        point = int(vector["P_x"], 16), int(vector["P_y"], 16)
        assert edwards25519.clear_cofactor(x, y, z) == point
        assert edwards25519.decode(edwards25519.encode_to_curve(message, domain)) == point


@given(field_elements)
@example(0)
@example(1)
@example(P - 1)
def test_map_to_curve_is_elligator_2(u):
    x, y, z = (int(one) for one in edwards25519.map_to_curve(u))
    assert (x * pow(z, -1, P) % P, y * pow(z, -1, P) % P) == elligator(u)


@given(field_elements)
def test_libsodium_maps_to_the_same_point_up_to_its_sign(u):
    """Its from_uniform takes the sign of x from the input's top bit, so it is not used here."""
    theirs = bindings.crypto_core_ed25519_from_uniform(u.to_bytes(32, "little"))
    ours = edwards25519.encode(edwards25519.clear_cofactor(*edwards25519.map_to_curve(u)))
    negated = bindings.crypto_core_ed25519_sub(b"\x01" + bytes(31), ours)
    assert theirs in (ours, negated)


def test_a_domain_tag_longer_than_255_bytes_is_refused():
    edwards25519.hash_to_field(b"", bytes(255))
    with pytest.raises(ValueError, match="255"):
        edwards25519.hash_to_field(b"", bytes(256))


@given(st.binary(min_size=32, max_size=32))
def test_decoding_gives_the_point_that_was_encoded_or_none(encoded):
    point = edwards25519.decode(encoded)
    if point is None:
        y = int.from_bytes(encoded, "little") % 2**255
        x_squared = (y * y - 1) * pow(D * y * y + 1, -1, P)
        assert y >= P or square_root(x_squared) is None or x_squared % P == 0
    else:
        x, y = (int(one) for one in point)
        assert (y * y - x * x) % P == (1 + D * x * x * y * y) % P
        assert edwards25519.encode(point) == encoded


@given(st.binary(min_size=1, max_size=32))
def test_clearing_the_cofactor_multiplies_by_eight(seed):
    encoded = next(
        one
        for counter in range(256)
        if edwards25519.decode(one := hashlib.sha256(seed + bytes([counter])).digest()) is not None
    )
    point = edwards25519.decode(encoded)
    assert point is not None
    eightfold = tuple(int(one) for one in point)
    for _ in range(3):
        eightfold = add(eightfold, eightfold)
    assert edwards25519.clear_cofactor(*point) == eightfold


def test_only_canonical_points_of_prime_order_are_keys(refused_edwards_keys):
    good = edwards25519.multiply_base(hashlib.sha256(b"key").digest())
    edwards25519.validate_key(good)
    for bad in refused_edwards_keys:
        with pytest.raises(InvalidKey):
            edwards25519.validate_key(bad)
    for short in (b"", good[:31], good + b"\x00"):
        with pytest.raises(InvalidKey, match="32 bytes"):
            edwards25519.validate_key(short)


def test_keys_with_a_component_of_small_order_are_refused(refused_edwards_keys):
    good = edwards25519.multiply_base(hashlib.sha256(b"key").digest())
    for torsion in refused_edwards_keys[1:8]:
        mixed = bindings.crypto_core_ed25519_add(good, torsion)
        assert edwards25519.decode(mixed) is not None
        with pytest.raises(InvalidKey):
            edwards25519.validate_key(mixed)


def test_only_the_eight_canonical_encodings_of_small_order_decode(refused_edwards_keys):
    decoded = [edwards25519.decode(bad) for bad in refused_edwards_keys]
    small = [point for point in decoded[:8] if point is not None]
    assert len(small) == 8
    assert decoded[8:] == [None] * len(decoded[8:])
    assert len({edwards25519.encode(point) for point in small}) == 8
    assert all(edwards25519.clear_cofactor(*point) == (0, 1) for point in small)


@given(st.integers(1, edwards25519.ORDER - 1), st.integers(1, edwards25519.ORDER - 1))
def test_scalars_and_points_follow_the_group_law(left, right):
    a, b = left.to_bytes(32, "little"), right.to_bytes(32, "little")
    product = left * right % edwards25519.ORDER
    assert edwards25519.multiply_scalars(a, b) == product.to_bytes(32, "little")
    assert edwards25519.multiply(a, edwards25519.multiply_base(b)) == edwards25519.multiply_base(
        product.to_bytes(32, "little")
    )
    if left != right:
        difference = (left - right) % edwards25519.ORDER
        assert edwards25519.subtract(
            edwards25519.multiply_base(a), edwards25519.multiply_base(b)
        ) == edwards25519.multiply_base(difference.to_bytes(32, "little"))


def test_multiplying_by_zero_or_a_bad_point_is_refused(refused_edwards_keys):
    one = (1).to_bytes(32, "little")
    with pytest.raises(ValueError, match="0"):
        edwards25519.multiply_base(bytes(32))
    with pytest.raises(ValueError, match="0"):
        edwards25519.multiply(bytes(32), edwards25519.multiply_base(one))
    for bad in refused_edwards_keys:
        with pytest.raises(ValueError, match="prime order"):
            edwards25519.multiply(one, bad)


@given(st.integers(0, edwards25519.PRIME - 1))
def test_the_first_coordinate_equals_elligator_2(u):
    _, y, z = edwards25519.map_to_curve(u)
    first = edwards25519.montgomery_u(u) % edwards25519.PRIME
    if (z - y) % edwards25519.PRIME:  # y / z = (s - 1) / (s + 1)
        assert (z + y) * pow(int(z - y), -1, int(edwards25519.PRIME)) % edwards25519.PRIME == first


@given(st.binary(min_size=32, max_size=32), st.integers(0, 7), st.binary(min_size=32, max_size=32))
def test_on_curve25519_points_are_doubled_and_multiplied_as_on_edwards25519(seed, times, clamped):
    point = edwards25519.multiply_base(hashlib.sha256(seed).digest())
    u = bindings.crypto_sign_ed25519_pk_to_curve25519(point)
    doubled = edwards25519.double_u(int.from_bytes(u, "little"), times)
    expected = edwards25519.multiply((2**times).to_bytes(32, "little"), point)
    assert doubled == bindings.crypto_sign_ed25519_pk_to_curve25519(expected)
    scalar = bytes([clamped[0] & 248]) + clamped[1:31] + bytes([clamped[31] & 127 | 64])
    product = edwards25519.multiply_u(scalar, u)
    assert product is not None
    pair = edwards25519.edwards_pair(product)
    assert pair is not None
    assert edwards25519.multiply(scalar, point) in pair
