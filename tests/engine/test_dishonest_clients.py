"""The choice of dishonest clients, their misbehaviours, and the absence of other changes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.records.schemas import SCHEMAS
from tests.messages_named import naming

LOTTO = {"protocol": "lotto-client-centric", "participants": 5, "over_selection": 3.0, "min_population": 20}
PLAIN = {"aggregation": {"protocol": "plain"}}


def plan_of(adversary: dict[str, Any] | None, seed: int = 3, **keys: Any) -> RunPlan:
    base = {"seed": seed, "population": 30, "selection": LOTTO} | PLAIN | keys
    return RunPlan(Experiment.model_validate(base | ({} if adversary is None else {"adversary": adversary})), 0)


def events_of(run: Any, kind: str) -> list[dict[str, Any]]:
    return [event for event in run.rows("events") if event["kind"] == kind]


@pytest.mark.parametrize(
    ("dishonest", "count"), [(0, 0), (7, 7), (30, 30), (0.0, 0), (0.1, 3), (0.11, 4), (1.0, 30), (1, 1)]
)
def test_a_number_or_a_share_is_drawn_by_the_seed(dishonest: Any, count: int) -> None:
    drawn = plan_of({"dishonest": dishonest}).dishonest
    assert len(drawn) == count
    assert drawn == plan_of({"dishonest": dishonest}, selection={"participants": 3}).dishonest
    assert drawn <= set(range(30))
    if 0 < count < 30:
        assert any(plan_of({"dishonest": dishonest}, seed=seed).dishonest != drawn for seed in (4, 5, 6))


def test_a_list_is_used_unchanged_and_without_an_adversary_all_clients_are_honest() -> None:
    assert plan_of({"dishonest": [4, 0, 29]}).dishonest == {0, 4, 29}
    assert plan_of(None).dishonest == frozenset()


def result(run: Any) -> tuple[Any, ...]:
    tables = {table: run.rows(table) for table in SCHEMAS}
    tables["events"] = [event for event in tables["events"] if event["kind"] != "resume"]
    return (repr(tables), run.federation.state.model.tobytes())


SERVERS = [
    ["keep-dishonest-candidates", "understate-population"],
    ["reserve-most-selected"],
    ["show-different-lists"],
    ["reuse-round"],
]


@pytest.mark.parametrize("protocol", ["lotto-client-centric", "lotto-server-centric"])
@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server[0])
def test_the_same_on_more_hosts_and_after_a_resume(server: list[str], protocol: str, run: Callable) -> None:
    adversary = {"dishonest": 0.3, "server": server, "clients": ["inflate-utility", "wrong-signature"], "every": 2}
    keys = PLAIN | {"selection": LOTTO | {"protocol": protocol, "signatures": 3}, "adversary": adversary}
    once = result(run(keys, "once").rounds())
    assert result(run(keys, "spread", hosts=3).rounds()) == once
    run(keys, "stopped").rounds(3)
    assert result(run(keys, "stopped", resume=True, hosts=2).rounds()) == once


@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_dishonest_clients_that_do_nothing_change_nothing(aggregation: str, run: Callable) -> None:
    """Only the record of the dishonest clients' numbers differs."""
    keys = {"selection": LOTTO, "aggregation": {"protocol": aggregation}}
    honest = run(keys, "honest").rounds()
    with_them = run(keys | {"adversary": {"dishonest": 0.5}}, "with").rounds()
    assert not any(row["dishonest"] for row in honest.rows("participation"))
    assert any(row["dishonest"] for row in with_them.rows("participation"))
    for table in SCHEMAS:
        rows = [[{**row, "dishonest": None} for row in one.rows(table)] for one in (honest, with_them)]
        assert repr(rows[0]) == repr(rows[1])
    assert honest.federation.state.model.tobytes() == with_them.federation.state.model.tobytes()
    assert "adversary" not in honest.experiment.plain()
    assert with_them.experiment.plain()["adversary"]["dishonest"] == 0.5


