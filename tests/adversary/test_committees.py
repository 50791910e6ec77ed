"""Malicious servers and dishonest clients around a committee: refused attacks, and attacks limited by a bound."""

import asyncio
from typing import Any

import numpy as np
import pytest

from testbed.adversary.committees import (
    ClaimMembership,
    ForgeCommittee,
    ForgeOptions,
    KeepDishonestMembers,
    WithholdMembership,
)
from testbed.adversary.misbehaviour import AttackContext, dishonest_role, malicious_server
from testbed.committee.messages import CommitteeList
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import SortitionRole, is_drawn, sortition_input
from testbed.crypto import prf
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec
from tests.aggregation.federations import SmallFederation
from tests.committee.plain_sums import CommitteeSums, CommitteeSumsParameters

CLIENTS = 40
DISHONEST = frozenset(range(28, 40))
DELTAS = np.random.default_rng(5).uniform(-1, 1, (CLIENTS, 3))
VARIANTS = ("lotto-client-centric", "lotto-server-centric")
EVERY_SELECTION: dict[str, dict[str, Any]] = {
    "public-seed": {"size": 8},
    "given": {"members": (3, 1, 4, 15, 9, 26, 5, 35)},
    **{variant: {"size": 8, "over_selection": 1.8} for variant in VARIANTS},
}


def federation(selection: str, *kinds: Any, options: Any = None, clients: Any = None, **more: Any) -> SmallFederation:
    """Return a federation in which twelve of forty clients are dishonest."""
    given = {"serves_rounds": 2, **EVERY_SELECTION[selection], **more}
    parameters = CommitteeSumsParameters(committee=CommitteeSection.model_validate({"selection": selection, **given}))
    context = AttackContext(DISHONEST, {} if options is None else {kinds[0]: options}, every=2)
    roles = []
    if clients is not None:
        role = dishonest_role(SortitionRole, [clients], context)
        roles.append(RoleSpec(role, parameters.committee, DISHONEST))
    server = malicious_server(CommitteeSums, kinds, context)
    return SmallFederation(DELTAS, parameters, protocol=server, roles=roles)


def attacks(small: SmallFederation) -> list[str]:
    return [event.detail for event in small.network.events if event.kind == "attack"]


def ours(committee: CommitteeList) -> set[int]:
    return {client for client in committee.clients if client in DISHONEST}


def drawn_clients(small: SmallFederation) -> set[int]:
    """Return all clients drawn for the first service, by the definition."""
    section, board = small.parameters.committee, small.environment.directory
    alpha = sortition_input(small.environment.experiment_id, 1)
    found = set()
    for client in range(CLIENTS):
        if section.selection == "lotto-server-centric":
            number = prf.evaluate(board.vrf_key(client), alpha)
        else:
            number = small.client(client).identity.vrf.output(alpha)
        if is_drawn(section, board, client, number):
            found.add(client)
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_hiding_honest_candidates_is_undetected_and_adds_no_undrawn_client(variant: str) -> None:
    honest, hiding = federation(variant), federation(variant, KeepDishonestMembers)
    for small in (honest, hiding):
        assert len(small.run().survivors) == CLIENTS
        assert small.refusals() == []
    (kept,), (honestly,) = hiding.protocol.committees, honest.protocol.committees
    assert len(kept.clients) == len(honestly.clients) == 8
    drawn = drawn_clients(hiding)
    assert len(drawn) > 8 >= len(drawn & DISHONEST) > len(ours(honestly))
    assert ours(kept) == drawn & DISHONEST
    assert set(kept.clients) <= drawn
    (said,) = attacks(hiding)
    assert said.startswith(f"keep-dishonest-members: took all {len(ours(kept))} of its clients that are drawn")
    assert hiding.network.exchanges[-2].stage == "committee/sortition"


def test_with_public_members_no_candidate_can_be_hidden() -> None:
    small, honest = federation("public-seed", KeepDishonestMembers), federation("public-seed")
    small.run()
    honest.run()
    assert small.protocol.committees == honest.protocol.committees
    assert attacks(small) == []


@pytest.mark.parametrize("how", ["undrawn-member", "member-twice", "other-service"])
@pytest.mark.parametrize("selection", EVERY_SELECTION)
def test_all_clients_refuse_forged_committees(selection: str, how: str) -> None:
    small = federation(selection, ForgeCommittee, options=ForgeOptions.model_validate({"how": how}))
    with pytest.raises(RoundAborted) as ended:
        small.run()
    assert ended.value.reason == "refused"
    expected = {
        "other-service": "committee.service-mismatch",
        "member-twice": "committee.wrong-size" if selection in VARIANTS else "committee.members-mismatch",
        "undrawn-member": {
            "lotto-client-centric": "committee.invalid-proof",
            "lotto-server-centric": "committee.above-threshold",
        }.get(selection, "committee.members-mismatch"),
    }[how]
    assert small.refusals() == [(client, expected) for client in range(CLIENTS)]
    assert attacks(small) == [f"forge-committee: sent a list with {how.replace('-', ' ')}"]
    assert len(asyncio.run(_second_round(small)).survivors) == CLIENTS  # which is not attacked


async def _second_round(small: SmallFederation) -> Any:
    return await small.aggregate(2)


@pytest.mark.parametrize("kind", [ClaimMembership, WithholdMembership])
def test_false_claims_of_dishonest_clients_change_no_honest_number(kind: Any) -> None:
    """The server detects false claims; a silent client is replaced by the next."""
    lying = federation("lotto-client-centric", clients=kind, over_selection=4)
    assert len(lying.run().survivors) == CLIENTS
    drawn = drawn_clients(lying)
    (committee,) = lying.protocol.committees
    if kind is ClaimMembership:
        assert {client for client, _ in lying.misbehaviour()} == DISHONEST - drawn
        honest = federation("lotto-client-centric", over_selection=4)
        honest.run()
        assert [committee] == honest.protocol.committees
    else:
        assert drawn & DISHONEST
        assert not ours(committee)
        assert set(committee.clients) <= drawn
    assert len(attacks(lying)) == len(DISHONEST - drawn if kind is ClaimMembership else DISHONEST)
