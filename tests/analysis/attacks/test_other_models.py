"""What was learned with other models, from a run's records, against what the clients really had."""

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


def signed_and_unbound(tmp_path: Path, aggregation: dict[str, Any]) -> list[RunRecords]:
    """A run in which what clients were asked to train is agreed on, and one in which it is not, both attacked."""
    adversary = {"dishonest": 0, "server": "send-different-models"}
    runs = []
    for binding in ("signed", "none"):
        given = {**aggregation, "model_binding": binding}
        experiment = validated(with_former_defaults({**BASE, "aggregation": given, "adversary": adversary}), "test")
        (path,) = run_all(experiment, tmp_path / binding, where="test")
        runs.append(RunRecords(path))
    return runs


def test_the_steps_of_lightsecagg_are_known(tmp_path: Path) -> None:
    runs = signed_and_unbound(tmp_path, {"protocol": "lightsecagg"})
    had = runs[1]
    assert [one.recovered for one in recovered_updates(had, Victims(had))] == [8970, 8970]
    frame = other_models(runs)
    assert frame["completed"].tolist() == [0, 2]
    assert frame["refused_by"].tolist() == [["secagg.other-keys-or-training"], []]


def test_shares_bound_to_another_model_open_for_no_member(tmp_path: Path) -> None:
    """Under `one-shot` those not sent what the server says are left out; unbound, the victim's update is had."""
    runs = signed_and_unbound(tmp_path, {"protocol": "one-shot", "committee": {"size": 9}, "max_colluders": 2})
    had = runs[1]
    assert [one.recovered for one in recovered_updates(had, Victims(had))] == [8970, 8970]
    frame = other_models(runs)
    assert frame["completed"].tolist() == [0, 2]
    events = runs[0].events
    assert set(events[events["kind"] == "misbehaviour"]["detail"]) == {"one-shot.bad-share"}


def test_reports_bound_to_another_model_do_not_open_for_the_helper(tmp_path: Path) -> None:
    """Under `pine` those who were not sent what the server says are left out; unbound, the victim's update is had."""
    runs = signed_and_unbound(tmp_path, {"protocol": "pine", "norm_bound": 10})
    had = runs[1]
    assert [one.recovered for one in recovered_updates(had, Victims(had))] == [8970, 8970]
    frame = other_models(runs)
    assert frame["completed"].tolist() == [0, 2]
    events = runs[0].events
    assert set(events[events["kind"] == "misbehaviour"]["detail"]) == {"pine.bad-share: says the helper, client 0"}


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
    """What the imprint's arithmetic makes of the sum that an honest round gives: nothing like a sample."""
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


def test_the_table_says_what_was_refused_and_what_was_had(tmp_path: Path) -> None:
    signed = run_of(tmp_path / "signed", "send-different-models", aggregation={"model_binding": "signed"})
    had = run_of(tmp_path / "none", "send-different-models")
    frame = other_models([signed, had])
    assert frame["completed"].tolist() == [0, 2]
    assert frame["rounds"].tolist() == [2, 2]
    printed = render(frame).splitlines()
    assert "secagg.other-keys-or-training" in printed[1]
    assert "8970 of 8970 coordinates" in printed[2]
    assert render(frame, "markdown").splitlines()[1].startswith("| --- | ---")
    assert '"recovered": 8970.0' in render(frame, "json")


def test_what_was_not_recorded_or_attacked_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path / "silent", "send-different-models", records={"aggregates": "none"})
    with pytest.raises(ExperimentError, match=r"records\.aggregates: all"):
        other_models([run])
    with pytest.raises(ExperimentError, match="no run here has"):
        other_models([run_of(tmp_path / "honest", [])])


def _survivors(run: RunRecords, number: int) -> list[int]:
    rows = run.participation
    found: list[int] = rows.loc[rows["survived"] & (rows["round"] == number), "client"].tolist()
    return found
