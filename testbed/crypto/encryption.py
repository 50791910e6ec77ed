"""Sealing: authenticated encryption with a shared key or to a public key.

With a shared key: AES-256-GCM (NIST SP 800-38D). To a public key: HPKE (RFC 9180), base mode, single shot,
DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM. It interoperates with the HPKE of pyca/cryptography.
"""

import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from testbed.crypto import InvalidKey, OpeningFailed, require_length
from testbed.crypto.key_agreement import PUBLIC_KEY_BYTES, PrivateKey

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
SEAL_OVERHEAD_BYTES = TAG_BYTES
"""Bytes that :func:`seal` adds to the plaintext."""
SEAL_TO_OVERHEAD_BYTES = PUBLIC_KEY_BYTES + TAG_BYTES
"""Bytes that :func:`seal_to` adds to the plaintext."""

_KEM = b"KEM\x00\x20"  # suite_id of DHKEM(X25519, HKDF-SHA256): RFC 9180 section 4.1
_HPKE = b"HPKE\x00\x20\x00\x01\x00\x02"  # the same KEM, HKDF-SHA256, AES-256-GCM: section 5.1


def seal(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """Encrypt and authenticate with a shared key.

    Args:
        key: 32 bytes.
        nonce: 12 bytes, used **once** with this key: a second message under the same pair reveals both.
        plaintext: any length.
        associated: authenticated, not sent; names sender, content and recipient.

    Returns:
        The ciphertext with its tag: 16 bytes longer than the plaintext.

    Raises:
        InvalidKey: the key is not 32 bytes long.
        ValueError: the nonce is not 12 bytes long.
    """
    require_length(key, KEY_BYTES, "an AES-256-GCM key")
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"an AES-256-GCM nonce is {NONCE_BYTES} bytes long, got {len(nonce)}")
    return AESGCM(key).encrypt(nonce, plaintext, associated)


def open_sealed(key: bytes, nonce: bytes, sealed: bytes | memoryview, associated: bytes) -> bytes:
    """Decrypt a message that :func:`seal` returned.

    Args:
        key: as for :func:`seal`.
        nonce: as for :func:`seal`.
        sealed: ciphertext with tag.
        associated: as for :func:`seal`.

    Returns:
        The plaintext.

    Raises:
        InvalidKey: the key is not 32 bytes long.
        OpeningFailed: anything else is wrong.
    """
    require_length(key, KEY_BYTES, "an AES-256-GCM key")
    if len(nonce) != NONCE_BYTES or len(sealed) < TAG_BYTES:
        raise OpeningFailed(f"not sealed: {len(sealed)} bytes, with a nonce of {len(nonce)} bytes")
    try:
        return AESGCM(key).decrypt(nonce, sealed, associated)
    except InvalidTag:
        raise OpeningFailed("changed, or sealed with another key, nonce or associated data") from None


def seal_to(public: bytes, plaintext: bytes, associated: bytes, ephemeral_seed: bytes) -> bytes:
    """Encrypt to the holder of a public key (RFC 9180 section 6.1, with ``associated`` as info).

    Opening does not authenticate the sender. The ephemeral key is derived from the seed **and** the message, so a seed
    used twice reveals only whether the two messages are equal.

    Args:
        public: the recipient's X25519 public key, 32 bytes.
        plaintext: any length.
        associated: authenticated, not sent.
        ephemeral_seed: 32 secret bytes.

    Returns:
        The ephemeral public key, the ciphertext, the tag: 48 bytes longer than the plaintext.

    Raises:
        InvalidKey: the public key is of small order, or the public key or the seed has the wrong length.
    """
    require_length(ephemeral_seed, 32, "an ephemeral seed")
    # The length makes the encoding injective: different inputs never share an ephemeral key.
    message = len(associated).to_bytes(8, "big") + associated + public + plaintext
    # pyca/cryptography draws the ephemeral key itself, but a run must be reproducible from its seed.
    ephemeral = derive_key_pair(hmac.digest(ephemeral_seed, b"testbed/seal-to/v1" + message, "sha256"))
    shared = _shared_secret(ephemeral.exchange(public), ephemeral.public, public)
    key, nonce = _key_schedule(shared, associated)
    # The key schedule binds `associated` as HPKE's info, so the AEAD needs no associated data.
    return ephemeral.public + AESGCM(key).encrypt(nonce, plaintext, b"")


