"""Key agreement: X25519 (RFC 7748 section 6.1), then HKDF-SHA-256 (RFC 5869).

X25519 comes from libsodium, which releases Python's global lock.
"""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl import bindings, exceptions

from testbed.crypto import InvalidKey, edwards25519, require_length

SEED_BYTES = 32
PUBLIC_KEY_BYTES = 32
AGREED_KEY_BYTES = 32

_DOMAIN = b"testbed/key-agreement/v1"
_SHA256 = SHA256()
_SMALL_ORDER = "the X25519 public key is of small order: the result is zero"
_P = 2**255 - 19
_SMALL_ORDER_POINTS = frozenset({  # the two long numbers have order 8
    0, 1, _P - 1, _P, _P + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
})  # fmt: skip


class PrivateKey:
    """An X25519 key pair.

    Attributes:
        public: 32 bytes.
    """

    __slots__ = ("_scalar", "public")

    public: bytes

    def __init__(self, seed: bytes) -> None:
        """Use :meth:`from_seed`."""
        # Clamped (RFC 7748 section 5): `agree_with` needs the scalar that libsodium uses.
        self._scalar = bytes((seed[0] & 248,)) + seed[1:31] + bytes((seed[31] & 127 | 64,))
        self.public = bindings.crypto_scalarmult_base(seed)

    @classmethod
    def from_seed(cls, seed: bytes) -> "PrivateKey":
        """Return the key pair of a 32-byte X25519 secret.

        Raises:
            InvalidKey: the seed is not 32 bytes long.
        """
        require_length(seed, SEED_BYTES, "an X25519 secret key")
        return cls(seed)

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        """Serialise the pair: processes of the emulator exchange keys."""
        return PrivateKey.from_seed, (self._scalar,)

    def __repr__(self) -> str:
        return f"PrivateKey(public={self.public.hex()})"

    def agree(self, peer_public: bytes, purpose: bytes) -> bytes:
        """Return the key that this pair shares with a peer for one purpose; the peer derives the same key.

        HKDF-SHA-256 without salt. Its info is the domain, the purpose (with its length, 4 bytes) and both public keys
        in ascending order: the key depends on both parties but not on the one that asks.

        Args:
            peer_public: the peer's public key, 32 bytes.
            purpose: e.g. ``b"testbed/secagg/mask/v1"``; keys for different purposes are independent.

        Returns:
            32 bytes.

        Raises:
            InvalidKey: the peer's key has the wrong length or is of small order.

        Example:
            >>> alice, bob = PrivateKey.from_seed(bytes(32)), PrivateKey.from_seed(bytes(31) + b"1")
            >>> alice.agree(bob.public, b"mask/v1") == bob.agree(alice.public, b"mask/v1")
            True
            >>> alice.agree(bob.public, b"mask/v1") == alice.agree(bob.public, b"share/v1")
            False
        """
        return _agreed(self.exchange(peer_public), self.public, peer_public, purpose)

    def exchange(self, peer_public: bytes) -> bytes:
        """Return the bare X25519 function of RFC 7748, 32 bytes: input of a key derivation, not a key.

        Raises:
            InvalidKey: the peer's key has the wrong length or is of small order (the result is zero).

        Example:
            >>> alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
            >>> bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
            >>> PrivateKey.from_seed(alice).exchange(bob).hex()  # RFC 7748 section 6.1
            '4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742'
        """
        require_length(peer_public, PUBLIC_KEY_BYTES, "an X25519 public key")
        try:
            secret: bytes = bindings.crypto_scalarmult(self._scalar, peer_public)
        except exceptions.CryptoError:
            raise InvalidKey(_SMALL_ORDER) from None
        return secret

    def agree_with(self, peer: "PrivateKey", purpose: bytes) -> bytes:
        """Return the key of :meth:`agree`, from both private keys: two thirds of the work.

        Args:
            peer: the peer's key pair.
            purpose: of the key.
        """
        # X25519 returns the first coordinate of a b G. A multiple of the base point takes half the time of others.
        # Clamping allows scalars 8 x only, with x from 2**251 to 2**252: x is (a / 8) b modulo the order.
        eighth = (int.from_bytes(self._scalar, "little") >> 3).to_bytes(SEED_BYTES, "little")
        x = int.from_bytes(edwards25519.multiply_scalars(eighth, peer._scalar), "little")
        if x >> 251 == 0:
            x = edwards25519.ORDER - x  # the negative has the same first coordinate
        if x >> 251 != 1:  # probability 2**-127
            return self.agree(peer.public, purpose)
        secret = bindings.crypto_scalarmult_base((x << 3).to_bytes(SEED_BYTES, "little"))
        return _agreed(secret, self.public, peer.public, purpose)


def check_public(public: bytes) -> None:
    """Check that `PrivateKey.exchange` accepts a public key, whichever the private key.

    A private key is a multiple of 8 and below 2**255, so the result is zero exactly for points of small order (RFC 7748
    section 6.1). Their encodings, in either half, are 0, 1, p - 1, two of order 8, and all values equal to 0 or 1
    modulo p.

    Raises:
        InvalidKey: the key has the wrong length or is of small order.
    """
    require_length(public, PUBLIC_KEY_BYTES, "an X25519 public key")
    if int.from_bytes(public, "little") & (1 << 255) - 1 in _SMALL_ORDER_POINTS:
        raise InvalidKey(_SMALL_ORDER)


def _agreed(secret: bytes, public: bytes, peer_public: bytes, purpose: bytes) -> bytes:
    """Return the key that the owners of two public keys derive from the result of X25519."""
    first, second = sorted((public, peer_public))
    info = _DOMAIN + len(purpose).to_bytes(4, "big") + purpose + first + second
    return _derived(secret, info)


def _derived(secret: bytes, info: bytes) -> bytes:
    """Return HKDF-SHA-256 without a salt: `AGREED_KEY_BYTES` bytes."""
    return HKDF(_SHA256, AGREED_KEY_BYTES, None, info).derive(secret)
