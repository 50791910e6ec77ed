"""Federations with committees drawn by sortition: bit-identical results everywhere, and effects of misbehaviours."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.engine.plan import RunPlan
from testbed.experiment.schema import validated

VARIANTS = ("lotto-client-centric", "lotto-server-centric")
PROTOCOLS = ("flamingo", "one-shot")


def keys(protocol: str, variant: str, **more: Any) -> dict[str, Any]:
    committee = {"selection": variant, "size": 6, "threshold": 4, "serves_rounds": 2, "over_selection": 2.5, **more}
    options: dict[str, Any] = {"dropouts": 0.5} if protocol == "flamingo" else {"max_colluders": 1}
    return {
        "population": 40,
        "selection": {"protocol": "random", "participants": 14},
        "aggregation": {"protocol": protocol, "committee": committee, **options},
        "rounds": 4,
    }


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_hosts_and_resuming_change_no_bit(run: Callable, protocol: str, variant: str) -> None:
    """The run stops in the middle of a service, with members drawn among the clients that answered at its start."""
    given = {**keys(protocol, variant), "availability": {"model": "bernoulli", "unavailable": 0.1}}
    whole = run(given, "whole").rounds()
    assert [outcome.state for outcome in whole.outcomes].count("completed") >= 3
    run(given, "stopped").rounds(3)
    resumed = run(given, "stopped", resume=True, hosts=3).rounds()
    assert resumed.federation.state.model.tobytes() == whole.federation.state.model.tobytes()
    assert resumed.federation.state.now_s == whole.federation.state.now_s
    asked = [one.stage for one in whole.federation.network.exchanges]
    assert "committee/sortition" not in asked  # of the last round, in which the service goes on


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_weights_are_the_announced_ones(run: Callable, protocol: str, variant: str) -> None:
    made = run(keys(protocol, variant, weights="samples"), "weighted").rounds(2)
    directory = made.federation.directory
    assert directory.samples.tolist() == made.federation.workload.sample_counts.tolist()
    assert [outcome.state for outcome in made.outcomes] == ["completed", "completed"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("server", "state"),
    [
        ("keep-dishonest-members", "completed"),
        ({"forge-committee": {"how": "undrawn-member"}}, "aborted"),
        ({"forge-committee": {"how": "member-twice"}}, "aborted"),
        ({"forge-committee": {"how": "other-service"}}, "aborted"),
    ],
    ids=str,
)
def test_servers_that_choose_and_servers_that_forge(
    run: Callable, protocol: str, variant: str, server: Any, state: str
) -> None:
    adversary = {"dishonest": list(range(20, 30)), "server": [server]}
    made = run({**keys(protocol, variant), "adversary": adversary}, "attacked").rounds(1)
    assert [outcome.state for outcome in made.outcomes] == [state]
    assert any(event.kind == "attack" for event in made.federation.network.events)
    refused = {event.detail.partition(":")[0] for event in made.federation.network.events if event.kind == "refusal"}
    assert all(check.startswith("committee.") for check in refused)
    assert bool(refused) == (state == "aborted")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("lie", ["claim-membership", "withhold-membership"])
def test_clients_that_lie_about_being_drawn_end_nothing(run: Callable, protocol: str, lie: str) -> None:
    adversary = {"dishonest": list(range(20, 30)), "clients": [lie]}
    given = {**keys(protocol, "lotto-client-centric", over_selection=4), "adversary": adversary}
    made = run(given, "attacked").rounds(1)
    assert [outcome.state for outcome in made.outcomes] == ["completed"]
    kinds = {event.kind for event in made.federation.network.events}
    assert kinds == ({"attack", "misbehaviour"} if lie == "claim-membership" else {"attack"})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_draw_is_a_stage_where_there_is_one(protocol: str) -> None:
    drawn = validated(keys(protocol, VARIANTS[0]), "test")
    other = keys(protocol, VARIANTS[0])
    other["aggregation"]["committee"] = {"size": 6, "threshold": 4}
    known = validated(other, "test")
    stages = RunPlan(drawn, 1).aggregation.stages
    assert stages == ("committee/sortition", *RunPlan(known, 1).aggregation.stages)
    assert stages == drawn.aggregation.stages_of_round()
