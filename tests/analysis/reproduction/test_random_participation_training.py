"""Section 6 of random participation, tiny: through the real runs, and what is said of made-up accuracies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.bounds.random_participation import Participation
from analysis.reproduction import random_participation_training as training
from analysis.reproduction.catalogue import named
from analysis.reproduction.contract import Bench
from analysis.reproduction.random_participation_training import FIG6, FIG7, NONE, OLS, PROPOSED, WCS, Learned, Size
from testbed.errors import ExperimentError
from testbed.experiment.loading import apply_override, validated
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords
from testbed.running import run_all


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Runs without Ray."""

    def run(swept: Experiment, directory: Path) -> list[RunRecords]:
        data = swept.model_dump(mode="json", exclude_unset=True)
        apply_override(data, "cluster.network=in-process")
        local = validated(data, swept.name)
        return [RunRecords(path) for path in run_all(local, directory, where=swept.name, resume=True)]

    return Bench("small", tmp_path, run, lambda line: None)


@pytest.mark.parametrize("setting", [FIG6, FIG7])
def test_the_noise_is_the_papers(setting: training.Setting) -> None:
    noise = training.sigmas(setting)
    assert list(noise) == [NONE, PROPOSED, WCS, OLS]
    for scheme, published in setting.published.items():
        assert noise[scheme] == pytest.approx(published, rel=0.005)


def test_a_tiny_figure_through_real_runs(bench: Bench) -> None:
    tiny = replace(
        FIG6, population=60, who=Participation(8, 0.2, 0.5),
        sizes={"small": Size(8, 0.5, 4, 50.0, 2, 2, ("{rounds} rounds",), 40)},
    )  # fmt: skip
    made = training.make(tiny, bench)
    assert made.table["scheme"].tolist() == [NONE, PROPOSED, WCS, OLS]
    assert made.table["accuracy [%]"].between(0, 100).all()
    least, most = (made.table[f"epsilon of a round, {bound}"] for bound in ("at least", "guaranteed"))
    assert (least[1:] <= most[1:] * (1 + 1e-9)).all()
    wcs = made.table["scheme"] == WCS
    assert most[wcs].item() == pytest.approx(training.EPSILON, rel=1e-6)
    assert made.table["of 4, guaranteed"][wcs].item() > training.EPSILON
    assert all(path.stat().st_size > 5000 for path in made.figures)
    assert len(made.claims) == 4
    assert any("4 rounds" in remark for remark in made.remarks)
    runs = sorted((bench.out / "runs").rglob("rounds.parquet"))
    assert len(runs) == 2 * 4


def learned(late: float) -> Learned:
    return Learned(np.array([5, 10]), np.array([[1.0, late], [2.0, late + 0.5], [1.5, late - 0.5]]), 10)


def test_claims_follow_the_accuracies_seed_by_seed() -> None:
    results = {NONE: learned(80), PROPOSED: learned(70), WCS: learned(40), OLS: learned(10)}
    assert [claim.agrees for claim in training.accuracy_claims(FIG6, results)] == ["yes"] * 3
    results[OLS] = learned(60)
    assert [claim.agrees for claim in training.accuracy_claims(FIG6, results)] == ["yes", "no", "yes"]
    noisy = Learned(np.array([10]), np.array([[60.0], [10.0], [50.0]]), 10)
    assert training.accuracy_claims(FIG6, results | {OLS: noisy})[1].agrees is None


def test_the_proposed_noise_is_found_to_be_no_guarantee() -> None:
    for setting in (FIG6, FIG7):
        size = replace(setting.sizes["small"], rounds=2)
        noise = {PROPOSED: training.sigmas(setting)[PROPOSED]}
        frame = training.table(setting, size, noise, {PROPOSED: learned(70)})
        claim = training.privacy_claim(setting, size, frame)
        assert claim.agrees == "no"
        assert frame["epsilon of a round, at least"].item() > training.EPSILON


def test_the_papers_scale_needs_the_papers_data(bench: Bench) -> None:
    (one,) = named(["random-participation-fig7"])
    with pytest.raises(ExperimentError, match="--data DIR"):
        one.make(replace(bench, scale="paper"))
    assert "emnist" in training.experiment(
        FIG7, FIG7.sizes["paper"], training.sigmas(FIG7), 1, Path("/data")
    ).workload.dataset  # fmt: skip