def test_the_server_receives_the_inflated_utility(run: Callable) -> None:
    keys = PLAIN | {"selection": {"participants": 6}, "rounds": 2}
    true = run(keys, "true").rounds()
    lies = run(
        keys | {"adversary": {"dishonest": [*range(30)], "clients": [{"inflate-utility": {"factor": 7.0}}]}}, "lies"
    )
    lies.rounds()
    for was, told in zip(true.outcomes, lies.outcomes, strict=True):
        assert told.training_loss == pytest.approx(7 * was.training_loss)
    assert true.federation.state.model.tobytes() == lies.federation.state.model.tobytes()
    told = events_of(lies, "attack")
    assert len(told) == 12
    assert all(event["stage"] == "train" and event["detail"].startswith("inflate-utility: ") for event in told)


@pytest.mark.parametrize("proof", ["genuine", "made-up"])
@pytest.mark.parametrize("server", [[], ["keep-dishonest-candidates"]], ids=["honest", "malicious"])
def test_false_candidates_are_found_out_by_the_server(proof: str, server: list[str], run: Callable) -> None:
    clients = [{"claim-candidacy": {"proof": proof}}]
    adversary = {"dishonest": 0.4, "server": server, "clients": clients}
    done = run(PLAIN | {"selection": LOTTO, "adversary": adversary}, "here").rounds()
    claimed = {(event["round"], event["party"]) for event in events_of(done, "attack") if event["party"] != "server"}
    found = {(event["round"], event["party"]) for event in events_of(done, "misbehaviour")}
    assert claimed == found
    assert len(claimed) > 10
    chosen = {(row["round"], f"client:{row['client']}") for row in done.rows("participation")}
    assert not chosen & claimed


@pytest.mark.parametrize("proof", ["genuine", "made-up"])
def test_false_candidates_of_a_server_without_verification_are_found_by_participants(proof: str, run: Callable) -> None:
    """With the paper's server a lie that is drawn ends the round; honest participants find it out, and nobody else."""
    adversary = {"dishonest": 0.4, "clients": [{"claim-candidacy": {"proof": proof}}]}
    selection = LOTTO | {"server_verifies": "none"}
    done = run(PLAIN | {"selection": selection, "adversary": adversary}, "here").rounds()
    claimed = {(event["round"], event["party"]) for event in events_of(done, "attack")}
    assert not events_of(done, "misbehaviour")
    ended = set()
    for number, outcome in enumerate(done.outcomes, 1):
        listed = {f"client:{row['client']}" for row in done.rows("participation") if row["round"] == number}
        lies = {party for round_number, party in claimed if round_number == number}
        if lies & listed:
            assert outcome.state == "aborted"
            ended.add(number)
    assert len(ended) > 2
    refused = {event["detail"].split(":")[0] for event in events_of(done, "refusal")}
    assert refused <= {"lotto.above-threshold", "lotto.invalid-proof"}


@pytest.mark.parametrize("protocol", ["lotto-client-centric", "lotto-server-centric"])
def test_wrong_signers_end_the_round_where_all_must_sign(protocol: str, run: Callable) -> None:
    adversary = {"dishonest": 0.2, "clients": ["wrong-signature"]}
    for signatures, left_out in (("strict", False), (1, True)):
        selection = LOTTO | {"protocol": protocol, "signatures": signatures}
        done = run(PLAIN | {"selection": selection, "adversary": adversary}, f"{signatures}").rounds()
        wrong = {event["round"] for event in events_of(done, "misbehaviour")}
        assert wrong
        for number, outcome in enumerate(done.outcomes, 1):
            if number in wrong:
                assert (outcome.state == "completed") == left_out
                assert not set(outcome.survivors.tolist()) & done.plan.dishonest
            else:
                assert outcome.state == "completed"


