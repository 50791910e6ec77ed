"""`targets` and `stop_at` of an experiment: accepted forms, their plain form, and refusals."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from testbed.experiment import Experiment, load
from testbed.experiment.inputs import secrets_context
from testbed.experiment.schema import points
from testbed.records.targets import Target

Load = Callable[..., Experiment]


def test_targets_are_kept_as_the_tables_name_them(load_text: Load) -> None:
    experiment = load_text("targets: [80%, 0.9, loss<0.5, accuracy > 85%]")
    assert experiment.targets == ("accuracy>=0.8", "accuracy>=0.9", "loss<=0.5", "accuracy>=0.85")
    plain = experiment.plain()
    assert load_text(yaml.safe_dump(plain)).plain() == plain
    assert not {"targets", "stop_at"} & set(load_text("rounds: 3").plain())


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("{accuracy: 0.8}", Target("accuracy", 0.8)),
        ("{accuracy: 80%}", Target("accuracy", 0.8)),
        ("{accuracy: 1}", Target("accuracy", 1.0)),
        ("{loss: 0.5}", Target("loss", 0.5)),
    ],
)
def test_a_target_that_ends_the_run(load_text: Load, text: str, target: Target) -> None:
    experiment = load_text(f"stop_at: {text}")
    assert experiment.stop_at is not None
    assert experiment.stop_at.target == target
    assert load_text(yaml.safe_dump(experiment.plain())).stop_at == experiment.stop_at
    assert list(experiment.plain()["stop_at"]) == [target.metric]


def test_metrics_are_named_by_a_key_or_alone(load_text: Load) -> None:
    assert load_text("targets: {accuracy: 0.8, loss: 0.5}").targets == ("accuracy>=0.8", "loss<=0.5")
    assert load_text("targets: 80%").targets == ("accuracy>=0.8",)
    further = "workload: {metrics: [macro-f1]}"
    assert load_text(f"targets: [{{macro-f1: 0.6}}]\n{further}").targets == ("macro-f1>=0.6",)
    for text in ("{macro-f1: 0.6}", "macro-f1>0.6", "{metric: macro-f1>=0.6}"):
        stop = load_text(f"stop_at: {text}\n{further}").stop_at
        assert stop is not None
        assert stop.target == Target("macro-f1", 0.6)
    stop = load_text("stop_at: 80%").stop_at
    assert stop is not None
    assert stop.target == Target("accuracy", 0.8)


@pytest.mark.parametrize("text", ["targets: [macro-f1>0.6]", "stop_at: {macro-f1: 0.6}"])
def test_a_metric_that_is_not_measured_is_named_with_those_that_are(
    mistakes: Callable[..., list[str]], text: str
) -> None:
    (line,) = mistakes(f"{text}\nworkload: {{metrics: [r2]}}")
    assert "macro-f1" in line
    assert "accuracy, loss, r2" in line


def test_a_perplexity_ends_the_run_where_words_are_learned(load_text: Load) -> None:
    words = "{dataset: synthetic-reddit}"
    experiment = load_text(f"targets: [perplexity<90]\nstop_at: {{perplexity: 60}}\nworkload: {words}")
    assert experiment.stop_at is not None
    assert experiment.stop_at.target == Target("perplexity", 60.0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("targets: [80]", "targets.0: target accuracy 80: an accuracy is a share, at most 1; did you mean 80%?"),
        ("targets: [80%, f1>0.8]", "targets.1: target 'f1>0.8': unknown metric 'f1'; there are accuracy, loss"),
        ("targets: [best]", "targets.0: target 'best': 'best' is not a number"),
        ("targets: [80%, 0.8]", "targets: accuracy>=0.8 is listed twice"),
        (
            "targets: [perplexity<90]",
            "targets: perplexity ≤ 90: a perplexity is measured only for language models, not on",
        ),
        ("targets: [true]", "targets.0: target True: not a target"),
        (
            "stop_at: {accuracy: 80}",
            "stop_at: target accuracy 80: an accuracy is a share, at most 1; did you mean 80%?",
        ),
        ("stop_at: {accuracy: high}", "stop_at.accuracy: target 'high': 'high' is not a number"),
        ("stop_at: {accuracy: loss<0.5}", "stop_at.accuracy: should be an accuracy, e.g. 80%, not 'loss<0.5'"),
        ("stop_at: {}", "stop_at: needs exactly one of accuracy, loss, perplexity or a metric, e.g. {accuracy: 0.8}"),
        ("stop_at: {accuracy: 0.8, loss: 1}", "stop_at: needs exactly one of accuracy, loss, perplexity"),
        ("stop_at: {accurcy: 0.8}", "stop_at.accurcy: unknown key; did you mean 'accuracy'?"),
        ("stop_at: {loss: -1}", "stop_at: target loss -1: a target loss should be above 0"),
        ("stop_at: {perplexity: 60}", "stop_at: perplexity ≤ 60: a perplexity is measured only for language models"),
        (
            "{targets: [80%], workload: {training: simulated}}",
            "targets: workload.training: simulated evaluates no model; set training: real, or leave targets out",
        ),
        (
            "{stop_at: {loss: 1}, workload: {training: simulated}}",
            "stop_at: workload.training: simulated evaluates no model; set training: real, or leave stop_at out",
        ),
    ],
)
def test_what_is_wrong_is_one_line(mistakes: Callable[..., list[str]], text: str, line: str) -> None:
    (found,) = mistakes(text)
    assert found.startswith(line)


def test_targets_are_swept_like_any_key(tmp_path: Any) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("targets: [70%]\nsweep: {stop_at.accuracy: [0.8, 90%]}")
    stops = [point.experiment.stop_at for point in points(load(file), str(file))]
    assert [stop.target.threshold for stop in stops if stop is not None] == [0.8, 0.9]


def test_with_targets_a_run_computes_the_same(load_text: Load) -> None:
    plain = secrets_context(load_text("rounds: 5"))
    assert secrets_context(load_text("{rounds: 5, targets: [80%], stop_at: {accuracy: 0.9}}")) == plain
    assert secrets_context(load_text("{rounds: 5, workload: {learning_rate: 0.2}}")) != plain
