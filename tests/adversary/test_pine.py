"""What malicious clients, a malicious leader and a malicious helper of `pine` come to."""

import hashlib
from typing import Any

import numpy as np
import pytest

from testbed.adversary.misbehaviour import AttackContext, ClientMisbehaviour, dishonest_role, malicious_server
from testbed.adversary.pine import (
    AnswerWrongSum,
    ContradictHelper,
    ShrinkReports,
    UnboundedOptions,
    UnboundedUpdate,
    WrongProof,
    WrongSumOptions,
)
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.pine.server import Pine
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec
from tests.aggregation.federations import SmallFederation

DELTAS = np.random.default_rng(3).uniform(-0.1, 0.1, (8, 7))
HELPER, VICTIM = 2, 4
PARAMETERS = PineParameters(helper=HELPER, min_survivors=5)


def with_clients(kind: type[ClientMisbehaviour], dishonest: set[int], options: Any, deltas: Any = DELTAS) -> Any:
    context = AttackContext(frozenset(dishonest), {kind: options})
    role = dishonest_role(kind.extends, [kind], context)
    return SmallFederation(deltas, PARAMETERS, protocol=Pine, roles=[RoleSpec(role, PARAMETERS, frozenset(dishonest))])


@pytest.mark.parametrize("factor", [1.00001, 10.0, 1e6])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_updates_over_the_bound_are_left_out_and_nobody_elses(factor: float, scale: float) -> None:
    small = with_clients(UnboundedUpdate, {1, 6}, UnboundedOptions(factor=factor), scale * DELTAS)
    aggregate = small.run()
    assert aggregate.survivors.tolist() == [0, 2, 3, 4, 5, 7]
    assert np.abs(aggregate.mean - scale * DELTAS[[0, 2, 3, 4, 5, 7]].mean(0)).max() < 2**-20
    assert [(client, said.partition(":")[0]) for client, said in small.misbehaviour()] == [
        (1, "pine.invalid-report"),
        (6, "pine.invalid-report"),
    ]
    attacks = [event.detail for event in small.network.events if event.kind == "attack"]
    assert attacks == [f"unbounded-update: an update {factor:g} times as long as it may be"] * 2


def test_made_up_proofs_are_found_out() -> None:
    small = with_clients(WrongProof, {1}, None)
    assert small.run().survivors.tolist() == [0, 2, 3, 4, 5, 6, 7]
    assert small.misbehaviour() == [(1, f"pine.invalid-report: says the helper, client {HELPER}")]


def test_a_helper_that_makes_its_share_up_ends_the_round() -> None:
    small = with_clients(AnswerWrongSum, {HELPER}, WrongSumOptions())
    with pytest.raises(RoundAborted, match="implausible-sum"):
        small.run()
    assert [client for client, _ in small.misbehaviour()] == [HELPER]


def test_a_helper_that_adds_to_its_share_is_not_found_out() -> None:
    """Only valid updates are summed if both aggregators are honest: the construction does not promise more."""
    small = with_clients(AnswerWrongSum, {HELPER}, WrongSumOptions(by=0.5))
    aggregate = small.run()
    assert small.misbehaviour() == []
    assert np.abs(aggregate.mean - (DELTAS.mean(0) + 0.5 / 8)).max() < 2**-20


def attacked(kind: Any, dishonest: set[int]) -> tuple[SmallFederation, list[str], Any]:
    context = AttackContext(frozenset(dishonest), {kind: VictimOptions(victim=VICTIM)})
    small = SmallFederation(DELTAS, PARAMETERS, protocol=malicious_server(Pine, [kind], context))
    try:
        outcome: Any = small.run()
    except RoundAborted as ended:
        outcome = ended
    return small, [event.detail for event in small.network.events if event.kind == "attack"], outcome


@pytest.mark.parametrize("dishonest", [set(), {0, 1, 3, 5, 6, 7}])
def test_a_leader_has_no_second_sum_of_an_honest_helper(dishonest: set[int]) -> None:
    small, (said,), aggregate = attacked(ContradictHelper, dishonest)
    assert len(aggregate.survivors) == len(DELTAS)
    assert said.startswith(f"contradict-dropouts: victim {VICTIM}: failed: ")
    assert small.refusals() == [(HELPER, "pine.out-of-order")]


def test_both_aggregators_together_have_every_update() -> None:
    """The assumption that all rests on, broken: one dishonest client, who is the helper."""
    small, (said,), aggregate = attacked(ContradictHelper, {HELPER})
    assert len(aggregate.survivors) == len(DELTAS)
    assert small.refusals() == []
    update = PARAMETERS.encode(np.float32(DELTAS[VICTIM]))
    assert said.endswith(
        f"reconstructed, weight 1, sha256 {hashlib.sha256(update.astype('<i8').tobytes()).hexdigest()}"
    )
    assert ContradictHelper.update_recovered is not None
    assert ContradictHelper.update_recovered.search(said.removeprefix("contradict-dropouts: "))


def test_a_leader_that_leaves_reports_out_has_no_sum_of_few() -> None:
    small, (said,), ended = attacked(ShrinkReports, {0, 1})
    assert said == f"shrink-the-sum: asked for the sum of client {VICTIM} and 2 accomplices"
    assert small.refusals() == [(HELPER, "pine.too-few")]
    assert isinstance(ended, RoundAborted)


def test_a_leader_may_leave_out_all_but_the_fewest() -> None:
    """What `min_survivors` is for: of five reports, four are the accomplices'."""
    small, _, aggregate = attacked(ShrinkReports, {0, 1, 3, 5})
    assert aggregate.survivors.tolist() == [0, 1, 3, 4, 5]
    assert small.refusals() == []
