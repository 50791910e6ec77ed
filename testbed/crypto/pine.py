"""PINE: sums of vectors with bounded Euclidean norm, from shares that no single aggregator can read.

Rothblum, Omri, Chen and Talwar, PINE: Efficient Verification of a Euclidean Norm Bound of a Secret-Shared Vector
(USENIX Security 2024, arXiv 2311.10237), in the form of draft-chen-cfrg-vdaf-pine-01: a Verifiable Distributed
Aggregation Function like Prio3 of draft-irtf-cfrg-vdaf, for two aggregators, a leader (0) and a helper (1).

This is `Pine64HmacSha256Aes128` of the draft's repository (commit 1cd0a0b) except for two derivations: the seed of the
random vectors and the seed of the joint randomness bind more (`PineVdaf._wraparound_seed`, `PineVdaf._joint_seed`).
Therefore the function has its own identifier. With the draft's derivations and identifier it reproduces the draft's
eight vectors (tests/crypto/test_pine_draft_vectors.py).

A client shares its vector of integers, the bits of its squared norm V and of B**2 - V, and for each of 100 random
vectors of -1, 0 and 1 the bits of its product with the client's vector. The aggregators check on their shares that bits
are bits, that V is the squared norm modulo the field's prime, that V is at most B**2, and that the products are as
small as for a short vector. If the squared norm of a long vector wraps around the prime, each product reveals that with
probability one half.

An invalid report is accepted with probability at most: 2**-100 for the wraparound; 2 (p - 1) / 2**64 for the norm, with
p of the order of d / chunk; and the square of about (2 (p + n)) / 2**64 for the n bits.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from testbed.crypto import InvalidProof, InvalidShares, field64, linear_proofs
from testbed.crypto.field64 import PRIME, Elements
from testbed.crypto.linear_proofs import Circuit
from testbed.crypto.pine_circuits import NormEquality, RemainingChecks
from testbed.crypto.ternary_products import ternary_products
from testbed.crypto.xof import Xof, XofHmacSha256Aes128, derived_seed, elements

IDENTIFIER = 0xFFFF5354
"""Identifier of this function, in the range for private use; the draft's is 0xFFFF1004, with other bytes."""
# Each check misses a wraparound with probability 1/2.
CHECKS = 100
"""Number of wraparound checks, all of which must succeed."""
# Two, with independent joint randomness: a client can search offline for randomness that one false proof passes.
PROOFS = 2
"""Number of proofs of all checks except the norm's equality."""
# One suffices: clients do not know the point of its query, so offline search does not help.
NORM_PROOFS = 1
"""Number of proofs of the norm's equality."""
# A product of an honest client is out of range, which tells the aggregators something, with probability below
# 200 exp(-alpha**2) = 2**-101.
ALPHA = 8.7
NONCE_BYTES = 16
SHARES = 2

_MEASUREMENT, _PROOF, _JOINT, _PROVE, _QUERY, _JOINT_SEED, _JOINT_PART = range(1, 8)
_WRAPAROUND, _WRAPAROUND_SEED, _WRAPAROUND_PART = range(8, 11)


@dataclass(frozen=True)
class Report:
    """A client's report.

    Attributes:
        public: four seeds, the parts of the joint randomness; for both aggregators.
        leader: the leader's share of the measurement and of the proofs, and two seeds.
        helper: four seeds.
    """

    public: bytes
    leader: bytes
    helper: bytes


@dataclass(frozen=True)
class Prepared:
    """A report as prepared by one aggregator.

    Attributes:
        output: `(d,)` the aggregator's share of the vector.
        share: message to the other aggregator.
        seeds: both aggregators must derive the same.
    """

    output: Elements
    share: bytes
    seeds: bytes


