"""The `adversary:` section: one line for settings that do not fit."""

from typing import Any

import pytest

from testbed.adversary.catalogue import CLIENTS, SERVER
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from tests.messages_named import naming

LOTTO = {"protocol": "lotto-client-centric"}


NO_ENTRIES: list[Any] = [[3], [None], [{}], [{"list-twice": 3}], [["list-twice"]]]
SERVER_CENTRIC = {"protocol": "lotto-server-centric"}
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ({"server": ["reuse-round"]}, {}, "server: reuse-round does not apply to selection random with aggregation "
     "secagg; allowed: prefer-dishonest, contradict-dropouts, "),
    ({"server": "prefer-dishonest"}, LOTTO, "server: prefer-dishonest does not apply to selection "
     "lotto-client-centric with aggregation secagg; allowed: keep-dishonest-candidates, "),
    ({"clients": ["claim-candidacy"]}, SERVER_CENTRIC, "clients: claim-candidacy does not apply to selection "
     "lotto-server-centric with aggregation secagg; allowed: inflate-utility, wrong-signature"),
    ({"clients": ["take-a-nap"]}, LOTTO, "clients: unknown 'take-a-nap'; allowed: seal-unopenable-pieces, "),
    ({"server": ["re-use-round"]}, LOTTO, "server: unknown 're-use-round'; did you mean 'reuse-round'?"),
    ({"server": ["list-twice", "list-twice"]}, LOTTO, "server: duplicate list-twice"),
    ({"server": [{"reuse-round": {"rond": 1}}]}, LOTTO, "server: reuse-round.rond: unknown option; did you"),
    ({"server": [{"reuse-round": {"round": 0}}]}, LOTTO, "server: reuse-round.round: should be greater than 0, not 0"),
    ({"server": [{"list-twice": {}, "reuse-round": {}}]}, LOTTO, "server: an entry is a name, or one name with its"),
    *(({"server": wrong}, LOTTO, "server: an entry is a name, or one name with its options: {name: {option: value}}")
      for wrong in NO_ENTRIES),
    *(({"server": [{name: {"victim": 100}}]}, {}, f"server: {name}.victim: client 100 of a population of 100, counted")
      for name in ("contradict-dropouts", "shrink-the-sum", "split-the-sharing")),
    ({"server": {"contradict-dropouts": {"victim": 3}}, "dishonest": [2, 3]}, LOTTO, "server: "
     "contradict-dropouts.victim: client 3 is dishonest; name one that is not listed there"),
    *(({"server": [{name: {"to": to}}]}, LOTTO, f"server: {name}.to: {to} of a population of 100; must be fewer ")
      for name in ("understate-population", "refine-out-honest", "tell-different-populations")
      for to in (100, 500, 1.0)),
    ({"dishonest": "5%"}, LOTTO, "dishonest: should be a valid integer or a valid number or a list, not '5%'; did you "
     "mean 0.05?"),
    ({"dishonest": 101}, LOTTO, "dishonest: 101 of a population of 100; at most 100"),
    ({"dishonest": [3, 100]}, LOTTO, "dishonest: client 100 of a population of 100, counted from 0"),
    ({"dishonest": [3, 3]}, LOTTO, "dishonest: a duplicate client"),
    ({"dishonest": -1}, LOTTO, "dishonest: should be greater than or equal to 0"),
    ({"dishonest": True}, LOTTO, "dishonest: should be a valid integer"),
    ({"every": 0}, LOTTO, "every: should be greater than 0, not 0"),
    ({"servers": []}, LOTTO, "servers: unknown key; did you mean 'server'? allowed: clients, dishonest, every, "),
]  # fmt: skip


@pytest.mark.parametrize(("adversary", "selection", "says"), WRONG)
def test_what_does_not_fit_is_one_line(adversary: dict[str, Any], selection: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated({"selection": selection, "adversary": adversary}, "here")
    assert str(error.value).startswith(f"here: adversary.{says}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("aggregation", ["plain", "secagg-plus"])
def test_what_does_not_fit_the_aggregation_says_so(aggregation: str) -> None:
    data = {"selection": LOTTO, "aggregation": {"protocol": aggregation}}
    with pytest.raises(ExperimentError) as error:
        validated(data | {"adversary": {"server": ["contradict-dropouts"]}}, "here")
    assert str(error.value).startswith(
        "here: adversary.server: contradict-dropouts does not apply to selection lotto-client-centric with "
        f"aggregation {aggregation}; allowed: keep-dishonest-candidates, "
    )


def test_what_can_happen_is_accepted() -> None:
    """The last client as the victim, one client fewer; drawn dishonest clients may be anybody; null is no options."""
    for server in (
        [{"contradict-dropouts": {"victim": 99}}, {"understate-population": {"to": 99}}],
        [{"understate-population": {"to": 0.99}}, {"reuse-round": None}],
        {"keep-dishonest-candidates": None},
    ):
        experiment = validated({"selection": LOTTO, "adversary": {"server": server, "dishonest": [1, 2]}}, "here")
        assert experiment.adversary is not None
        assert validated(experiment.plain(), "there") == experiment
    alone = validated({"selection": LOTTO, "adversary": {"server": {"list-twice": None}}}, "here")
    assert alone.plain()["adversary"]["server"] == [{"list-twice": {}}]
    smaller = {"server": [{"tell-different-populations": {"to": 200}}]}
    validated({"selection": SERVER_CENTRIC, "adversary": smaller}, "here")  # another n, larger or smaller


def test_a_point_of_a_sweep_is_checked() -> None:
    from testbed.experiment.schema import points

    data = {"adversary": {"server": ["list-twice"]}, "sweep": {"selection": [LOTTO, {"protocol": "random"}]}}
    with pytest.raises(ExperimentError, match=naming("sweep point random", "adversary.server", "list-twice")):
        list(points(validated(data, "here"), "here"))
    data = {"selection": LOTTO, "sweep": {"adversary.server": ["list-twice", {"reuse-round": {"round": 2}}]}}
    labels = [point.label for point in points(validated(data, "here"), "here")]
    assert labels == ["server=list-twice", "round=2"]


def test_what_is_written_down_is_read_back() -> None:
    adversary = {"dishonest": [1, 2], "server": ["list-twice", {"reuse-round": {"round": 2}}], "every": 2}
    experiment = validated({"selection": LOTTO, "adversary": adversary}, "here")
    assert validated(experiment.plain(), "there") == experiment
    assert "adversary" not in Experiment().plain()
    assert Experiment.model_json_schema()["properties"]["adversary"]


def test_every_misbehaviour_says_what_it_does() -> None:
    for kind in (*SERVER, *CLIENTS):
        assert kind.__doc__ is not None
        assert kind.name == kind.name.lower()
        assert kind.applies_to
    for kinds in (SERVER, CLIENTS):
        claims = [(kind.name, one, getattr(kind, "extends", None)) for kind in kinds for one in kind.applies_to]
        assert len(set(claims)) == len(claims)  # one class per name and protocol; of clients, per role
