"""Encryption to a key that t of n holders have together: hashed ElGamal on the prime-order group of edwards25519, as in
DHIES (Abdalla, Bellare, Rogaway, CT-RSA 2001), decrypted by shares (Desmedt, Frankel, CRYPTO 1989).

To the public key s B, a message is encrypted as (w B, AES-256-GCM under a key derived from w B and w s B). A holder of
a share s_u answers with s_u (w B), its partial decryption; t of them give s (w B) by Lagrange interpolation in the
exponent, and nobody learns s. A wrong partial decryption gives a key that opens nothing. That does not tell whose it
was, nor whether the ciphertext opens at all: whoever has sealed it may have done so under the key that comes of an
accomplice's wrong answer and of some holders' right ones. So each holder proves its answers (`equal_logarithms`), and
a ciphertext that does not open with proven answers was never encrypted to the key.

A holder that is asked for the product of any point has no way to see what it decrypts: somebody may have taken the
first half of another's ciphertext for its own, or that and a multiple of B. Whoever uses this must let holders check
whose a first half is, and that this one knows w (as in the signed ElGamal of Schnorr, Jakobsson, ASIACRYPT 2000).
"""

import hmac
from collections.abc import Mapping

from testbed.crypto import (
    InvalidKey,
    InvalidShares,
    OpeningFailed,
    edwards25519,
    encryption,
    feldman,
    require_length,
    signatures,
)
from testbed.crypto.edwards25519 import POINT_BYTES
from testbed.crypto.feldman import lagrange_weights

OVERHEAD_BYTES = encryption.SEAL_OVERHEAD_BYTES
"""How much longer than its plaintext the second half of a ciphertext is."""

KNOWN_DOMAIN = b"testbed/threshold-elgamal/known/v1"
"""Of the proof, which is a signature of what is associated, under w B for a public key."""

_DOMAIN = b"testbed/threshold-elgamal/v1"
_NONCE = bytes(encryption.NONCE_BYTES)  # each key seals once


def encrypt(public: bytes, plaintext: bytes, associated: bytes, entropy: bytes) -> tuple[bytes, bytes]:
    """The ciphertext's halves: see `encrypt_and_prove`."""
    return encrypt_and_prove(public, plaintext, associated, entropy)[:2]


def encrypt_and_prove(public: bytes, plaintext: bytes, associated: bytes, entropy: bytes) -> tuple[bytes, bytes, bytes]:
    """The ciphertext's halves, and the proof that its maker knows w: a point, 32 bytes; what is sealed, 16 bytes longer
    than the plaintext; 64 bytes, for `verify_known`.

    The scalar w follows from the entropy and all else that is given here, so that entropy that is used twice does not
    seal two messages under one key.

    Args:
        public: the holders' public key, 32 bytes.
        plaintext: any length.
        associated: authenticated, not sent.
        entropy: 32 secret bytes.

    Raises:
        InvalidKey: the public key is no point of prime order.
    """
    require_length(entropy, 32, "the entropy of an encryption")
    message = len(associated).to_bytes(8, "big") + associated + public + plaintext
    scalar = edwards25519.reduce_scalar(hmac.digest(entropy, _DOMAIN + b"/scalar" + message, "sha512"))
    try:
        point, shared = edwards25519.multiply_base(scalar), edwards25519.multiply(scalar, public)
    except ValueError as error:
        raise InvalidKey(f"the public key: {error}") from None
    proof = signatures.sign_with_scalar(scalar, KNOWN_DOMAIN, associated)
    return point, seal_with(point, shared, plaintext, associated), proof


def seal_with(point: bytes, shared: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """A ciphertext's second half, 16 bytes longer than the plaintext.

    Args:
        point: the first half, w B; each is used once.
        shared: w s B, 32 secret bytes.
        plaintext: any length.
        associated: authenticated, not sent.
    """
    return encryption.seal(_key(point, shared), _NONCE, plaintext, associated)


def partial_decryption(share: bytes, point: bytes) -> bytes:
    """A holder's answer for a ciphertext's first half, 32 bytes, in constant time.

    Raises:
        InvalidKey: that half is no point of prime order.
    """
    try:
        return edwards25519.multiply(share, point)
    except ValueError as error:
        raise InvalidKey(f"a ciphertext's point: {error}") from None


def decrypt(point: bytes, sealed: bytes, associated: bytes, partial: Mapping[int, bytes]) -> bytes:
    """The plaintext, from partial decryptions by the holders' points: exactly as many as the threshold.

    Raises:
        OpeningFailed: one of all that is given is not what it should be.
    """
    return decrypt_with(point, sealed, associated, partial, lagrange_weights(list(partial)))


def decrypt_with(
    point: bytes, sealed: bytes, associated: bytes, partial: Mapping[int, bytes], weights: list[int]
) -> bytes:
    """What `decrypt` does, given the holders' Lagrange weights: computed once for many ciphertexts."""
    if len(point) != POINT_BYTES:
        raise OpeningFailed(f"a ciphertext's point of {len(point)} bytes")
    try:
        shared = feldman.weighted_points(list(partial.values()), weights)
    except InvalidShares as error:
        raise OpeningFailed(f"a partial decryption: {error}") from None
    return encryption.open_sealed(_key(point, shared), _NONCE, sealed, associated)


def _key(point: bytes, shared: bytes) -> bytes:
    """32 bytes, of the two points w B and w s B."""
    return hmac.digest(shared, _DOMAIN + b"/key" + point, "sha256")
