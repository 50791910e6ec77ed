"""Federations that sum by Flamingo: a committee that is set up anew, and dishonest clients."""

from collections.abc import Callable
from typing import Any

from testbed.aggregation.flamingo.set_up_messages import KeptService
from testbed.messages import decode

COMMITTEE = {"size": 6, "threshold": 4, "serves_rounds": 2}
KEYS: dict[str, Any] = {
    "selection": {"participants": 14},
    "aggregation": {"protocol": "flamingo", "committee": COMMITTEE, "dropouts": 0.5},
    "availability": {"dropout": {"rate": 0.1, "stage": "random"}},
    "rounds": 6,
}


def test_without_a_seed_a_resumed_run_sets_up_a_committee_anew(run: Callable) -> None:
    """Its clients have other keys: they could not open the former members' sealed states."""
    keys = {**KEYS, "seed": None, "availability": {}}
    stopped = run(keys, "stopped").rounds(3)
    resumed = run(keys, "stopped", resume=True).rounds()
    assert [outcome.state for outcome in resumed.outcomes] == ["completed"] * 3
    kept = [one.federation.state.memory["flamingo service"].tobytes() for one in (stopped, resumed)]
    assert len({decode(KeptService, one).certificate.service.public_key for one in kept}) == 2


# -- dishonest clients -------------------------------------------------------------------------------------------------


def keys_with(**adversary: Any) -> dict[str, Any]:
    return {
        "population": 20,
        "selection": {"participants": 10},
        "aggregation": {
            "protocol": "flamingo", "dropouts": 0.5,
            "committee": {"selection": "given", "members": list(range(7)), "threshold": 5},
        },
        "availability": {"dropout": {"rate": 0.15, "stage": "flamingo/report"}},
        "adversary": adversary,
        "rounds": 4,
    }  # fmt: skip


def test_a_member_that_decrypts_wrongly_costs_nothing_where_others_are_left(run: Callable[..., Any]) -> None:
    one = run(keys_with(clients=["decrypt-wrongly"], dishonest=[2]), "one").rounds()
    three = run(keys_with(clients=["decrypt-wrongly"], dishonest=[0, 2, 3]), "three").rounds()
    assert [outcome.state for outcome in one.outcomes] == ["completed"] * 4
    lost = [outcome.reason for outcome in three.outcomes if outcome.state == "aborted"]
    assert lost
    assert all(reason.startswith("wrong-decryption") for reason in lost)


def test_a_client_with_wrong_seeds_ends_rounds_with_drop_outs_alone(run: Callable[..., Any]) -> None:
    asked = keys_with(clients=["encrypt-wrong-seeds"], dishonest=list(range(20)))
    lost = [outcome.reason for outcome in run(asked, "lost").rounds().outcomes if outcome.state == "aborted"]
    assert lost
    assert all(reason.startswith("implausible-sum") for reason in lost)
    whole = run(asked | {"availability": {}}, "whole").rounds().outcomes
    assert [outcome.state for outcome in whole] == ["completed"] * 4
