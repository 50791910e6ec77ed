"""A verifiable random function: ECVRF of RFC 9381 on edwards25519.

The holder of a secret key turns an input ``alpha`` into 64 pseudorandom bytes ``beta`` and a proof ``pi`` that ``beta``
is the only output that its public key allows for ``alpha``. Suites: ECVRF-EDWARDS25519-SHA512-TAI (0x03) and
ECVRF-EDWARDS25519-SHA512-ELL2 (0x04, the default). Names of steps and values are the RFC's.

This module is stricter than the RFC: it refuses public keys and proofs with a small-order component (Gamma or Y outside
the prime-order subgroup). The RFC lets a key's holder make several such proofs of the same ``beta``, but none of
another ``beta``. So no honest key or proof is refused.
"""

from enum import Enum
from hashlib import sha512

from nacl import bindings

from testbed.crypto import InvalidProof, edwards25519, require_length

SEED_BYTES = 32
PUBLIC_KEY_BYTES = 32
PROOF_BYTES = 80
OUTPUT_BYTES = 64

_CHALLENGE_BYTES = 16
_PADDING = bytes(edwards25519.SCALAR_BYTES - _CHALLENGE_BYTES)
_COFACTOR = (8).to_bytes(edwards25519.SCALAR_BYTES, "little")
_ELLIGATOR_DOMAIN = b"ECVRF_edwards25519_XMD:SHA-512_ELL2_NU_\x04"


class Suite(Enum):
    """Methods to hash the input to the curve (RFC 9381 section 5.5)."""

    TAI = 0x03
    ELL2 = 0x04

    @property
    def string(self) -> bytes:
        """suite_string: the one byte that every hash of the suite begins with."""
        return b"\x03" if self is Suite.TAI else b"\x04"


class SecretKey:
    """A VRF secret key, expanded once.

    Attributes:
        public: the public key Y = x B, 32 bytes.
    """

    __slots__ = ("_cofactor_scalar", "_nonce_key", "_scalar", "public")

    public: bytes

    def __init__(self, scalar: bytes, nonce_key: bytes) -> None:
        """Use :meth:`from_seed`.

        Args:
            scalar: x, 32 bytes.
            nonce_key: the second half of the hashed secret key, 32 bytes.
        """
        self._scalar = scalar
        self._nonce_key = nonce_key
        self._cofactor_scalar = edwards25519.multiply_scalars(scalar, _COFACTOR)
        self.public = edwards25519.multiply_base(scalar)

    @classmethod
    def from_seed(cls, seed: bytes) -> "SecretKey":
        """Return the key of a 32-byte SK, expanded as in RFC 8032 section 5.1.5 (RFC 9381 section 5.5).

        Raises:
            InvalidKey: the seed is not 32 bytes long.
        """
        return cls(*_expanded(seed))

    def __repr__(self) -> str:
        return f"SecretKey(public={self.public.hex()})"

    def output(self, alpha: bytes, suite: Suite = Suite.ELL2) -> bytes:
        """Return beta for ``alpha``, 64 bytes, without its proof: less than half the work of :meth:`prove`.

        Args:
            alpha: the input, any length.
            suite: hash to the curve.
        """
        # beta depends only on 8 Gamma, which is (8 x mod q) H.
        h = encode_to_curve(self.public, alpha, suite)
        return _hash_cofactor_gamma(edwards25519.multiply(self._cofactor_scalar, h), suite)

    def prove(self, alpha: bytes, suite: Suite = Suite.ELL2) -> tuple[bytes, bytes]:
        """Return (beta, pi) for ``alpha``: the output, 64 bytes, and its proof, 80 bytes (RFC 9381 section 5.1).

        Args:
            alpha: the input, any length.
            suite: hash to the curve.

        Example:
            >>> seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
            >>> beta, pi = SecretKey.from_seed(seed).prove(b"", Suite.TAI)
            >>> beta.hex()[:32], pi.hex()[:32]  # RFC 9381, example 16
            ('90cf1df3b703cce59e2a35b925d41116', '8657106690b5526245a92b003bb079cc')
        """
        h = encode_to_curve(self.public, alpha, suite)
        gamma = edwards25519.multiply(self._scalar, h)
        k = nonce(self._nonce_key, h)
        u, v = edwards25519.multiply_base(k), edwards25519.multiply(k, h)
        c = challenge(self.public, h, gamma, u, v, suite)
        s = edwards25519.add_scalars(k, edwards25519.multiply_scalars(c + _PADDING, self._scalar))
        return proof_to_hash(gamma, suite), gamma + c + s


