"""Memoised functions give the result of each caller's own computation, and the same refusals."""

import asyncio
import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.aggregation.secagg.messages import open_shares, seal_shares
from testbed.crypto import (
    InvalidKey,
    InvalidProof,
    InvalidSignature,
    OpeningFailed,
    encryption,
    key_agreement,
    memo,
    shamir,
    signatures,
    vrf,
)
from testbed.crypto.key_agreement import PrivateKey
from testbed.crypto.memo import Memo, cached_latest, memo_scope
from testbed.crypto.signatures import SigningKey

PURPOSE = b"testbed/test/v1"
PAIRS = [PrivateKey.from_seed(bytes([number]) * 32) for number in range(1, 5)]
SIGNING = [SigningKey.from_seed(bytes([number]) * 32) for number in range(1, 4)]
SECRET = vrf.SecretKey.from_seed(bytes(32))


@given(st.lists(st.tuples(st.sampled_from(range(4)), st.sampled_from(range(4)), st.sampled_from([b"a", b"b"]))))
def test_both_parties_of_an_agreement_get_their_own_result(asked: Any) -> None:
    results = Memo()
    with memo_scope(results):
        found = [memo.agree(PAIRS[own], PAIRS[peer].public, purpose) for own, peer, purpose in asked]
    assert found == [PAIRS[own].agree(PAIRS[peer].public, purpose) for own, peer, purpose in asked]
    assert len(results) == len({(frozenset((own, peer)), purpose) for own, peer, purpose in asked})


seeds = st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from([bytes(32), b"\xff" * 32]))


@given(seeds, seeds, st.booleans())
def test_an_agreement_between_stored_pairs_is_the_same(own: bytes, peer: bytes, known: bool) -> None:
    with memo_scope(Memo()):
        pair, other = memo.key_pair(own), (memo.key_pair if known else PrivateKey.from_seed)(peer)
        found = memo.agree(pair, other.public, PURPOSE)
    assert found == PrivateKey.from_seed(own).agree(PrivateKey.from_seed(peer).public, PURPOSE)
    assert pair.public == PrivateKey.from_seed(own).public


def test_two_stored_pairs_avoid_the_expensive_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    with memo_scope(Memo()):
        pair, other = (memo.key_pair(bytes([number]) * 32) for number in (1, 2))
        assert pair.public == PAIRS[0].public
        expected = PAIRS[0].agree(PAIRS[1].public, PURPOSE)
        monkeypatch.setattr(PrivateKey, "exchange", None)
        assert memo.agree(pair, other.public, PURPOSE) == expected
    assert memo.key_pair(bytes([1]) * 32).public == PAIRS[0].public  # also without a memo


@given(st.lists(st.tuples(*[st.sampled_from(range(3))] * 2, *[st.sampled_from([b"a", b"b"])] * 3)))
def test_a_signature_verifies_only_for_its_key_purpose_and_content(asked: Any) -> None:
    """Independent of earlier verifications."""
    with memo_scope(Memo()):
        for signer, key, domain, content, claimed in asked:
            signature = SIGNING[signer].sign(domain, content)
            answers = []
            for verify in (signatures.verify, memo.verify):
                try:
                    verify(SIGNING[key].public, domain, claimed, signature)
                    answers.append(True)
                except InvalidSignature:
                    answers.append(False)
            assert answers == [signer == key and content == claimed] * 2


def test_outputs_verify_only_for_their_key_and_input() -> None:
    output, proof = SECRET.prove(b"round 1")
    other = vrf.SecretKey.from_seed(bytes(31) + b"1")
    with memo_scope(Memo()):
        for _ in range(2):
            assert memo.verify_output(SECRET.public, b"round 1", proof) == output
            for public, alpha in ((SECRET.public, b"round 2"), (other.public, b"round 1")):
                with pytest.raises(InvalidProof):
                    memo.verify_output(public, alpha, proof)
            with pytest.raises(InvalidProof):
                memo.verify_output(SECRET.public, b"round 1", proof[:-1] + b"\0")