@dataclass(frozen=True)
class PineVdaf:
    """The function for vectors of one length and bound.

    Args:
        dimension: d.
        norm_bound: B, the largest norm, of vectors of integers.
        chunk: products in one gadget of the bit checks.
        norm_chunk: squares in one gadget of the norm.
        xof: expands seeds.
        identifier: identifier of the function, part of the domain of every expansion.
        proofs: proofs of all checks except the norm's equality. The error bounds above hold for the default of this and
            of the next two arguments; the draft's vectors have other values.
        checks: wraparound checks.
        successes: checks that a valid report passes, exactly this many.

    Raises:
        ValueError: a size below 1, more successes than checks, or a norm with a wraparound that the checks might miss
            (`largest_norm_bound`).
    """

    dimension: int
    norm_bound: int
    chunk: int
    norm_chunk: int
    xof: type[Xof] = XofHmacSha256Aes128
    identifier: int = IDENTIFIER
    proofs: int = PROOFS
    checks: int = CHECKS
    successes: int = CHECKS

    VERSION: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.dimension < 1 or self.chunk < 1 or self.norm_chunk < 1:
            raise ValueError("a dimension and chunks of at least 1 are needed")
        if self.proofs < 1 or not 1 <= self.successes <= self.checks:
            raise ValueError("a proof and a success are needed at least, and no more successes than checks")
        if not 1 <= self.norm_bound <= largest_norm_bound():
            raise ValueError(f"a norm of 1 to {largest_norm_bound()} is needed, not {self.norm_bound}")

    # -- sizes --------------------------------------------------------------------------------------------------------

    @cached_property
    def circuits(self) -> tuple[NormEquality, RemainingChecks]:
        """The circuit of the norm's proof and the circuit of the other proofs."""
        norm = NormEquality(
            self.dimension, self.norm_bound, self.norm_chunk, self.checks, _wraparound_bound(self.norm_bound),
            self.successes,
        )  # fmt: skip
        return norm, RemainingChecks(norm, self.chunk)

    @property
    def proven(self) -> list[Circuit]:
        """The circuit of each proof, in order."""
        norm, rest = self.circuits
        return [*[norm] * NORM_PROOFS, *[rest] * self.proofs]

    @property
    def measurement_length(self) -> int:
        """Elements of a shared measurement: the vector and the bits."""
        return self.dimension + self.circuits[0].bits

    @property
    def proofs_length(self) -> int:
        """Elements of all proofs."""
        return sum(map(linear_proofs.proof_length, self.proven))

    @property
    def report_seeds(self) -> int:
        """Secret seeds that a report takes."""
        return 7

    @property
    def leader_bytes(self) -> int:
        """Length of the leader's share [bytes]."""
        return field64.ELEMENT_BYTES * (self.measurement_length + self.proofs_length) + 2 * self.xof.seed_bytes

    @property
    def helper_bytes(self) -> int:
        """Length of the helper's share, and of the public share [bytes]."""
        return 4 * self.xof.seed_bytes

    @property
    def prepare_bytes(self) -> int:
        """Length of an aggregator's message to the other about a report [bytes]."""
        verifiers = sum(map(linear_proofs.verifier_length, self.proven))
        return field64.ELEMENT_BYTES * verifiers + 2 * self.xof.seed_bytes

    @property
    def entries_bytes(self) -> int:
        """Length of a report's random vectors [bytes]."""
        return self.checks * -(-self.dimension // 4)

    # -- the client (the draft's `shard`) -----------------------------------------------------------------------------

    def shard(self, vector: npt.NDArray[np.int64], nonce: bytes, seeds: list[bytes]) -> Report:
        """Return the report of a vector.

        A vector that is too long also gives a report, which is not valid.

        Args:
            vector: `(d,)` between -2**62 and 2**62.
            nonce: 16 bytes, unique to this report.
            seeds: `report_seeds` secret seeds.
        """
        helper_seed, helper_proof_seed, *helper_blinds = seeds[:4]
        leader_blinds, prove_seed = seeds[4:6], seeds[6]
        norm = self.circuits[0]
        helper_share = self._helper_measurement(helper_seed)
        begun = np.concatenate([field64.from_signed(vector), norm.norm_bits(vector)])
        leader_begun = field64.subtract(begun, helper_share[: len(begun)])
        blinds = leader_blinds[0], helper_blinds[0]
        # These parts fix vector and norm before the client knows the random vectors, which follow from the parts.
        parts = self._parts(_WRAPAROUND_PART, blinds, nonce, leader_begun, helper_share[: len(begun)])
        products = self._products(vector, norm.magnitude(vector), self._wraparound_seed(parts))
        bits = norm.product_bits(products)
        leader_share = np.concatenate([leader_begun, field64.subtract(bits, helper_share[len(begun) :])])
        blinds = leader_blinds[1], helper_blinds[1]
        # Likewise, the whole measurement is fixed before the joint randomness.
        more_parts = self._parts(_JOINT_PART, blinds, nonce, leader_share, helper_share)
        # The client does not share the products: they are linear, so each aggregator computes its share of them.
        measurement = np.concatenate([begun, bits, _reduced(products)])
        proofs = self._proofs(measurement, prove_seed, self._joint(self._joint_seed([*parts, *more_parts])))
        leader_proofs = field64.subtract(proofs, self._helper_proofs(helper_proof_seed))
        leader = b"".join([*map(field64.to_bytes, (leader_share, leader_proofs)), *leader_blinds])
        return Report(b"".join([*parts, *more_parts]), leader, b"".join(seeds[:4]))

    def _proofs(self, measurement: Elements, seed: bytes, joint: list[Elements]) -> Elements:
        lengths = [linear_proofs.prove_rand_length(circuit) for circuit in self.proven]
        stream = self.xof(seed, self._domain(_PROVE), self._proof_counts)
        rand = np.split(elements(stream, sum(lengths)), np.cumsum(lengths)[:-1])
        each = zip(self.proven, rand, joint, strict=True)
        return np.concatenate([linear_proofs.prove(circuit, measurement, some, more) for circuit, some, more in each])

    # -- an aggregator (`prep_init`, `prep_shares_to_prep`) -----------------------------------------------------------

    def prepare(
        self, aggregator: int, verify_key: bytes, nonce: bytes, public: bytes, share: bytes | memoryview
    ) -> Prepared:
        """Prepare a report at one aggregator.

        Args:
            aggregator: 0 the leader, 1 the helper.
            verify_key: of both aggregators, unknown to clients, chosen before the report was made.
            nonce: of the report.
            public: the report's public share.
            share: the report's share for this aggregator.

        Raises:
            InvalidShares: the shares are malformed.
        """
        measurement, proofs, blinds = self._expanded(aggregator, share)
        size = self.xof.seed_bytes
        if len(public) != 4 * size:
            raise InvalidShares(f"a public share of {len(public)} bytes, not {4 * size}")
        parts = [public[first : first + size] for first in range(0, len(public), size)]
        begun = measurement[: self.dimension + self.circuits[0].norm_bits_length]
        # Each aggregator recomputes its own parts: false public parts lead to seeds that `combined` does not return.
        parts[aggregator] = self._part(_WRAPAROUND_PART, aggregator, blinds[0], nonce, begun)
        parts[2 + aggregator] = self._part(_JOINT_PART, aggregator, blinds[1], nonce, measurement)
        seeds = self._wraparound_seed(parts[:2]), self._joint_seed(parts)
        output = measurement[: self.dimension]
        products = self._products(output, 64, seeds[0])  # a share fills the whole word
        shared = np.concatenate([measurement, _reduced(products)])
        # Clients do not know the key, so they cannot prepare a report for these points.
        points = elements(self.xof(verify_key, self._domain(_QUERY), self._proof_counts, nonce), len(self.proven))
        verifiers = []
        for circuit, point, joint in zip(self.proven, points.tolist(), self._joint(seeds[1]), strict=True):
            proof, proofs = np.split(proofs, [linear_proofs.proof_length(circuit)])
            verifiers.append(linear_proofs.query(circuit, shared, proof, point, joint, SHARES))
        message = field64.to_bytes(np.concatenate(verifiers)) + parts[aggregator] + parts[2 + aggregator]
        return Prepared(output, message, b"".join(seeds))

    def combined(self, leader: bytes, helper: bytes) -> bytes:
        """Combine the aggregators' messages about a report; return two seeds that both must have derived.

        Args:
            leader: the leader's message.
            helper: the helper's message.

        Raises:
            InvalidProof: the report is not valid.
            InvalidShares: the messages are malformed.
        """
        size, shares = self.xof.seed_bytes, []
        for share in (leader, helper):
            verifiers = field64.from_bytes(share[: -2 * size]) if len(share) == self.prepare_bytes else None
            if verifiers is None:
                raise InvalidShares("not what an aggregator says of a report")
            shares.append(verifiers)
        verifiers = field64.add(*shares)
        for number, circuit in enumerate(self.proven):
            verifier, verifiers = np.split(verifiers, [linear_proofs.verifier_length(circuit)])
            if not linear_proofs.decide(circuit, verifier):
                of_norm = number < NORM_PROOFS
                reason = "its norm is not what it says" if of_norm else "a bit, its norm or a wraparound check"
                raise InvalidProof(f"not valid: {reason}")
        both = [share[len(share) - 2 * size :] for share in (leader, helper)]
        parts = [part[:size] for part in both] + [part[size:] for part in both]
        return self._wraparound_seed(parts[:2]) + self._joint_seed(parts)

    def helper_output(self, share: bytes) -> Elements:
        """Return the helper's share of the vector, `(d,)`, as `prepare` derives it."""
        seed = share[: self.xof.seed_bytes]
        return elements(self.xof(seed, self._domain(_MEASUREMENT), b"\x01"), self.dimension)

    def _expanded(self, aggregator: int, share: bytes | memoryview) -> tuple[Elements, Elements, list[bytes]]:
        """Return measurement, proofs, and the two seeds that blind the parts."""
        size = self.xof.seed_bytes
        if len(share) != (self.helper_bytes if aggregator else self.leader_bytes):
            raise InvalidShares(f"a share of {len(share)} bytes")
        blinds = [bytes(share[len(share) - 2 * size : len(share) - size]), bytes(share[len(share) - size :])]
        if aggregator:
            seed, proof_seed = bytes(share[:size]), bytes(share[size : 2 * size])
            return self._helper_measurement(seed), self._helper_proofs(proof_seed), blinds
        shared = field64.from_bytes(share[: len(share) - 2 * size])
        if shared is None:
            raise InvalidShares("a share that is not made of elements of the field")
        measurement, proofs = np.split(shared, [self.measurement_length])
        return measurement, proofs, blinds

    # -- expansion of seeds -------------------------------------------------------------------------------------------

    def _helper_measurement(self, seed: bytes) -> Elements:
        return elements(self.xof(seed, self._domain(_MEASUREMENT), b"\x01"), self.measurement_length)

    def _helper_proofs(self, seed: bytes) -> Elements:
        return elements(self.xof(seed, self._domain(_PROOF), self._proof_counts, b"\x01"), self.proofs_length)

    def _joint(self, seed: bytes) -> list[Elements]:
        """Return the joint randomness of each proof; those of the norm have none."""
        _, rest = self.circuits
        randomness = elements(self.xof(seed, self._domain(_JOINT), bytes([self.proofs])), self.proofs * rest.joint)
        return [*[randomness[:0]] * NORM_PROOFS, *np.split(randomness, self.proofs)]

    def _products(self, vector: npt.NDArray[np.int64] | Elements, bits: int, seed: bytes) -> list[int]:
        entries = self.xof(seed, self._domain(_WRAPAROUND)).read(self.entries_bytes)
        return ternary_products(vector, bits, entries, self.checks)

    def _parts(self, usage: int, blinds: tuple[bytes, bytes], nonce: bytes, *shares: Elements) -> list[bytes]:
        return [self._part(usage, i, blinds[i], nonce, share) for i, share in enumerate(shares)]

    def _part(self, usage: int, aggregator: int, blind: bytes, nonce: bytes, share: Elements) -> bytes:
        words = np.ascontiguousarray(share, "<u8").view(np.uint8).data
        return derived_seed(self.xof, blind, self._domain(usage), bytes([aggregator]), nonce, words)

    def _seed(self, usage: int, parts: list[bytes]) -> bytes:
        return derived_seed(self.xof, bytes(self.xof.seed_bytes), self._domain(usage), *parts)

    def _wraparound_seed(self, parts: list[bytes]) -> bytes:
        """Return the seed of the random vectors, from the statement and the first two parts."""
        # The draft takes only the parts. Here, aggregators with other parameters derive another seed and reject.
        return self._seed(_WRAPAROUND_SEED, [self._statement, *parts])

    def _joint_seed(self, parts: list[bytes]) -> bytes:
        """Return the seed of the joint randomness, from the statement and all four parts."""
        # The draft takes only the last two parts. A client could then choose random vectors and joint randomness
        # independently: 2**k tries of each give 2**(2 k) pairs, and a polynomial's roots can be looked up among 2**k.
        return self._seed(_JOINT_SEED, [self._statement, *parts])

    @property
    def _statement(self) -> bytes:
        """The parameters and the numbers of proofs: each number in eight bytes."""
        numbers = (
            self.dimension, self.norm_bound, self.chunk, self.norm_chunk, NORM_PROOFS, self.proofs, self.checks,
            self.successes,
        )  # fmt: skip
        return b"".join(number.to_bytes(8, "big") for number in numbers)

    @property
    def _proof_counts(self) -> bytes:
        return bytes([NORM_PROOFS, self.proofs])

    def _domain(self, usage: int) -> bytes:
        return bytes([self.VERSION]) + self.identifier.to_bytes(4, "big") + usage.to_bytes(2, "big")


def largest_norm_bound() -> int:
    """Return the largest B for which each product reveals a norm that wraps around the prime p with probability 1/2.

    This requires a wraparound bound w with 74 w**2 <= p; a product is in range if it is one of 2 w integers. Let a
    squared norm be p or more. If a coordinate is 2 w or longer, either the 0 of its random entry leaves the product in
    range or the -1 and the 1, each with probability 1/2, and not both. If all are shorter, take as many as have a
    squared norm of p: by Berry and Esseen (with Shevtsova's 0.56) their product is in such a range, wherever it begins,
    with a probability below 4.3 w / sqrt(p), and beyond p / 2 with one below 4 / p.
    """
    # A power of two, as `check_bound`: the range then has exactly the numbers of `check_width` bits.
    widest = 1 << (math.isqrt(PRIME // 74).bit_length() - 1)
    return math.floor((widest - 1) / ALPHA)


def _wraparound_bound(norm_bound: int) -> int:
    """Return the smallest power of two above alpha B."""
    return 1 << math.ceil(ALPHA * norm_bound).bit_length()


def _reduced(integers: list[int]) -> Elements:
    return np.array([integer % PRIME for integer in integers], np.uint64)
