"""Verifiable batch partition in whole federations: privacy over many rounds, malicious servers, dishonest clients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from analysis.bounds.verifiable_batch_partition import BatchSetting, bound
from analysis.multi_round import strong_privacy
from testbed.selection.verifiable_batch_partition import assign_batches
from tests.engine.federations import checks_by_round

POPULATION, PARTICIPANTS, PRIVACY, ROUNDS = 36, 6, 3, 4
BEACON = "drawn in public"
SUSPICIOUS = 1e-4


def keys(server: Any = (), dishonest: Any = 12, rounds: int = ROUNDS, clients: Any = (), **selection: Any) -> Any:
    """n_min is two thirds of the population; a K = n: every whole batch is a candidate."""
    section = {
        "protocol": "verifiable-batch-partition", "participants": PARTICIPANTS, "privacy": PRIVACY,
        "over_selection": 6.0, "min_population": 24, "beacon": BEACON,
    }  # fmt: skip
    return {
        "population": POPULATION,
        "rounds": rounds,
        "selection": section | selection,
        "aggregation": {"protocol": "plain"},
        "adversary": {
            "dishonest": dishonest, "server": server if isinstance(server, str | dict) else list(server),
            "clients": list(clients),
        },
    }  # fmt: skip


def in_batches(count: int, members: int, first: int = 0) -> list[int]:
    """`members` clients of each of `count` batches."""
    batches = assign_batches(POPULATION, PRIVACY, BEACON)
    return [client for batch in range(first, first + count) for client in batches.members([batch])[:members].tolist()]


def attacked(run: Any, name: str) -> set[int]:
    """The rounds in which a misbehaviour was carried out."""
    return {e["round"] for e in run.rows("events") if e["kind"] == "attack" and e["detail"].startswith(f"{name}: ")}


def matrix(run: Any, selected: bool = False) -> np.ndarray:
    """Return the clients in the sum of each completed round, or (`selected`) the clients selected for it."""
    found = np.zeros((len(run.outcomes), POPULATION), np.bool_)
    for row, outcome in enumerate(run.outcomes):
        found[row, outcome.participants if selected and outcome.state == "completed" else outcome.survivors] = True
    return found


def dishonest_in(run: Any, outcome: Any) -> int:
    return len(run.plan.dishonest & set(outcome.participants.tolist()))


def honest_batches(run: Any, outcome: Any) -> int:
    """Batches with no dishonest member among the participants."""
    honest = np.setdiff1d(outcome.participants, list(run.plan.dishonest))
    return len(np.unique(run.plan.selection.batches.of[honest]))


# -- privacy over many rounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("population", [36, 38])
def test_over_thirty_rounds_only_sums_of_whole_batches_can_be_had(population: int, run: Callable) -> None:
    """T strong stays T (uneven: T or more); the server that would break a batch is refused, and T stays."""
    changes = keys(rounds=30, over_selection=4.0) | {"population": population}
    changes["adversary"] = {"dishonest": 0, "server": "split-batch", "from_round": 5, "every": 5}
    done = run(changes, "here").rounds()
    seen = checks_by_round(done)
    assert set(seen) == attacked(done, "split-batch")
    assert len(seen) >= 4
    assert {one for found in seen.values() for one in found} == {("lotto.partial-batch", "lotto/participants")}
    found = np.zeros((30, population), np.bool_)
    for row, outcome in enumerate(done.outcomes):
        found[row, outcome.survivors] = True
    assert found.any(axis=1).sum() >= 15
    assert strong_privacy(found) >= PRIVACY


def test_without_the_check_a_split_batch_gives_its_members_away(run: Callable) -> None:
    """All clients are accomplices, which check nothing: then T falls below the batch size."""
    done = run(keys("split-batch", dishonest=0, rounds=12), "checked").rounds()
    assert not matrix(done).any()
    unchecked = keys("split-batch", dishonest=35, rounds=12)
    done = run(unchecked, "unchecked").rounds()
    assert matrix(done, selected=True).any()
    assert strong_privacy(matrix(done, selected=True)) < PRIVACY


def test_colluding_members_leave_the_sum_of_the_honest_ones(run: Callable) -> None:
    """With one dishonest member in each batch T against the colluders is T - 1, not less."""
    dishonest = in_batches(12, 1)
    done = run(keys("keep-dishonest-candidates", dishonest, rounds=20), "here").rounds()
    honest = np.setdiff1d(np.arange(POPULATION), dishonest)
    assert strong_privacy(matrix(done)) >= PRIVACY
    assert strong_privacy(matrix(done)[:, honest]) == PRIVACY - 1


# -- malicious servers ----------------------------------------------------------------------------------------------

REFUSED = [
    ({"understate-population": {"to": 23}}, "population-below-minimum", "announce"),
    ({"reuse-round": {"round": 2}}, "round-reused", "announce"),
    ("grind-round", "after-last-round", "announce"),
    ("forge-output", "invalid-proof", "participants"),
    ("copy-output", "invalid-proof", "participants"),
    ("list-twice", "duplicate-client", "participants"),
    ("split-batch", "partial-batch", "participants"),
    ("show-different-lists", "inconsistent-lists", "signatures"),
    ({"tell-different-populations": {"to": 30}}, "inconsistent-lists", "signatures"),
    ("forge-signatures", "inconsistent-lists", "signatures"),
]


@pytest.mark.parametrize(("server", "check", "at"), REFUSED)
def test_refusals_of_honest_clients(server: Any, check: str, at: str, run: Callable) -> None:
    """Four of twelve batches are wholly dishonest; an attacked round is refused by that check and stage alone."""
    done = run(keys(server, in_batches(4, 3, first=8), over_selection=5.0), "here").rounds()
    name = server if isinstance(server, str) else next(iter(server))
    rounds, seen = attacked(done, name), checks_by_round(done)
    assert rounds
    assert set(seen) <= rounds
    assert {one for found in seen.values() for one in found} == {(f"lotto.{check}", f"lotto/{at}")}
    for number, outcome in enumerate(done.outcomes, 1):
        harmed = honest_batches(done, outcome) >= (2 if name in ("forge-output", "copy-output") else 1)
        if name == "tell-different-populations":
            harmed = harmed and len(set(outcome.participants % 2)) == 2  # they were told apart
        if number in rounds and harmed:
            assert (outcome.state, outcome.reason.partition(":")[0]) == ("aborted", "refused")
            assert number in seen


@pytest.mark.parametrize(("count", "members", "most"), [(1, 3, 3), (4, 3, 6), (12, 1, 2), (6, 2, 4)])
def test_the_worst_residual_removal_is_not_seen(count: int, members: int, most: int, run: Callable) -> None:
    """Where every batch stands the server fills the round; spread, it cannot have more than one of each batch."""
    done = run(keys("keep-dishonest-candidates", in_batches(count, members)), "here").rounds()
    assert [outcome.state for outcome in done.outcomes] == ["completed"] * ROUNDS
    assert {dishonest_in(done, outcome) for outcome in done.outcomes} == {most}
    assert not checks_by_round(done)


def test_omitting_honest_batches_is_seen_where_too_few_remain(run: Callable) -> None:
    few = run(keys("omit-honest-candidates", dishonest=0), "few").rounds()
    assert set(checks_by_round(few)) == {1, 2, 3, 4}
    assert checks_by_round(few)[1] == {("lotto.wrong-size", "lotto/participants")}
    enough = run(keys("omit-honest-candidates", in_batches(1, 2)), "enough").rounds()
    assert not checks_by_round(enough)
    assert {dishonest_in(enough, outcome) for outcome in enough.outcomes} == {2}


def test_a_place_can_be_kept_for_the_batch_that_took_part_most(run: Callable) -> None:
    done = run(keys("reserve-most-selected", in_batches(1, 1), rounds=8), "here").rounds()
    assert not checks_by_round(done)
    assert matrix(done).sum(axis=0).max() == 8


def test_a_population_down_to_the_minimum_is_not_seen_and_makes_more_candidates(run: Callable) -> None:
    found = []
    honest: list[str] = []
    for server in (honest, "understate-population"):
        done = run(keys(server, over_selection=3.0, rounds=6), f"{bool(server)}").rounds()
        assert not checks_by_round(done)
        found.append(sum(outcome.candidates for outcome in done.outcomes))
    assert found[0] < found[1]


@pytest.mark.parametrize(("count", "members"), [(4, 3), (12, 1), (6, 2)])
def test_no_rate_in_real_rounds_is_above_the_bound(count: int, members: int, run: Callable) -> None:
    """Real proofs, verified lists, the worst residual removal, at n_min: 12 dishonest clients, placed three ways."""
    server = ["keep-dishonest-candidates", "understate-population"]
    changes = keys(server, in_batches(count, members), rounds=50, over_selection=1.5)
    changes["selection"]["min_population"] = 27
    done = run(changes, "here").rounds()
    assert not checks_by_round(done)
    x = np.array([dishonest_in(done, outcome) if outcome.state == "completed" else 0 for outcome in done.outcomes])
    assert x.any()
    setting = BatchSetting(POPULATION, PARTICIPANTS, PRIVACY, 1.5, 12, 27)
    for above in range(PARTICIPANTS):
        chance, *_ = bound(setting, above)
        assert binomtest(int((x > above).sum()), len(x), chance, alternative="greater").pvalue > SUSPICIOUS


# -- dishonest clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proof", ["genuine", "made-up"])
def test_a_false_number_is_found_and_costs_its_batch_the_round(proof: str, run: Callable) -> None:
    liars = in_batches(3, 1)
    done = run(keys(dishonest=liars, clients=[{"claim-candidacy": {"proof": proof}}]), "here").rounds()
    found = {(e["round"], e["party"]) for e in done.rows("events") if e["kind"] == "misbehaviour"}
    assert found == {(number, f"client:{liar}") for number in range(1, ROUNDS + 1) for liar in liars}
    batches = assign_batches(POPULATION, PRIVACY, BEACON)
    for outcome in done.outcomes:
        assert (outcome.state, outcome.candidates) == ("completed", 27)
        assert not np.isin(outcome.participants, batches.members([0, 1, 2])).any()


def test_a_client_that_withholds_its_number_denies_its_batch_and_gains_nothing(run: Callable) -> None:
    done = run(keys(dishonest=in_batches(11, 1), clients=["withhold-number"]), "denied").rounds(1)
    assert done.outcomes[0].reason == "too-few-candidate-batches: 1 candidate batch, 2 wanted"
    done = run(keys(dishonest=in_batches(10, 1), clients=["withhold-number"]), "left").rounds(1)
    assert (done.outcomes[0].state, dishonest_in(done, done.outcomes[0])) == ("completed", 0)


def test_a_wrong_signature_ends_the_round_or_is_left_out_by_a_quorum(run: Callable) -> None:
    liar = in_batches(1, 1)
    server = ["keep-dishonest-candidates"]  # so that the liar's batch takes part
    strict = run(keys(server, liar, clients=["wrong-signature"]), "strict").rounds(1)
    assert strict.outcomes[0].reason == "too-few-signatures: 5 of 6 needed"
    quorum = run(keys(server, liar, clients=["wrong-signature"], signatures=4), "quorum").rounds(1)
    assert quorum.outcomes[0].state == "completed"
    assert liar[0] in quorum.outcomes[0].participants
    assert liar[0] not in quorum.outcomes[0].survivors


# -- with secure aggregation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["secagg", "secagg-plus"])
def test_secure_aggregation_sums_the_agreed_batches(aggregation: str, run: Callable) -> None:
    """The sum is the plain one up to quantisation, and the agreed list is where the peers' keys come from."""
    changes = keys(dishonest=0) | {"aggregation": {"protocol": aggregation}}
    if aggregation == "secagg-plus":
        changes["aggregation"] |= {"neighbours": 5, "threshold": 4}
    changes.pop("adversary")
    secure, plain = run(changes).rounds(2), run(changes | {"aggregation": {"protocol": "plain"}}).rounds(2)
    for one, other in zip(secure.outcomes, plain.outcomes, strict=True):
        assert one.state == other.state == "completed", one.reason
        assert one.participants.tolist() == other.participants.tolist() == one.survivors.tolist()
    assert np.allclose(secure.federation.state.model, plain.federation.state.model, atol=1e-3)