def test_results_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(function: Any, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            calls.append(name)
            return function(*arguments)

        return call

    monkeypatch.setattr(signatures, "verify", counted(signatures.verify, "verify"))
    monkeypatch.setattr(vrf, "verify", counted(vrf.verify, "prove"))
    monkeypatch.setattr(key_agreement.PrivateKey, "agree", counted(PrivateKey.agree, "agree"))
    signature, (_, proof) = SIGNING[0].sign(b"d", b"c"), SECRET.prove(b"x")

    def everybody() -> None:
        for _ in range(3):
            memo.verify(SIGNING[0].public, b"d", b"c", signature)
            memo.verify_output(SECRET.public, b"x", proof)
            memo.agree(PAIRS[0], PAIRS[1].public, PURPOSE)
            memo.agree(PAIRS[1], PAIRS[0].public, PURPOSE)

    everybody()
    assert len(calls) == 12  # nobody remembers
    calls.clear()
    with memo_scope(Memo()):
        everybody()
        assert sorted(calls) == ["agree", "prove", "verify"]
        with memo_scope(None):
            calls.clear()
            everybody()
            assert len(calls) == 12


def test_failures_are_raised_each_time() -> None:
    with memo_scope(Memo()):
        for _ in range(2):
            with pytest.raises(InvalidKey):
                memo.agree(PAIRS[0], bytes(32), PURPOSE)
            with pytest.raises(InvalidSignature):
                memo.verify(SIGNING[0].public, b"d", b"c", bytes(64))


def test_the_oldest_results_are_discarded() -> None:
    results, made = Memo(2), []
    for key in "abacacb":
        results.of(key, lambda key=key: made.append(key))  # type: ignore[misc]
    assert made == ["a", "b", "c", "a", "b"]
    assert len(results) == 2


def test_results_stay_in_their_process() -> None:
    results = Memo(7)
    results.of("key", lambda: b"of somebody")
    for other in (pickle.loads(pickle.dumps(results)), copy.deepcopy(results)):  # noqa: S301 - our own
        assert len(other) == 0
    assert b"of somebody" not in pickle.dumps(results)


def test_threads_of_one_round_share_results() -> None:
    async def round_() -> int:
        results = Memo()
        with memo_scope(results):
            work = [asyncio.to_thread(memo.agree, PAIRS[i], PAIRS[1 - i].public, PURPOSE) for i in (0, 1) * 20]
            assert set(await asyncio.gather(*work)) == {PAIRS[0].agree(PAIRS[1].public, PURPOSE)}
        return len(results)

    assert asyncio.run(round_()) == 1


def signed(rows: Any) -> Any:
    return [(SIGNING[key].public, b"d", content, SIGNING[signer].sign(b"d", content)) for key, signer, content in rows]


@given(
    st.lists(st.lists(st.tuples(st.sampled_from(range(3)), st.sampled_from(range(3)), st.sampled_from([b"a", b"b"]))))
)
def test_a_signed_list_is_stored_only_if_each_signature_verifies(lists: Any) -> None:
    with memo_scope(Memo()):
        for rows in lists:
            found = signed(rows)
            known = memo.verify_all(repr(found).encode(), lambda found=found: found)  # type: ignore[misc]
            assert known == all(key == signer for key, signer, _ in rows)
    assert not memo.verify_all(b"", list)  # without a memo, each call verifies


def test_a_stored_list_is_not_verified_again() -> None:
    with memo_scope(Memo()):
        assert memo.verify_all(b"one", lambda: signed([(0, 0, b"a")]))
        assert memo.verify_all(b"one", lambda: pytest.fail("looked at again"))
        assert not memo.verify_all(b"another", lambda: signed([(0, 1, b"a")]))


CHANGES: Any = {
    "pair_key": bytes(31) + b"x", "dealer": 2, "holder": 3, "sealed": bytes(98), "associated": b"another", "none": None,
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("known", [True, False])
def test_stored_plaintexts_open_only_for_the_same_input(what: str, known: bool) -> None:
    given_: Any = {"pair_key": bytes(32), "dealer": 0, "holder": 1, "associated": b"round"}
    with memo_scope(Memo() if known else None):
        sealed = seal_shares(shares=bytes(range(66)), **given_)
        asked = {**given_, "sealed": sealed}
        if what == "none":
            assert open_shares(**asked) == bytes(range(66))
            return
        for _ in range(2):
            with pytest.raises(OpeningFailed):
                open_shares(**{**asked, what: CHANGES[what]})


def test_stored_plaintexts_are_not_decrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    with memo_scope(Memo()):
        sealed = seal_shares(bytes(32), 0, 1, bytes(66), b"")
        monkeypatch.setattr(encryption, "open_sealed", None)
        assert open_shares(bytes(32), 0, 1, sealed, b"") == bytes(66)


@given(st.binary(min_size=32, max_size=32), st.integers(1, 5))
def test_shares_among_all_equal_individual_shares(secret: bytes, threshold: int) -> None:
    secrets = [(secret, bytes(32)), (bytes(32), secret)]
    expected = [shamir.share(one, threshold, range(1, 6), entropy) for one, entropy in secrets]
    for results in (Memo(), None):
        with memo_scope(results):
            assert memo.share_among_all(secrets, threshold, range(1, 6)) == expected


def test_valid_proofs_verified_together_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [vrf.SecretKey.from_seed(bytes([number]) * 32) for number in range(12)]
    claims = [(key.public, b"x", key.prove(b"x")[1]) for key in keys]
    bad = [(keys[0].public, b"y", claims[0][2]), (b"", b"x", b""), (keys[1].public, b"x", claims[2][2])]
    results = Memo()
    with memo_scope(results):
        memo.verify_outputs([*claims, *bad, *claims])
        assert len(results) == len(claims)
        monkeypatch.setattr(vrf, "verify", lambda *claim: pytest.fail("computed again"))
        memo.verify_outputs(claims)
        assert [memo.verify_output(*claim) for claim in claims] == [key.output(b"x") for key in keys]
        monkeypatch.undo()
        for claim in bad:
            with pytest.raises(InvalidProof):
                memo.verify_output(*claim)
    memo.verify_outputs(bad)  # no memo: nothing happens


def test_cached_latest_stores_only_the_last_result() -> None:
    results, computed = Memo(), []

    def of(purpose: str, key: int) -> int:
        return cached_latest(purpose, key, lambda: computed.append((purpose, key)) or 10 * key)

    with memo_scope(results):
        assert [of("a", 1), of("a", 1), of("b", 1), of("a", 2), of("a", 2), of("a", 1)] == [10, 10, 10, 20, 20, 10]
    assert computed == [("a", 1), ("b", 1), ("a", 2), ("a", 1)]
    assert len(results) == 2
    assert [of("a", 1), of("a", 1)] == [10, 10]  # no memo in this scope
    assert len(computed) == 6
