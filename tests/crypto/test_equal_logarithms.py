"""Batched proofs of equal logarithms: no part of the statement can be changed; against affine arithmetic."""

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidKey, InvalidProof, edwards25519, equal_logarithms, feldman
from testbed.crypto.edwards25519 import ORDER
from tests.crypto.test_threshold_elgamal import SMALL_ORDER, added, decoded, number, times
from tests.thoroughness import examples

CONTENT = b"round 3, member 7"


def scalar(seed: int) -> bytes:
    return feldman.random_scalar(hashlib.sha256(str(seed).encode()).digest())


def statement(count: int, seed: int = 0) -> tuple[bytes, bytes, list[bytes], list[bytes]]:
    secret = scalar(seed)
    points = [edwards25519.multiply_base(scalar(1000 + seed + at)) for at in range(count)]
    products = [edwards25519.multiply(secret, point) for point in points]
    return secret, edwards25519.multiply_base(secret), points, products


def holds(*given_: Any) -> bool:
    try:
        equal_logarithms.verify(*given_)
    except InvalidProof:
        return False
    return True


@given(st.integers(0, 2**30), st.integers(1, 5), st.binary(max_size=40))
@settings(max_examples=examples(20))
def test_right_products_are_proven_in_48_bytes(seed: int, count: int, content: bytes) -> None:
    secret, public, points, products = statement(count, seed)
    proof = equal_logarithms.prove(secret, points, products, content)
    assert len(proof) == equal_logarithms.PROOF_BYTES == 48
    assert proof == equal_logarithms.prove(secret, points, products, content)
    assert holds(public, points, products, content, proof)
    assert not holds(public, points, products, content + b"x", proof)


def test_the_equations_hold_in_affine_arithmetic() -> None:
    """The verifier's two equations for one point, without libsodium: r B - c Y and r H - c G hash to the challenge."""
    secret, public, points, products = statement(1)
    proof = equal_logarithms.prove(secret, points, products, CONTENT)
    challenge, response = number(proof[:16]), number(proof[16:])
    domain = b"testbed/equal-logarithms/v1"
    sizes = len(CONTENT).to_bytes(8, "big") + (1).to_bytes(8, "big")
    seed = hashlib.sha512(domain + b"/seed" + sizes + CONTENT + public + points[0] + products[0]).digest()
    weight = number(hashlib.sha512(domain + b"/weight" + seed + bytes(8)).digest()[:16])
    base = decoded(edwards25519.multiply_base((1).to_bytes(32, "little")))
    point, product = (times(weight, decoded(one[0])) for one in (points, products))
    commitments = [
        added(times(response, of), times(ORDER - challenge, image))
        for of, image in ((base, decoded(public)), (point, product))
    ]
    hashed = b"".join(map(edwards25519.encode, [point, product, *commitments]))
    assert hashlib.sha512(domain + b"/challenge" + seed + hashed).digest()[:16] == proof[:16]


def test_no_part_of_a_statement_can_be_changed() -> None:
    secret, public, points, products = statement(3)
    other = edwards25519.multiply_base(scalar(5))
    proof = equal_logarithms.prove(secret, points, products, CONTENT)
    assert holds(public, points, products, CONTENT, proof)
    changed = [
        (other, points, products, CONTENT, proof),
        (public, [other, *points[1:]], products, CONTENT, proof),
        (public, points, [*products[:2], other], CONTENT, proof),
        (public, points[::-1], products[::-1], CONTENT, proof),
        (public, points[:2], products[:2], CONTENT, proof),
        (public, [*points, points[0]], [*products, products[0]], CONTENT, proof),
        (public, points, products[:2], CONTENT, proof),
        (public, [], [], CONTENT, proof),
        (public, points, products, CONTENT[:-1], proof),
        (public, points, products, CONTENT, proof[:-1]),
        (public, points, products, CONTENT, b""),
        (SMALL_ORDER, points, products, CONTENT, proof),
        (public, points, [SMALL_ORDER, *products[1:]], CONTENT, proof),
        (public, points, [b"short", *products[1:]], CONTENT, proof),
    ]
    changed += [
        (public, points, products, CONTENT, proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :]) for at in range(48)
    ]
    assert [one for one in changed if holds(*one)] == []
    above = (number(proof[16:]) + ORDER).to_bytes(32, "little")
    assert not holds(public, points, products, CONTENT, proof[:16] + above)


def test_wrong_products_do_not_hide_in_the_combination() -> None:
    """Neither one of many, nor two that would cancel with equal weights."""
    secret, public, points, products = statement(4)
    more = edwards25519.multiply_base(scalar(9))
    one = [edwards25519.add(products[0], more), *products[1:]]
    two = [edwards25519.add(products[0], more), edwards25519.subtract(products[1], more), *products[2:]]
    for wrong in (one, two):
        assert not holds(public, points, wrong, CONTENT, equal_logarithms.prove(secret, points, wrong, CONTENT))


def test_invalid_statements_are_refused() -> None:
    secret, _, points, products = statement(2)
    with pytest.raises(InvalidKey):
        equal_logarithms.prove(secret[:-1], points, products, CONTENT)
    with pytest.raises(InvalidKey):
        equal_logarithms.prove(secret, [SMALL_ORDER, points[0]], products, CONTENT)
    for lists in (([], []), (points, products[:1])):
        with pytest.raises(InvalidProof):
            equal_logarithms.prove(secret, *lists, CONTENT)
