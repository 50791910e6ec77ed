"""Random against weighted random when dropouts depend on the label: through tiny runs, and of made-up accuracies."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.multi_round_secagg import label_dropouts
from analysis.reproduction.multi_round_secagg.label_dropouts import (
    PLAIN,
    RELU,
    Factors,
    LabelDropoutResult,
    claims,
    stored_difference,
    table,
)
from analysis.reproduction.multi_round_secagg.published import RANDOM, SCHEMES, WEIGHTED
from analysis.reproduction.multi_round_secagg.rectified import Rectified
from analysis.reproduction.multi_round_secagg.tasks import DIGITS
from analysis.reproduction.multi_round_secagg.training import experiment
from analysis.reproduction.training_runs import late_recalls
from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection


def test_the_reproduction_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(
        DIGITS, workload={"dataset": "digits", "model": "logistic", "batch_size": 20}, rounds=4, population=60
    )
    monkeypatch.setattr(label_dropouts, "BUILT_IN", Factors(task, (0.1, 0.03), 5))
    (reproduction,) = label_dropouts.REPRODUCTIONS
    measurements, result = carry_out(reproduction, replace(context, seeds=2))
    assert measurements is not None
    assert len(measurements.tables["recalls"]) == 2 * 2 * 2 * 2 * 10
    assert result.table["rate"].tolist() == ["0.1", "0.03"] * 2
    assert result.table["last layer"].tolist() == [PLAIN] * 2 + [RELU] * 2
    assert result.table.notna().all(axis=None)
    assert len(result.claims) == 3
    assert {claim.seeds for claim in result.claims} == {2}


def test_the_papers_scale_needs_the_papers_data(context: ReproductionContext) -> None:
    with pytest.raises(ExperimentError, match="--data DIR"):
        label_dropouts.factors_of(replace(context, scale="paper"))


def _outcomes(random: float, weighted: float, labels: float) -> dict[tuple[float, str], dict[str, LabelDropoutResult]]:
    noise = np.linspace(-0.2, 0.2, 5)
    recalls = np.full((5, 10), 90.0) + noise[:, None]
    fewer = recalls.copy()
    fewer[:, 8:] -= labels
    return {
        (0.1, PLAIN): {
            RANDOM: LabelDropoutResult(random + noise, random + noise, fewer),
            WEIGHTED: LabelDropoutResult(weighted - noise, weighted + noise / 2, recalls),
        }
    }


@pytest.mark.parametrize(
    ("random", "weighted", "labels", "verdicts"),
    [
        (85.79, 94.04, 15.0, ["agrees", "agrees", "agrees"]),
        (93.0, 94.0, 15.0, ["agrees", "disagrees", "agrees"]),
        (94.0, 93.0, -5.0, ["disagrees", "disagrees", "disagrees"]),
    ],
)
def test_verdicts_follow_from_the_differences(
    random: float, weighted: float, labels: float, verdicts: list[str]
) -> None:
    outcomes = _outcomes(random, weighted, labels)
    assert [claim.verdict for claim in claims(table(outcomes), 5)] == verdicts
    row = table(outcomes).iloc[0]
    assert row["late"] == pytest.approx(weighted - random)
    assert row["worst label"] == pytest.approx(max(labels, 0.0), abs=0.5)


def test_failed_training_is_not_judged() -> None:
    outcomes = _outcomes(93.0, 94.0, 15.0)
    failed = _outcomes(50.0, 58.25, 15.0)[0.1, PLAIN]
    both = claims(table(outcomes | {(0.1, RELU): failed}), 5)
    assert [claim.verdict for claim in both] == ["agrees", "disagrees", "agrees"]
    assert "training fails" in both[1].measured
    assert [claim.verdict for claim in claims(table({(0.1, RELU): failed}), 5)] == ["not run"] * 3


def test_the_stored_seeds_differ_by_less_than_a_point() -> None:
    stored = stored_difference()
    assert (stored.mean, stored.half_width) == (pytest.approx(0.898), pytest.approx(5.99, abs=0.01))


def test_a_lost_label_is_counted() -> None:
    recalls = np.array([[90.0, 10.0, 0.0], [90.0, 50.0, 11.0]])
    assert LabelDropoutResult(np.zeros(2), np.zeros(2), recalls).lost.tolist() == [2, 0]
    assert LabelDropoutResult(np.zeros(2), np.zeros(2), recalls).worst.tolist() == [0, 11]


def test_a_rectified_model_is_the_built_in_one_with_relu() -> None:
    section = WorkloadSection.model_validate(
        {
            "dataset": label_dropouts.RECTIFIED, "options": {"dataset": "digits"}, "model": "logistic",
            "learning_rate": 0.1, "batch_size": 10,
        }
    )  # fmt: skip
    made = Rectified(section, 20, 1, **section.options)
    assert made.dimension == 650
    assert made.label_counts().sum() == 1438
    biases = np.linspace(-9, -1, 10, dtype=np.float32)
    model = np.concatenate([np.zeros(640, np.float32), biases])
    assert made.evaluate(model).loss == pytest.approx(np.log(10), rel=1e-6)  # no logit is above 0: all are equal
    assert made.evaluate(-model).loss > 3


def test_a_language_model_cannot_be_rectified() -> None:
    section = WorkloadSection.model_validate({"dataset": label_dropouts.RECTIFIED, "model": "albert-small"})
    with pytest.raises(ExperimentError, match="not of images"):
        Rectified(section, 20, 1, "synthetic-reddit")


def test_recalls_are_recorded_and_averaged_over_the_end(context: ReproductionContext) -> None:
    task = replace(
        DIGITS, workload={"dataset": "digits", "model": "logistic"}, rounds=20, population=20, participants=5
    )
    (run,) = context.run_experiment(experiment(task, "IID", 1, [SCHEMES[RANDOM]], [0.1]), context.out / "runs")
    recalls = run.rounds["recalls"]
    assert late_recalls([run])[0] == pytest.approx(100 * np.mean([*recalls[18:]], axis=0))
    assert late_recalls([run]).shape == (1, 10)
