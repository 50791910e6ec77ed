"""``testbed list``: all names that an experiment accepts."""

import json

import pytest

from testbed.adversary.catalogue import names
from testbed.cli import main
from testbed.workload.specs import datasets, models


def _listed(what: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    assert main(["list", what, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


def test_protocols_are_those_that_the_schema_accepts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = capsys.readouterr().out
    rows = _listed("protocols", capsys)
    assert {row["key"] for row in rows} == {"selection.protocol", "aggregation.protocol"}
    assert all(f'"{row["name"]}"' in schema and row["what"] for row in rows)
    assert "lotto-client-centric" in {row["name"] for row in rows}


def test_data_sets_models_and_misbehaviours_are_all_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row["name"] for row in _listed("datasets", capsys)] == list(datasets())
    assert [row["name"] for row in _listed("models", capsys)] == list(models())
    found = _listed("misbehaviours", capsys)
    assert [row["name"] for row in found] == names("server") + names("clients")
    assert all(row["what"] and row["under"] for row in found)


def test_figures_are_named_as_reproduce_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    every = ", ".join(row["name"] for row in _listed("figures", capsys)).split(", ")
    assert main(["reproduce", "--list", *every]) == 0


@pytest.mark.parametrize("format", ["text", "markdown"])
@pytest.mark.parametrize("what", ["protocols", "datasets", "models", "misbehaviours", "figures"])
def test_a_person_reads_it_on_a_terminal_and_in_a_page(
    what: str, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", what, "--format", format]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 3
    assert format == "markdown" or max(map(len, lines)) <= 118


def test_what_cannot_be_listed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "planets"]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert said.startswith("error: Invalid value for 'what': 'planets' is not one of 'protocols', ")
