"""The metrics that a Flower app's clients report: which one is the loss, which the accuracy, and apps without them."""

import math
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from testbed import run
from testbed.errors import ExperimentError
from testbed.workload.contract import EvaluationWithoutLoss
from tests.messages_named import naming
from tests.workloads.flower.conftest import EVALUATE, AppWriter, evaluating, experiment, newer, rounds_of, workload
from workloads.flower.reports import ClientEvaluation, mean_evaluation

LOGLOSS = "{'num-examples': 4, 'test_logloss': 0.5 * number, 'accuracy': 0.125 * number}"
TWO_LOSSES = "{'num-examples': 4, 'kl_loss': 3.0, 'recon_loss': 0.25, 'accuracy': 0.5}"


def test_the_only_metric_whose_name_contains_loss(app: AppWriter, flower_python: str) -> None:
    """As Flower's quickstart-sklearn reports; the loss of the training is found in the same way."""
    text = newer(evaluate=evaluating(LOGLOSS), metrics="{'num-examples': 4, 'train_logloss': 2.5, 'score': 0.5}")
    found = workload(app(text) | {"python": flower_python})
    evaluation = found.evaluate(found.initial_model())
    assert evaluation is not None
    assert (evaluation.loss, evaluation.accuracy, evaluation.samples) == (1.25, 0.3125, 24)
    assert found.train(0, found.initial_model(), 1).loss == 2.5
    assert found.notes == []


def test_several_metrics_that_could_be_the_loss(app: AppWriter, flower_python: str) -> None:
    flower = app(newer(evaluate=evaluating(TWO_LOSSES))) | {"python": flower_python}
    wanted = naming("kl_loss, recon_loss", "workload.flower.loss")
    with pytest.raises(ExperimentError, match=wanted):
        workload(flower)
    found = workload(flower | {"loss": "recon_loss"})
    evaluation = found.evaluate(found.initial_model())
    assert evaluation is not None
    assert (evaluation.loss, evaluation.accuracy) == (0.25, 0.5)
    with pytest.raises(ExperimentError, match=naming("flower.loss", "no mse", "accuracy, kl_loss")):
        workload(flower | {"loss": "mse"})


def test_several_losses_of_the_training(app: AppWriter, flower_python: str) -> None:
    flower = app(newer(metrics="{'num-examples': 4, 'a_loss': 1.0, 'b_loss': 2.0}")) | {"python": flower_python}
    with pytest.raises(ExperimentError, match=r"report a_loss, b_loss; name .* workload.flower.train_loss$"):
        workload(flower)
    found = workload(flower | {"train_loss": "b_loss"})
    assert found.train(0, found.initial_model(), 1).loss == 2.0


def test_the_name_of_the_accuracy(app: AppWriter, flower_python: str) -> None:
    """Without the name nothing is guessed: a run records no accuracy, and says so."""
    flower = app(newer(evaluate=EVALUATE)) | {"python": flower_python}
    unnamed = workload(flower)
    assert unnamed.notes == [
        "workload.flower: the app's clients report no accuracy in their evaluation (eval_loss, num-examples, "
        "share-right), so none is recorded; name a metric with workload.flower.accuracy"
    ]
    evaluation = unnamed.evaluate(unnamed.initial_model())
    assert evaluation is not None
    assert evaluation.loss == 1.5
    assert math.isnan(evaluation.accuracy)
    found = workload(flower | {"accuracy": "share-right"})
    evaluation = found.evaluate(found.initial_model())
    assert evaluation is not None
    assert (evaluation.loss, evaluation.accuracy, evaluation.samples) == (1.5, 0.25, 24)


RECORDED = {
    "neither": ("{'num-examples': 1, 'random_metric': [0.5, 0.25]}", None, None),
    "accuracy alone": ("{'num-examples': 1, 'accuracy': 0.75}", 0.75, None),
    "loss alone": ("{'num-examples': 1, 'eval_loss': 0.5}", None, 0.5),
    "a loss that is not finite": ("{'num-examples': 1, 'eval_loss': float('nan')}", None, math.nan),
}


@pytest.mark.parametrize("case", RECORDED)
def test_what_an_app_does_not_report_is_null_in_the_records(case: str, app: AppWriter, flower_python: str) -> None:
    """As Flower's quickstart-numpy, which reports neither; a loss that is not finite is recorded as such."""
    metrics, accuracy, loss = RECORDED[case]
    out = run(experiment(app(newer(evaluate=evaluating(metrics))) | {"python": flower_python}, rounds=1), out="out")
    [(outcome, *recorded)] = rounds_of(out, "outcome", "accuracy", "loss")
    assert outcome == "completed"
    assert repr(recorded) == repr([accuracy, loss])


def test_an_evaluation_that_is_switched_off(app: AppWriter, flower_python: str) -> None:
    text = newer(evaluate=evaluating("undefined"))
    with pytest.raises(ExperimentError, match="NameError"):
        workload(app(text) | {"python": flower_python})
    flower = app(text) | {"python": flower_python, "evaluate_clients": 0}
    found = workload(flower)
    assert found.evaluate(found.initial_model()) is None
    with pytest.raises(ValidationError, match=naming("stop_at", "workload.flower.evaluate_clients: 0")):
        experiment(flower, stop_at={"accuracy": 0.5})


def test_selection_by_losses_that_nobody_reports(app: AppWriter, flower_python: str) -> None:
    """Oort would take them for zeros."""
    flower = app(newer()) | {"python": flower_python}
    oort = {"protocol": "oort", "participants": 3}
    with pytest.raises(ExperimentError, match=naming("selection.protocol", "oort")):
        run(experiment(flower, selection=oort), out="out")


MEANS: dict[str, tuple[list[ClientEvaluation], Any]] = {
    "nobody evaluates": ([ClientEvaluation(), ClientEvaluation()], None),
    "no samples": ([ClientEvaluation(0, 1.0, 0.5, {}, ("loss",))], None),
    "weights": (
        [ClientEvaluation(1, 1.0, 0.5, {}, ()), ClientEvaluation(3, 2.0, 0.25, {}, ())],
        (1.75, 0.3125, 4),
    ),
    "a client without samples does not count": (
        [ClientEvaluation(2, 1.0, 0.5, {}, ()), ClientEvaluation(0, None, None, {}, ())],
        (1.0, 0.5, 2),
    ),
}


@pytest.mark.parametrize("case", MEANS)
def test_the_mean_over_clients(case: str) -> None:
    evaluations, expected = MEANS[case]
    mean = mean_evaluation(dict(enumerate(evaluations)))
    assert (None if mean is None else (mean.loss, mean.accuracy, mean.samples)) == expected


def test_a_mean_without_a_loss_is_of_its_own_kind() -> None:
    mean = mean_evaluation({3: ClientEvaluation(2, None, 0.5, {}, ())})
    assert isinstance(mean, EvaluationWithoutLoss)
    assert math.isnan(mean.loss)
    assert mean.accuracy == 0.5


def test_clients_that_report_different_things() -> None:
    mixed = {2: ClientEvaluation(2, 1.0, 0.5, {}, ()), 5: ClientEvaluation(1, None, 0.5, {}, ())}
    with pytest.raises(ExperimentError, match=naming("client 5", "client 2", "workload.flower.loss")):
        mean_evaluation(mixed)


def test_new_keys_are_absent_from_files_that_do_not_use_them() -> None:
    """So the experiments of earlier versions keep their digests."""
    section = experiment({"client": "a:b"}).model_dump(mode="json")["workload"]["flower"]
    assert not {"loss", "train_loss"} & set(section)
    assert yaml.safe_dump(section)
