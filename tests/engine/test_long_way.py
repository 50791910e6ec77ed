"""Shortcuts leave no trace: keys derived without registration, and one answer for many clients.

Each run is compared with the full procedure: every client registers with the PKI and answers every announcement itself.
"""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.engine.plan import RunPlan
from testbed.parties import host as host_module
from testbed.parties.host import Host
from testbed.records.schemas import SCHEMAS

POPULATION = 150
CLIENT_CENTRIC = {"protocol": "lotto-client-centric", "participants": 6, "over_selection": 2.0, "signatures": 4}
CASES: dict[str, dict[str, Any]] = {
    "acknowledged": {},
    "silent": {"selection": {**CLIENT_CENTRIC, "unselected": "silent"}},
    "beacon": {"selection": {**CLIENT_CENTRIC, "round_beacon": "public", "max_round_gap": 2}},
    "refined": {"selection": {**CLIENT_CENTRIC, "refine": {"combine": "or"}}},
    "coming and going": {"availability": {"model": "bernoulli", "unavailable": 0.2, "dropout": {"rate": 0.1}}},
    "server-centric": {"selection": {**CLIENT_CENTRIC, "protocol": "lotto-server-centric"}},
    "batches": {
        "selection": {"protocol": "verifiable-batch-partition", "participants": 6, "privacy": 2, "over_selection": 4.0}
    },
    "skipping rounds": {
        "adversary": {"server": ["skip-rounds"], "dishonest": 20},
        "selection": {**CLIENT_CENTRIC, "max_round_gap": 3},
    },
    "parallel lists": {"adversary": {"server": ["parallel-lists"], "dishonest": 20}},
}


def result(run: Any) -> list[Any]:
    """Every row of every table, and the model."""
    return [repr(run.rows(table)) for table in SCHEMAS] + [run.federation.state.model.tobytes()]


@pytest.mark.parametrize("case", CASES)
def test_the_shortcut_equals_registration_and_answers_of_all_clients(
    case: str, run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, Any] = {"population": POPULATION, "rounds": 4, "selection": CLIENT_CENTRIC} | CASES[case]
    keys.setdefault("aggregation", {"protocol": "secagg", "threshold": 0.6})
    alike: list[int] = []
    answered = Host._one_for_all

    def counted(self: Host, *given: Any) -> Any:
        answers = answered(self, *given)
        alike.append(0 if answers.shared is None else len(answers.shared.clients))
        return answers

    monkeypatch.setattr(Host, "_one_for_all", counted)
    monkeypatch.setattr(host_module, "FEW_ALIKE", 10)
    short = result(run(keys, "short").rounds())
    spread = result(run(keys, "spread", hosts=3).rounds())
    announced = case not in ("server-centric", "batches")
    assert (sum(alike) > POPULATION) == announced
    alike.clear()
    monkeypatch.setattr(RunPlan, "derives_identities", False)
    monkeypatch.setattr(RunPlan, "results", None)  # of a class attribute there is no cached one
    assert short == spread == result(run(keys, "long").rounds())
    assert not alike
    assert "completed" in short[0]


def test_a_client_asked_later_has_the_state_that_it_would_have(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has answered as all do is shown a list in the same round, and refuses it for the reason it would."""
    monkeypatch.setattr(host_module, "FEW_ALIKE", 10)
    play = run(
        {"population": POPULATION, "rounds": 2, "selection": CLIENT_CENTRIC, "aggregation": {"protocol": "plain"}}
    )
    play.rounds(1)
    host = play.federation.network.hosts.hosts[0]
    (question,) = host._idle.deferred
    number = int(question.clients[3])
    assert number not in host._clients
    client = host.client(number)
    assert client.last_round == 1
    (role,) = client._roles.values()
    assert role.progress.state == "announced"
    assert role.announced.population == POPULATION
    host.begin_round()
    other = host.client(int(question.clients[5]))
    assert (other.last_round, other._roles) == (1, {})
