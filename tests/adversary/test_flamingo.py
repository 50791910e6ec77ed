"""Attacks on Flamingo's committee: contradictory labels, false keys, copied ciphertexts and old shares."""

import hashlib
from typing import Any

import numpy as np
import pytest

from testbed.adversary.catalogue import update_recovered
from testbed.adversary.flamingo import ContradictLabels, CopyCiphertext, FalseKey, ReplayStates
from testbed.adversary.flamingo_framing import FramingClient, FramingMember
from testbed.adversary.misbehaviour import AttackContext, dishonest_role, malicious_server
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.flamingo import server
from testbed.aggregation.flamingo.client import FlamingoClient
from testbed.aggregation.flamingo.decryptor import Decryptor
from testbed.aggregation.flamingo.messages import seed_associated
from testbed.aggregation.flamingo.seeds import recovered_pair_seeds
from testbed.aggregation.flamingo.server import Flamingo
from testbed.committee.parameters import CommitteeSection
from testbed.crypto import OpeningFailed, threshold_elgamal
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec
from tests.adversary import rounds
from tests.aggregation.flamingo_rounds import federation, parameters_with, played_from, remembering

DELTAS = np.random.default_rng(3).uniform(-1, 1, (10, 7))
VICTIM = 9
SIZE = 7


def attacked(
    threshold: int, accomplices: int, dropouts: float = 0.5, kind: Any = ContradictLabels, **more: Any
) -> tuple[Any, Any, str]:
    """Return the federation, the round's outcome, and the detail of the attack."""
    parameters = parameters_with(tuple(range(SIZE)), threshold, dropouts=dropouts)
    small, outcome, (said,) = rounds.attacked(
        Flamingo, kind, parameters, DELTAS, set(range(accomplices)), VictimOptions(victim=VICTIM), federation, **more
    )
    return small, outcome, said


