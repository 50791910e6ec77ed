"""Key agreement: X25519 (RFC 7748 section 6.1), then HKDF-SHA-256 (RFC 5869)."""

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from testbed.crypto import InvalidKey, require_length

SEED_BYTES = 32
PUBLIC_KEY_BYTES = 32
AGREED_KEY_BYTES = 32

_DOMAIN = b"testbed/key-agreement/v1"
_SHA256 = SHA256()
_SMALL_ORDER = "the X25519 public key is of small order: the result is zero"
_P = 2**255 - 19
_SMALL_ORDER_POINTS = frozenset({
    0, 1, _P - 1, _P, _P + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
})  # fmt: skip


class PrivateKey:
    """An X25519 key pair.

    Attributes:
        public: 32 bytes.
    """

    __slots__ = ("_private", "public")

    public: bytes

    def __init__(self, private: X25519PrivateKey) -> None:
        """Use :meth:`from_seed`."""
        self._private = private
        self.public = private.public_key().public_bytes_raw()

    @classmethod
    def from_seed(cls, seed: bytes) -> "PrivateKey":
        """The key pair of a 32-byte X25519 secret.

        Raises:
            InvalidKey: if the seed is not 32 bytes long.
        """
        require_length(seed, SEED_BYTES, "an X25519 secret key")
        return cls(X25519PrivateKey.from_private_bytes(seed))

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        """A process of the emulator may need a key that lies in another."""
        return PrivateKey.from_seed, (self._private.private_bytes_raw(),)

    def __repr__(self) -> str:
        return f"PrivateKey(public={self.public.hex()})"

    def agree(self, peer_public: bytes, purpose: bytes) -> bytes:
        """The key that this pair shares with a peer for one purpose; the peer derives the same one.

        HKDF-SHA-256 without salt, its info the domain, the purpose (after its length, 4 bytes) and both
        public keys in ascending order: who the two are is part of the key, which of them asks is not.

        Args:
            peer_public: the peer's public key, 32 bytes.
            purpose: e.g. ``b"testbed/secagg/mask/v1"``; keys for different purposes are independent.

        Returns:
            32 bytes.

        Raises:
            InvalidKey: if the peer's key has the wrong length or is of small order.
        """
        secret = self.exchange(peer_public)
        first, second = sorted((self.public, peer_public))
        info = _DOMAIN + len(purpose).to_bytes(4, "big") + purpose + first + second
        return _derived(secret, info)

    def exchange(self, peer_public: bytes) -> bytes:
        """The bare X25519 function of RFC 7748, 32 bytes: not a key; for a key derivation only.

        Raises:
            InvalidKey: if the peer's key has the wrong length or is of small order (the result is zero).
        """
        require_length(peer_public, PUBLIC_KEY_BYTES, "an X25519 public key")
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(peer_public))
        except ValueError:
            raise InvalidKey(_SMALL_ORDER) from None


def check_public(public: bytes) -> None:
    """Raise `InvalidKey` for a public key with which `PrivateKey.exchange` would, whichever the private key.

    A private key is a multiple of 8 and below 2**255, so the result is zero for a point of small order and for no
    other (RFC 7748 section 6.1). Of small order are, in either half of the encodings, 0, 1, p - 1, two of order 8, and
    what else is equal to 0 or 1 modulo p.
    """
    require_length(public, PUBLIC_KEY_BYTES, "an X25519 public key")
    if int.from_bytes(public, "little") & (1 << 255) - 1 in _SMALL_ORDER_POINTS:
        raise InvalidKey(_SMALL_ORDER)


def _derived(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA-256 without a salt: `AGREED_KEY_BYTES` bytes."""
    return HKDF(_SHA256, AGREED_KEY_BYTES, None, info).derive(secret)
