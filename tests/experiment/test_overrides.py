"""Overrides that switch a model, replace a form, or empty a section."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import ExperimentError
from testbed.experiment import load


@pytest.fixture
def overridden(tmp_path: Path) -> Callable[..., Any]:
    """Loads a text with overrides."""

    def loaded(text: str, *overrides: str) -> Any:
        path = tmp_path / "experiment.yaml"
        path.write_text(text)
        return load(path, list(overrides))

    return loaded


def test_another_availability_model_drops_what_it_does_not_have(overridden: Callable[..., Any]) -> None:
    text = "availability: {model: bernoulli, unavailable: 0.3, dropout: {rate: 0.1}}"
    always = overridden(text, "availability.model=always").availability
    assert (always.model, always.dropout.rate) == ("always", 0.1)
    schedule = overridden(text, "availability.model=schedule", "availability.path=x.csv").availability
    assert schedule.dropout.rate == 0  # a schedule says itself who drops out


def test_drop_outs_beside_a_schedule_are_refused(overridden: Callable[..., Any]) -> None:
    with pytest.raises(ExperimentError, match="availability: `dropout` has no effect"):
        overridden("availability: {model: schedule, path: x.csv, dropout: {rate: 0.1}}")


def test_another_form_of_a_link_replaces_the_old_one(overridden: Callable[..., Any]) -> None:
    text = "links: {up_mbit_s: {trace: some/folder, scale: 2}, down_mbit_s: 5}"
    links = overridden(text, "links.up_mbit_s={distribution: uniform, minimum: 1, maximum: 2}").links
    assert links.up_mbit_s.distribution == "uniform"
    links = overridden(text, "links.up_mbit_s={scale: 3}", "links.latency_ms=7").links
    assert (str(links.up_mbit_s.trace), links.up_mbit_s.scale, links.down_mbit_s) == ("some/folder", 3, 5)


def test_another_distribution_replaces_the_old_one(overridden: Callable[..., Any]) -> None:
    text = "links: {down_mbit_s: {distribution: uniform, minimum: 1, maximum: 5}}"
    rates = overridden(text, "links.down_mbit_s={distribution: log-normal, median: 8, sigma: 1}").links.down_mbit_s
    assert (rates.minimum, rates.maximum) == (None, None)
    rates = overridden(text, "links.down_mbit_s={distribution: uniform, maximum: 7}").links.down_mbit_s
    assert (rates.minimum, rates.maximum) == (1, 7)


def test_an_empty_mapping_empties_a_section(overridden: Callable[..., Any]) -> None:
    text = "time: {stage_quorums: {train: 0.5}, deadline_s: 9}"
    time = overridden(text, "time.stage_quorums={}").time
    assert (time.stage_quorums, time.deadline_s) == ({}, 9)


def test_null_drops_the_sweep(overridden: Callable[..., Any]) -> None:
    assert overridden("sweep: {seed: [1, 2]}", "sweep=null").sweep == {}
    assert overridden("sweep: {seed: [1, 2]}", "sweep=null", "sweep.rounds=[3]").sweep == {"rounds": [3]}


def test_quorums_are_numbers_of_clients_or_shares(overridden: Callable[..., Any]) -> None:
    assert overridden("time: {stage_quorums: {train: 5, check-in: 0.5}}").time.stage_quorums["train"] == 5
    assert isinstance(overridden("time: {stage_quorums: {train: 1}}").time.stage_quorums["train"], int)
    assert isinstance(overridden("time: {stage_quorums: {train: 1.0}}").time.stage_quorums["train"], float)
    for wrong in ("1.5", "0", "0.0", "-1", "true"):
        with pytest.raises(ExperimentError, match=r"time\.stage_quorums\.train: "):
            overridden(f"time: {{stage_quorums: {{train: {wrong}}}}}")
    with pytest.raises(ExperimentError, match=r"time\.stage_quorums: unknown stage 'trian'; did you mean 'train'"):
        overridden("time: {stage_quorums: {trian: 2}}")


def test_the_cost_table_may_be_a_file(overridden: Callable[..., Any], tmp_path: Path) -> None:
    costs = tmp_path / "costs.yaml"
    costs.write_text("hmac: 2.0e-6\n")
    assert overridden(f"time: {{compute: modelled, costs: {costs}}}").time.costs == {"hmac": 2e-6}
    with pytest.raises(ExperimentError, match=r"time\.costs: .*nowhere\.yaml: cannot be read"):
        overridden("time: {costs: nowhere.yaml}")
