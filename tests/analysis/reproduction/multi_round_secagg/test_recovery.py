"""Figure 10, and Figure 8 of the first version, at a size of seconds."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from analysis.reproduction.contract import ReproductionContext, Setting
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.multi_round_secagg import fig10, fig10_claims, v1_fig8
from testbed.experiment.schema import points

(REPRODUCTION,) = fig10.REPRODUCTIONS


def test_figure_10_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    small = fig10.SCALES["small"]
    monkeypatch.setitem(
        fig10.SCALES,
        "small",
        replace(
            small,
            workload={**small.workload, "model": "logistic"},
            trainings={
                "decaying": fig10.WindowedTraining({"learning_rate": 0.001}, {"decaying": [2]}),
                "still": fig10.WindowedTraining({"learning_rate": 0.0001}, {"still": [2]}),
            },
        ),
    )
    measurements, result = carry_out(REPRODUCTION, replace(context, seeds=1))
    assert measurements is not None
    assert (measurements.setting.data_kind, list(measurements.setting.seeds)) == ("stand-in", [1])
    assert result.table["rounds"].tolist() == ["40", "40", "50", "50", "60", "60", "40", "50", "60"] * 2
    of_estimate = {name: rows.set_index(["window", "rounds"]) for name, rows in result.table.groupby("estimate")}
    random, batches = of_estimate["random"], of_estimate["Multi-RoundSecAgg, T = 2"]
    neighbours = of_estimate["random, mean of two neighbours"]
    assert set(batches["determined"]) == {"0 of 40"}
    assert random.loc[("still", "60"), "determined"] == "40 of 40"
    assert random.loc[("still", "60"), "mean error"] < random.loc[("decaying", "60"), "mean error"]
    for other in (batches, neighbours):
        assert (random["mean error"] < other["mean error"]).loc[[("still", "60"), ("decaying", "60")]].all()
    assert {claim.seeds for claim in result.claims} == {1}
    assert [(claim.verdict, claim.not_run) for claim in result.claims[1:3]] == [("not run", "data")] * 2
    assert measurements.figures
    assert all(path.is_file() for path in measurements.figures)


def _errors(random: list[float], batches: list[float], still: float = 0.01) -> pd.DataFrame:
    """One window of 50 rounds in which the models move, and one in which the error of random selection is `still`."""
    rows = [
        {"window": window, "start": 1, "estimate": estimate, "rounds": 50, "seed": seed, "rank": 40,
         "determined": 0 if estimate == "batch-partition" else 40, "condition": 9.0, "mean": error, "median": error}
        for window, scale in (("moving", 1.0), ("still", still))
        for estimate, values in (("random", random), ("neighbours", batches), ("batch-partition", batches))
        for seed, error in enumerate((scale * value if estimate == "random" else value for value in values), 1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


SETTING = Setting(
    "paper", seeds=(1, 2, 3), sizes={"population": 40}, choices={"compared": ["still", 50], "is_papers": True}
)


def test_errors_of_the_paper_agree_and_others_disagree() -> None:
    papers = [claim.verdict for claim in fig10_claims.claims(_errors([0.6, 0.7, 0.65], [0.7, 0.8, 0.75]), SETTING)]
    assert papers == ["agrees"] * 5
    still = fig10_claims.claims(_errors([6.0, 7.0, 6.5], [0.2, 0.21, 0.19], still=2.0), SETTING)
    assert [claim.verdict for claim in still] == ["agrees"] + ["disagrees"] * 4


def test_the_papers_scale_shares_samples_and_decays_twice() -> None:
    swept = fig10.experiment(fig10.SCALES["paper"], "decaying", 1)
    (random, _) = [point.experiment for point in points(swept, "fig10")]
    assert random.workload.partition.shared_samples == 200
    assert random.workload.learning_rate_in(1460) == pytest.approx(0.03 * 0.4**2)
    assert random.rounds == 1519


def test_scale_real_has_the_notebooks_rates_and_windows() -> None:
    (random, _) = [each.experiment for each in points(fig10.experiment(fig10.SCALES["real"], "still", 1), "fig10")]
    assert random.workload.learning_rate_in(599) == 0.01
    assert random.workload.learning_rate_in(600) == pytest.approx(0.01 / 599)
    assert (random.rounds, random.records.aggregates) == (819, (540, 819))


def test_figure_8_of_the_first_version_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1_fig8, "BEFORE", 3)
    workload = {"dataset": "digits", "model": "logistic", "batch_size": 40, "learning_rate": 0.01}
    monkeypatch.setitem(v1_fig8.SCALES, "small", v1_fig8.ModelScale(workload, 2))
    (reproduction,) = v1_fig8.REPRODUCTIONS
    measurements, result = carry_out(reproduction, replace(context, seeds=1))
    assert measurements is not None
    assert (measurements.setting.data_kind, list(measurements.setting.seeds)) == ("stand-in", [1])
    sixty = result.table.set_index("rounds").loc["60"]
    assert sixty["determined"] == "40 of 40"
    assert sixty["mean error"] > sixty["error of the global model"] > 0  # the model moves more than clients differ
    assert (result.claims[0].verdict, result.claims[0].not_run) == ("not run", "data")
    assert np.isfinite(result.table["lowest seed"]).all()


@pytest.mark.parametrize(
    ("error", "guess", "verdicts"),
    [
        (0.0017, 1e-6, ["agrees", "agrees", "disagrees"]),
        (0.0017, 0.1, ["agrees", "agrees", "agrees"]),
        (0.05, 0.1, ["disagrees", "agrees", "agrees"]),
    ],
)
def test_the_global_model_can_be_the_better_guess(error: float, guess: float, verdicts: list[str]) -> None:
    rows = [
        {"seed": seed, "rounds": rounds, "determined": 40, "error": error * (1 + seed / 100),
         "of the global model": guess, "of two neighbours' mean": error, "condition": 100.0}
        for seed in (1, 2, 3) for rounds in v1_fig8.WINDOWS
    ]  # fmt: skip
    assert [claim.verdict for claim in v1_fig8.claims(pd.DataFrame(rows), is_papers=True)] == verdicts
