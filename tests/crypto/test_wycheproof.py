"""The primitives against Project Wycheproof's vectors (C2SP/wycheproof, testvectors_v1), trimmed to supported input.

"valid" vectors must give the exact result, "invalid" vectors must be refused with the module's own error. Each test
decides about "acceptable" vectors: where the testbed is stricter than required, it refuses them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.crypto import InvalidKey, InvalidSignature, OpeningFailed, encryption, key_agreement, signatures
from testbed.crypto.key_agreement import PrivateKey

VECTORS = Path(__file__).parents[1] / "vectors"
Vector = dict[str, Any]


def every(primitive: str) -> Any:
    """Parametrize a test with all vectors of a primitive, their hexadecimal values as bytes."""
    vectors = json.loads((VECTORS / primitive / "wycheproof.json").read_text())["vectors"]
    words = ("id", "flags", "result")
    values = [{key: one if key in words else bytes.fromhex(one) for key, one in vector.items()} for vector in vectors]
    return pytest.mark.parametrize("vector", values, ids=[str(vector["id"]) for vector in vectors])


@every("x25519")
def test_x25519(vector: Vector) -> None:
    """Keys on the twist and u not below p are accepted, as RFC 7748 asks; a result of zero is refused."""
    private = PrivateKey.from_seed(vector["private"])
    if "ZeroSharedSecret" in vector["flags"]:
        assert vector["shared"] == bytes(32)
        for use in (private.exchange, lambda public: private.agree(public, b"purpose")):
            with pytest.raises(InvalidKey, match="small order"):
                use(vector["public"])
    else:
        assert vector["result"] in ("valid", "acceptable")
        assert private.exchange(vector["public"]) == vector["shared"]


@every("hkdf")
def test_hkdf(vector: Vector) -> None:
    """Key agreement uses 32 bytes: outputs of other lengths have the same prefix (RFC 5869, section 2.3)."""
    assert vector["result"] == "valid"
    key = key_agreement._derived(vector["ikm"], vector["info"])
    length = min(len(key), len(vector["okm"]))
    assert length >= 20
    assert key[:length] == vector["okm"][:length]


@every("ed25519")
def test_ed25519(vector: Vector) -> None:
    """Keys of small or mixed order are refused at registration, before any signature."""
    public, message, signature = vector["public"], vector["message"], vector["signature"]
    if {"SmallOrderPublicKey", "MixedOrderPublicKey"} & set(vector["flags"]):
        with pytest.raises(InvalidKey):
            signatures.validate_public_key(public)
        return
    signatures.validate_public_key(public)
    if vector["result"] == "valid":
        signatures._verify_message(public, message, signature)
    else:
        assert vector["result"] == "invalid"
        with pytest.raises(InvalidSignature):
            signatures._verify_message(public, message, signature)


@every("aes_gcm")
def test_aes_gcm(vector: Vector) -> None:
    """Keys other than 32 bytes and nonces other than 12 bytes are refused, also where the standard allows them."""
    key, nonce, associated = vector["key"], vector["nonce"], vector["associated"]
    plaintext, sealed = vector["plaintext"], vector["ciphertext"] + vector["tag"]
    if len(key) != encryption.KEY_BYTES:
        for use in (encryption.seal, encryption.open_sealed):
            with pytest.raises(InvalidKey, match="32 bytes"):
                use(key, nonce, sealed, associated)
    elif len(nonce) != encryption.NONCE_BYTES:
        with pytest.raises(ValueError, match="nonce"):
            encryption.seal(key, nonce, plaintext, associated)
        with pytest.raises(OpeningFailed, match="nonce"):
            encryption.open_sealed(key, nonce, sealed, associated)
    elif vector["result"] == "valid":
        assert encryption.seal(key, nonce, plaintext, associated) == sealed
        assert encryption.open_sealed(key, nonce, sealed, associated) == plaintext
        for shorter in range(1, encryption.TAG_BYTES + 1):  # a tag is never cut short
            with pytest.raises(OpeningFailed):
                encryption.open_sealed(key, nonce, sealed[:-shorter], associated)
    else:
        assert vector["result"] == "invalid"
        with pytest.raises(OpeningFailed):
            encryption.open_sealed(key, nonce, sealed, associated)


@pytest.mark.parametrize("primitive", ["x25519", "hkdf", "ed25519", "aes_gcm"])
def test_every_class_of_vectors_is_present(primitive: str) -> None:
    """The flags in the file are those of its vectors."""
    contents = json.loads((VECTORS / primitive / "wycheproof.json").read_text())
    assert {flag for vector in contents["vectors"] for flag in vector["flags"]} == set(contents["flags"])
    assert "wycheproof" in contents["source"]
    assert contents["licence"] == "Apache-2.0"
