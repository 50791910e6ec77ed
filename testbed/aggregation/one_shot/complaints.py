"""Settlement of the members' rejections of shares: clients or members are left out and recorded.

A rejected share was dealt wrongly by the client, or is rejected wrongly by the member. The server cannot tell which: to
open the share it would need the key that the two use in every round. It leaves out the client or the member; the
protocol allows it to leave out any. An honest member rejects no share of an honest client, so all honest clients and
members can stay together. If more than T members reject a client's shares, one of them is honest, and the client is to
blame. In all other cases a record names both sides: that of a client its members, that of a member its clients.

Lies cost honest parties. With M members and n clients, D dishonest members that reject the same clients' shares have up
to n D / M clients left out; once only U members are left, one dishonest member is enough for any number of clients. X
dishonest clients have fewer than M X / n honest members left out, and never more than M - U.
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
"""By member, the clients that it rejects, each with the check that the share fails."""


@dataclass(frozen=True)
class Settlement:
    """Clients and members that stay in the round.

    Attributes:
        clients: sorted; no remaining member rejects a share of theirs.
        members: sorted.
        blamed: clients and members that are left out, each with the text of its record.
    """

    clients: list[int]
    members: list[int]
    blamed: list[tuple[int, str]]


def flaw_of(submission: OneShotSubmission, test: ShareTest) -> str:
    """Describe the flaw in the form of a client's shares; empty if there is none.

    Args:
        submission: the client's message.
        test: of the shares.
    """
    if len(submission.shares) != test.holders or {len(sealed) for sealed in submission.shares} != {sealed_bytes(test)}:
        return "does not have one share for every member of the committee"
    if len(submission.commitments) != COMMITMENT_BYTES * test.holders:
        return "does not have one commitment for every member's share"
    responses = elements_from_bytes(submission.responses)
    if responses is None or len(responses) != test.response_length:
        return "does not have valid responses to the test of its shares"
    return ""


def shares_for_members(
    submissions: Mapping[int, OneShotSubmission], clients: Ids, members: tuple[int, ...], test: ShareTest
) -> dict[int, SharesFromSurvivors]:
    """Collect, by member, the shares that these clients have sealed for it, with the values for its test.

    Args:
        submissions: by client; their form is right (`flaw_of`).
        clients: sorted clients of the wanted shares.
        members: in the committee's order, which is the order of the shares.
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

    The first to be left out has the largest share of conflicts: a client among the remaining members, a member among
    the remaining clients. With equal shares, or if only U members are left, the client is left out.

    Args:
        rejected: by member that has answered.
        clients: sorted.
        code: by which keys are shared: U, T.
    """
    left, members = set(clients), set(rejected)
    blamed: list[tuple[int, str]] = []
    while True:
        conflicts = [(member, client) for member in members for client in rejected[member] if client in left]
        if not conflicts:
            return Settlement(sorted(left), sorted(members), blamed)
        member, of_member = _most(Counter(member for member, _ in conflicts))
        client, of_client = _most(Counter(client for _, client in conflicts))
        # Shares of conflicts, compared without division. U members must stay.
        if of_member * len(members) > of_client * len(left) and len(members) > code.needed:
            members.discard(member)
            blamed.append((member, _record_of_member(sorted(left & rejected[member].keys()), len(left))))
        else:
            left.discard(client)
            blamed.append((client, _record_of_client(client, rejected, code.private)))


def _most(counts: Counter[int]) -> tuple[int, int]:
    """Return the key with the largest count (the lowest key among equals) and the count."""
    return min(counts.items(), key=lambda item: (-item[1], item[0]))


def _record_of_member(clients: list[int], left: int) -> str:
    """Return the record of a member that is left out, with the clients that may have framed it."""
    named = f"all {left} clients" if len(clients) == left else f"clients {', '.join(map(str, clients))}"
    return f"opened shares: rejects the shares of {named}, or these have dealt wrong shares"


def _record_of_client(client: int, rejected: Rejected, private: int) -> str:
    """Return the record of a client that is left out; without members only if it is certainly to blame."""
    by = sorted(member for member, checks in rejected.items() if client in checks)
    check, _ = min(Counter(rejected[member][client] for member in by).items(), key=lambda item: (-item[1], item[0]))
    if len(by) > private:  # at least one of them is honest
        return check
    return f"{check}: only for members {', '.join(map(str, by))}, which may have rejected it wrongly"
