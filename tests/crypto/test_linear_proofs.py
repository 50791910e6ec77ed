"""Fully linear proofs: the published vector of Prio3Count, and rejection of false proofs."""

from dataclasses import dataclass

import numpy as np
import pytest

from testbed.crypto import InvalidProof, field64, linear_proofs
from testbed.crypto.field64 import PRIME, Elements
from testbed.crypto.linear_proofs import Circuit, Products, Squares
from testbed.crypto.xof import elements
from tests.crypto.published import vectors
from tests.crypto.turboshake import TurboShake128, XofTurboShake128Of32
from tests.messages_named import naming

RNG = np.random.default_rng(7)


@dataclass
class Count:
    """The circuit of draft-irtf-cfrg-vdaf, section 7.4.1: x x - x must be zero."""

    gadget = Products(1)
    calls = 1

    def inputs(self, measurement: Elements, joint: Elements, shares: int) -> Elements:
        return np.concatenate([measurement, measurement])[None]

    def output(self, measurement: Elements, joint: Elements, outputs: Elements, shares: int) -> int:
        return (int(outputs[0]) - int(measurement[0])) % PRIME


@dataclass
class SumOfSquares:
    """The squares of all but the last element sum to the last element."""

    length: int
    chunk: int

    @property
    def gadget(self) -> Squares:
        return Squares(self.chunk)

    @property
    def calls(self) -> int:
        return -(-self.length // self.chunk)

    def inputs(self, measurement: Elements, joint: Elements, shares: int) -> Elements:
        rows = np.zeros((self.calls, self.chunk), np.uint64)
        rows.reshape(-1)[: self.length] = measurement[: self.length]
        return rows

    def output(self, measurement: Elements, joint: Elements, outputs: Elements, shares: int) -> int:
        return (int(field64.total(outputs)) - int(measurement[-1])) % PRIME


def test_turboshake_gives_rfc_9861s_vectors() -> None:
    assert TurboShake128(b"").read(32).hex() == "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"


def test_the_published_vector_of_a_count() -> None:
    given, circuit = vectors("pine/draft_irtf_cfrg_vdaf_12_prio3_count"), Count()
    rand, key, nonce = (bytes.fromhex(given[name]) for name in ("rand", "verify_key", "nonce"))

    def expanded(seed: bytes, usage: int, binder: bytes, count: int) -> Elements:
        domain = bytes([12, 0]) + (1).to_bytes(4, "big") + usage.to_bytes(2, "big")
        return elements(XofTurboShake128Of32(seed, domain, binder), count)

    helper = expanded(rand[:32], 1, b"\x01", 1)
    helper_proof = expanded(rand[:32], 2, b"\x01\x01", linear_proofs.proof_length(circuit))
    prove_rand = expanded(rand[32:], 4, b"\x01", linear_proofs.prove_rand_length(circuit))
    measurement, none = np.array([given["measurement"]], np.uint64), np.empty(0, np.uint64)
    leader = field64.subtract(measurement, helper)
    proof = linear_proofs.prove(circuit, measurement, prove_rand, none)
    leader_proof = field64.subtract(proof, helper_proof)
    assert field64.to_bytes(np.concatenate([leader, leader_proof])).hex() == given["input_shares"][0]
    point = int(expanded(key, 5, b"\x01" + nonce, 1)[0])
    shares = [(leader, leader_proof), (helper, helper_proof)]
    verifiers = [linear_proofs.query(circuit, *share, point=point, joint=none, shares=2) for share in shares]
    assert [field64.to_bytes(verifier).hex() for verifier in verifiers] == given["prep_shares"]
    assert linear_proofs.decide(circuit, field64.add(*verifiers))
    assert [field64.to_bytes(share).hex() for share in (leader, helper)] == given["agg_shares"]


def decided(circuit: Circuit, measurement: Elements, proof: Elements, point: int) -> bool:
    """Return the decision of two verifiers with random shares."""
    none = np.empty(0, np.uint64)
    masks = [RNG.integers(0, PRIME, len(whole), np.uint64) for whole in (measurement, proof)]
    others = [field64.subtract(whole, mask) for whole, mask in zip((measurement, proof), masks, strict=True)]
    said = [linear_proofs.query(circuit, some, of_proof, point, none, 2) for some, of_proof in (masks, others)]
    return linear_proofs.decide(circuit, field64.add(*said))


@pytest.mark.parametrize(("length", "chunk"), [(1, 1), (6, 2), (7, 3), (64, 8), (65, 64)])
def test_true_statements_verify_and_false_ones_do_not(length: int, chunk: int) -> None:
    circuit = SumOfSquares(length, chunk)
    vector = RNG.integers(0, PRIME, length, np.uint64)
    squares = field64.total(field64.multiply(vector, vector))
    measurement = np.append(vector, squares)
    rand, none = RNG.integers(0, PRIME, chunk, np.uint64), np.empty(0, np.uint64)
    proof = linear_proofs.prove(circuit, measurement, rand, none)
    assert len(proof) == linear_proofs.proof_length(circuit)
    assert decided(circuit, measurement, proof, 12345)
    other = measurement.copy()
    other[-1] = (int(other[-1]) + 1) % PRIME
    assert not decided(circuit, other, linear_proofs.prove(circuit, other, rand, none), 12345)
    for place in (0, len(proof) // 2, len(proof) - 1):
        changed = proof.copy()
        changed[place] = (int(changed[place]) + 1) % PRIME
        assert not decided(circuit, measurement, changed, 12345)


def test_queries_that_would_reveal_an_input_are_refused() -> None:
    circuit = SumOfSquares(6, 2)
    measurement, proof = np.zeros(7, np.uint64), np.zeros(linear_proofs.proof_length(circuit), np.uint64)
    with pytest.raises(InvalidProof, match=naming("queried", "input")):
        linear_proofs.query(circuit, measurement, proof, field64.root_of_unity(4), np.empty(0, np.uint64), 2)
