"""One dishonest client cannot end the round of all others: the honest server leaves it out and records why."""

from typing import Any

import pytest

from testbed.adversary.clients import ClaimCandidacy, WrongSignature
from testbed.adversary.misbehaviour import AttackContext, dishonest_role
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec
from testbed.selection.lotto.variants import ClientCentricClient, ClientCentricParameters, ClientCentricServer
from tests.selection.federations import Selecting

POPULATION, PARTICIPANTS = 40, 5


def role(kind: Any, **options: Any) -> Any:
    """Return the role of a dishonest client with this behaviour."""
    context = AttackContext(frozenset(), {kind: kind.Options(**options)})
    return dishonest_role(ClientCentricClient, [kind], context)


FalseCandidate = role(ClaimCandidacy, proof="made-up")
LateCandidate = role(ClaimCandidacy)
WrongSigner = role(WrongSignature)


def run_with(role: Any, clients: set[int], **keys: Any) -> Any:
    parameters = ClientCentricParameters(participants=PARTICIPANTS, over_selection=4.0, **keys)
    server = ClientCentricServer(parameters, POPULATION)
    return Selecting(server, POPULATION, more_roles=[RoleSpec(role, parameters, frozenset(clients))])


def misbehaving(run: Any) -> set[int]:
    return {int(e.party.removeprefix("client:")) for e in run.network.events if e.kind == "misbehaviour"}


@pytest.mark.parametrize("role", [FalseCandidate, LateCandidate])
def test_false_candidates_are_left_out(role: Any) -> None:
    liars = {0, 7, 19, 30}
    run = run_with(role, liars)
    chosen = run.select()
    assert len(chosen.participants) == PARTICIPANTS
    assert not run.refusals()
    found = misbehaving(run)
    assert found <= liars  # those that are no candidates
    assert found
    assert not found & set(chosen.participants.tolist())


def test_with_a_quorum_wrong_signers_are_left_out() -> None:
    honest = run_with(WrongSigner, set(), signatures=3).select()
    wrong = {int(honest.participants[1])}
    run = run_with(WrongSigner, wrong, signatures=3)
    chosen = run.select()
    assert misbehaving(run) == wrong
    assert set(chosen.ready.tolist()) == set(chosen.participants.tolist()) - wrong


def test_if_all_must_sign_a_wrong_signer_ends_the_round() -> None:
    honest = run_with(WrongSigner, set()).select()
    run = run_with(WrongSigner, {int(honest.participants[0])})
    with pytest.raises(RoundAborted, match="too-few-signatures: 4 of 5"):
        run.select()


@pytest.mark.parametrize("number", [1, 9])
def test_clients_know_the_last_round(number: int) -> None:
    run = run_with(WrongSigner, set())
    run.environment.rounds = 8
    if number <= 8:
        assert len(run.select(number).participants) == PARTICIPANTS
        return
    with pytest.raises(RoundAborted, match=r"lotto\.after-last-round"):
        run.select(number)