OWN = '''
from testbed.adversary.misbehaviour import ClientMisbehaviour, MisbehaviourOptions, SelectionMisbehaviour
from testbed.parties.client import handles
from testbed.selection.random_selection import RandomSelection
from testbed.training import Train, TrainingReport, Trainer


class FirstOnly(SelectionMisbehaviour, RandomSelection):
    """Takes the clients with the smallest numbers."""

    name = "first-only"
    applies_to = ("random",)

    def choose(self, present, round_):
        if not self.attacking:
            return super().choose(present, round_)
        self.record_attack(FirstOnly, "the first")
        return present[: self.parameters.participants]


class Boast(ClientMisbehaviour, Trainer):
    """Reports more samples than it has."""

    name = "boast"
    applies_to = ("train",)
    extends = Trainer

    @handles(Train)
    def on_train(self, message):
        return TrainingReport(10**6, super().on_train(message).loss)


class AgainstOptions(MisbehaviourOptions):
    victim: int = 0

    def check(self, population, dishonest):
        if self.victim >= population or self.victim in dishonest:
            raise ValueError(f"victim: {self.victim} is nobody's")


class Against(FirstOnly):
    """Has a victim."""

    name = "against"
    Options = AgainstOptions


class Astray(FirstOnly):
    """Overrides a selection, and says that it applies to an aggregation."""

    applies_to = ("plain",)


class Unsaid(SelectionMisbehaviour, RandomSelection):
    """States neither its name nor the protocols that it applies to."""


class AWord(FirstOnly):
    """Says one protocol, where a tuple of them is asked for."""

    applies_to = "random"


class Nobody(ClientMisbehaviour):
    """Does not state the role that it extends."""

    name = "nobody"


class Nothing:
    """No misbehaviour."""
'''


def test_classes_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable) -> None:
    (tmp_path / "my_attacks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    adversary = {"dishonest": 0.5, "server": ["my_attacks:FirstOnly"], "clients": ["my_attacks:Boast"]}
    keys = PLAIN | {"selection": {"participants": 4}, "rounds": 3, "adversary": adversary | {"from_round": 2}}
    done = run(keys, "here").rounds()
    assert [outcome.participants.tolist() == [0, 1, 2, 3] for outcome in done.outcomes] == [False, True, True]
    assert [event["detail"] for event in events_of(done, "attack")] == ["first-only: the first"] * 2
    for wrong, says in (
        ({"server": ["my_attacks:Boast"]}, "adversary.server: my_attacks:Boast is no subclass of"),
        ({"clients": ["my_attacks:Nothing"]}, "adversary.clients: my_attacks:Nothing is no subclass of"),
        (
            {"server": ["my_attacks:Astray"]},
            "my_attacks:Astray overrides decisions of SelectionProtocol and applies to",
        ),
        ({"server": ["my_attacks:Unsaid"]}, "adversary.server: my_attacks:Unsaid: lacks name, applies_to; see testbed"),
        ({"server": ["my_attacks:AWord"]}, "my_attacks:AWord: applies_to: names in a tuple, not 'random'"),
        ({"clients": ["my_attacks:Nobody"]}, "adversary.clients: my_attacks:Nobody: lacks extends; see testbed"),
        ({"server": ["my_attacks:Missing"]}, "adversary.server: my_attacks:Missing: module my_attacks has no class"),
        ({"server": [{"my_attacks:FirstOnly": {"x": 1}}]}, "my_attacks:FirstOnly.x: unknown option; allowed: none"),
        ({"server": [{"my_attacks:Against": {"victim": 500}}]}, "adversary.server: my_attacks:Against.victim: 500 is"),
        ({"server": ["my_attacks:Against"], "dishonest": [0]}, "adversary.server: my_attacks:Against.victim: 0 is no"),
    ):
        with pytest.raises(ExperimentError, match=says):
            plan_of(wrong, selection={"participants": 3})
    with pytest.raises(ExperimentError, match=naming("adversary.server", "my_attacks:FirstOnly")):
        plan_of({"server": ["my_attacks:FirstOnly"]})


def test_attacks_on_a_built_in_protocol_apply_to_classes_derived_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_lotto.py").write_text(
        "from testbed.selection.lotto.variants import ServerCentricParameters, ServerCentricServer\n\n\n"
        "class Mine(ServerCentricServer):\n"
        "    def __init__(self, parameters, population):\n"
        "        super().__init__(ServerCentricParameters(participants=parameters.participants), population)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    selection = {"protocol": "my_lotto:Mine", "participants": 4}
    plan = plan_of({"server": ["keep-dishonest-candidates"]}, selection=selection)
    assert type(plan.selection).__name__ == "MaliciousMine"
    with pytest.raises(ExperimentError, match=naming("adversary.server", "prefer-dishonest")):
        plan_of({"server": ["prefer-dishonest"]}, selection=selection)
