"""Section 6 of random participation at a tiny scale: real runs, and claims on made-up accuracies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.bounds.random_participation import Participation
from analysis.reproduction.contract import ReproductionContext, Scale
from analysis.reproduction.random_participation import accuracy, tasks
from analysis.reproduction.random_participation.accuracy import RateSearch
from analysis.reproduction.random_participation.published import (
    EPSILON,
    FEW_CLIENTS,
    MANY_CLIENTS,
    NONE,
    OLS,
    PROPOSED,
    WCS,
    PublishedScenario,
)
from analysis.reproduction.random_participation.tasks import DIGITS, TrainingTask
from analysis.reproduction.training_runs import AccuracyCurves
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords
from testbed.selection.random_selection import BernoulliParameters
from tests.messages_named import naming


@pytest.mark.parametrize("scenario", [MANY_CLIENTS, FEW_CLIENTS])
def test_the_noise_is_the_papers(scenario: PublishedScenario) -> None:
    noise = accuracy.required_noise(scenario)
    assert list(noise) == [NONE, PROPOSED, WCS, OLS]
    for scheme, published in scenario.sigmas.items():
        assert noise[scheme] == pytest.approx(published, rel=0.005)


TINY = TrainingTask(
    {"dataset": "digits", "model": "logistic"},
    20, Participation(8, 0.2, 0.5), rounds=4, rates=(0.01, 1.0), seeds=2, evaluations=2, notes=("Tiny.",),
)  # fmt: skip


def test_a_tiny_figure_through_real_runs(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "DIGITS", TINY)
    result = accuracy.run_training(MANY_CLIENTS, context)
    assert result.table["scheme"].tolist() == [NONE, PROPOSED, WCS, OLS]
    assert result.table["accuracy [%]"].between(0, 100).all()
    least, most = (result.table[f"epsilon of a round, {bound}"] for bound in ("at least", "guaranteed"))
    assert (least[1:] <= most[1:] * (1 + 1e-9)).all()
    wcs = result.table["scheme"] == WCS
    assert most[wcs].item() == pytest.approx(EPSILON, rel=1e-6)
    assert result.table["of 4, guaranteed"][wcs].item() > EPSILON
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".csv"]
    assert all(path.stat().st_size > 5000 for path in result.figures[:2])
    assert len(result.claims) == 4
    assert any("Tiny." in remark for remark in result.remarks)
    written = {path: path.stat().st_mtime_ns for path in (context.out / "runs").rglob("rounds.parquet")}
    assert len(written) == 2 * 4 + 2 * 4

    noise = accuracy.required_noise(MANY_CLIENTS)
    tried = accuracy.search_rates(context, MANY_CLIENTS.title, TINY, noise)
    again = accuracy.train(
        context, MANY_CLIENTS.title, TINY, noise, {scheme: grid.best for scheme, grid in tried.items()}
    )
    assert [grid.best for grid in tried.values()] == result.table["learning rate"].tolist()
    assert [one.late.mean() for one in again.values()] == pytest.approx(result.table["accuracy [%]"].tolist())
    assert {path: path.stat().st_mtime_ns for path in (context.out / "runs").rglob("rounds.parquet")} == written


def test_every_scheme_is_compared_at_the_best_of_its_rates_on_another_seed(context: ReproductionContext) -> None:
    swept: list[Experiment] = []

    def run(experiment: Experiment, directory: Path) -> list[RunRecords]:
        swept.append(experiment)
        return context.run_experiment(experiment, directory)

    watched = replace(context, run_experiment=run)
    noise = {NONE: 0.0, WCS: 7.665}
    tried = accuracy.search_rates(watched, "tiny", TINY, noise)
    rates = {scheme: grid.best for scheme, grid in tried.items()}
    accuracy.train(watched, "tiny", TINY, noise, rates)
    assert [one.seed for one in swept] == [0, 1, 2]
    points = [[(one["sigma"], one["learning_rate"]) for one in given.sweep["aggregation"]] for given in swept]
    assert points[0] == [(sigma, rate) for sigma in noise.values() for rate in TINY.rates]
    assert points[1] == points[2] == [(sigma, rates[scheme]) for scheme, sigma in noise.items()]
    for scheme, grid in tried.items():
        assert grid.reached[TINY.rates.index(rates[scheme])] == max(grid.reached)


def test_the_search_for_a_rate_lists_all_rates() -> None:
    inner = RateSearch((0.01, 0.03, 0.1), (20.0, 60.0, 30.0))
    assert inner.best == 0.03
    assert str(inner) == "0.03 (0.01: 20%, 0.03: 60%, 0.1: 30%)"
    lost = RateSearch((0.01, 0.03, 0.1), (20.0, 60.0, float("nan")))
    assert lost.best == 0.03
    equal = RateSearch((0.01, 0.03, 0.1), (20.0, 60.0, 60.0))
    assert equal.best == 0.1
    assert "there may be a better one" in str(equal)


def learned(late: float) -> AccuracyCurves:
    return AccuracyCurves(np.array([5, 10]), np.array([[1.0, late], [2.0, late + 0.5], [1.5, late - 0.5]]), 10)


def test_claims_follow_the_accuracies_seed_by_seed() -> None:
    results = {NONE: learned(80), PROPOSED: learned(70), WCS: learned(40), OLS: learned(10)}
    assert [claim.verdict for claim in accuracy.accuracy_claims(MANY_CLIENTS, results)] == ["agrees"] * 3
    results[OLS] = learned(60)
    assert [claim.verdict for claim in accuracy.accuracy_claims(MANY_CLIENTS, results)] == [
        "agrees", "disagrees", "agrees",
    ]  # fmt: skip
    noisy = AccuracyCurves(np.array([10]), np.array([[60.0], [10.0], [50.0]]), 10)
    assert accuracy.accuracy_claims(MANY_CLIENTS, results | {OLS: noisy})[1].verdict == "partly"


def test_the_proposed_noise_is_found_to_be_no_guarantee() -> None:
    for scenario in (MANY_CLIENTS, FEW_CLIENTS):
        task = replace(TINY, rounds=2)
        noise = {PROPOSED: accuracy.required_noise(scenario)[PROPOSED]}
        frame = accuracy.table(scenario, task, noise, {PROPOSED: 0.03}, {PROPOSED: learned(70)})
        claim = accuracy.privacy_claim(scenario, frame)
        assert claim.verdict == "disagrees"
        assert frame["epsilon of a round, at least"].item() > EPSILON
        assert frame[["learning rate", "learning rate (paper)"]].iloc[0].tolist() == [0.03, 0.002]


def test_the_papers_scale_needs_the_papers_data(context: ReproductionContext) -> None:
    with pytest.raises(ExperimentError, match="--data DIR"):
        accuracy.run_training(FEW_CLIENTS, replace(context, scale="paper"))


@pytest.mark.parametrize("scenario", [MANY_CLIENTS, FEW_CLIENTS])
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_with_the_papers_data_the_federation_is_the_papers(scenario: PublishedScenario, scale: Scale) -> None:
    task = tasks.task_of(scenario, scale, Path("/data"))
    swept = accuracy.experiment(scenario.title, task, [(0.0, 0.1), (1.0, 0.1)], 1)
    assert (swept.workload.dataset, swept.workload.samples_per_client) == (
        "emnist",
        scenario.participation.local_samples,
    )
    assert isinstance(swept.selection, BernoulliParameters)
    assert (swept.population, swept.selection.client_rate) == (scenario.population, scenario.participation.client_rate)
    assert [one["clip"] for one in swept.sweep["aggregation"]] == ["none", 1.0]
    if scale == "paper":
        assert set(scenario.rates.values()) <= set(task.rates)


@pytest.mark.parametrize("scenario", [MANY_CLIENTS, FEW_CLIENTS])
def test_mnist_stands_in_for_emnist_at_the_papers_size(scenario: PublishedScenario, tmp_path: Path) -> None:
    """Its 60,000 images are fewer than the clients' samples: they have some in common."""
    task = tasks.task_of(scenario, "real", tmp_path)
    workload = accuracy.experiment(scenario.title, task, [(1.0, 0.1)], 1).workload
    assert (workload.dataset, workload.model) == ("mnist", "emnist-cnn")
    assert (workload.partition.scheme, workload.samples_per_client) == (
        "overlapping",
        scenario.participation.local_samples,
    )
    assert (task.population, task.participation) == (scenario.population, scenario.participation)
    assert "about 12 clients" in task.notes[1]
    (tmp_path / "gzip").mkdir()
    (tmp_path / "gzip" / "emnist-byclass-train-images-idx3-ubyte.gz").touch()
    task = tasks.task_of(scenario, "real", tmp_path)
    assert task.workload["dataset"] == "emnist"
    assert len(task.notes) == 1
    with pytest.raises(ExperimentError, match=naming("MNIST", "--data DIR")):
        tasks.task_of(scenario, "real", None)


@pytest.mark.parametrize("task", [DIGITS, tasks.task_of(MANY_CLIENTS, "paper", Path("/data"))])
def test_a_batch_has_about_seventy_samples(task: TrainingTask) -> None:
    participation = task.participation
    assert (
        task.population * participation.local_samples * participation.client_rate * participation.sample_rate
        == pytest.approx(70, rel=0.02)
    )
