"""Information gained by sending other models, from a run's records, against the clients' data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.attacks.other_models import other_models, recovered_samples, recovered_updates, render
from analysis.attacks.victims import Victims
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from testbed.records import RunRecords
from testbed.running import run_all
from tests.former_defaults import with_former_defaults
from tests.messages_named import naming

BASE: dict[str, Any] = {
    "name": "models", "seed": 5, "rounds": 2, "population": 60,
    "workload": {"dataset": "digits", "model": "mlp", "batch_size": 100, "evaluate_every": 2},
    "selection": {"protocol": "random", "participants": 6},
    "aggregation": {"protocol": "secagg", "model_binding": "none"},
    "records": {"aggregates": "all"}, "time": {"compute": "modelled"}, "cluster": {"network": "in-process"},
}  # fmt: skip


def run_of(out: Path, server: Any, **keys: Any) -> RunRecords:
    sections = {**BASE, "adversary": {"dishonest": 0, "server": server}}
    for key, more in keys.items():
        sections[key] = {**sections[key], **more} if isinstance(sections.get(key), dict) else more
    (path,) = run_all(validated(with_former_defaults(sections), "test"), out, where="test")
    return RunRecords(path)


def test_every_coordinate_of_the_victims_update(tmp_path: Path) -> None:
    run = run_of(tmp_path, "send-different-models")
    victims = Victims(run)
    for one in recovered_updates(run, victims):
        assert one.recovered == one.dimension == 8970
        assert one.largest_error is not None
        assert one.largest_error < 6 * 1.3  # six summands, hardly heavier than the victim
        assert one.relative_error < 1e-3
        seen = run.aggregate(one.round)
        assert seen is not None
        true = victims.workload.train(one.victim, seen.model, one.round).delta
        other = victims.workload.train((one.victim + 1) % 60, seen.model, one.round).delta
        estimate = seen.mean * seen.weight / victims.weights[one.victim]
        assert np.linalg.norm(estimate - true) < 0.05 * np.linalg.norm(estimate - other)


@pytest.mark.parametrize(
    ("aggregation", "kind", "noticed"),
    [
        ({"protocol": "lightsecagg"}, "refusal", "aggregation.keys-or-model-mismatch"),
        (
            {"protocol": "one-shot", "committee": {"size": 9}, "max_colluders": 2},
            "misbehaviour",
            "one-shot.invalid-share",
        ),
        (
            {"protocol": "pine", "norm_bound": 10},
            "misbehaviour",
            "pine.invalid-share: reported by the helper, client 0",
        ),
    ],
    ids=lambda value: value["protocol"] if isinstance(value, dict) else "",
)
def test_a_bound_model_keeps_what_an_unbound_one_gives_away(
    tmp_path: Path, aggregation: dict[str, Any], kind: str, noticed: str
) -> None:
    """Signed, the shares of clients that were sent another model do not open; unbound, the victim's update is had."""
    sections, runs = BASE | {"adversary": {"dishonest": 0, "server": "send-different-models"}}, []
    for binding in ("signed", "none"):
        sections["aggregation"] = {**aggregation, "model_binding": binding}
        (path,) = run_all(validated(with_former_defaults(sections), "test"), tmp_path / binding, where="test")
        runs.append(RunRecords(path))
    signed, unbound = runs
    assert [one.recovered for one in recovered_updates(unbound, Victims(unbound))] == [8970, 8970]
    assert other_models(runs)["completed"].tolist() == [0, 2]
    events = signed.events[signed.events["kind"] == kind]
    assert {detail.partition(":")[0] if kind == "refusal" else detail for detail in events["detail"]} == {noticed}


def test_accomplices_take_their_updates_out_of_the_sum(tmp_path: Path) -> None:
    adversary = {"dishonest": [0, 1], "server": {"send-different-models": {"victim": 5}}}
    run = run_of(tmp_path, [], adversary=adversary, population=6)
    found = recovered_updates(run, Victims(run))
    assert [one.recovered for one in found] == [8970, 8970]


def test_noise_hides_the_victims_update(tmp_path: Path) -> None:
    noise = {"weights": "equal", "noise": {"noise_multiplier": 1.0}}
    run = run_of(tmp_path, "send-different-models", aggregation=noise)
    for one in recovered_updates(run, Victims(run)):
        assert one.relative_error > 10
        assert one.recovered is one.largest_error is None
    assert "coordinates" not in render(other_models([run]))


@pytest.mark.parametrize("binding", ["signed", "none"])
def test_samples_from_sums_over_six_clients(tmp_path: Path, binding: str) -> None:
    run = run_of(tmp_path, "send-crafted-model", aggregation={"model_binding": binding})
    victims = Victims(run)
    found = recovered_samples(run, victims)
    assert len(found) == 2
    for one in found:
        assert one.clients == 6
        assert one.samples == len(one.psnr) == victims.workload.sample_counts[_survivors(run, one.round)].sum()
        assert 15 <= one.recovered <= 45  # of 63 bins that each hold 2.3 samples on average
        assert one.recovered == (one.psnr >= 30).sum()


def test_an_honest_models_update_gives_none_away(tmp_path: Path) -> None:
    """The imprint's arithmetic on the sum of an honest round gives nothing like a sample."""
    run = run_of(tmp_path, "send-crafted-model")
    honest = run_of(tmp_path / "honest", [])
    victims = Victims(run)
    seen = {number: honest.aggregate(number) for number in (1, 2)}
    run.aggregate = seen.get  # type: ignore[method-assign, assignment]
    assert all(one.recovered == 0 for one in recovered_samples(run, victims))


def test_noise_hides_samples(tmp_path: Path) -> None:
    noise = {"weights": "equal", "noise": {"noise_multiplier": 0.3}}
    run = run_of(tmp_path, "send-crafted-model", aggregation=noise)
    assert all(one.recovered == 0 for one in recovered_samples(run, Victims(run)))


def test_the_table_has_refusals_and_recovered_data(tmp_path: Path) -> None:
    signed = run_of(tmp_path / "signed", "send-different-models", aggregation={"model_binding": "signed"})
    had = run_of(tmp_path / "none", "send-different-models")
    frame = other_models([signed, had])
    assert frame["completed"].tolist() == [0, 2]
    assert frame["rounds"].tolist() == [2, 2]
    printed = render(frame).splitlines()
    assert "aggregation.keys-or-model-mismatch" in printed[1]
    assert "8970 of 8970 coordinates" in printed[2]
    assert render(frame, "markdown").splitlines()[1].startswith("| --- | ---")
    assert '"recovered": 8970.0' in render(frame, "json")


def test_runs_without_aggregates_or_attacks_are_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path / "silent", "send-different-models", records={"aggregates": "none"})
    with pytest.raises(ExperimentError, match=r"records\.aggregates: all"):
        other_models([run])
    with pytest.raises(
        ExperimentError, match=naming("adversary.server", "send-different-models", "send-crafted-model")
    ):
        other_models([run_of(tmp_path / "honest", [])])


def _survivors(run: RunRecords, number: int) -> list[int]:
    rows = run.participation
    found: list[int] = rows.loc[rows["survived"] & (rows["round"] == number), "client"].tolist()
    return found