@pytest.mark.parametrize("threshold", [4, 5, 6, 7])
@pytest.mark.parametrize("accomplices", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("gone", [set(), {7, 8}])
def test_contradictory_labels_succeed_with_2t_minus_l_accomplices(
    threshold: int, accomplices: int, gone: set[int]
) -> None:
    small, outcome, said = attacked(threshold, accomplices, leaving={"flamingo/report": gone})
    online = [client for client in range(10) if client not in gone]
    assert outcome.survivors.tolist() == online
    assert np.abs(outcome.mean - np.float32(DELTAS)[online].mean(0)).max() < 1e-4
    can_be = accomplices >= 2 * threshold - SIZE
    assert ("; reconstructed, weight 1, sha256 " in said) == can_be
    if not can_be:
        assert said.endswith("; failed: too few signatures")
        return
    assert said.endswith(rounds.digest_of(small, [VICTIM], DELTAS))
    assert update_recovered(said)
    assert small.refusals() == []


def test_each_absent_member_requires_one_more_accomplice() -> None:
    """t = 5 of 7: three accomplices are enough if all other members answer."""
    assert "; reconstructed" in attacked(5, 3)[2]
    assert "; failed: too few signatures" in attacked(5, 3, leaving={"flamingo/cross-check": {6}})[2]
    assert "; reconstructed" in attacked(5, 4, leaving={"flamingo/cross-check": {6}})[2]


def test_members_refuse_labels_with_too_few_survivors() -> None:
    """Honest members sign no labels below the minimum of survivors; the second labels have one client fewer."""
    small, _, said = attacked(5, 3, 0.2, leaving={"flamingo/report": {7, 8}})
    assert said.endswith("failed: too few signatures")
    assert "flamingo.weak-graph" in {check for _, check in small.refusals()}


def test_members_with_old_shares_refuse_and_are_missing() -> None:
    section = CommitteeSection(selection="given", members=tuple(range(SIZE)), threshold=5, serves_rounds=2)
    server = malicious_server(Flamingo, [ReplayStates], AttackContext(frozenset()))
    small, memory = remembering(DELTAS, parameters_with(committee=section), protocol=server)
    assert len(played_from(small, 1, memory).survivors) == len(played_from(small, 2, memory).survivors) == 10
    ended = played_from(small, 3, memory)
    assert isinstance(ended, RoundAborted)
    assert str(ended).endswith(
        "0 of 5 needed members of the committee signed the labels; refusals: flamingo.invalid-state"
    )
    said = [event.detail for event in small.network.events if event.kind == "attack"]
    assert said == ["replay-committee-state: 7 of 7 members are handed back an old share"]


@pytest.mark.parametrize("accomplices", range(8))
def test_a_false_key_needs_as_many_accomplices_as_the_committees_own_key(accomplices: int) -> None:
    small, outcome, said = attacked(5, accomplices, kind=FalseKey)
    assert outcome.survivors.tolist() == list(range(9))  # the others' round goes on without the victim
    if accomplices < 5:
        assert said.endswith(f"{accomplices} of 5 needed signatures on a key of the server's; failed: "
                             "flamingo.too-few-signatures")  # fmt: skip
        assert small.refusals() == [(VICTIM, "flamingo.too-few-signatures")]
        return
    assert said.endswith(f"reconstructed, weight 1, sha256 {rounds.digest_of(small, [VICTIM], DELTAS)}")
    assert small.refusals() == []


# -- ciphertexts of others ---------------------------------------------------------------------------------------------


def copied(accomplices: int = 3, gone: set[int] | None = None) -> tuple[Any, Any, list[str]]:
    """Return the federation, the outcome, and the detail; clients 0 to 2 are dishonest, and two dropped out."""
    parameters, options = parameters_with(tuple(range(SIZE)), 5), VictimOptions(victim=VICTIM)
    leaving = {"flamingo/report": {7, 8} if gone is None else gone}
    clients = set(range(accomplices))
    return rounds.attacked(Flamingo, CopyCiphertext, parameters, DELTAS, clients, options, federation, leaving=leaving)


def test_members_refuse_to_decrypt_a_copied_ciphertext() -> None:
    """Also a colluding member that checks honestly."""
    small, outcome, (said,) = copied()
    assert isinstance(outcome, RoundAborted)
    assert said == (
        "copy-ciphertext: victim 9: its ciphertext for client 0, signed by client 0; failed: "
        "flamingo.ciphertext-mismatch"
    )
    assert {check for _, check in small.refusals()} == {"flamingo.ciphertext-mismatch"}
    assert {client for client, _ in small.refusals()} == set(range(SIZE))


def test_without_the_proof_members_decrypt_a_copied_ciphertext(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof prevents this: the attack gives the seed that two online clients share, to the bit."""
    monkeypatch.setattr(Decryptor, "check_edges", lambda *of: None)
    seeds: dict[tuple[int, int], bytes] = {}

    def noted(client: Any, public_key: bytes, neighbour: int, seed: bytes) -> Any:
        seeds[client.number, neighbour] = seed
        return encrypted(client, public_key, neighbour, seed)

    encrypted = FlamingoClient.encrypted
    monkeypatch.setattr(FlamingoClient, "encrypted", noted)
    _, _, (said,) = copied()
    assert said.endswith(f"decrypted, the seed's sha256 {hashlib.sha256(seeds[VICTIM, 0]).hexdigest()}")


@pytest.mark.parametrize(("accomplices", "gone"), [(0, None), (3, set())])
def test_copying_needs_a_dishonest_client_with_an_offline_neighbour(accomplices: int, gone: set[int] | None) -> None:
    _, outcome, said = copied(accomplices, gone)
    assert said == []
    assert np.abs(outcome.mean - np.float32(DELTAS)[outcome.survivors].mean(0)).max() < 1e-4


# -- an honest member that is to be blamed -----------------------------------------------------------------------------


def framed(dishonest: set[int], gone: int = 8, threshold: int = 5) -> tuple[Any, Any, list[str]]:
    """Return the federation, the round's outcome, and the accomplices' records."""
    context, parameters = AttackContext(frozenset(dishonest)), parameters_with(tuple(range(SIZE)), threshold)
    kinds = ((FramingClient, FlamingoClient), (FramingMember, Decryptor))
    roles = [
        RoleSpec(dishonest_role(honest, [kind], context), parameters, frozenset(dishonest)) for kind, honest in kinds
    ]
    return rounds.run_round(federation(DELTAS, parameters, roles=roles, leaving={"flamingo/report": {gone}}))


@pytest.mark.parametrize("member", [0, 1, 4])
@pytest.mark.parametrize("client", [7, 9])
def test_a_client_and_a_member_cannot_frame_an_honest_member(member: int, client: int) -> None:
    """Members are participants, too: the accomplice attacks in both roles."""
    small, outcome, (said,) = framed({member, client})
    assert said == f"frame-member: with clients {member}, {client}, to have member {int(member == 0)} blamed"
    assert isinstance(outcome, RoundAborted)
    assert outcome.reason == "wrong-decryption"
    assert small.misbehaviour() == [
        (member, "reconstruct: points that are not its partial decryptions"),
        (member, "report: a seed that is not encrypted to the committee's key"),
        (client, "report: a seed that is not encrypted to the committee's key"),
    ]


def test_no_honest_party_is_recorded() -> None:
    """One accomplice, several, and accomplices whose answers are unused."""
    for dishonest in ({0}, {1, 2, 9}, {0, 1, 2, 3, 9}, {5, 9}, {6, 7, 9}):
        small, _, _ = framed(dishonest)
        recorded = {client for client, _ in small.misbehaviour()}
        assert recorded <= dishonest
        assert bool(recorded) == bool(dishonest & set(range(5)))


def opens_without(state: Any, left_out: int) -> bool:
    """Return whether client 9's seed opens with the answers at points 1 to 6 without this one."""
    at, edge = next((at, edge) for at, edge in enumerate(state.edges) if edge.online == 9)
    members = {point: member for member, point in state.members.items()}
    partial = {point: state.opened[members[point]].points[at] for point in range(1, 7) if point != left_out}
    sealed = state.seeds[edge.online, edge.offline].sealed
    associated = seed_associated(state.digest, edge.online, edge.offline)
    try:
        threshold_elgamal.decrypt(edge.point, sealed, associated, partial)
    except OpeningFailed:
        return False
    return True


def test_without_proofs_the_victim_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proofs prevent this: leaving out one member at a time would blame honest member 0, at point 1."""
    states: list[Any] = []

    def noted(state: Any, threshold: int) -> Any:
        states.append(state)
        return recovered_pair_seeds(state, threshold)

    monkeypatch.setattr(server, "recovered_pair_seeds", noted)
    framed({1, 9})
    assert [point for point in range(1, 6) if opens_without(states[0], point)] == [1]
