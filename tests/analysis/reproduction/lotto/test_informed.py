"""Table 3 and Figures 8 and 9 at a tiny scale: real runs, and the claims that follow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.lotto import fig8, fig9, tables
from analysis.reproduction.lotto.heterogeneous_clients import SETTINGS, ClientSetting, experiment, setting_of
from analysis.reproduction.lotto.overhead import INFORMED_SCALES, OverheadScale
from analysis.reproduction.lotto.published import APPLICATIONS, Application
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.verdicts import PaperClaim
from analysis.statistics import Interval
from testbed.experiment.schema import points
from tests.workloads.data.test_femnist_files import split_leaf

SETTING = ClientSetting(20, 4, model="logistic", samples_per_client=12, test_samples=100)


def _result(
    every: tuple[Reproduction, ...], application: Application, context: ReproductionContext
) -> ReproductionResult:
    return carry_out(every[APPLICATIONS.index(application)], context)[1]


@pytest.mark.parametrize("application", APPLICATIONS)
@pytest.mark.parametrize("scale", ["small", "paper"])
def test_experiments_of_both_scales_validate(scale: str, application: Application) -> None:
    size, setting = fig9.SCALES[application][scale], SETTINGS[application][scale]
    for name, selection in fig9.STRATEGIES.items():
        swept = experiment(setting, name, size.rounds, selection, {"seed": range(size.seeds)})
        assert len(list(points(swept, name))) == size.seeds
        summed = "secagg" if scale == "paper" or application != "FEMNIST" else "plain"
        assert swept.aggregation.protocol == summed
    snapshots = fig8.SCALES[application][scale].snapshots
    assert list(snapshots) == sorted(snapshots)


def test_table_3_compares_with_oort(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = OverheadScale(
        ("FEMNIST",),
        {20: 4},
        {"FEMNIST": 3},
        workload={"dataset": "digits", "model": "logistic", "samples_per_client": 20},
    )
    monkeypatch.setitem(INFORMED_SCALES, "small", tiny)
    result = carry_out(tables.REPRODUCTIONS[1], context)[1]
    assert result.table["protocol"].tolist() == list(tables.INFORMED_SELECTIONS) * 2
    assert (result.table.query("protocol == 'Oort'")["server ×"] == 1).all()
    assert len(result.claims) == 6 + 4  # six statements of the text; overheads and minutes of one application


def test_figure_8_asks_everybody_at_each_snapshot(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS["FEMNIST"], "small", SETTING)
    monkeypatch.setitem(fig8.SCALES["FEMNIST"], "small", fig8.HeterogeneityScale((1, 3), seeds=2))
    result = _result(fig8.REPRODUCTIONS, "FEMNIST", context)
    assert result.table["of clients"].tolist() == [
        "data quality, round 1", "data quality, round 3", "compute time, fastest = 1",
    ]  # fmt: skip
    assert result.table["largest"].iloc[-1] == pytest.approx(SETTING.population**1.2)  # Zipf, over its whole range
    assert all(path.stat().st_size for path in result.figures)
    assert [(claim.seeds, len(claim.checks)) for claim in result.claims] == [(2, 2), (2, 2), (0, 0)]
    assert "takes 36 times as long as the fastest" in result.claims[-1].measured  # 20**1.2
    assert result.claims[-1].verdict == "undetermined"


def test_experiments_use_real_data_and_openimages_decay(context: ReproductionContext, tmp_path: Path) -> None:
    for application in APPLICATIONS:
        for scale, data in (("small", None), ("paper", tmp_path)):
            setting = setting_of(application, replace(context, scale=scale, data=data))
            workload = experiment(setting, "x", 2, {"protocol": "random"}, {"seed": [1]}).workload
            assert workload.path == data
            assert workload.dataset == ("" if data else "synthetic-") + application.lower()
            rate = (workload.learning_rate_decay, workload.learning_rate_decay_every)
            assert (rate == (0.98, 10)) == (application == "OpenImage")


def test_worst_by_both_is_all_of_them_or_none() -> None:
    values = np.arange(1.0, 11.0)
    assert fig8.worst_by_both(values, -values) == 0.2  # the clients with the least data quality are the slowest
    assert fig8.worst_by_both(values, values) == 0.0


def test_figure_9_measures_the_time_to_the_target(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SETTINGS["FEMNIST"], "small", SETTING)
    monkeypatch.setitem(fig9.SCALES["FEMNIST"], "small", fig9.TimeToAccuracyScale(3, seeds=2, target=0.001))
    result = _result(fig9.REPRODUCTIONS, "FEMNIST", context)
    assert result.table["strategy"].tolist() == list(fig9.STRATEGIES)
    assert set(result.table["reached"]) == {"2 of 2"}
    assert result.table["speed-up"].iloc[0] == 1
    assert result.table["speed-up (paper)"].iloc[2] == 2.1
    assert all(claim.verdict in ("agrees", "partly", "disagrees") for claim in result.claims)
    assert all(path.stat().st_size for path in result.figures)


def test_language_models_are_measured_by_perplexity_under_secure_aggregation(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"sequence_length": 4, "vocabulary_size": 30}
    setting = ClientSetting(20, 4, "albert-small", 6, 20, "Reddit", secagg=True, workload=keys, notes=("Very small.",))
    monkeypatch.setitem(SETTINGS["Reddit"], "small", setting)
    monkeypatch.setitem(fig9.SCALES["Reddit"], "small", fig9.TimeToAccuracyScale(2, seeds=2, target=1000.0))
    result = _result(fig9.REPRODUCTIONS, "Reddit", context)
    assert set(result.table["reached"]) == {"2 of 2"}
    assert (result.table["last perplexity"] > 1).all()
    assert result.table["speed-up (paper)"].iloc[2] == 1.6
    assert [path.name for path in result.figures if path.suffix == ".png"] == ["lotto-fig9-reddit.png"]
    assert any("perplexity 1000" in remark for remark in result.remarks)
    assert len(result.claims) == 6  # that `and` is not faster than Rand is said of FEMNIST


def test_a_perplexity_is_reached_from_above() -> None:
    run = pd.DataFrame(
        {
            "loss": [5.0, np.nan, 2.0, 1.0],
            "accuracy": [0.1, np.nan, 0.3, 0.2],
            "ended_s": [1.0, 2, 3, 4],
            "outcome": ["aborted", "skipped", "completed", "completed"],
        }
    )
    assert fig9.time_to(run, np.exp(2.0), fig9.PERPLEXITY) == 3
    assert np.isnan(fig9.time_to(run, 1.0, fig9.PERPLEXITY))
    assert fig9.time_to(run, 0.2, fig9.ACCURACY) == 3
    assert fig9.time_to(run, 0.1, fig9.ACCURACY) == 3  # in round 1 nothing had changed the model yet
    found = fig9.measured_at(run, np.array([0.5, 1.5, 2.5, 9.0]), fig9.PERPLEXITY)
    assert np.array_equal(found, np.exp([np.nan, 5.0, 5.0, 1.0]), equal_nan=True)
    assert fig9.measured_at(run, np.array([0.5, 3.5]), fig9.ACCURACY).tolist() == [0.0, 0.3]


def _times(seconds: list[float], end: float = 30.0) -> fig9.Times:
    return fig9.Times(np.array(seconds), np.full(len(seconds), end))


def test_pairs_in_which_neither_run_reaches_the_target_decide_nothing() -> None:
    times = {name: _times([1.0, np.nan]) for name in fig9.STRATEGIES}
    claims = fig9.claims("FEMNIST", times)
    assert {(claim.verdict, claim.not_run) for claim in claims} == {("not run", "censored")}
    assert "1.00, open" in claims[0].measured


def _with_or(every: fig9.Times, of_or: fig9.Times) -> list[PaperClaim]:
    return fig9.claims("FEMNIST", dict.fromkeys(fig9.STRATEGIES, every) | {"Lotto, or": of_or})


def test_a_run_that_ends_before_the_target_is_a_bound() -> None:
    """A speed-up is at most the other run's time over the censored run's length."""
    slow = _with_or(_times([10.0, 10.0, 10.0]), _times([20.0, 20.0, np.nan]))
    assert [claim.verdict for claim in slow[:2]] == ["disagrees", "disagrees"]
    assert "at most 0.44" in slow[0].measured
    assert "0.50, 0.50, ≤ 0.33" in slow[0].measured
    assert slow[0].checks[0].low == 0
    fast = _with_or(_times([20.0, 20.0, np.nan]), _times([10.0, 10.0, 10.0]))
    assert fast[0].verdict == "agrees"  # at least 2, 2 and 3 times as fast
    assert "at least" in fast[0].measured
    assert fast[1].verdict == "partly"  # no upper end
    mixed = _with_or(_times([20.0, 20.0, np.nan]), _times([10.0, np.nan, 10.0]))
    assert (mixed[0].verdict, mixed[0].not_run) == ("not run", "censored")


def test_a_mean_time_is_of_all_seeds_or_of_none() -> None:
    assert fig9.minutes_to(np.array([60.0, np.nan, 180.0])) == Interval(None, None)
    assert fig9.minutes_to(np.array([60.0, 120.0, 180.0])).mean == 2


def _claims(slower: list[float], faster: list[float]) -> list[str]:
    return [claim.verdict for claim in _with_or(_times(slower), _times(faster))]


def test_claims_follow_their_intervals() -> None:
    assert _claims([20.0, 21.0, 19.0], [10.0, 10.0, 10.0])[0] == "agrees"
    assert _claims([20.0, 9.0, 11.0], [10.0, 10.0, 10.0])[0] == "partly"
    assert _claims([10.0, 10.5, 9.5], [20.0, 20.0, 20.0])[0] == "disagrees"


@pytest.mark.parametrize(
    ("oort", "verdict"),
    [([11.0, 11.2, 10.8], "agrees"), ([20.0, 20.5, 19.5], "disagrees"), ([8.0, 14.0, 11.0], "partly")],
)
def test_close_to_oort_is_neither_slower_nor_faster(oort: list[float], verdict: str) -> None:
    assert _claims(oort, [10.0, 10.0, 10.0])[-1] == verdict


def test_speed_up_is_the_geometric_mean_of_pairs() -> None:
    measured = fig9.speed_up(_times([8.0, 2.0]), _times([1.0, 1.0]))
    assert measured.ratio == pytest.approx(4)
    assert measured.low < 4 < measured.high
    assert not measured.is_bound


def test_real_data_have_the_papers_targets(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    split_leaf(tmp_path / "femnist")
    real = replace(context, data=tmp_path / "femnist", out=tmp_path)
    setting = ClientSetting(7, 3, model="logistic", test_samples=10)
    monkeypatch.setitem(SETTINGS["FEMNIST"], "small", setting)
    monkeypatch.setitem(fig8.SCALES["FEMNIST"], "small", fig8.HeterogeneityScale((1, 2), seeds=1))
    monkeypatch.setitem(fig9.SCALES["FEMNIST"], "small", fig9.TimeToAccuracyScale(2, seeds=1, target=0.001))
    for every in (fig8.REPRODUCTIONS, fig9.REPRODUCTIONS):
        measurements, result = carry_out(every[0], real)
        assert measurements is not None
        assert measurements.setting.data_kind == "paper"
        assert "LEAF" in measurements.setting.data
        assert not any("generated" in remark for remark in result.remarks)
    assert measurements.setting.choices["target"] == 0.698  # not the generated task's
    assert {claim.not_run for claim in result.claims} == {"censored"}  # random labels
