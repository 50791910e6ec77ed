"""The records of small runs are those that `hashes.json` pins, part by part; README.md here describes the parts."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.hosts.session import RaySession
from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.kit.participant import Participant
from testbed.experiment.schema import Experiment
from testbed.records import RunDirectory
from testbed.records.clients import read_clients
from testbed.selection import catalogue as selections
from tests.golden.experiments import EXPERIMENTS, ON_RAY
from tests.golden.record import HASHES, WIRE, cpu_kind, differing_parts, record_hashes, run_golden

STORED = json.loads(HASHES.read_text())
PINNED: dict[str, dict[str, str]] = STORED["runs"]
SAME_CPU = STORED["cpu"] == cpu_kind()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_records_of_a_run_are_the_pinned_ones(name: str, tmp_path: Path) -> None:
    assert differing_parts(name, run_golden(name, tmp_path / "run"), PINNED[name], same_cpu=SAME_CPU) == []


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_a_run_on_ray_has_the_records_of_the_run_in_one_process(tmp_path: Path) -> None:
    experiment = Experiment.model_validate(EXPERIMENTS[ON_RAY].sections)
    records = RunDirectory.create(tmp_path / "run", experiment.plain())
    with RaySession(None, 2) as session:
        session.run(experiment, 0, records.path, lambda progress: None)
    pinned = {part: digest for part, digest in PINNED[ON_RAY].items() if not part.startswith(WIRE)}
    assert differing_parts(ON_RAY, record_hashes(records.path), pinned, same_cpu=SAME_CPU) == []


def test_each_experiment_has_hashes_and_the_other_way_round() -> None:
    assert list(PINNED) == list(EXPERIMENTS)


def test_each_built_in_protocol_is_in_an_experiment() -> None:
    experiments = [Experiment.model_validate(golden.sections) for golden in EXPERIMENTS.values()]
    assert {type(experiment.aggregation) for experiment in experiments} == set(aggregations.PROTOCOLS)
    assert {type(experiment.selection) for experiment in experiments} == set(selections.PROTOCOLS)


# -- a change in one place is a difference there -----------------------------------------------------------------------


def parts_after(name: str, tmp_path: Path) -> set[str]:
    """Return the parts of a run with hashes other than the pinned ones."""
    return set(differing_parts(name, run_golden(name, tmp_path / "run"), PINNED[name], same_cpu=SAME_CPU))


@pytest.mark.parametrize("name", ["secagg", "secagg, materialised masks", "secagg-plus"])
def test_one_bit_of_a_masks_secret_is_seen_on_the_wire_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = Participant.secret

    def flipped(self: Participant, purpose: str) -> bytes:
        derived = secret(self, purpose)
        return derived if purpose != "self-mask seed" else bytes([derived[0] ^ 1]) + derived[1:]

    monkeypatch.setattr(Participant, "secret", flipped)
    changed = parts_after(name, tmp_path)
    assert "wire secagg/masked-input" in changed
    assert all(part.startswith(WIRE) for part in changed)


@pytest.mark.parametrize("table", ["exchanges", "participation", "clients"])
def test_the_order_of_a_tables_rows_is_seen_in_that_table_alone(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_golden("secagg", tmp_path / "run")
    before = record_hashes(tmp_path / "run")
    read = RunDirectory.table

    def backwards(rows: Any) -> Any:
        return rows.take(list(range(rows.num_rows))[::-1])

    def read_backwards(self: RunDirectory, name: str) -> Any:
        return backwards(read(self, name)) if name == table else read(self, name)

    monkeypatch.setattr(RunDirectory, "table", read_backwards)
    if table == "clients":
        monkeypatch.setattr("tests.golden.record.read_clients", lambda path: backwards(read_clients(path)))
    after = record_hashes(tmp_path / "run")
    assert [part for part in before if before[part] != after[part]] == [table]