def open_from(private: PrivateKey, sealed: bytes, associated: bytes) -> bytes:
    """Decrypt a message that :func:`seal_to` returned.

    Args:
        private: the recipient's key pair.
        sealed: ephemeral public key, ciphertext and tag.
        associated: as for :func:`seal_to`.

    Returns:
        The plaintext.

    Raises:
        OpeningFailed: anything is wrong.

    Example:
        >>> recipient = PrivateKey.from_seed(bytes(32))
        >>> sealed = seal_to(recipient.public, b"a share", b"round 7", ephemeral_seed=bytes(31) + b"1")
        >>> open_from(recipient, sealed, b"round 7")
        b'a share'
        >>> open_from(recipient, sealed, b"round 8")
        Traceback (most recent call last):
        testbed.crypto.OpeningFailed: changed, or sealed to another key or with other associated data
    """
    if len(sealed) < SEAL_TO_OVERHEAD_BYTES:
        raise OpeningFailed(f"too short to be sealed: {len(sealed)} bytes")
    ephemeral, ciphertext = sealed[:PUBLIC_KEY_BYTES], sealed[PUBLIC_KEY_BYTES:]
    try:
        shared = _shared_secret(private.exchange(ephemeral), ephemeral, private.public)
        key, nonce = _key_schedule(shared, associated)
        return AESGCM(key).decrypt(nonce, ciphertext, b"")
    # InvalidKey: the sender's ephemeral key is of small order.
    except (InvalidTag, InvalidKey):
        raise OpeningFailed("changed, or sealed to another key or with other associated data") from None


def derive_key_pair(material: bytes) -> PrivateKey:
    """Return the X25519 key pair of at least 32 bytes of key material (DeriveKeyPair, RFC 9180 section 7.1.3).

    Example:
        >>> material = bytes.fromhex("7268600d403fce431561aef583ee1613527cff655c1343f29812e66706df3234")
        >>> derive_key_pair(material).public.hex()  # RFC 9180 appendix A.1.1: ikmE, pkEm
        '37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431'
    """
    extracted = _labeled_extract(_KEM, b"", b"dkp_prk", material)
    return PrivateKey.from_seed(_labeled_expand(_KEM, extracted, b"sk", b"", 32))


def _shared_secret(exchanged: bytes, ephemeral: bytes, recipient: bytes) -> bytes:
    """Return ExtractAndExpand of RFC 9180 section 4.1, 32 bytes."""
    extracted = _labeled_extract(_KEM, b"", b"eae_prk", exchanged)
    return _labeled_expand(_KEM, extracted, b"shared_secret", ephemeral + recipient, 32)


def _key_schedule(shared_secret: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Return key and nonce of the only message of a base-mode context (RFC 9180 section 5.1)."""
    no_key = _labeled_extract(_HPKE, b"", b"psk_id_hash", b"")  # base mode has no pre-shared key
    context = b"\x00" + no_key + _labeled_extract(_HPKE, b"", b"info_hash", info)
    secret = _labeled_extract(_HPKE, shared_secret, b"secret", b"")
    key = _labeled_expand(_HPKE, secret, b"key", context, KEY_BYTES)
    # The first message has the sequence number 0, so base_nonce is its nonce (section 5.2).
    return key, _labeled_expand(_HPKE, secret, b"base_nonce", context, NONCE_BYTES)


def _labeled_extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + material, "sha256")


def _labeled_expand(suite: bytes, secret: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """Return at most 32 bytes: every step here needs only the first block of HKDF-Expand."""
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(secret, labeled + b"\x01", "sha256")[:length]
