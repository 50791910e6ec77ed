"""Attacks of a malicious server, clients and members on `one-shot`, successful and unsuccessful ones."""

from typing import Any

import numpy as np
import pytest

from testbed.adversary.catalogue import update_recovered
from testbed.adversary.committees import ForgeCommittee, ForgeOptions
from testbed.adversary.one_shot import (
    AnswerWrongSum,
    ContradictCommittee,
    DealOptions,
    DealOtherShares,
    RejectShares,
)
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.kit.message_parts import point_of
from testbed.aggregation.one_shot.member import OneShotMember
from testbed.aggregation.one_shot.messages import SummedShares, SumShares
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot
from testbed.crypto.prime_field import PRIME, elements_from_bytes, elements_to_bytes
from testbed.errors import RoundAborted
from testbed.parties.client import handles
from tests.adversary import rounds

DELTAS = np.random.default_rng(3).uniform(-1, 1, (12, 7))
MEMBERS = tuple(range(2, 10))  # eight
VICTIM = 4
FRAMED = 5


def parameters(threshold: int, private: int = 1) -> OneShotParameters:
    return OneShotParameters(
        committee={"selection": "given", "members": MEMBERS, "threshold": threshold},
        max_colluders=private,
        weights="equal",
        bits=27,
    )


def attacked(kind: Any, dishonest: set[int], threshold: int, **more: Any) -> rounds.Played:
    options = VictimOptions(victim=VICTIM) if kind is ContradictCommittee else ForgeOptions()
    return rounds.attacked(OneShot, kind, parameters(threshold), DELTAS, dishonest, options, **more)


@pytest.mark.parametrize("threshold", [6, 7, 8])
@pytest.mark.parametrize("accomplices", range(7))
def test_two_sums_need_two_signed_sets(threshold: int, accomplices: int) -> None:
    """Two sets of U signers among 8 members share only accomplices."""
    dishonest = {client for client in MEMBERS if client != VICTIM}
    some = set(sorted(dishonest)[:accomplices])
    small, aggregate, (said,) = attacked(ContradictCommittee, some, threshold)
    assert aggregate.survivors.tolist() == list(range(12))
    assert np.abs(aggregate.mean - np.float32(DELTAS).mean(0)).max() < 1e-4
    can_be = accomplices >= 2 * threshold - len(MEMBERS)
    assert ("; reconstructed, weight 1, sha256 " in said) == can_be
    assert can_be <= (accomplices > parameters(threshold).code_for(len(MEMBERS)).private)  # never with T or fewer
    if can_be:
        assert small.refusals() == []
        assert said.endswith(rounds.digest_of(small, [VICTIM], DELTAS, "<u4"))
        assert update_recovered(said)
    else:
        told_of_others = len(MEMBERS) - threshold  # honest ones
        assert [check for _, check in small.refusals()] == ["one-shot.too-few-signatures"] * told_of_others
        assert said.endswith("; failed: too few sums")


def test_a_victim_that_dropped_out_is_not_attacked() -> None:
    _, aggregate, said = attacked(ContradictCommittee, {2}, 6, leaving={"one-shot/masked-input": {VICTIM}})
    assert said == []
    assert VICTIM not in aggregate.survivors


def test_a_forged_committee_is_refused() -> None:
    small, ended, (said,) = attacked(ForgeCommittee, {0, 1, 10, 11}, 6)
    assert said == "forge-committee: sent a list with undrawn member"
    assert isinstance(ended, RoundAborted)
    assert ended.reason == "below-threshold"
    assert small.refusals() == [(client, "committee.members-mismatch") for client in range(12)]


def test_without_an_accomplice_outside_no_committee_can_be_forged() -> None:
    small, aggregate, said = attacked(ForgeCommittee, {2, 3}, 6)
    assert said == []
    assert len(aggregate.survivors) == 12
    assert small.refusals() == []


def with_clients(kind: Any, dishonest: set[int], threshold: int, options: Any = None) -> rounds.Played:
    return rounds.with_dishonest(OneShot, kind, parameters(threshold), DELTAS, dishonest, options)


