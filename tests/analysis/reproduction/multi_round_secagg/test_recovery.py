"""Figure 10, and Figure 8 of the first version, at a size of seconds."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.multi_round_secagg import fig10, v1_fig8
from testbed.experiment.schema import points


def test_figure_10_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    small = fig10.SCALES["small"]
    monkeypatch.setitem(
        fig10.SCALES,
        "small",
        replace(
            small,
            workload={**small.workload, "model": "logistic"},
            rates={"decaying": ({"learning_rate": 0.001}, 2), "still": ({"learning_rate": 0.0001}, 2)},
        ),
    )
    result = fig10.run_fig10(replace(context, seeds=1))
    assert result.table["rounds"].tolist() == ["40", "50", "60"] * 4
    random = result.table[result.table["selection"] == "random"].set_index(["rate", "rounds"])
    batches = result.table[result.table["selection"] != "random"].set_index(["rate", "rounds"])
    assert set(batches["determined"]) == {"0 of 40"}
    assert random.loc[("still", "60"), "determined"] == "40 of 40"
    assert random.loc[("still", "60"), "mean error"] < random.loc[("decaying", "60"), "mean error"]
    assert (random["mean error"] < batches["mean error"]).loc[[("still", "60"), ("decaying", "60")]].all()
    assert {claim.seeds for claim in result.claims} == {1}
    verdicts = [claim.verdict for claim in result.claims]
    assert verdicts[1:3] == ["undetermined", "not run"]
    assert all(path.is_file() for path in result.figures)


def test_the_papers_scale_shares_samples_and_decays_twice() -> None:
    swept = fig10.experiment(fig10.SCALES["paper"], "decaying", 1)
    (random, _) = [point.experiment for point in points(swept, "fig10")]
    assert random.workload.partition.shared_samples == 200
    assert random.workload.learning_rate_in(1460) == pytest.approx(0.03 * 0.4**2)
    assert random.rounds == 1519


def test_figure_8_of_the_first_version_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v1_fig8, "BEFORE", 3)
    workload = {"dataset": "digits", "model": "logistic", "batch_size": 40, "learning_rate": 0.01}
    monkeypatch.setitem(v1_fig8.SCALES, "small", v1_fig8.ModelScale(workload, 2))
    result = v1_fig8.run_v1_fig8(replace(context, seeds=1))
    sixty = result.table.set_index("rounds").loc["60"]
    assert sixty["determined"] == "40 of 40"
    assert sixty["mean error"] > sixty["error of the global model"] > 0  # the model moves more than clients differ
    assert result.claims[0].verdict == "not run"
    assert np.isfinite(result.table["lowest seed"]).all()


def test_the_global_model_can_be_the_better_guess() -> None:
    import pandas as pd

    rows = [
        {"seed": seed, "rounds": rounds, "determined": 40, "error": 0.01 * seed, "of the global model": 0.001,
         "condition": 100.0}
        for seed in (1, 2, 3) for rounds in v1_fig8.WINDOWS
    ]  # fmt: skip
    found = v1_fig8.claims(pd.DataFrame(rows), is_papers=True)
    assert [claim.verdict for claim in found][1:] == ["agrees", "disagrees"]
