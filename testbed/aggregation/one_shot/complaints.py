"""Settle the members' rejections of shares: leave out clients or members, and record them.

A share that a member rejects was dealt so by the client, or the member rejects it in vain. The server cannot tell
which: to open the share it would need the key that the two use in every round. It leaves out the one or the other, as
it may leave out whom it likes. An honest member rejects no share of an honest client, so that all honest ones of both
can stay together. More than T members that reject a client's shares are not all dishonest: then the client is to blame.
Nobody else is recorded alone: the record of a client names its members, and that of a member its clients.

Lies cost honest parties. With M members and n clients, D dishonest members that reject the same clients' shares have up
to n D / M clients left out; once U members are left, one is enough for any number. X dishonest clients have fewer than
M X / n honest members left out, and never more than M - U.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.aggregation.kit.message_parts import point_of
from testbed.aggregation.one_shot.messages import (
    COMMITMENT_BYTES,
    OneShotSubmission,
    ShareFrom,
    SharesFromSurvivors,
    sealed_bytes,
)
from testbed.arrays import Ids
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import elements_from_bytes, elements_to_bytes
from testbed.crypto.share_test import ShareTest, root_of

Rejected = Mapping[int, Mapping[int, str]]
"""By member, the clients whose shares it rejects, and the check that each share fails."""


@dataclass(frozen=True)
class Settlement:
    """The clients and members that stay in the round.

    Attributes:
        clients: sorted; no member that stays rejects a share of theirs.
        members: sorted.
        blamed: who is left out, and what is recorded of it.
    """

    clients: list[int]
    members: list[int]
    blamed: list[tuple[int, str]]


def flaw_of(submission: OneShotSubmission, test: ShareTest) -> str:
    """Describe the flaw in the form of a client's shares; empty: there is none."""
    if len(submission.shares) != test.holders or {len(sealed) for sealed in submission.shares} != {sealed_bytes(test)}:
        return "not a share for every member of the committee"
    if len(submission.commitments) != COMMITMENT_BYTES * test.holders:
        return "not a commitment to every member's share"
    responses = elements_from_bytes(submission.responses)
    if responses is None or len(responses) != test.response_length:
        return "no responses to the test of its shares"
    return ""


def shares_for_members(
    submissions: Mapping[int, OneShotSubmission], clients: Ids, members: tuple[int, ...], test: ShareTest
) -> dict[int, SharesFromSurvivors]:
    """Collect, by member, the shares that these clients have sealed for it, and the values of its test.

    Args:
        submissions: by client; their form is right (`flaw_of`).
        clients: of them.
        members: in the committee's order, in which shares are.
        test: of the shares.
    """
    commitments = {client: _split(submissions[client].commitments) for client in clients.tolist()}
    roots = {client: root_of(rows) for client, rows in commitments.items()}
    elements = elements_from_bytes(b"".join(submissions[client].responses for client in roots))
    assert elements is not None
    shape = len(roots), test.combinations, test.code.needed
    values = test.values(elements.reshape(shape), tuple(point_of(member) for member in members))
    return {
        member: SharesFromSurvivors(
            [
                ShareFrom(
                    client,
                    submissions[client].shares[place],
                    root,
                    commitments[client][place],
                    elements_to_bytes(values[row, :, place]),
                )
                for row, (client, root) in enumerate(roots.items())
            ]
        )
        for place, member in enumerate(members)
    }


def _split(commitments: bytes) -> list[bytes]:
    return [commitments[k : k + COMMITMENT_BYTES] for k in range(0, len(commitments), COMMITMENT_BYTES)]


def settle(rejected: Rejected, clients: list[int], code: MaskCode) -> Settlement:
    """Leave out clients or members until no member rejects a client's share.

    The one that goes first has the largest share of conflicts: a client with those that stay of the members, a member
    with those that stay of the clients. Between equals, the client goes; so does it where U members are left.

    Args:
        rejected: of every member that has answered.
        clients: sorted.
        code: how keys are shared: U, T.
    """
    left, members = set(clients), set(rejected)
    blamed: list[tuple[int, str]] = []
    while True:
        conflicts = [(member, client) for member in members for client in rejected[member] if client in left]
        if not conflicts:
            return Settlement(sorted(left), sorted(members), blamed)
        member, of_member = _most(Counter(member for member, _ in conflicts))
        client, of_client = _most(Counter(client for _, client in conflicts))
        if of_member * len(members) > of_client * len(left) and len(members) > code.needed:
            members.discard(member)
            blamed.append((member, _record_of_member(sorted(left & rejected[member].keys()), len(left))))
        else:
            left.discard(client)
            blamed.append((client, _record_of_client(client, rejected, code.private)))


def _most(counts: Counter[int]) -> tuple[int, int]:
    """The one with the most, of equals the lowest, and how many those are."""
    return min(counts.items(), key=lambda item: (-item[1], item[0]))


def _record_of_member(clients: list[int], left: int) -> str:
    """The record of a member that is left out: with the clients that may have framed it."""
    named = f"all {left} clients" if len(clients) == left else f"clients {', '.join(map(str, clients))}"
    return f"opened shares: rejects those of {named}, or these have dealt them so"


def _record_of_client(client: int, rejected: Rejected, private: int) -> str:
    """The record of a client that is left out: its check alone only where it is to blame for certain."""
    by = sorted(member for member, checks in rejected.items() if client in checks)
    check, _ = min(Counter(rejected[member][client] for member in by).items(), key=lambda item: (-item[1], item[0]))
    if len(by) > private:
        return check
    return f"{check}: for members {', '.join(map(str, by))} alone, who may have rejected it in vain"
