"""The examples are what users start from: they must hold, and their claims too."""

import asyncio
import re
import sys
import typing
from pathlib import Path

import pytest
import yaml
from pydantic import Tag

import workloads
from testbed.experiment import load, schema
from testbed.experiment.loading import validated
from testbed.experiment.sweep import points
from testbed.federation import Plan
from testbed.in_process import federation_in_process

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_valid_experiment(path: Path) -> None:
    experiment = load(path)
    assert list(points(experiment, str(path)))


def test_a_selection_protocol_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    data = {
        "seed": 1, "rounds": 3, "population": 10,
        "workload": {"dataset": "digits", "model": "logistic"},
        "selection": {"protocol": "own_selection:TakingTurns", "participants": 4, "start": 2},
    }  # fmt: skip
    experiment = validated(data, "test")
    workload = workloads.build(experiment.workload, 10, 1)
    federation = federation_in_process(Plan(experiment, 0), workload, None)
    taken = [asyncio.run(federation.run_next_round()).participants.tolist() for _ in range(3)]
    assert taken == [[2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]
    assert "own_selection" in sys.modules


def test_the_experiment_in_the_readme_is_valid() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    experiment = validated(yaml.safe_load(block), "README.md")
    assert len(list(points(experiment, "README.md"))) == 3


def test_the_readme_names_every_protocol_and_no_other() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    for section, known in (("selection", schema.SelectionSection), ("aggregation", schema.AggregationSection)):
        (row,) = re.findall(rf"^\| `{section}\.protocol` \| (.*) \|$", readme, re.MULTILINE)
        tags = {tag.tag for tag in tags_of(known)} - {"a class of your own"}
        assert set(re.findall(r"`([^`]+)`", row)) == tags


def tags_of(annotation: object) -> list[Tag]:
    """The tags of a discriminated union."""
    found = [part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, Tag)]
    for argument in typing.get_args(annotation):
        found += tags_of(argument)
    return found