def _expanded(seed: bytes) -> tuple[bytes, bytes]:
    """Return scalar and nonce key of a seed; raises `InvalidKey`."""
    require_length(seed, SEED_BYTES, "a VRF secret key")
    hashed = sha512(seed).digest()
    # Clamped (RFC 8032 section 5.1.5, step 2).
    return bytes([hashed[0] & 248]) + hashed[1:31] + bytes([hashed[31] & 127 | 64]), hashed[32:]


def public_key(seed: bytes) -> bytes:
    """Return the public key of `SecretKey.from_seed` without the other parts: the seed's Ed25519 key.

    Raises:
        InvalidKey: the seed is not 32 bytes long.
    """
    require_length(seed, SEED_BYTES, "a VRF secret key")
    public: bytes = bindings.crypto_sign_seed_keypair(seed)[0]
    return public


def either_output(seed: bytes, public: bytes, alpha: bytes) -> tuple[bytes, bytes] | None:
    """Return two values of 64 bytes of which one is `SecretKey.output`, in half the time.

    For threshold tests: a number is not below the threshold if neither value is. On curve25519 the mapping to the curve
    needs no square root, and X25519 need not check that a point computed here has prime order. X25519 gives one
    coordinate of 8 Gamma = x (64 P), where P is the point of the input; 8 Gamma is one of two points.

    Args:
        seed: of the secret key, 32 bytes.
        public: its public key.
        alpha: the input.

    Returns:
        Both values, in no meaningful order; None for the few inputs without such a pair.
    """
    scalar, _ = _expanded(seed)
    point = edwards25519.montgomery_u(edwards25519.hash_to_field(public + alpha, _ELLIGATOR_DOMAIN))
    base = edwards25519.double_u(point, 6)  # 8 for the cofactor of H, 8 for that of Gamma
    product = None if base is None else edwards25519.multiply_u(scalar, base)
    pair = None if product is None else edwards25519.edwards_pair(product)
    if pair is None:
        return None
    return _hash_cofactor_gamma(pair[0], Suite.ELL2), _hash_cofactor_gamma(pair[1], Suite.ELL2)


def verify(public: bytes, alpha: bytes, proof: bytes, suite: Suite = Suite.ELL2) -> bytes:
    """Verify a proof and return beta, 64 bytes (RFC 9381 section 5.3).

    The key is validated, as the RFC's validate_key asks.

    Args:
        public: Y, 32 bytes.
        alpha: the input, any length.
        proof: pi, 80 bytes.
        suite: hash to the curve.

    Raises:
        InvalidProof: a length is wrong, an encoding is not canonical, a point is not of prime order, s is not below the
            group's order, or the challenge does not match.

    Example:
        >>> key = SecretKey.from_seed(bytes(32))
        >>> beta, pi = key.prove(b"round 7")
        >>> verify(key.public, b"round 7", pi) == beta
        True
    """
    if len(public) != PUBLIC_KEY_BYTES:
        raise InvalidProof(f"a VRF public key is {PUBLIC_KEY_BYTES} bytes long, got {len(public)}")
    gamma, c, s = decode_proof(proof)
    h = encode_to_curve(public, alpha, suite)
    try:
        # c is a hash of U and V, and the proof contains neither: proofs of the RFC cannot be verified in a batch.
        u, v = recompute(public, h, gamma, c, s)
    except ValueError as refused:
        raise InvalidProof(f"the VRF public key, Gamma or s cannot be used: {refused}") from None
    if challenge(public, h, gamma, u, v, suite) != c:
        raise InvalidProof("the VRF proof's challenge does not match")
    return proof_to_hash(gamma, suite)


def validate_public_key(public: bytes) -> None:
    """Accept a public key only if the VRF under it is unique and unpredictable (RFC 9381 section 5.4.5).

    Raises:
        InvalidKey: it is not the canonical encoding of a point of prime order.
    """
    edwards25519.validate_key(public)


