"""Sweeps over protocols with different keys: the keys of each point, the notes on others, and refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import ExperimentError
from testbed.experiment import Experiment
from testbed.experiment.grid import as_sweep
from testbed.experiment.reading import apply_override
from testbed.experiment.schema import Point, points, validated
from testbed.running.execution import with_overrides
from testbed.running.validation import check

SWEPT: dict[str, Any] = {
    "population": 80,
    "selection": {"participants": 10},
    "aggregation": {"threshold": 0.6, "weights": "equal"},
    "sweep": {"aggregation.protocol": ["plain", "secagg", "one-shot"]},
}


def points_of(keys: dict[str, Any]) -> list[Point]:
    return list(points(validated(keys, "file"), "file"))


def refused(keys: dict[str, Any]) -> str:
    with pytest.raises(ExperimentError) as error:
        points_of(keys)
    (line,) = str(error.value).splitlines()
    return line


def test_each_takes_the_keys_that_it_has_and_the_rest_is_said() -> None:
    found = points_of(SWEPT)
    assert [point.experiment.aggregation.weights for point in found] == ["equal"] * 3
    plain, secagg, _ = (point.experiment.aggregation for point in found)
    assert not hasattr(plain, "threshold")
    assert getattr(secagg, "threshold", None) == 0.6
    assert [tuple(one.keys for one in point.left_out) for point in found][:2] == [(("threshold",),), ()]
    notes = check(found, "file", import_classes=False).notes
    assert [note.partition(":")[0] for note in notes if note.startswith("plain")] == [
        "plain has no aggregation.threshold"
    ]
    alone = validated(
        {key: value for key, value in SWEPT.items() if key not in ("sweep", "aggregation")}
        | {"aggregation": {"protocol": "plain", "weights": "equal"}},
        "file",
    )
    assert found[0].experiment.plain() == alone.plain()


@pytest.mark.parametrize("base", [{}, {"protocol": "secagg"}, {"protocol": "flamingo"}])
def test_what_the_base_names_does_not_matter(base: dict[str, Any]) -> None:
    keys = {"aggregation": base | {"committee": {"size": 20}}, "sweep": {"aggregation.protocol": ["plain", "flamingo"]}}
    plain, flamingo = points_of(SWEPT | keys)
    assert [one.keys for one in plain.left_out] == [("committee",)]
    assert flamingo.left_out == ()
    assert flamingo.experiment.plain()["aggregation"]["committee"]["size"] == 20


def test_selections_and_availability_models_too() -> None:
    keys: dict[str, Any] = {
        "population": 40,
        "selection": {"participants": 10, "over_selection": 2.0},
        "availability": {"mean_online_s": 60, "mean_offline_s": 30},
        "sweep": {
            "selection.protocol": ["random", "lotto-client-centric"],
            "availability": [{"label": "always", "model": "always"}, {"model": "markov"}],
        },
    }
    found = points_of(keys)
    said = {str(one) for point in found for one in point.left_out}
    assert {text.partition(":")[0] for text in said} == {
        "random has no selection.over_selection",
        "always has no availability.mean_online_s, availability.mean_offline_s",
    }
    assert getattr(found[2].experiment.selection, "over_selection", None) == 2.0
    assert getattr(found[1].experiment.availability, "mean_online_s", None) == 60


def test_a_key_that_none_of_them_has_is_an_error() -> None:
    for base in ({"treshold": 0.6}, {"protocol": "secagg", "treshold": 0.6}):
        line = refused(SWEPT | {"aggregation": base})
        assert line.startswith("file: aggregation.treshold: ")
        assert "did you mean 'threshold'?" in line
    with pytest.raises(ExperimentError, match=r"aggregation\.treshold"):
        Experiment(**SWEPT | {"aggregation": {"treshold": 0.6}})


def test_what_does_not_fit_one_of_them_says_how_each_gets_its_own() -> None:
    for keys in (
        {"aggregation": {"threshold": 0.1}},
        {"sweep": SWEPT["sweep"] | {"aggregation.threshold": [0.6, 0.7]}},
    ):
        line = refused(SWEPT | keys)
        assert "sweep: {aggregation: [{protocol: " in line
    assert "sweep: {" not in refused(SWEPT | {"population": 0}).removeprefix("file")
    assert "sweep: {" not in refused(SWEPT | {"aggregation": {}, "population": 12})


def test_a_user_defined_class_takes_every_key() -> None:
    own = SWEPT | {"sweep": {"aggregation.protocol": ["plain", "mine:Own"]}, "aggregation": {"depth": 3}}
    _, mine = points_of(own | {"aggregation": {"weights": "equal"}})
    assert mine.left_out == ()
    with pytest.raises(ExperimentError, match=r"aggregation\.depth"):
        points_of(own)  # plain has none, and nobody knows whether the class does


def test_a_mapping_for_the_sweep_replaces_it_and_a_key_adds_to_it() -> None:
    data: dict[str, Any] = {"sweep": {"rounds": [1, 2], "population": [20]}}
    apply_override(data, "sweep={seed: [1, 2]}")
    assert data == {"sweep": {"seed": [1, 2]}}
    apply_override(data, "sweep.workload.learning_rate=[0.1, 0.2]")
    apply_override(data, as_sweep("selection.participants=5,6"))
    assert data["sweep"] == {"seed": [1, 2], "workload.learning_rate": [0.1, 0.2], "selection.participants": [5, 6]}
    apply_override(data, "sweep.seed=[3]")
    assert data["sweep"]["seed"] == [3]
    apply_override(data, "sweep={}")
    assert data == {"sweep": {}}


def test_overrides_of_a_file(tmp_path: Path, load_text: Callable[..., Experiment]) -> None:
    file = tmp_path / "swept.yaml"
    file.write_text("sweep: {rounds: [1, 2]}")
    assert Experiment.load(file, ["sweep={seed: [1, 2, 3]}"]).sweep == {"seed": [1, 2, 3]}
    assert Experiment.load(file, ["sweep.seed=[1]"]).sweep == {"rounds": [1, 2], "seed": [1]}


@pytest.mark.parametrize("protocols", [["plain", "secagg", "one-shot"], ["one-shot", "secagg", "plain"]])
def test_protocols_that_each_have_a_key_of_their_own(protocols: list[str]) -> None:
    committee = {"size": 10, "threshold": 8}
    keys = {"aggregation": {"threshold": 0.6, "committee": committee}, "sweep": {"aggregation.protocol": protocols}}
    experiment = validated(SWEPT | keys, "file")
    for one in (experiment, with_overrides(experiment, ["rounds=3"], "file"), Experiment(**SWEPT | keys)):
        found = {point.label: point for point in points(one, "file")}
        assert getattr(found["secagg"].experiment.aggregation, "threshold", None) == 0.6
        assert found["one-shot"].experiment.plain()["aggregation"]["committee"]["size"] == 10
        left = {label: {key for of in point.left_out for key in of.keys} for label, point in found.items()}
        assert left == {"plain": {"threshold", "committee"}, "secagg": {"committee"}, "one-shot": {"threshold"}}
