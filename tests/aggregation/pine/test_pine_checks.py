"""Refusals of `pine` clients and of the helper, and the leader's handling of misbehaving ones."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.pine.client import PineClient
from testbed.aggregation.pine.messages import (
    AggregateShare,
    DrawVerifyKey,
    PineSubmission,
    PineSubmit,
    PreparedReports,
    PrepareReports,
    SumReports,
)
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.pine.second_aggregator import PineHelper
from testbed.aggregation.pine.server import Pine, PineRound
from testbed.batches import Batches
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec, handles
from tests.aggregation.federations import SmallFederation, sets_of

N, HELPER, CLIENT, STRANGER = 6, 2, 5, 40
PARAMETERS = PineParameters(helper=HELPER, min_survivors=4)
DELTAS = np.random.default_rng(3).uniform(-0.1, 0.1, (N, 5))
STEPS = ("submit", "prepare", "sum", "over")


class Stand:
    """Where an honest round has got to."""

    def __init__(self, small: SmallFederation, state: PineRound) -> None:
        self.small = small
        self.state = state

    @property
    def reports(self) -> PrepareReports:
        protocol: Any = self.small.protocol
        return protocol.question(self.state)

    def with_report(self, of: int, **fields: Any) -> PrepareReports:
        rows = [changed(row, **fields) if row.client == of else row for row in self.reports.reports]
        return changed(self.reports, reports=rows)


async def stand(before: str, **keywords: Any) -> Stand:
    small = SmallFederation(DELTAS, PARAMETERS, protocol=Pine, **keywords)
    protocol: Any = small.protocol
    start = await small.begin()
    at = Stand(small, await protocol.begin(start))
    if before == "submit":
        return at
    await protocol.collect_reports(at.state)
    protocol.prepare_reports(at.state)
    if before == "prepare":
        return at
    await protocol.validate(at.state)
    if before == "sum":
        return at
    await protocol.helpers_share(at.state, protocol.survivors(at.state))
    return at


def refused(before: str, who: int, question: Callable[[Stand], Any], **keywords: Any) -> str:
    """The name of the check with which a party answers."""

    async def play() -> Any:
        at = await stand(before, **keywords)
        replies = await at.small.network.ask(sets_of(who), question(at))
        return [refusal.check for refusal in replies.missing.refusals]

    (check,) = asyncio.run(play())
    return str(check)


CLIENTS: list[tuple[str, Callable[[Stand], Any]]] = [
    ("pine.helper-mismatch", lambda at: PineSubmit(1, N, 3)),
    ("aggregation.single-participant", lambda at: PineSubmit(1, 1, HELPER)),
    ("message.malformed", lambda at: PineSubmit(-1, N, HELPER)),
]


@pytest.mark.parametrize(("check", "question"), CLIENTS)
def test_a_client_refuses(check: str, question: Callable[[Stand], Any]) -> None:
    assert refused("submit", CLIENT, question) == check


def test_a_client_says_one_thing_once() -> None:
    assert refused("prepare", CLIENT, lambda at: PineSubmit(1, N, HELPER)) == "pine.out-of-order"


HELPERS: list[tuple[str, str, Callable[[Stand], Any]]] = [
    ("submit", "pine.out-of-order", lambda at: DrawVerifyKey(1)),
    ("submit", "pine.out-of-order", lambda at: SumReports(1, list(range(N)))),
    ("prepare", "pine.wrong-size", lambda at: changed(at.reports, participants=1)),
    ("prepare", "pine.wrong-size", lambda at: changed(at.reports, dimension=0)),
    ("prepare", "pine.model-not-bound", lambda at: changed(at.reports, training=b"")),
    ("prepare", "pine.participants-mismatch", lambda at: changed(at.reports, agreed=list(range(N)))),
    ("prepare", "pine.unexpected-report", lambda at: changed(at.reports, reports=at.reports.reports[:1] * 2)),
    ("prepare", "pine.unexpected-report", lambda at: at.with_report(1, client=STRANGER)),
    ("prepare", "pine.unexpected-report", lambda at: changed(at.reports, participants=3)),
    ("prepare", "pine.out-of-order", lambda at: changed(at.reports, round=2)),
    ("sum", "pine.out-of-order", lambda at: at.reports),
    ("sum", "pine.below-threshold", lambda at: SumReports(1, [0, 1, 2])),
    ("sum", "pine.unexpected-report", lambda at: SumReports(1, [0, 1, 2, 3, 3])),
    ("sum", "pine.unexpected-report", lambda at: SumReports(1, [0, 1, 2, 3, STRANGER])),
    ("over", "pine.out-of-order", lambda at: SumReports(1, [0, 1, 2, 3])),
]


@pytest.mark.parametrize(("before", "check", "question"), HELPERS)
def test_the_helper_refuses(before: str, check: str, question: Callable[[Stand], Any]) -> None:
    assert refused(before, HELPER, question) == check


def test_nobody_else_is_the_helper() -> None:
    assert refused("submit", CLIENT, lambda at: DrawVerifyKey(1)) == "pine.not-the-helper"


def test_the_helper_serves_a_round_once_and_no_earlier_one() -> None:
    def again(at: Stand) -> Any:
        at.small.client(HELPER).forget_round()
        return DrawVerifyKey(1)

    assert refused("over", HELPER, again) == "pine.round-reused"


def test_the_helper_keeps_batches_whole() -> None:
    batches = Batches(np.repeat(np.arange(2), 3))
    assert (
        refused("sum", HELPER, lambda at: SumReports(1, [0, 1, 2, 3]), batches=batches) == "aggregation.partial-batch"
    )


def rejected(question: Callable[[Stand], PrepareReports]) -> dict[int, str]:
    """Return the helper's failed check for each rejected report."""

    async def play() -> Any:
        at = await stand("prepare")
        replies = await at.small.network.ask(sets_of(HELPER), question(at))
        return replies[HELPER].reports

    return {report.client: report.rejected for report in asyncio.run(play()) if report.rejected}


