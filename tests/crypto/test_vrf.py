"""The VRF against all values of RFC 9381's vectors, an oracle written from the RFC's text, and invalid input."""

import json
from hashlib import sha512

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl import bindings

from testbed.crypto import InvalidKey, InvalidProof, edwards25519, vrf
from testbed.errors import ProtocolError
from tests.crypto.published import vectors
from tests.messages_named import naming
from tests.thoroughness import examples

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

suites = st.sampled_from(list(vrf.Suite))
seeds = st.binary(min_size=32, max_size=32)
inputs = st.binary(max_size=200)


class Oracle:
    """ECVRF_verify of RFC 9381 section 5.3, literally, with affine points and Python integers.

    Uses only H from the code under test (its own oracle is in test_edwards25519).
    """

    def add(self, left, right):
        (x1, y1), (x2, y2) = left, right
        t = D * x1 * x2 * y1 * y2
        return (x1 * y2 + x2 * y1) * pow(1 + t, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - t, -1, P) % P

    def multiply(self, scalar, point):
        total = (0, 1)
        for bit in bin(scalar)[2:]:
            total = self.add(total, total)
            if bit == "1":
                total = self.add(total, point)
        return total

    def encode(self, point):
        return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")

    def decode(self, encoded):
        """Find a root by search among the few points here: no square-root formula that could be wrong."""
        y, sign = int.from_bytes(encoded, "little") % 2**255, encoded[31] >> 7
        assert y < P
        square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
        root = pow(square, (P + 3) // 8, P)
        root = root if root * root % P == square else root * pow(2, (P - 1) // 4, P) % P
        assert root * root % P == square
        return (root if root & 1 == sign else P - root), y

    def verify(self, public, alpha, proof, suite):
        """Return beta, or None."""
        gamma, c, s = proof[:32], int.from_bytes(proof[32:48], "little"), int.from_bytes(proof[48:], "little")
        h = vrf.encode_to_curve(public, alpha, suite)
        base = self.decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
        minus_c = 8 * Q - c  # the whole group's order, so that it also holds for points of small order
        u = self.add(self.multiply(s, base), self.multiply(minus_c, self.decode(public)))
        v = self.add(self.multiply(s, self.decode(h)), self.multiply(minus_c, self.decode(gamma)))
        points = public + h + gamma + self.encode(u) + self.encode(v)
        tag = bytes([suite.value])
        if sha512(tag + b"\x02" + points + b"\x00").digest()[:16] != proof[32:48]:
            return None
        eightfold = self.encode(self.multiply(8, self.decode(gamma)))
        return sha512(tag + b"\x03" + eightfold + b"\x00").digest()


@pytest.fixture(scope="module")
def published():
    """Return RFC 9381's vectors, decoded."""
    names = ("sk", "pk", "alpha", "h", "k", "u", "v", "pi", "beta")
    decoded = [
        (vrf.Suite(int(vector["suite_string"], 16)), {name: bytes.fromhex(vector[name]) for name in names})
        for vector in vectors("vrf/rfc9381")["vectors"]
    ]
    assert sorted(suite.name for suite, _ in decoded) == ["ELL2"] * 3 + ["TAI"] * 3
    return decoded


def test_outputs_and_proofs_give_rfc_9381s_vectors(published):
    for suite, vector in published:
        key = vrf.SecretKey.from_seed(vector["sk"])
        assert key.public == vector["pk"]
        assert key.prove(vector["alpha"], suite) == (vector["beta"], vector["pi"])
        assert key.output(vector["alpha"], suite) == vector["beta"]
        assert vrf.verify(vector["pk"], vector["alpha"], vector["pi"], suite) == vector["beta"]


def test_intermediate_values_give_rfc_9381s_vectors(published):
    for suite, vector in published:
        h = vrf.encode_to_curve(vector["pk"], vector["alpha"], suite)
        assert h == vector["h"]
        k = vrf.nonce(sha512(vector["sk"]).digest()[32:], h)
        assert k == vector["k"]
        assert edwards25519.multiply_base(k) == vector["u"]
        assert edwards25519.multiply(k, h) == vector["v"]
        gamma, c, s = vrf.decode_proof(vector["pi"])
        assert gamma + c + s == vector["pi"]
        assert vrf.recompute(vector["pk"], h, gamma, c, s) == (vector["u"], vector["v"])
        assert vrf.challenge(vector["pk"], h, gamma, vector["u"], vector["v"], suite) == c
        assert vrf.proof_to_hash(gamma, suite) == vector["beta"]


def test_the_shared_copy_of_the_vectors_is_the_same(shared):
    assert json.loads((shared / "vectors" / "ecvrf_rfc9381.json").read_text()) == vectors("vrf/rfc9381")["vectors"]


def test_elligator_is_the_default_suite(published):
    suite, vector = published[-1]
    assert suite is vrf.Suite.ELL2
    key = vrf.SecretKey.from_seed(vector["sk"])
    assert key.prove(vector["alpha"]) == (vector["beta"], vector["pi"])
    assert key.output(vector["alpha"]) == vrf.verify(key.public, vector["alpha"], vector["pi"])


@settings(max_examples=examples(50))
@given(seeds, inputs, suites)
def test_proofs_verify(seed, alpha, suite):
    key = vrf.SecretKey.from_seed(seed)
    beta, proof = key.prove(alpha, suite)
    assert len(beta) == vrf.OUTPUT_BYTES
    assert len(proof) == vrf.PROOF_BYTES
    assert key.output(alpha, suite) == beta
    assert vrf.verify(key.public, alpha, proof, suite) == beta


@settings(max_examples=10)
@given(seeds, inputs, suites)
def test_the_oracle_agrees(seed, alpha, suite):
    key = vrf.SecretKey.from_seed(seed)
    beta, proof = key.prove(alpha, suite)
    assert Oracle().verify(key.public, alpha, proof, suite) == beta


def test_changing_any_byte_of_a_proof_breaks_it(published):
    for suite, vector in published[2:4]:
        for at in range(vrf.PROOF_BYTES):
            for change in (0x01, 0x80, 0xFF):
                proof = bytearray(vector["pi"])
                proof[at] ^= change
                with pytest.raises(InvalidProof):
                    vrf.verify(vector["pk"], vector["alpha"], bytes(proof), suite)


def test_a_proof_verifies_only_for_its_key_input_and_suite(published):
    (_, first), (suite, vector) = published[3], published[4]
    other = vrf.Suite.TAI
    for public, alpha, with_suite in (
        (first["pk"], vector["alpha"], suite),
        (vector["pk"], first["alpha"], suite),
        (vector["pk"], vector["alpha"] + b"\x00", suite),
        (vector["pk"], vector["alpha"], other),
    ):
        with pytest.raises(InvalidProof):
            vrf.verify(public, alpha, vector["pi"], with_suite)


def test_s_must_be_reduced(published):
    """s + q gives the same points: without the check every proof would have a second form."""
    suite, vector = published[3]
    s = int.from_bytes(vector["pi"][48:], "little")
    proof = vector["pi"][:48] + (s + Q).to_bytes(32, "little")
    with pytest.raises(InvalidProof, match="order"):
        vrf.verify(vector["pk"], vector["alpha"], proof, suite)


def test_the_error_for_a_proof_of_zeros_names_the_inputs():
    public = vrf.SecretKey.from_seed(bytes(range(32))).public
    with pytest.raises(InvalidProof, match=naming("VRF public key", "Gamma", "s")):
        vrf.verify(public, b"", bytes(80))


def test_wrong_lengths_are_refused(published):
    suite, vector = published[3]
    for proof in (b"", vector["pi"][:-1], vector["pi"] + b"\x00"):
        with pytest.raises(InvalidProof, match="80 bytes"):
            vrf.verify(vector["pk"], vector["alpha"], proof, suite)
    for public in (b"", vector["pk"][:-1], vector["pk"] + b"\x00"):
        with pytest.raises(InvalidProof, match="32 bytes"):
            vrf.verify(public, vector["alpha"], vector["pi"], suite)
    for seed in (b"", bytes(31), bytes(64)):
        with pytest.raises(InvalidKey, match="32 bytes"):
            vrf.SecretKey.from_seed(seed)


def test_bad_public_keys_are_refused(published, refused_edwards_keys):
    suite, vector = published[3]
    vrf.validate_public_key(vector["pk"])
    for public in refused_edwards_keys:
        with pytest.raises(InvalidKey):
            vrf.validate_public_key(public)
        with pytest.raises(InvalidProof):
            vrf.verify(public, vector["alpha"], vector["pi"], suite)


def test_bad_gammas_are_refused(published, refused_edwards_keys):
    suite, vector = published[3]
    for gamma in refused_edwards_keys:
        with pytest.raises(InvalidProof):
            vrf.verify(vector["pk"], vector["alpha"], gamma + vector["pi"][32:], suite)


def test_a_proof_with_a_small_order_component_is_refused(published):
    """The RFC accepts it if the challenge happens to be even; it proves the same beta."""
    _, vector = published[3]
    hashed = sha512(vector["sk"]).digest()
    x = (int.from_bytes(hashed[:32], "little") & (2**254 - 8)) | 2**254
    order_2 = (P - 1).to_bytes(32, "little")
    accepted_by_rfc = 0
    for round_number in range(12):
        alpha = bytes([round_number])
        h = vrf.encode_to_curve(vector["pk"], alpha, vrf.Suite.ELL2)
        gamma = edwards25519.multiply((x % Q).to_bytes(32, "little"), h)
        gamma = bindings.crypto_core_ed25519_add(gamma, order_2)
        k = vrf.nonce(hashed[32:], h)
        u, v = edwards25519.multiply_base(k), edwards25519.multiply(k, h)
        c = vrf.challenge(vector["pk"], h, gamma, u, v, vrf.Suite.ELL2)
        s = (int.from_bytes(k, "little") + int.from_bytes(c, "little") * x) % Q
        proof = gamma + c + s.to_bytes(32, "little")
        beta = Oracle().verify(vector["pk"], alpha, proof, vrf.Suite.ELL2)
        if beta is not None:
            accepted_by_rfc += 1
            assert beta == vrf.SecretKey.from_seed(vector["sk"]).output(alpha)
        with pytest.raises(InvalidProof):
            vrf.verify(vector["pk"], alpha, proof)
    assert accepted_by_rfc


def test_the_secret_is_not_shown(published):
    _, vector = published[3]
    key = vrf.SecretKey.from_seed(vector["sk"])
    assert repr(key) == f"SecretKey(public={vector['pk'].hex()})"
    assert vector["sk"].hex() not in repr(key)


@settings(max_examples=examples(300))
@given(st.binary(max_size=40), inputs, st.binary(max_size=100), suites)
def test_random_bytes_are_refused_with_a_typed_error(public, alpha, proof, suite):
    with pytest.raises(ProtocolError):
        vrf.verify(public, alpha, proof, suite)


@given(st.binary(max_size=40), suites)
def test_only_points_have_an_output(gamma, suite):
    if edwards25519.decode(gamma) is None:
        with pytest.raises(InvalidProof):
            vrf.proof_to_hash(gamma, suite)
    else:
        assert len(vrf.proof_to_hash(gamma, suite)) == vrf.OUTPUT_BYTES


@settings(max_examples=examples(300))
@given(st.binary(min_size=80, max_size=80), suites)
def test_random_proofs_under_a_good_key_are_refused_with_a_typed_error(proof, suite):
    public = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    with pytest.raises(ProtocolError):
        vrf.verify(public, b"", proof, suite)


@settings(max_examples=examples(60))
@given(seeds, inputs)
def test_one_of_two_outputs_is_the_output(seed, alpha):
    key = vrf.SecretKey.from_seed(seed)
    assert vrf.public_key(seed) == key.public
    either = vrf.either_output(seed, key.public, alpha)
    assert either is not None
    assert key.output(alpha) in either
    assert either[0] != either[1]


def test_one_of_two_outputs_is_rfc_9381s(published):
    for vector in [vector for suite, vector in published if suite is vrf.Suite.ELL2]:
        either = vrf.either_output(vector["sk"], vector["pk"], vector["alpha"])
        assert either is not None
        assert vector["beta"] in either


def test_without_a_map_there_is_no_pair_of_outputs(monkeypatch):
    """No such input is known."""
    key = vrf.SecretKey.from_seed(bytes(32))
    for none in (0, 1, P - 1):
        monkeypatch.setattr(edwards25519, "montgomery_u", lambda u, none=none: none)
        assert vrf.either_output(bytes(32), key.public, b"") is None
    monkeypatch.undo()
    monkeypatch.setattr(edwards25519, "multiply_u", lambda scalar, u: (P - 1).to_bytes(32, "little"))
    assert vrf.either_output(bytes(32), key.public, b"") is None
