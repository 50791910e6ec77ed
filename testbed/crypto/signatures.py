"""Signatures: Ed25519 (RFC 8032 section 5.1) over domain-separated content.

libsodium signs and verifies. It refuses public keys that are not canonical or of small order, and signatures that are
not canonical (the RFC leaves these cases open), and takes half of OpenSSL's time.
"""

import hashlib
import hmac

from nacl import bindings, exceptions

from testbed.crypto import InvalidSignature, edwards25519, require_length

SEED_BYTES = 32
PUBLIC_KEY_BYTES = 32
SIGNATURE_BYTES = 64

_ONCE_DOMAIN = b"testbed/signatures/scalar/v1"


def signed_bytes(domain: bytes, content: bytes) -> bytes:
    """Return the bytes to sign: the domain's length (4 bytes, big-endian), the domain, the content.

    The encoding is injective, so a signature made for one purpose never verifies for another.

    Args:
        domain: the purpose.
        content: any length.
    """
    return len(domain).to_bytes(4, "big") + domain + content


class SigningKey:
    """An Ed25519 key pair.

    Attributes:
        public: 32 bytes.
    """

    __slots__ = ("_secret", "public")

    public: bytes

    def __init__(self, public: bytes, secret: bytes) -> None:
        """Use :meth:`from_seed`.

        Args:
            public: 32 bytes.
            secret: libsodium's form of the secret key, 64 bytes: the seed and the public key.
        """
        self.public = public
        self._secret = secret

    @classmethod
    def from_seed(cls, seed: bytes) -> "SigningKey":
        """Return the key pair of a 32-byte secret key of RFC 8032.

        Raises:
            InvalidKey: the seed is not 32 bytes long.

        Example:
            >>> seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
            >>> SigningKey.from_seed(seed).public.hex()  # RFC 8032 section 7.1, TEST 1
            'd75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a'
        """
        require_length(seed, SEED_BYTES, "an Ed25519 secret key")
        return cls(*bindings.crypto_sign_seed_keypair(seed))

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public.hex()})"

    def sign(self, domain: bytes, content: bytes) -> bytes:
        """Sign ``content`` for the purpose ``domain``: 64 bytes, deterministic.

        Args:
            domain: the purpose.
            content: any length.
        """
        return self._sign_message(signed_bytes(domain, content))

    def _sign_message(self, message: bytes) -> bytes:
        # PyNaCl binds only the combined form: the signature, then the message.
        signed: bytes = bindings.crypto_sign(message, self._secret)
        return signed[:SIGNATURE_BYTES]


def sign_with_scalar(scalar: bytes, domain: bytes, content: bytes) -> bytes:
    """Sign ``content`` under the public key scalar * B, without a seed of the key: 64 bytes.

    As RFC 8032 section 5.1.6 from its step 2 on, where r may be any secret function of key and message. The result is
    also a Schnorr proof (J. Cryptology 1991) that the signer knows the scalar; `verify` verifies it.

    Args:
        scalar: 32 secret bytes, not 0.
        domain: see `verify`.
        content: see `verify`.
    """
    require_length(scalar, edwards25519.SCALAR_BYTES, "a scalar")
    message = signed_bytes(domain, content)
    public = edwards25519.multiply_base(scalar)
    # A secret function of key and message: one nonce for two messages would reveal the scalar.
    nonce = edwards25519.reduce_scalar(hmac.digest(scalar, _ONCE_DOMAIN + message, "sha512"))
    point = edwards25519.multiply_base(nonce)
    challenge = edwards25519.reduce_scalar(hashlib.sha512(point + public + message).digest())
    return point + edwards25519.add_scalars(nonce, edwards25519.multiply_scalars(challenge, scalar))


def verify(public: bytes, domain: bytes, content: bytes, signature: bytes) -> None:
    """Verify a signature by ``public`` of ``content`` for the purpose ``domain``.

    Args:
        public: 32 bytes; validated at registration by :func:`validate_public_key`.
        domain: the purpose, e.g. ``b"testbed/lotto/participant-list/v1"``.
        content: canonical encoding of the signed content.
        signature: 64 bytes.

    Raises:
        InvalidSignature: anything is wrong, including the length of the key or the signature.

    Example:
        >>> key = SigningKey.from_seed(bytes(32))
        >>> signature = key.sign(b"example/v1", b"participants 1, 4, 6")
        >>> verify(key.public, b"example/v1", b"participants 1, 4, 6", signature)
        >>> verify(key.public, b"example/v1", b"participants 1, 4, 9", signature)
        Traceback (most recent call last):
        testbed.crypto.InvalidSignature: the Ed25519 signature does not hold
    """
    _verify_message(public, signed_bytes(domain, content), signature)


def _verify_message(public: bytes, message: bytes, signature: bytes) -> None:
    if len(public) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        raise InvalidSignature(
            f"an Ed25519 key has {PUBLIC_KEY_BYTES} bytes and a signature {SIGNATURE_BYTES}, "
            f"got {len(public)} and {len(signature)}"
        )
    try:
        bindings.crypto_sign_open(signature + message, public)
    except exceptions.CryptoError:
        raise InvalidSignature("the Ed25519 signature does not hold") from None


def validate_public_key(public: bytes) -> None:
    """Accept a public key only if it is canonical, on the curve and of prime order.

    Raises:
        InvalidKey: the key is anything else. Under a key of small order one signature verifies for many messages.
    """
    edwards25519.validate_key(public)