def sealed_of(at: Stand, client: int) -> bytes:
    return at.state.reports[client].helper


REPORTS: list[tuple[str, Callable[[Stand], PrepareReports]]] = [
    ("pine.invalid-share", lambda at: at.with_report(1, helper=sealed_of(at, 3))),
    ("pine.invalid-share", lambda at: at.with_report(1, helper=b"")),
    ("pine.invalid-share", lambda at: at.with_report(1, nonce=bytes(16))),
    ("pine.invalid-share", lambda at: at.with_report(1, public=bytes(128))),
    ("pine.replayed-report", lambda at: at.with_report(1, nonce=at.state.reports[0].nonce)),
    ("pine.malformed-report", lambda at: at.with_report(1, prepared=b"")),
    ("pine.invalid-report", lambda at: at.with_report(1, prepared=at.state.prepared[0].share)),
]


@pytest.mark.parametrize(("check", "question"), REPORTS)
def test_a_report_that_is_not_valid_is_rejected_by_itself(
    check: str, question: Callable[[Stand], PrepareReports]
) -> None:
    assert rejected(question) == {1: check}


def test_honest_reports_are_all_accepted() -> None:
    assert rejected(lambda at: at.reports) == {}


def test_reports_of_another_model_or_size_of_round_do_not_open() -> None:
    for fields in ({"training": bytes(32)}, {"participants": N + 1}, {"dimension": 6}):
        assert rejected(lambda at, fields=fields: changed(at.reports, **fields)) == dict.fromkeys(  # type: ignore[misc]
            range(N), "pine.invalid-share"
        )


# -- clients and a helper that do not follow the protocol --------------------------------------------------------------


class SendsAnything(PineClient):
    """A report that is cut, or has no elements."""

    @handles(PineSubmit)
    def on_submit(self, message: PineSubmit) -> PineSubmission:
        answer = super().on_submit(message)
        if self.number == 1:
            return changed(answer, leader=answer.leader[:-1])
        return changed(answer, leader=b"\xff" * len(answer.leader))


def test_what_is_no_report_is_left_out() -> None:
    roles = [RoleSpec(SendsAnything, PARAMETERS, frozenset({1, 3}))]
    small = SmallFederation(DELTAS, PARAMETERS, protocol=Pine, roles=roles)
    assert small.run().survivors.tolist() == [0, 2, 4, 5]
    assert [(client, said.partition(":")[0]) for client, said in small.misbehaviour()] == [
        (1, "pine.malformed-report"),
        (3, "pine.malformed-report"),
    ]


class ForgetsReports(PineHelper):
    @handles(PrepareReports)
    def on_prepare_reports(self, message: PrepareReports) -> PreparedReports:
        return PreparedReports(super().on_prepare_reports(message).reports[1:])


class OtherSeeds(PineHelper):
    @handles(PrepareReports)
    def on_prepare_reports(self, message: PrepareReports) -> PreparedReports:
        first, *rest = super().on_prepare_reports(message).reports
        return PreparedReports([changed(first, seeds=bytes(64)), *rest])


class ShortShare(PineHelper):
    @handles(SumReports)
    def on_sum_reports(self, message: SumReports) -> AggregateShare:
        return AggregateShare(super().on_sum_reports(message).share[:-8])


@pytest.mark.parametrize("role", [ForgetsReports, ShortShare])
def test_a_helper_that_does_not_answer_what_it_is_asked_ends_the_round(role: type[PineHelper]) -> None:
    small = SmallFederation(DELTAS, PARAMETERS, protocol=Pine, roles=[RoleSpec(role, PARAMETERS, frozenset({HELPER}))])
    with pytest.raises(RoundAborted, match="wrong-helper"):
        small.run()
    assert [client for client, _ in small.misbehaviour()] == [HELPER]


def test_a_report_of_which_the_aggregators_differ_is_left_out() -> None:
    roles = [RoleSpec(OtherSeeds, PARAMETERS, frozenset({HELPER}))]
    small = SmallFederation(DELTAS, PARAMETERS, protocol=Pine, roles=roles)
    assert small.run().survivors.tolist() == [1, 2, 3, 4, 5]
    detail = f"pine.inconsistent-report: the helper, client {HELPER}, derives other joint randomness than the server"
    assert small.misbehaviour() == [(0, detail)]


class RejectsReports(PineHelper):
    @handles(PrepareReports)
    def on_prepare_reports(self, message: PrepareReports) -> PreparedReports:
        first, *rest = super().on_prepare_reports(message).reports
        return PreparedReports([changed(first, seeds=b"", rejected="pine.invalid-report"), *rest])


def test_the_record_of_a_report_that_the_helper_rejects_names_the_helper() -> None:
    """Nobody can tell whether it is right: client 0 is honest here."""
    roles = [RoleSpec(RejectsReports, PARAMETERS, frozenset({HELPER}))]
    small = SmallFederation(DELTAS, PARAMETERS, protocol=Pine, roles=roles)
    assert small.run().survivors.tolist() == [1, 2, 3, 4, 5]
    assert small.misbehaviour() == [(0, f"pine.invalid-report: reported by the helper, client {HELPER}")]
