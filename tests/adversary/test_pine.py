"""Attacks of malicious clients, a malicious leader and a malicious helper on `pine`."""

import hashlib
from typing import Any

import numpy as np
import pytest

from testbed.adversary.catalogue import update_recovered
from testbed.adversary.pine import (
    AnswerWrongReportSum,
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
from tests.adversary import rounds

DELTAS = np.random.default_rng(3).uniform(-0.1, 0.1, (8, 7))
HELPER, VICTIM = 2, 4
PARAMETERS = PineParameters(helper=HELPER, min_survivors=5)


def with_clients(kind: Any, dishonest: set[int], options: Any, deltas: Any = DELTAS) -> rounds.Played:
    return rounds.with_dishonest(Pine, kind, PARAMETERS, deltas, dishonest, options)


@pytest.mark.parametrize("factor", [1.00001, 10.0, 1e6])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_only_updates_over_the_bound_are_left_out(factor: float, scale: float) -> None:
    small, aggregate, said = with_clients(UnboundedUpdate, {1, 6}, UnboundedOptions(factor=factor), scale * DELTAS)
    assert aggregate.survivors.tolist() == [0, 2, 3, 4, 5, 7]
    assert np.abs(aggregate.mean - scale * DELTAS[[0, 2, 3, 4, 5, 7]].mean(0)).max() < 2**-20
    assert [(client, found.partition(":")[0]) for client, found in small.misbehaviour()] == [
        (1, "pine.invalid-report"),
        (6, "pine.invalid-report"),
    ]
    assert said == [f"unbounded-update: an update {factor:g} times as long as it may be"] * 2


def test_forged_proofs_are_detected() -> None:
    small, aggregate, _ = with_clients(WrongProof, {1}, None)
    assert aggregate.survivors.tolist() == [0, 2, 3, 4, 5, 6, 7]
    assert small.misbehaviour() == [(1, f"pine.invalid-report: reported by the helper, client {HELPER}")]


def test_a_helper_with_a_forged_share_ends_the_round() -> None:
    small, ended, _ = with_clients(AnswerWrongReportSum, {HELPER}, WrongSumOptions())
    assert ended.reason == "implausible-sum"
    assert [client for client, _ in small.misbehaviour()] == [HELPER]


def test_a_helper_that_adds_to_its_share_is_undetected() -> None:
    """Only valid updates are summed if both aggregators are honest: the construction does not promise more."""
    small, aggregate, _ = with_clients(AnswerWrongReportSum, {HELPER}, WrongSumOptions(by=0.5))
    assert small.misbehaviour() == []
    assert np.abs(aggregate.mean - (DELTAS.mean(0) + 0.5 / 8)).max() < 2**-20


def attacked(kind: Any, dishonest: set[int]) -> rounds.Played:
    return rounds.attacked(Pine, kind, PARAMETERS, DELTAS, dishonest, VictimOptions(victim=VICTIM))


@pytest.mark.parametrize("dishonest", [set(), {0, 1, 3, 5, 6, 7}])
def test_an_honest_helper_refuses_a_second_sum(dishonest: set[int]) -> None:
    small, aggregate, (said,) = attacked(ContradictHelper, dishonest)
    assert len(aggregate.survivors) == len(DELTAS)
    assert said.startswith(f"contradict-dropouts: victim {VICTIM}: failed: ")
    assert small.refusals() == [(HELPER, "pine.out-of-order")]


def test_both_aggregators_together_recover_every_update() -> None:
    """The protocol's assumption is broken here: the helper is dishonest."""
    small, aggregate, (said,) = attacked(ContradictHelper, {HELPER})
    assert len(aggregate.survivors) == len(DELTAS)
    assert small.refusals() == []
    update = PARAMETERS.encode(np.float32(DELTAS[VICTIM]))
    assert said.endswith(
        f"reconstructed, weight 1, sha256 {hashlib.sha256(update.astype('<i8').tobytes()).hexdigest()}"
    )
    assert update_recovered(said)


def test_a_leader_cannot_get_a_sum_of_few_reports() -> None:
    small, ended, (said,) = attacked(ShrinkReports, {0, 1})
    assert said == f"shrink-the-sum: asked for the sum of client {VICTIM} and 2 accomplices"
    assert small.refusals() == [(HELPER, "pine.below-threshold")]
    assert isinstance(ended, RoundAborted)


def test_a_leader_may_leave_out_reports_down_to_min_survivors() -> None:
    """The purpose of `min_survivors`: of five reports, four are the accomplices'."""
    small, aggregate, _ = attacked(ShrinkReports, {0, 1, 3, 5})
    assert aggregate.survivors.tolist() == [0, 1, 3, 4, 5]
    assert small.refusals() == []
