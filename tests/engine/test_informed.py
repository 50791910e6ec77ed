"""Informed selection over whole rounds: announcements, guards and records of refinement, and the effect of a lie."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import binomtest

from testbed.parties.client import RoleSpec, handles
from testbed.selection.lotto.messages import Announce
from testbed.selection.lotto.variants import ClientCentricServer, ServerCentricServer
from testbed.selection.oort import OortSelection
from testbed.training import Train, Trainer, TrainingReport

VARIANTS = {"lotto-client-centric": ClientCentricServer, "lotto-server-centric": ServerCentricServer}
PLAIN = {
    "aggregation": {"protocol": "plain"},
    "devices": {"model": "zipf", "slowest": 100.0},
    "time": {"compute": "modelled", "deadline_s": 20, "costs": {"train.parameter_example": 1e-3}},
    "rounds": 12,
}


def lotto(protocol: str, **keys: Any) -> dict[str, Any]:
    selection = {"protocol": protocol, "participants": 6, "over_selection": 3.0, "refine": {}, **keys}
    return PLAIN | {"selection": selection}


def asked(run: Any, stage: str) -> dict[int, set[int]]:
    """Return the clients that were asked at this stage, by round."""
    found: dict[int, set[int]] = {}
    for row in run.rows("exchanges"):
        if row["stage"] == stage:
            found.setdefault(row["round"], set()).add(row["client"])
    return found


def refined_sizes(run: Any) -> list[int]:
    """n as the server has announced it, round by round, from the events."""
    rows = [row for row in run.rows("events") if row["kind"] == "refined-population"]
    assert [row["round"] for row in rows] == list(range(1, len(rows) + 1))
    return [int(row["detail"].split()[2]) for row in rows]


@pytest.mark.parametrize("protocol", VARIANTS)
def test_only_the_refined_population_is_asked_and_its_size_is_announced(protocol: str, run: Callable) -> None:
    federation = run(lotto(protocol), "run").rounds()
    assert {row["outcome"] for row in federation.rows("rounds")} == {"completed"}
    sizes, first = refined_sizes(federation), "check-in" if "server" in protocol else "lotto/announce"
    pools, took_part = asked(federation, first), asked(federation, "lotto/participants")
    assert [len(pools[number]) for number in sorted(pools)] == sizes
    assert sizes[0] == 30
    assert min(sizes) < 30  # as more have been measured
    assert min(sizes) >= 18
    assert all(took_part[number] <= pools[number] for number in pools)
    assert [row["population"] for row in federation.rows("rounds")] == [30] * 12
    memory = federation.federation.state.memory
    known = set(np.flatnonzero(~np.isnan(memory["latency_s"])).tolist())
    assert known == set().union(*took_part.values())
    # A client missing in the last round was measured before it, and is among the slowest or least useful.
    before = set().union(*(took_part[number] for number in range(1, 12)))
    dropped = set(range(30)) - pools[12]
    assert dropped <= before
    trained = [row for row in federation.rows("exchanges") if row["stage"] == "train" and row["round"] < 12]
    latency_s = {row["client"]: row["received_s"] - row["sent_s"] for row in trained}
    worst = sorted(latency_s, key=lambda client: -latency_s[client])[: len(latency_s) // 5]
    assert set(worst) <= dropped


def test_by_latency_alone_rounds_are_shorter(run: Callable) -> None:
    def trained_s(**keys: Any) -> float:
        federation = run(lotto("lotto-server-centric", **keys) | {"rounds": 40}, None).rounds()
        stages = [stage for stages in federation.exchanges[20:] for stage in stages if stage.stage == "train"]
        return float(np.mean([(stage.received_s - stage.sent_s).max() for stage in stages]))

    assert trained_s(refine={"by": ["latency"]}) < 0.5 * trained_s(refine=None)


SHORT = {"time": PLAIN["time"] | {"deadline_s": 2}, "rounds": 20}  # the slowest devices never train in time


def trained_in(run: Any) -> dict[int, list[tuple[int, str]]]:
    """(round, outcome) of each time that a client was asked to train."""
    found: dict[int, list[tuple[int, str]]] = {}
    for row in run.rows("exchanges"):
        if row["stage"] == "train":
            found.setdefault(row["client"], []).append((row["round"], row["outcome"]))
    return found


@pytest.mark.parametrize("refine", [{"by": ["latency"], "exclude": 0.3}, {"exclude": 0.3}])
def test_a_client_that_never_trains_in_time_is_dropped_after_its_first_try(refine: Any, run: Callable) -> None:
    keys = lotto("lotto-server-centric", refine=refine) | SHORT
    whole = run(keys, "whole").rounds()
    tries = trained_in(whole)
    never = {client for client, of in tries.items() if {outcome for _, outcome in of} == {"late"}}
    assert len(never) >= 4
    assert all(len(tries[client]) == 1 for client in never)
    assert max(len(of) for of in tries.values()) > 5
    pools = asked(whole, "check-in")
    for number in range(2, 21):
        measured = sum(of[0][0] < number for of in tries.values())
        tried = {client for client in never if tries[client][0][0] < number}
        assert len(tried & pools[number]) == max(0, len(tried) - 3 * measured // 10)  # no others before them
    assert never.isdisjoint(pools[20])
    assert refined_sizes(whole)[1] < 30
    memory = whole.federation.state.memory
    assert memory["latency_s"][sorted(never)] == pytest.approx(2)
    assert np.isnan(memory["quality"][sorted(never)]).all()
    # The same over a stop, and other hosts.
    run(keys, "stopped").rounds(7)
    resumed = run(keys, "stopped", resume=True, hosts=2).rounds()
    assert trained_in(resumed) == tries
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()


def test_joint_and_oort_avoid_clients_that_never_train_in_time(run: Callable) -> None:
    def tries(selection: dict[str, Any]) -> tuple[float, float]:
        """Return the mean number of requests to train, of clients that never train in time and of the other clients."""
        found = trained_in(run(PLAIN | SHORT | {"selection": selection, "rounds": 40}, selection["protocol"]).rounds())
        late = [len(of) for of in found.values() if {outcome for _, outcome in of} == {"late"}]
        others = [len(of) for of in found.values() if {outcome for _, outcome in of} != {"late"}]
        assert len(late) >= 4
        return float(np.mean(late)), float(np.mean(others))

    joint = {"protocol": "lotto-server-centric", "participants": 6, "over_selection": 3.0,
             "refine": {"combine": "joint", "exclude": 0.3}}  # fmt: skip
    for selection in (joint, {"protocol": "oort", "participants": 6}):
        late, others = tries(selection)
        assert late < 0.5 * others


@pytest.mark.parametrize("protocol", VARIANTS)
def test_a_server_that_drops_more_than_was_agreed_on_is_refused(protocol: str, run: Callable) -> None:
    """`min_population` is not set: the smallest population that the rule may leave guards it."""

    def with_dropped(count: int) -> Any:
        federation = run(lotto(protocol), f"without-{count}")
        server = federation.plan.selection
        server.refined_population = lambda round_: round_.everyone[count:]
        return federation.rounds(1).rows("rounds")[0], federation.rows("events")

    row, _ = with_dropped(12)  # 30 - 2 * floor(0.2 * 30) = 18
    assert row["outcome"] == "completed"
    row, events = with_dropped(13)
    assert row["outcome"] == "aborted"
    refusals = [event["detail"] for event in events if event["kind"] == "refusal"]
    assert refusals
    assert set(refusals) == {"lotto.population-below-minimum: n = 17 announced, n_min = 18"}


def test_a_minimum_of_ones_own_goes_before(run: Callable) -> None:
    federation = run(lotto("lotto-server-centric", min_population=10), "run")
    federation.plan.selection.refined_population = lambda round_: round_.everyone[20:]
    assert federation.rounds(1).rows("rounds")[0]["outcome"] == "completed"


def test_a_claim_from_outside_the_refined_population_is_misbehaviour(run: Callable) -> None:
    """A part of the server that announces the round to all, while the rest of it draws from the refined population."""
    federation = run(lotto("lotto-client-centric", over_selection=100.0), "run")
    server = federation.plan.selection
    server.refined_population = lambda round_: round_.everyone[5:]

    def to_all(pool: Any, message: Announce) -> Any:
        return [(np.arange(30), message)]

    server.announcement_for = to_all
    (outcome,) = federation.rounds(1).outcomes
    told = [event for event in federation.rows("events") if event["kind"] == "misbehaviour"]
    assert {event["party"] for event in told} == {f"client:{client}" for client in range(5)}
    assert {event["detail"] for event in told} == {"claimed to be a candidate and is not in the refined population"}
    assert outcome.candidates == 25
    assert outcome.participants.min() >= 5


# -- lies ----------------------------------------------------------------------------------------------------------


class Boasting(Trainer):
    """Trains, and says that its data are worth a thousand times as much."""

    @handles(Train)
    def on_train(self, message: Train) -> TrainingReport:
        honest = super().on_train(message)
        return msgspec.structs.replace(honest, loss=1e3 * honest.loss)


LIARS, ROUNDS, SETTLED = frozenset({3, 11, 24}), 60, 10


def chosen_liars(run: Callable, selection: dict[str, Any], *, lying: bool = True) -> tuple[int, int]:
    """How often liars, and anybody, took part after the first rounds."""
    federation = run(PLAIN | {"rounds": ROUNDS, "devices": {}, "selection": selection})
    if lying:
        for host in federation.federation.network.hosts.hosts:
            host._roles.append(RoleSpec(Boasting, None, LIARS))
    federation.rounds()
    took_part = np.concatenate([outcome.participants for outcome in federation.outcomes[SETTLED:]])
    return int(np.isin(took_part, list(LIARS)).sum()), len(took_part)


def test_a_lie_about_its_loss_is_worth_much_to_a_client_under_oort_and_little_under_lotto(run: Callable) -> None:
    """Under Lotto, all that liars gain is that they are never dropped: each is drawn with s / n, and n >= n_min."""
    oort = {"protocol": "oort", "participants": 6}
    lying, of_all = chosen_liars(run, oort)
    honest, of_as_many = chosen_liars(run, oort, lying=False)
    assert of_all == of_as_many == 6 * (ROUNDS - SETTLED)
    by_chance = len(LIARS) / 30
    assert binomtest(lying, of_all, by_chance, alternative="greater").pvalue < 1e-12
    assert lying > 2 * honest
    for refine, smallest in (({"by": ["loss"]}, 24), ({"combine": "or"}, 18), ({"combine": "joint"}, 24)):
        # Both variants draw from the refined population in the same way; this one is quicker.
        keys = {"protocol": "lotto-server-centric", "participants": 6, "over_selection": 3.0, "refine": refine}
        drawn, of_drawn = chosen_liars(run, keys)
        assert binomtest(drawn, of_drawn, len(LIARS) / smallest, alternative="greater").pvalue > 1e-3
        assert drawn / of_drawn < 0.75 * lying / of_all


def test_oort_knows_nothing_but_reports(run: Callable) -> None:
    """Its memory of honest clients equals their reports and their durations in the records."""
    federation = run(PLAIN | {"selection": {"protocol": "oort", "participants": 6}}, "run").rounds()
    assert isinstance(federation.plan.selection, OortSelection)
    memory = federation.federation.state.memory
    trained = [row for row in federation.rows("exchanges") if row["stage"] == "train"]
    last = {row["client"]: row for row in trained}
    for client, row in last.items():
        assert memory["last"][client] == row["round"]
        assert memory["duration_s"][client] == row["received_s"] - row["sent_s"]
    assert np.bincount([row["client"] for row in trained], minlength=30).tolist() == memory["count"].tolist()
    assert np.isnan(memory["quality"][memory["count"] == 0]).all()
