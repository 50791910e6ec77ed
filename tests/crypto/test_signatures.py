"""Ed25519 against RFC 8032's vectors and OpenSSL's implementation; domains; bad input."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidKey, InvalidSignature, edwards25519, feldman, signatures
from testbed.errors import ProtocolError
from tests.crypto.published import vectors
from tests.thoroughness import examples

seeds = st.binary(min_size=32, max_size=32)


def test_signatures_give_rfc_8032s_vectors():
    for vector in vectors("ed25519/rfc8032")["vectors"]:
        message, signature = bytes.fromhex(vector["message"]), bytes.fromhex(vector["signature"])
        key = signatures.SigningKey.from_seed(bytes.fromhex(vector["secret"]))
        assert key.public.hex() == vector["public"]
        assert key._sign_message(message) == signature
        signatures._verify_message(key.public, message, signature)


@given(seeds, st.binary(max_size=40), st.binary(max_size=200))
def test_openssl_agrees(seed, domain, content):
    key, theirs = signatures.SigningKey.from_seed(seed), Ed25519PrivateKey.from_private_bytes(seed)
    signed = len(domain).to_bytes(4, "big") + domain + content
    signature = key.sign(domain, content)
    assert signature == theirs.sign(signed)
    Ed25519PublicKey.from_public_bytes(key.public).verify(signature, signed)
    signatures.verify(key.public, domain, content, signature)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=20), st.binary(max_size=100))
@settings(max_examples=examples(30))
def test_openssl_accepts_signatures_made_with_a_scalar(entropy, domain, content):
    scalar = feldman.random_scalar(entropy)
    other = edwards25519.add_scalars(scalar, bytes([1, *bytes(31)]))
    public, signature = edwards25519.multiply_base(scalar), signatures.sign_with_scalar(scalar, domain, content)
    message = signatures.signed_bytes(domain, content)
    Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    signatures.verify(public, domain, content, signature)
    assert signatures.sign_with_scalar(scalar, domain, content) == signature
    with pytest.raises(InvalidSignature):
        signatures.verify(edwards25519.multiply_base(other), domain, content, signature)
    with pytest.raises(InvalidSignature):
        signatures.verify(public, domain, content + b"!", signature)


def test_nonces_of_scalars_are_never_reused():
    """Two signatures with one nonce reveal the scalar."""
    scalars = [feldman.random_scalar(bytes([i]) * 32) for i in range(3)]
    made = {signatures.sign_with_scalar(s, d, c)[:32] for s in scalars for d in (b"a", b"b") for c in (b"", b"c")}
    assert len(made) == 12


def test_a_signature_verifies_only_for_its_domain():
    """Moving a byte between the domain and the content does not give the same signed bytes."""
    key = signatures.SigningKey.from_seed(bytes(32))
    signature = key.sign(b"testbed/a", b"/v1")
    signatures.verify(key.public, b"testbed/a", b"/v1", signature)
    for domain, content in ((b"testbed/", b"a/v1"), (b"testbed/a/", b"v1"), (b"", b"testbed/a/v1")):
        with pytest.raises(InvalidSignature):
            signatures.verify(key.public, domain, content, signature)


@given(
    st.tuples(st.binary(max_size=8), st.binary(max_size=8)),
    st.tuples(st.binary(max_size=8), st.binary(max_size=8)),
)
def test_signed_bytes_are_injective(one, other):
    assert (signatures.signed_bytes(*one) == signatures.signed_bytes(*other)) == (one == other)


def test_changing_any_byte_breaks_a_signature():
    key = signatures.SigningKey.from_seed(bytes(range(32)))
    signature = key.sign(b"d", b"content")
    for at in range(signatures.SIGNATURE_BYTES):
        for change in (0x01, 0x80):
            changed = bytearray(signature)
            changed[at] ^= change
            with pytest.raises(InvalidSignature):
                signatures.verify(key.public, b"d", b"content", bytes(changed))
    for content in (b"", b"contenT", b"content\x00"):
        with pytest.raises(InvalidSignature):
            signatures.verify(key.public, b"d", content, signature)
    with pytest.raises(InvalidSignature):
        signatures.verify(signatures.SigningKey.from_seed(bytes(32)).public, b"d", b"content", signature)


def test_s_must_be_reduced():
    key = signatures.SigningKey.from_seed(bytes(range(32)))
    signature = key.sign(b"d", b"content")
    larger = int.from_bytes(signature[32:], "little") + edwards25519.ORDER
    with pytest.raises(InvalidSignature):
        signatures.verify(key.public, b"d", b"content", signature[:32] + larger.to_bytes(32, "little"))


def test_bad_public_keys_are_refused(refused_edwards_keys):
    """Under the identity as key, (R, s) = (identity, 0) would verify for every message."""
    signatures.validate_public_key(signatures.SigningKey.from_seed(bytes(32)).public)
    forged = b"\x01" + bytes(63)
    for public in refused_edwards_keys:
        with pytest.raises(InvalidKey):
            signatures.validate_public_key(public)
        for number in range(8):
            with pytest.raises(InvalidSignature):
                signatures.verify(public, b"d", bytes([number]), forged)


def test_wrong_lengths_are_refused():
    key = signatures.SigningKey.from_seed(bytes(32))
    signature = key.sign(b"d", b"c")
    for public, signed in ((key.public[:-1], signature), (key.public, signature[:-1]), (b"", b"")):
        with pytest.raises(InvalidSignature, match="bytes"):
            signatures.verify(public, b"d", b"c", signed)
    with pytest.raises(InvalidKey):
        signatures.SigningKey.from_seed(bytes(33))
    with pytest.raises(InvalidKey):
        signatures.validate_public_key(key.public + b"\x00")


def test_the_secret_is_not_shown():
    seed = bytes(range(32))
    key = signatures.SigningKey.from_seed(seed)
    assert repr(key) == f"SigningKey(public={key.public.hex()})"


@settings(max_examples=examples(300))
@given(st.binary(max_size=40), st.binary(max_size=10), st.binary(max_size=70))
def test_random_bytes_are_refused_with_a_typed_error(public, content, signature):
    with pytest.raises(ProtocolError):
        signatures.verify(public, b"d", content, signature)


@settings(max_examples=examples(300))
@given(st.binary(min_size=64, max_size=64))
def test_random_signatures_under_a_good_key_are_refused_with_a_typed_error(signature):
    with pytest.raises(ProtocolError):
        signatures.verify(signatures.SigningKey.from_seed(bytes(32)).public, b"d", b"c", signature)
