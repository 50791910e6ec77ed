"""Threshold encryption: hashed ElGamal on edwards25519, to a key that t of n holders share.

As in DHIES (Abdalla, Bellare, Rogaway, CT-RSA 2001), decrypted by shares (Desmedt, Frankel, CRYPTO 1989). To the public
key s B, a message is encrypted as (w B, AES-256-GCM under a key derived from w B and w s B). A holder of a share s_u
answers with s_u (w B), its partial decryption. t of these give s (w B) by Lagrange interpolation in the exponent, and
no party learns s.

A wrong partial decryption gives a key that opens nothing. This reveals neither the wrong holder nor whether the
ciphertext can be opened at all: its sender may have sealed it under the key that results from a colluding holder's
wrong answer and other holders' right answers. So each holder proves its answers (`equal_logarithms`), and a ciphertext
that does not open with proven answers was never encrypted to the key.

A holder cannot see what it decrypts, since it only multiplies a point: a malicious sender may copy the first half of
another ciphertext, or add a multiple of B to it. Protocols must let holders check the sender of a first half and that
this sender knows w (as in the signed ElGamal of Schnorr, Jakobsson, ASIACRYPT 2000).
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
"""Bytes that the second half of a ciphertext adds to its plaintext."""

KNOWN_DOMAIN = b"testbed/threshold-elgamal/known/v1"
"""Domain of the proof of knowledge of w: a signature of the associated data under the public key w B."""

_DOMAIN = b"testbed/threshold-elgamal/v1"
_NONCE = bytes(encryption.NONCE_BYTES)  # each key seals once


def encrypt(public: bytes, plaintext: bytes, associated: bytes, entropy: bytes) -> tuple[bytes, bytes]:
    """Return the ciphertext's halves; see `encrypt_and_prove`.

    Args:
        public: the holders' public key, 32 bytes.
        plaintext: any length.
        associated: authenticated, not sent.
        entropy: 32 secret bytes.
    """
    return encrypt_and_prove(public, plaintext, associated, entropy)[:2]


def encrypt_and_prove(public: bytes, plaintext: bytes, associated: bytes, entropy: bytes) -> tuple[bytes, bytes, bytes]:
    """Encrypt, and prove knowledge of w.

    Args:
        public: the holders' public key, 32 bytes.
        plaintext: any length.
        associated: authenticated, not sent.
        entropy: 32 secret bytes.

    Returns:
        The ciphertext's halves (a point, 32 bytes; the sealed message, 16 bytes longer than the plaintext) and the
        proof, 64 bytes, for `verify_known`.

    Raises:
        InvalidKey: the public key is no point of prime order.
    """
    require_length(entropy, 32, "the entropy of an encryption")
    message = len(associated).to_bytes(8, "big") + associated + public + plaintext
    # From all arguments: one entropy for two messages must not give one key, since the nonce is fixed.
    scalar = edwards25519.reduce_scalar(hmac.digest(entropy, _DOMAIN + b"/scalar" + message, "sha512"))
    try:
        point, shared = edwards25519.multiply_base(scalar), edwards25519.multiply(scalar, public)
    except ValueError as error:
        raise InvalidKey(f"the public key: {error}") from None
    proof = signatures.sign_with_scalar(scalar, KNOWN_DOMAIN, associated)
    return point, seal_with(point, shared, plaintext, associated), proof


def seal_with(point: bytes, shared: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Return a ciphertext's second half, 16 bytes longer than the plaintext.

    Args:
        point: the first half, w B; each is used once.
        shared: w s B, 32 secret bytes.
        plaintext: any length.
        associated: authenticated, not sent.
    """
    return encryption.seal(_key(point, shared), _NONCE, plaintext, associated)


def partial_decryption(share: bytes, point: bytes) -> bytes:
    """Return a holder's partial decryption, 32 bytes, in constant time.

    Args:
        share: the holder's share of the secret key, 32 bytes.
        point: a ciphertext's first half.

    Raises:
        InvalidKey: the first half is no point of prime order.
    """
    try:
        return edwards25519.multiply(share, point)
    except ValueError as error:
        raise InvalidKey(f"a ciphertext's point: {error}") from None


def decrypt(point: bytes, sealed: bytes, associated: bytes, partial: Mapping[int, bytes]) -> bytes:
    """Decrypt with exactly as many partial decryptions as the threshold.

    Args:
        point: the first half.
        sealed: the second half.
        associated: as for `encrypt`.
        partial: partial decryptions by the holders' points.

    Raises:
        OpeningFailed: one of the arguments is wrong.

    Example:
        >>> from testbed.crypto import feldman
        >>> coefficients = feldman.polynomial(feldman.random_scalar(bytes(32)), threshold=2, entropy=bytes(31) + b"1")
        >>> public = feldman.commitments(coefficients)[0]
        >>> point, sealed = encrypt(public, b"a seed", b"round 7", entropy=bytes(31) + b"2")
        >>> partial = {x: partial_decryption(feldman.share_at(coefficients, x), point) for x in (1, 3)}  # of 2 holders
        >>> decrypt(point, sealed, b"round 7", partial)
        b'a seed'
    """
    return decrypt_with(point, sealed, associated, partial, lagrange_weights(list(partial)))


def decrypt_with(
    point: bytes, sealed: bytes, associated: bytes, partial: Mapping[int, bytes], weights: list[int]
) -> bytes:
    """Decrypt with given Lagrange weights, computed once for many ciphertexts.

    Args:
        point: the first half.
        sealed: the second half.
        associated: as for `encrypt`.
        partial: partial decryptions by the holders' points.
        weights: of the holders, in the same order.

    Raises:
        OpeningFailed: one of the arguments is wrong.
    """
    if len(point) != POINT_BYTES:
        raise OpeningFailed(f"a ciphertext's point of {len(point)} bytes")
    try:
        # Interpolation in the exponent: no party learns s.
        shared = feldman.weighted_points(list(partial.values()), weights)
    except InvalidShares as error:
        raise OpeningFailed(f"a partial decryption: {error}") from None
    return encryption.open_sealed(_key(point, shared), _NONCE, sealed, associated)


def _key(point: bytes, shared: bytes) -> bytes:
    """Return the key, 32 bytes, of the two points w B and w s B."""
    return hmac.digest(shared, _DOMAIN + b"/key" + point, "sha256")
