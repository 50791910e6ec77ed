"""AES-256-GCM and HPKE: round trips, tampering, RFC 9180, and another implementation of HPKE."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.crypto import InvalidKey, OpeningFailed, encryption
from testbed.crypto.key_agreement import PrivateKey
from testbed.errors import ProtocolError
from tests.crypto.published import vectors
from tests.thoroughness import examples

keys = st.binary(min_size=32, max_size=32)
nonces = st.binary(min_size=12, max_size=12)
texts = st.binary(max_size=200)

KEY, NONCE = bytes(range(32)), bytes(12)


@given(keys, nonces, texts, texts)
def test_sealed_messages_open(key, nonce, plaintext, associated):
    sealed = encryption.seal(key, nonce, plaintext, associated)
    assert len(sealed) == len(plaintext) + encryption.SEAL_OVERHEAD_BYTES
    assert encryption.open_sealed(key, nonce, sealed, associated) == plaintext


def test_changing_any_byte_of_a_sealed_message_is_detected():
    sealed = encryption.seal(KEY, NONCE, b"share", b"to 7")
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(OpeningFailed):
            encryption.open_sealed(KEY, NONCE, bytes(changed), b"to 7")
    for key, nonce, associated in (
        (bytes(32), NONCE, b"to 7"),
        (KEY, b"\x01" + bytes(11), b"to 7"),
        (KEY, NONCE, b"to 8"),
    ):
        with pytest.raises(OpeningFailed):
            encryption.open_sealed(key, nonce, sealed, associated)


def test_wrong_lengths_are_refused():
    for key in (b"", bytes(16), bytes(33)):
        with pytest.raises(InvalidKey, match="32 bytes"):
            encryption.seal(key, NONCE, b"", b"")
        with pytest.raises(InvalidKey, match="32 bytes"):
            encryption.open_sealed(key, NONCE, bytes(16), b"")
    for nonce in (b"", bytes(11), bytes(13)):
        with pytest.raises(ValueError, match="12 bytes"):
            encryption.seal(KEY, nonce, b"", b"")
        with pytest.raises(OpeningFailed):
            encryption.open_sealed(KEY, nonce, bytes(16), b"")
    with pytest.raises(OpeningFailed):
        encryption.open_sealed(KEY, NONCE, bytes(15), b"")


@settings(max_examples=examples(200))
@given(st.binary(max_size=14), st.binary(max_size=100), texts)
def test_random_bytes_do_not_open(nonce, sealed, associated):
    with pytest.raises(ProtocolError):
        encryption.open_sealed(KEY, nonce, sealed, associated)
    with pytest.raises(ProtocolError):
        encryption.open_from(PrivateKey.from_seed(KEY), sealed, associated)


@settings(max_examples=examples(50))
@given(keys, keys, texts, texts)
def test_messages_sealed_to_a_key_open_with_it(recipient_seed, ephemeral_seed, plaintext, associated):
    recipient = PrivateKey.from_seed(recipient_seed)
    sealed = encryption.seal_to(recipient.public, plaintext, associated, ephemeral_seed)
    assert len(sealed) == len(plaintext) + encryption.SEAL_TO_OVERHEAD_BYTES
    assert encryption.open_from(recipient, sealed, associated) == plaintext
    assert encryption.seal_to(recipient.public, plaintext, associated, ephemeral_seed) == sealed


def test_changing_any_byte_of_a_message_sealed_to_a_key_is_detected():
    recipient = PrivateKey.from_seed(KEY)
    sealed = encryption.seal_to(recipient.public, b"vrf key", b"client 7", bytes(32))
    for at in range(len(sealed)):
        for change in (0x01, 0x80):
            changed = bytearray(sealed)
            changed[at] ^= change
            with pytest.raises(OpeningFailed):
                encryption.open_from(recipient, bytes(changed), b"client 7")
    with pytest.raises(OpeningFailed):
        encryption.open_from(recipient, sealed, b"client 8")
    with pytest.raises(OpeningFailed):
        encryption.open_from(PrivateKey.from_seed(bytes(32)), sealed, b"client 7")
    with pytest.raises(OpeningFailed):
        encryption.open_from(recipient, bytes(32) + sealed[32:], b"client 7")  # an ephemeral key of small order


def test_a_seed_used_twice_gives_another_key_for_another_message():
    recipient, other = PrivateKey.from_seed(KEY), PrivateKey.from_seed(bytes(32))
    sealed = {
        encryption.seal_to(recipient.public, b"one", b"", bytes(32))[:32],
        encryption.seal_to(recipient.public, b"two", b"", bytes(32))[:32],
        encryption.seal_to(other.public, b"one", b"", bytes(32))[:32],
        encryption.seal_to(recipient.public, b"one", b"x", bytes(32))[:32],
        encryption.seal_to(recipient.public, b"one", b"", bytes(31) + b"\x01")[:32],
    }
    assert len(sealed) == 5


def test_sealing_to_invalid_keys_is_refused():
    for public in (b"", bytes(31), bytes(32), b"\x01" + bytes(31)):
        with pytest.raises(InvalidKey):
            encryption.seal_to(public, b"secret", b"", bytes(32))
    with pytest.raises(InvalidKey):
        encryption.seal_to(PrivateKey.from_seed(KEY).public, b"secret", b"", bytes(31))


def test_the_kem_gives_rfc_9180s_vectors():
    """The appendix has no suite with AES-256-GCM; its first suite is equal up to the AEAD."""
    for vector in vectors("hpke/rfc9180")["vectors"]:
        ephemeral = encryption.derive_key_pair(bytes.fromhex(vector["ikmE"]))
        recipient = encryption.derive_key_pair(bytes.fromhex(vector["ikmR"]))
        assert ephemeral.public.hex() == vector["enc"]
        assert recipient.public.hex() == vector["pkRm"]
        assert PrivateKey.from_seed(bytes.fromhex(vector["skRm"])).public == recipient.public
        assert PrivateKey.from_seed(bytes.fromhex(vector["skEm"])).public == ephemeral.public
        exchanged = recipient.exchange(ephemeral.public)
        shared = encryption._shared_secret(exchanged, ephemeral.public, recipient.public)
        assert shared.hex() == vector["shared_secret"]


@settings(max_examples=examples(25))
@given(keys, texts, texts)
def test_another_implementation_of_hpke_interoperates(seed, plaintext, associated):
    hpke = pytest.importorskip("cryptography.hazmat.primitives.hpke")
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
    recipient = PrivateKey.from_seed(seed)
    sealed = encryption.seal_to(recipient.public, plaintext, associated, KEY)
    assert suite.decrypt(sealed, X25519PrivateKey.from_private_bytes(seed), info=associated) == plaintext
    theirs = suite.encrypt(plaintext, X25519PublicKey.from_public_bytes(recipient.public), info=associated)
    assert encryption.open_from(recipient, theirs, associated) == plaintext
