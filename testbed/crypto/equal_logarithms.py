"""Proof that points are the products of other points with one secret scalar, to which a public key commits.

Chaum, Pedersen, Wallet Databases with Observers, CRYPTO 1992, on edwards25519.

Many products are proven at once by a random linear combination, as in RFC 9497 section 2.2. Combination and challenge
are not drawn by a verifier (Fiat, Shamir, CRYPTO 1986): both follow from a hash of everything that the prover may vary,
i.e. the public key, all points, all products, their number, and the caller's content. Each hash that a prover tries
gives a combination that hides a wrong product with probability 2**-128.
"""

import hashlib
import hmac
from collections.abc import Sequence

from testbed.crypto import InvalidKey, InvalidProof, InvalidShares, edwards25519, feldman, require_length, vrf
from testbed.crypto.edwards25519 import ORDER, POINT_BYTES, SCALAR_BYTES

CHALLENGE_BYTES = 16
PROOF_BYTES = CHALLENGE_BYTES + SCALAR_BYTES

_DOMAIN = b"testbed/equal-logarithms/v1"
_WEIGHT_BYTES = 16  # a combination hides a wrong product with probability 2**-128


def prove(secret: bytes, points: Sequence[bytes], products: Sequence[bytes], content: bytes) -> bytes:
    """Prove that each of `products` is `secret` times the point of the same index.

    Args:
        secret: a scalar, 32 bytes, not 0.
        points: one or more of prime order, 32 bytes each.
        products: as many, in the same order.
        content: context of the proof: the round, the prover, the meaning of each point.

    Returns:
        `PROOF_BYTES`: the challenge (16 bytes) and the response (32 bytes).

    Raises:
        InvalidKey: the secret has another length, or a point is not of prime order.
        InvalidProof: there are no points, or the numbers of points and products differ.

    Source:
        RFC 9497 section 2.2.1, with other domains and content.
    """
    require_length(secret, SCALAR_BYTES, "a scalar")
    try:
        public = edwards25519.multiply_base(secret)
        seed = _seed(public, points, products, content)
        point = feldman.weighted_points(points, _weights(seed, len(points)))
        product = edwards25519.multiply(secret, point)
        # From the secret and the whole statement: one nonce under two challenges would reveal the secret.
        nonce = hmac.digest(secret, _DOMAIN + b"/nonce" + seed + point + product, "sha512")
        nonce_scalar = edwards25519.reduce_scalar(nonce)
        commitments = edwards25519.multiply_base(nonce_scalar), edwards25519.multiply(nonce_scalar, point)
    except (ValueError, InvalidShares) as error:
        raise InvalidKey(f"points that nothing can be proven of: {error}") from None
    challenge = _challenge(seed, point, product, *commitments)
    wide = challenge + bytes(SCALAR_BYTES - CHALLENGE_BYTES)  # little-endian: zeros on top
    return challenge + edwards25519.add_scalars(nonce_scalar, edwards25519.multiply_scalars(wide, secret))


def verify(public: bytes, points: Sequence[bytes], products: Sequence[bytes], content: bytes, proof: bytes) -> None:
    """Verify that each of `products` is the point of the same index times the secret scalar of `public`.

    Args:
        public: the secret scalar times the base point, 32 bytes.
        points: see `prove`.
        products: see `prove`.
        content: see `prove`.
        proof: `PROOF_BYTES`.

    Raises:
        InvalidProof: a length or number of products is wrong, a point is not of prime order, the response is not below
            the group's order, or the challenge does not match.

    Source:
        RFC 9497 section 2.2.2.

    Example:
        >>> secret, scalar = (number.to_bytes(32, "little") for number in (7, 11))
        >>> point = edwards25519.multiply_base(scalar)
        >>> product = edwards25519.multiply(secret, point)
        >>> proof = prove(secret, [point], [product], b"round 7")
        >>> verify(edwards25519.multiply_base(secret), [point], [product], b"round 7", proof)
    """
    if len(proof) != PROOF_BYTES:
        raise InvalidProof(f"a proof of equal logarithms is {PROOF_BYTES} bytes long, got {len(proof)}")
    challenge, response = proof[:CHALLENGE_BYTES], proof[CHALLENGE_BYTES:]
    # Otherwise response + ORDER would be a second proof of the same statement.
    if int.from_bytes(response, "little") >= ORDER:
        raise InvalidProof("the response is not below the group's order")
    seed = _seed(public, points, products, content)
    weights = _weights(seed, len(points))
    try:
        edwards25519.validate_key(public)
        point, product = feldman.weighted_points(points, weights), feldman.weighted_points(products, weights)
        commitments = vrf.recompute(public, point, product, challenge, response)
    except (ValueError, InvalidKey, InvalidShares) as error:
        raise InvalidProof(f"points that nothing can be proven of: {error}") from None
    if _challenge(seed, point, product, *commitments) != challenge:
        raise InvalidProof("the challenge does not match: a product is not the point times the secret scalar")


def _seed(public: bytes, points: Sequence[bytes], products: Sequence[bytes], content: bytes) -> bytes:
    """Return 64 bytes that represent the whole statement, by an injective encoding."""
    if not points or len(points) != len(products):
        raise InvalidProof(f"{len(products)} products of {len(points)} points")
    encodings = [public, *points, *products]
    if any(len(encoding) != POINT_BYTES for encoding in encodings):
        raise InvalidProof(f"a point is {POINT_BYTES} bytes long")
    # The lengths make the encoding injective: no other content and points give the same seed.
    sizes = len(content).to_bytes(8, "big") + len(points).to_bytes(8, "big")
    return hashlib.sha512(_DOMAIN + b"/seed" + sizes + content + b"".join(encodings)).digest()


def _weights(seed: bytes, count: int) -> list[int]:
    """Return the factors of the linear combination, above 0 and below 2**128."""
    prefix = hashlib.sha512(_DOMAIN + b"/weight" + seed)
    weights = []
    for at in range(count):
        hashed = prefix.copy()
        hashed.update(at.to_bytes(8, "big"))
        # A weight of 0 would take its product out of the proof.
        weights.append(int.from_bytes(hashed.digest()[:_WEIGHT_BYTES], "little") or 1)
    return weights


def _challenge(seed: bytes, point: bytes, product: bytes, base_commitment: bytes, point_commitment: bytes) -> bytes:
    # All parts have a fixed length, so the concatenation is injective.
    content = seed + point + product + base_commitment + point_commitment
    return hashlib.sha512(_DOMAIN + b"/challenge" + content).digest()[:CHALLENGE_BYTES]
