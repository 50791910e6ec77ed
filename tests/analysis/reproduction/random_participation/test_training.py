"""Section 6 of random participation at a tiny scale: real runs, and claims on made-up accuracies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.bounds.random_participation import Participation
from analysis.reproduction.contract import ReproductionContext, Scale
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.random_participation import accuracy, accuracy_claims, tasks
from analysis.reproduction.random_participation.published import (
    EPSILON,
    FEW_CLIENTS,
    MANY_CLIENTS,
    NONE,
    OLS,
    PROPOSED,
    SCHEMES,
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
    20, Participation(8, 0.2, 0.5), rounds=4, rates=dict.fromkeys(SCHEMES, (0.01, 1.0)), seeds=2,
    evaluations=2, data_kind="stand-in", differs=("Scale: tiny.",),
)  # fmt: skip


def test_tiny_figures_through_real_runs(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "DIGITS", TINY)
    (reproduction,) = accuracy.REPRODUCTIONS
    measurements, result = carry_out(reproduction, context)
    assert measurements is not None
    table = result.table
    assert table["figure"].tolist() == ["Figure 6"] * 4 + ["Figure 7"] * 4
    assert table["scheme"].tolist() == [NONE, PROPOSED, WCS, OLS] * 2
    assert table["accuracy [%]"].between(0, 100).all()
    private = table[table["scheme"] != NONE]
    least, most = (private[f"epsilon of a round, {bound}"] for bound in ("at least", "guaranteed"))
    assert (least <= most * (1 + 1e-9)).all()
    wcs = private["scheme"] == WCS
    assert most[wcs].tolist() == pytest.approx([EPSILON] * 2, rel=1e-6)
    assert (private["of all rounds, guaranteed"][wcs] > EPSILON).all()
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".csv"] * 2
    assert all(path.stat().st_size > 5000 for path in result.figures if path.suffix != ".csv")
    assert len(result.claims) == 4 + 2 + 1 + 2
    assert any("Scale: tiny." in remark for remark in result.remarks)
    assert measurements.setting.data_kind == "stand-in"
    assert measurements.setting.differs == ["Scale: tiny."]
    evaluations = measurements.tables["evaluations"]
    assert len(evaluations) == 2 * 4 * 2 * 2  # figures, schemes, seeds, evaluations
    late = evaluations[(evaluations["scheme"] == WCS) & (evaluations["round"] == 4)]
    assert late.groupby("figure")["accuracy [%]"].mean().tolist() == pytest.approx(
        table[table["scheme"] == WCS]["accuracy [%]"].tolist()
    )
    written = {path: path.stat().st_mtime_ns for path in (context.out / "runs").rglob("rounds.parquet")}
    assert len(written) == 2 * (2 * 4 + 2 * 4)

    again, _ = carry_out(reproduction, context)
    assert again is not None
    for name, rows in measurements.tables.items():
        pd.testing.assert_frame_equal(again.tables[name], rows)
    assert {path: path.stat().st_mtime_ns for path in (context.out / "runs").rglob("rounds.parquet")} == written


def test_every_scheme_is_compared_at_the_best_of_its_rates_on_another_seed(context: ReproductionContext) -> None:
    swept: list[Experiment] = []

    def run(experiment: Experiment, directory: Path) -> list[RunRecords]:
        swept.append(experiment)
        return context.run_experiment(experiment, directory)

    watched = replace(context, run_experiment=run)
    noise = {NONE: 0.0, WCS: 7.665}
    tried = accuracy.search_rates(watched, MANY_CLIENTS, TINY, noise)
    rates = accuracy_claims.best_rates(tried, MANY_CLIENTS)
    evaluations = accuracy.train(watched, MANY_CLIENTS, TINY, noise, rates)
    assert [one.seed for one in swept] == [0, 1, 2]
    points = [[(one["sigma"], one["learning_rate"]) for one in given.sweep["aggregation"]] for given in swept]
    assert points[0] == [(sigma, rate) for scheme, sigma in noise.items() for rate in TINY.rates[scheme]]
    assert points[1] == points[2] == [(sigma, rates[scheme]) for scheme, sigma in noise.items()]
    for scheme, rows in tried.groupby("scheme"):
        best = rows.set_index("learning rate")["accuracy [%]"]
        assert best[rates[str(scheme)]] == best.max()
    assert set(evaluations["seed"]) == {1, 2}


@pytest.mark.parametrize(
    ("reached", "best"),
    [((20.0, 60.0, 30.0), 0.03), ((20.0, 60.0, float("nan")), 0.03), ((20.0, 60.0, 60.0), 0.1)],
)
def test_the_search_for_a_rate_lists_all_rates(reached: tuple[float, ...], best: float) -> None:
    rates = (0.01, 0.03, 0.1)
    tried = pd.DataFrame(
        {"figure": "Figure 6", "seed": 0, "scheme": WCS, "learning rate": rates, "accuracy [%]": reached}
    )
    assert accuracy_claims.best_rates(tried, MANY_CLIENTS) == {WCS: best}
    text = accuracy_claims._searched(WCS, tried)
    assert text.startswith(f"{WCS} {best:g} (0.01: 20%, 0.03: 60%, 0.1: ")
    assert ("there may be a better one" in text) == (best == 0.1)


def learned(late: float) -> AccuracyCurves:
    return AccuracyCurves(np.array([5, 10]), np.array([[1.0, late], [2.0, late + 0.5], [1.5, late - 0.5]]), 10)


def verdicts(none: float, proposed: float, wcs: float, ols: float) -> tuple[list[str], list[str]]:
    """Return the verdicts of Figures 6 and 7 for these accuracies."""
    results = {NONE: learned(none), PROPOSED: learned(proposed), WCS: learned(wcs), OLS: learned(ols)}
    of_many, of_few = accuracy_claims.many_clients_claims(results), accuracy_claims.few_clients_claims(results)
    return [claim.verdict for claim in of_many], [claim.verdict for claim in of_few]


def test_claims_follow_the_accuracies_seed_by_seed() -> None:
    assert verdicts(80, 70, 40, 10) == (["agrees", "agrees", "agrees", "undetermined"], ["agrees", "agrees"])
    assert verdicts(80, 70, 65, 64.5) == (["disagrees", "disagrees", "agrees", "undetermined"], ["agrees", "agrees"])
    assert verdicts(80, 70, 75, 10) == (["partly", "agrees", "agrees", "undetermined"], ["partly", "partly"])
    assert verdicts(60, 70, 40, 50) == (["agrees", "disagrees", "disagrees", "undetermined"], ["agrees", "partly"])
    noisy = AccuracyCurves(np.array([5, 10]), np.array([[1.0, 60.0], [1.0, 10.0], [1.0, 50.0]]), 10)
    results = {NONE: learned(80), PROPOSED: learned(70), WCS: learned(40), OLS: noisy}
    assert accuracy_claims.many_clients_claims(results)[1].verdict == "partly"


def test_differences_are_shown_in_the_middle_of_the_runs_too() -> None:
    results = {NONE: learned(80), PROPOSED: learned(70), WCS: learned(40), OLS: learned(10)}
    claim = accuracy_claims.many_clients_claims(results)[1]
    assert claim.measured.endswith("+30.0 ± 0.0 points above OLS (Theorem 5.1) (+0.0 in the middle of the runs)")


@pytest.mark.parametrize(("few", "verdict"), [(69.0, "agrees"), (10.0, "disagrees"), (11.0, "agrees")])
def test_the_schemes_of_figure_7_are_closer_if_their_spread_is_smaller(few: float, verdict: str) -> None:
    many = {NONE: learned(80), PROPOSED: learned(70), WCS: learned(40), OLS: learned(10)}
    claim = accuracy_claims.closer_claim(many, many | {OLS: learned(few)})
    assert (claim.verdict, claim.seeds) == (verdict, 3)


def test_the_proposed_noise_is_no_guarantee() -> None:
    for scenario in (MANY_CLIENTS, FEW_CLIENTS):
        noise = {PROPOSED: accuracy.required_noise(scenario)[PROPOSED]}
        privacy = accuracy.privacy_loss(scenario, noise, rounds=2)
        claim = accuracy_claims.privacy_claim(scenario, privacy)
        assert (claim.verdict, claim.counted_in) == ("disagrees", "random-participation-unsound")
        assert privacy["epsilon of a round"].min() > EPSILON
        assert (privacy["epsilon of all rounds"] > privacy["epsilon of a round"]).all()
        privacy["epsilon of a round"] = EPSILON
        assert accuracy_claims.privacy_claim(scenario, privacy).verdict == "agrees"


def test_the_papers_scale_needs_the_papers_data(context: ReproductionContext) -> None:
    with pytest.raises(ExperimentError, match="--data DIR"):
        accuracy.measure_training(replace(context, scale="paper"))


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
        assert all(rate in task.rates[scheme] for scheme, rate in scenario.rates.items())


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
    assert task.data_kind == "stand-in"
    assert "about 12 clients" in task.differs[0]
    (tmp_path / "gzip").mkdir()
    (tmp_path / "gzip" / "emnist-byclass-train-images-idx3-ubyte.gz").touch()
    task = tasks.task_of(scenario, "real", tmp_path)
    assert task.workload["dataset"] == "emnist"
    assert (task.data_kind, len(task.differs)) == ("paper", 1)
    with pytest.raises(ExperimentError, match=naming("MNIST", "--data DIR")):
        tasks.task_of(scenario, "real", None)


@pytest.mark.parametrize("task", [DIGITS, tasks.task_of(MANY_CLIENTS, "paper", Path("/data"))])
def test_a_batch_has_about_seventy_samples(task: TrainingTask) -> None:
    participation = task.participation
    assert (
        task.population * participation.local_samples * participation.client_rate * participation.sample_rate
        == pytest.approx(70, rel=0.02)
    )
