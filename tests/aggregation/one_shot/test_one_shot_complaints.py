"""Settlement of rejected shares: honest clients and members stay together, however others lie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.one_shot.complaints import Settlement, settle
from testbed.crypto.coded_masks import MaskCode
from tests.thoroughness import examples

BAD, INCONSISTENT = "one-shot.invalid-share", "one-shot.inconsistent-share"
CODE = MaskCode(4096, 40, 19)
MEMBERS, CLIENTS = list(range(60)), list(range(100, 200))


def rejecting(pairs: set[tuple[int, int]]) -> dict[int, dict[int, str]]:
    return {member: {client: INCONSISTENT for one, client in pairs if one == member} for member in MEMBERS}


def test_without_rejections_everybody_stays() -> None:
    settled = settle(rejecting(set()), CLIENTS, CODE)
    assert (settled.clients, settled.members, settled.blamed) == (CLIENTS, MEMBERS, [])


@pytest.mark.parametrize("holders", [1, 19, 20, 21, 39, 60])
def test_one_client_costs_itself_and_no_member(holders: int) -> None:
    """Of 60 members 40 must sum: one that deals wrong shares to 21 of them would otherwise end the round."""
    settled = settle(rejecting({(member, 117) for member in range(holders)}), CLIENTS, CODE)
    assert settled.clients == [client for client in CLIENTS if client != 117]
    assert settled.members == MEMBERS
    ((client, said),) = settled.blamed
    assert client == 117
    assert (said == INCONSISTENT) == (holders > CODE.private)
    if holders <= CODE.private:
        assert said.startswith(f"{INCONSISTENT}: only for members 0")


def test_the_record_names_all_members_that_could_have_framed_the_client() -> None:
    settled = settle(rejecting({(3, 117), (8, 117)}), CLIENTS, CODE)
    said = f"{INCONSISTENT}: only for members 3, 8, which may have rejected it wrongly"
    assert settled.blamed == [(117, said)]


@pytest.mark.parametrize("liars", [1, 10, 19])
def test_members_that_reject_everybody_cost_themselves_and_no_client(liars: int) -> None:
    settled = settle(rejecting({(member, client) for member in range(liars) for client in CLIENTS}), CLIENTS, CODE)
    assert settled.clients == CLIENTS
    assert settled.members == MEMBERS[liars:]
    assert [party for party, _ in settled.blamed] == MEMBERS[:liars]


def test_a_member_that_rejects_one_client_alone_has_it_left_out_and_is_named_beside_it() -> None:
    settled = settle(rejecting({(3, 117), (8, 150)}), CLIENTS, CODE)
    assert settled.clients == [client for client in CLIENTS if client not in (117, 150)]
    assert settled.members == MEMBERS
    names = {117: "only for members 3, ", 150: "only for members 8, "}
    assert all(names[client] in said for client, said in settled.blamed)


@pytest.mark.parametrize(("liars", "victims"), [(1, 1), (10, 16), (19, 31)])
def test_members_that_agree_on_the_clients_cost_as_large_a_share_of_them(liars: int, victims: int) -> None:
    """floor(n D / M) honest clients, each with the names of all liars; with one more, the liars go instead."""

    def settled(clients: list[int]) -> Settlement:
        return settle(rejecting({(member, client) for member in range(liars) for client in clients}), CLIENTS, CODE)

    assert victims == len(CLIENTS) * liars // len(MEMBERS)
    left_out = settled(CLIENTS[:victims])
    assert (left_out.clients, left_out.members) == (CLIENTS[victims:], MEMBERS)
    names = f"only for members {', '.join(map(str, range(liars)))}, which"
    assert all(names in said for _, said in left_out.blamed)
    assert settled(CLIENTS[: victims + 1]).members == MEMBERS[liars:]


def test_where_just_enough_members_are_left_one_has_all_clients_left_out() -> None:
    rejected = {member: dict.fromkeys(CLIENTS, BAD) if member == 3 else {} for member in MEMBERS[: CODE.needed]}
    settled = settle(rejected, CLIENTS, CODE)
    assert (settled.clients, len(settled.members)) == ([], CODE.needed)
    assert all("only for members 3, which" in said for _, said in settled.blamed)


def test_the_record_of_a_member_names_the_clients_that_could_have_framed_it() -> None:
    settled = settle(rejecting({(7, 103), (7, 105)}), CLIENTS, CODE)
    said = "opened shares: rejects the shares of clients 103, 105, or these have dealt wrong shares"
    assert (settled.clients, settled.blamed) == (CLIENTS, [(7, said)])


@pytest.mark.parametrize(("holders", "member_goes"), [(1, True), (2, True), (3, False)])
def test_one_of_few_clients_has_members_left_out_and_is_named(holders: int, member_goes: bool) -> None:
    """Of 20 clients one is a larger share than two of 60 members."""
    settled = settle(rejecting({(member, 117) for member in range(holders)}), CLIENTS[:20], CODE)
    assert settled.members == (MEMBERS[holders:] if member_goes else MEMBERS)
    assert (117 in settled.clients) == member_goes
    if member_goes:
        said = "opened shares: rejects the shares of clients 117, or these have dealt wrong shares"
        assert settled.blamed == [(member, said) for member in range(holders)]


def test_the_check_that_most_members_name_is_recorded() -> None:
    rejected = rejecting({(member, 117) for member in range(30)})
    for member in range(20):
        rejected[member][117] = BAD
    assert settle(rejected, CLIENTS, CODE).blamed == [(117, BAD)]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 19), st.integers(0, 40), st.floats(0, 1), st.floats(0, 1))
def test_nobody_that_stays_rejects_anybody_that_stays_and_enough_members_do(
    seed: int, liars: int, dealers: int, lies: float, wrong: float
) -> None:
    """Any lies of up to T members, with any wrong shares of any clients: T + U <= M here, so that U stay."""
    rng = np.random.default_rng(seed)
    bad_members = set(rng.choice(MEMBERS, liars, replace=False).tolist())
    bad_clients = set(rng.choice(CLIENTS, dealers, replace=False).tolist())
    pairs = {
        (member, client)
        for member in MEMBERS
        for client in CLIENTS
        if (member in bad_members and rng.random() < lies) or (client in bad_clients and rng.random() < wrong)
    }
    settled = settle(rejecting(pairs), CLIENTS, CODE)
    assert len(settled.members) >= CODE.needed
    assert not {(m, c) for m, c in pairs if m in settled.members and c in settled.clients}
    for party, said in settled.blamed:  # nobody honest is named alone
        if party in CLIENTS and party not in bad_clients:
            assert said.endswith("which may have rejected it wrongly")
