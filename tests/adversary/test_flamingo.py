"""Two stories told to Flamingo's committee: how many accomplices it takes; and what old shares end."""

import hashlib
from typing import Any

import numpy as np
import pytest

from testbed.adversary.flamingo import ContradictLabels, CopyCiphertext, FalseKey, ReplayStates
from testbed.adversary.misbehaviour import AttackContext, malicious_server
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.flamingo.client import FlamingoClient
from testbed.aggregation.flamingo.decryptor import Decryptor
from testbed.aggregation.flamingo.server import Flamingo
from testbed.committee.parameters import CommitteeSection
from testbed.errors import RoundAborted
from tests.aggregation.flamingo_rounds import federation, parameters_with, played, played_from, remembering

DELTAS = np.random.default_rng(3).uniform(-1, 1, (10, 7))
VICTIM = 9
SIZE = 7


def attacked(
    threshold: int, accomplices: int, dropouts: float = 0.5, kind: Any = ContradictLabels, **more: Any
) -> tuple[Any, Any, str]:
    """The federation, what the round came to, and what was said of the attack."""
    context = AttackContext(frozenset(range(accomplices)), {kind: VictimOptions(victim=VICTIM)})
    server = malicious_server(Flamingo, [kind], context)
    parameters = parameters_with(tuple(range(SIZE)), threshold, dropouts=dropouts)
    small = federation(DELTAS, parameters, protocol=server, **more)
    (outcome,) = played(small, 1)
    (said,) = [event.detail for event in small.network.events if event.kind == "attack"]
    return small, outcome, said


@pytest.mark.parametrize("threshold", [4, 5, 6, 7])
@pytest.mark.parametrize("accomplices", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("gone", [set(), {7, 8}])
def test_both_stories_are_believed_with_2t_minus_l_accomplices(
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
    coins = small.randomness.simulation_key(VICTIM, 1, "stochastic rounding")
    update = small.parameters.quantisation.encode(np.float32(DELTAS[VICTIM]), 1, coins)
    assert said.endswith(hashlib.sha256(update.tobytes()).hexdigest())
    assert ContradictLabels.update_recovered is not None
    assert ContradictLabels.update_recovered.search(said.removeprefix("contradict-dropouts: "))
    assert small.refusals() == []


def test_one_member_that_has_gone_takes_one_accomplice_more() -> None:
    """t = 5 of 7: three accomplices are enough, unless one of the others does not answer."""
    assert "; reconstructed" in attacked(5, 3)[2]
    assert "; failed: too few signatures" in attacked(5, 3, leaving={"flamingo/cross-check": {6}})[2]
    assert "; reconstructed" in attacked(5, 4, leaving={"flamingo/cross-check": {6}})[2]


def test_a_victim_among_too_few_is_not_labelled_offline() -> None:
    """Honest members sign no labels below the fewest that must survive: the second story has one client fewer."""
    small, _, said = attacked(5, 3, 0.2, leaving={"flamingo/report": {7, 8}})
    assert said.endswith("failed: too few signatures")
    assert "flamingo.too-weak" in {check for _, check in small.refusals()}


def test_old_shares_are_refused_and_their_members_missing() -> None:
    section = CommitteeSection(selection="given", members=tuple(range(SIZE)), threshold=5, serves_rounds=2)
    server = malicious_server(Flamingo, [ReplayStates], AttackContext(frozenset()))
    small, memory = remembering(DELTAS, parameters_with(committee=section), protocol=server)
    assert len(played_from(small, 1, memory).survivors) == len(played_from(small, 2, memory).survivors) == 10
    ended = played_from(small, 3, memory)
    assert isinstance(ended, RoundAborted)
    assert str(ended).endswith(
        "0 of 5 needed members of the committee signed the labels; refusals: flamingo.other-state"
    )
    said = [event.detail for event in small.network.events if event.kind == "attack"]
    assert said == ["replay-committee-state: 7 of 7 members are handed back an old share"]


@pytest.mark.parametrize("accomplices", range(8))
def test_another_key_takes_as_many_accomplices_as_have_the_committees(accomplices: int) -> None:
    small, outcome, said = attacked(5, accomplices, kind=FalseKey)
    assert outcome.survivors.tolist() == list(range(9))  # the others' round goes on without the victim
    if accomplices < 5:
        assert said.endswith(f"{accomplices} of 5 needed signatures on a key of the server's; failed: "
                             "flamingo.too-few-signatures")  # fmt: skip
        assert small.refusals() == [(VICTIM, "flamingo.too-few-signatures")]
        return
    coins = small.randomness.simulation_key(VICTIM, 1, "stochastic rounding")
    update = small.parameters.quantisation.encode(np.float32(DELTAS[VICTIM]), 1, coins)
    assert said.endswith(f"reconstructed, weight 1, sha256 {hashlib.sha256(update.tobytes()).hexdigest()}")
    assert small.refusals() == []


# -- ciphertexts of others ---------------------------------------------------------------------------------------------


def copied(accomplices: int = 3, gone: set[int] | None = None) -> tuple[Any, Any, list[str]]:
    """The federation, what the round came to, and what was said; clients 0 to 2 are the server's, and two are gone."""
    context = AttackContext(frozenset(range(accomplices)), {CopyCiphertext: VictimOptions(victim=VICTIM)})
    server = malicious_server(Flamingo, [CopyCiphertext], context)
    leaving = {"flamingo/report": {7, 8} if gone is None else gone}
    small = federation(DELTAS, parameters_with(tuple(range(SIZE)), 5), protocol=server, leaving=leaving)
    (outcome,) = played(small, 1)
    return small, outcome, [event.detail for event in small.network.events if event.kind == "attack"]


def test_no_member_decrypts_another_clients_ciphertext() -> None:
    """Not even one that works for the server, and is honest in what it checks."""
    small, outcome, (said,) = copied()
    assert isinstance(outcome, RoundAborted)
    assert said == (
        "copy-ciphertext: victim 9: its ciphertext for client 0, signed by client 0; failed: flamingo.other-ciphertext"
    )
    assert {check for _, check in small.refusals()} == {"flamingo.other-ciphertext"}
    assert {client for client, _ in small.refusals()} == set(range(SIZE))


def test_without_the_proof_members_would_decrypt_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the proof is against: the seed that two clients online have in common, to the bit."""
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
def test_it_takes_a_client_of_the_servers_and_a_neighbour_that_is_gone(accomplices: int, gone: set[int] | None) -> None:
    _, outcome, said = copied(accomplices, gone)
    assert said == []
    assert np.abs(outcome.mean - np.float32(DELTAS)[outcome.survivors].mean(0)).max() < 1e-4
