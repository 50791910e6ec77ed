"""Whole numbers that are written as 1e3 or 1000.0, and protocols whose name is the beginning of others."""

from pathlib import Path
from typing import Any

import pytest

from testbed.errors import ExperimentError
from testbed.experiment import Experiment
from testbed.experiment.schema import validated


def test_they_are_integers_in_files_and_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "whole.yaml"
    file.write_text("rounds: 1e1\npopulation: 1000.0\nselection: {participants: 2e1}\ncluster: {hosts: 4.0}")
    experiment = Experiment.load(file, ["seed=1e3", "workload.batch_size=3.2e1"])
    found = (experiment.rounds, experiment.population, experiment.selection.participants, experiment.cluster.hosts)
    assert found == (10, 1000, 20, 4)
    assert (experiment.seed, experiment.workload.batch_size) == (1000, 32)
    assert all(isinstance(value, int) for value in (*found, experiment.seed))


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"rounds": 1000.5}, "rounds: should be a valid integer, not 1000.5"),
        ({"seed": 1e20}, "seed: should be a valid integer, not 1e+20"),
        ({"rounds": 0.0}, "rounds: should be greater than 0, not 0"),
        (
            {"time": {"stage_quorums": {"train": 2.0}}},
            "time.stage_quorums.train: should be a valid integer or less than",
        ),
        ({"rounds": 1e1, "populaton": 5}, "populaton: unknown key; did you mean 'population'?"),
    ],
)
def test_others_are_none(keys: dict[str, Any], line: str) -> None:
    with pytest.raises(ExperimentError) as error:
        validated(keys, "file")
    assert str(error.value).startswith(f"file: {line}")
    assert len(str(error.value).splitlines()) == 1


def test_where_a_share_is_allowed_too_it_stays_one() -> None:
    keys = {"adversary": {"dishonest": 1.0}, "time": {"stage_quorums": {"train": 1.0}}}
    experiment = validated(keys, "file")
    assert experiment.adversary is not None
    assert experiment.adversary.number_of(100) == 100
    assert isinstance(experiment.time.stage_quorums["train"], float)


def test_the_beginning_of_several_names_suggests_them_all() -> None:
    with pytest.raises(ExperimentError, match="did you mean 'lotto-client-centric' or 'lotto-server-centric'"):
        validated({"selection": {"protocol": "lotto"}}, "file")