@pytest.mark.parametrize(("dishonest", "found"), [({2}, True), ({2, 9}, False), ({0, 11}, True)])
def test_a_wrong_sum_is_found_with_two_spare_members(dishonest: set[int], found: bool) -> None:
    """Eight members, six needed: one wrong sum is located; two are detected as too many."""
    small, outcome, said = with_clients(AnswerWrongSum, dishonest, 6)
    on_it = sorted(dishonest & set(MEMBERS))
    assert len(said) == len(on_it)
    if found:
        assert np.abs(outcome.mean - np.float32(DELTAS).mean(0)).max() < 1e-4
        assert [client for client, _ in small.misbehaviour()] == on_it
    else:
        assert outcome.reason == "wrong-shares"
        assert small.misbehaviour() == []


def test_without_spare_members_a_wrong_sum_ends_the_round() -> None:
    _, outcome, _ = with_clients(AnswerWrongSum, {2}, 8)
    assert outcome.reason == "wrong-shares"
    assert "sum of 12 keys" in outcome.detail


@pytest.mark.parametrize("holders", [1, 2, 3, 7, None])
def test_a_client_with_inconsistent_shares_is_left_out_and_the_round_continues(holders: int | None) -> None:
    """For wrong shares to one member, to more than may drop out, and to all: T = 1, and 6 of 8 members must sum."""
    small, outcome, said = with_clients(DealOtherShares, {11}, 6, DealOptions(holders=holders))
    assert outcome.survivors.tolist() == list(range(11))
    assert np.abs(outcome.mean - np.float32(DELTAS)[:11].mean(0)).max() < 1e-4
    assert small.refusals() == []
    assert said == [f"deal-inconsistent-shares: {holders or 8} shares that belong to no key"]
    alone = "one-shot.inconsistent-share: only for members 2, which may have rejected it wrongly"
    assert small.misbehaviour() == [(11, alone if holders == 1 else "one-shot.inconsistent-share")]


def test_several_clients_with_inconsistent_shares_are_left_out() -> None:
    small, outcome, _ = with_clients(DealOtherShares, {0, 5, 11}, 6, DealOptions(holders=4))
    assert outcome.survivors.tolist() == [client for client in range(12) if client not in (0, 5, 11)]
    assert sorted(client for client, _ in small.misbehaviour()) == [0, 5, 11]


def test_a_member_that_rejects_all_shares_is_left_out_without_losing_a_client() -> None:
    small, outcome, _ = with_clients(RejectShares, {2}, 6)
    assert len(outcome.survivors) == 12
    said = "opened shares: rejects the shares of all 12 clients, or these have dealt wrong shares"
    assert small.misbehaviour() == [(2, said)]


def test_a_client_cannot_frame_a_member_for_a_wrong_sum() -> None:
    """A share that is wrong for one member only is rejected and not summed, so no member's sum is wrong."""
    small, outcome, _ = with_clients(DealOtherShares, {11}, 6, DealOptions(holders=1))
    assert 11 not in outcome.survivors
    assert [client for client, _ in small.misbehaviour()] == [11]


def test_two_clients_that_exclude_an_honest_member_are_named_in_its_record() -> None:
    small, outcome, _ = with_clients(DealOtherShares, {10, 11}, 6, DealOptions(holders=1))
    assert len(outcome.survivors) == 12
    said = "opened shares: rejects the shares of clients 10, 11, or these have dealt wrong shares"
    assert small.misbehaviour() == [(2, said)]


class FramingSum(AnswerWrongSum):
    """Adds a codeword that is zero except at three places: its own, an accomplice's, a victim's."""

    name = "framing-sum"

    @handles(SumShares)
    def on_sum_shares(self, message: SumShares) -> SummedShares:
        answer = OneShotMember.on_sum_shares(self, message)
        zeros = [point_of(member) for member in MEMBERS if member not in (2, 9, FRAMED)]  # five: degree below six
        own = point_of(self.number)
        added = int(np.prod([own - zero for zero in zeros], dtype=object)) % PRIME
        held = elements_from_bytes(answer.total)
        assert held is not None
        return SummedShares(elements_to_bytes(((held.astype(np.uint64) + added) % PRIME).astype(np.uint32)))


def test_two_members_cannot_frame_an_honest_member_for_their_wrong_sums() -> None:
    """All sums but the victim's fit one polynomial; but this polynomial is no sum of keys."""
    small, outcome, _ = with_clients(FramingSum, {2, 9}, 6)
    assert outcome.reason == "wrong-shares"
    assert "sum of 12 keys" in outcome.detail
    assert small.misbehaviour() == []