def encode_to_curve(public: bytes, alpha: bytes, suite: Suite) -> bytes:
    """Hash ``alpha`` to the point H of prime order, 32 bytes (RFC 9381 section 5.4.1).

    Args:
        public: Y, 32 bytes.
        alpha: the input, any length.
        suite: hash to the curve.
    """
    if suite is Suite.ELL2:
        return edwards25519.encode_to_curve(public + alpha, _ELLIGATOR_DOMAIN)
    # Try and increment takes variable time, which may reveal alpha but not the key.
    prefix = sha512(suite.string + b"\x01" + public + alpha)
    for counter in range(256):
        attempt = prefix.copy()
        attempt.update(bytes([counter, 0x00]))
        point = edwards25519.decode(attempt.digest()[: edwards25519.POINT_BYTES])
        if point is not None:
            h = edwards25519.clear_cofactor(*point)
            # Gamma would be the identity under every key.
            if h != (0, 1):
                return edwards25519.encode(h)
    raise InvalidProof("no counter hashes the VRF input to the curve")  # probability 2**-256


def nonce(nonce_key: bytes, h: bytes) -> bytes:
    """Return the secret nonce k, as in EdDSA (RFC 9381 section 5.4.2.2): a scalar, 32 bytes.

    Args:
        nonce_key: the second half of the hashed secret key, 32 bytes.
        h: the encoded H.
    """
    return edwards25519.reduce_scalar(sha512(nonce_key + h).digest())


def challenge(public: bytes, h: bytes, gamma: bytes, u: bytes, v: bytes, suite: Suite) -> bytes:
    """Return c for the five encoded points (RFC 9381 section 5.4.3): 16 bytes, little-endian.

    Args:
        public: Y.
        h: H.
        gamma: Gamma.
        u: U.
        v: V.
        suite: hash to the curve.
    """
    return sha512(suite.string + b"\x02" + public + h + gamma + u + v + b"\x00").digest()[:_CHALLENGE_BYTES]


def recompute(public: bytes, h: bytes, gamma: bytes, c: bytes, s: bytes) -> tuple[bytes, bytes]:
    """Return (U, V) = (s B - c Y, s H - c Gamma), which the prover must have hashed (RFC 9381 section 5.3).

    Args:
        public: Y.
        h: H.
        gamma: Gamma.
        c: challenge, 16 bytes.
        s: response, 32 bytes.

    Raises:
        ValueError: Y or Gamma is not of prime order (or c or s is 0, which no prover can achieve).
    """
    c = c + _PADDING
    u = edwards25519.subtract(edwards25519.multiply_base(s), edwards25519.multiply(c, public))
    v = edwards25519.subtract(edwards25519.multiply(s, h), edwards25519.multiply(c, gamma))
    return u, v


def decode_proof(proof: bytes) -> tuple[bytes, bytes, bytes]:
    """Return (Gamma, c, s) of an 80-byte proof (RFC 9381 section 5.4.4); Gamma is not yet checked.

    Raises:
        InvalidProof: the length is wrong or s is not below the group's order.
    """
    if len(proof) != PROOF_BYTES:
        raise InvalidProof(f"a VRF proof is {PROOF_BYTES} bytes long, got {len(proof)}")
    gamma, c, s = proof[:32], proof[32:48], proof[48:]
    # Otherwise s + ORDER would be a second proof.
    if int.from_bytes(s, "little") >= edwards25519.ORDER:
        raise InvalidProof("s of the VRF proof is not below the group's order")
    return gamma, c, s


def proof_to_hash(gamma: bytes, suite: Suite) -> bytes:
    """Return beta, 64 bytes, of a verified proof's Gamma (RFC 9381 section 5.2).

    Args:
        gamma: encoded point.
        suite: hash to the curve.

    Raises:
        InvalidProof: Gamma is not a point.
    """
    point = edwards25519.decode(gamma)
    if point is None:
        raise InvalidProof("Gamma of the VRF proof is not a point")
    # Of 8 Gamma: proofs with Gammas that differ by a point of small order have one beta.
    return _hash_cofactor_gamma(edwards25519.encode(edwards25519.clear_cofactor(*point)), suite)


def _hash_cofactor_gamma(cofactor_gamma: bytes, suite: Suite) -> bytes:
    return sha512(suite.string + b"\x03" + cofactor_gamma + b"\x00").digest()
