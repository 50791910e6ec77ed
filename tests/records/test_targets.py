"""Targets: their names, the values that reach them, and invalid targets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ExperimentError
from testbed.records.targets import Target
from tests.messages_named import naming
from tests.thoroughness import examples


@pytest.mark.parametrize(
    ("text", "metric", "threshold", "label", "column"),
    [
        ("80%", "accuracy", 0.8, "accuracy ≥ 80 %", "accuracy>=0.8"),
        (" 81.2 % ", "accuracy", 0.812, "accuracy ≥ 81.2 %", "accuracy>=0.812"),
        (0.8, "accuracy", 0.8, "accuracy ≥ 80 %", "accuracy>=0.8"),
        (1, "accuracy", 1.0, "accuracy ≥ 100 %", "accuracy>=1.0"),
        ("accuracy > 80%", "accuracy", 0.8, "accuracy ≥ 80 %", "accuracy>=0.8"),
        ("accuracy≥.5", "accuracy", 0.5, "accuracy ≥ 50 %", "accuracy>=0.5"),
        ("loss<0.5", "loss", 0.5, "loss ≤ 0.5", "loss<=0.5"),
        ("perplexity ≤ 90", "perplexity", 90.0, "perplexity ≤ 90", "perplexity<=90.0"),
        ({"accuracy": "80%"}, "accuracy", 0.8, "accuracy ≥ 80 %", "accuracy>=0.8"),
        ({"loss": 0.5}, "loss", 0.5, "loss ≤ 0.5", "loss<=0.5"),
        ({"macro-f1": 0.6}, "macro-f1", 0.6, "macro-f1 ≥ 0.6", "macro-f1>=0.6"),
        ("mae<2", "mae", 2.0, "mae ≤ 2", "mae<=2.0"),
        ("mine.metrics:auc > 0.7", "mine.metrics:auc", 0.7, "mine.metrics:auc ≥ 0.7", "mine.metrics:auc>=0.7"),
        ({"mine:cost": "<=3"}, "mine:cost", 3.0, "mine:cost ≤ 3", "mine:cost<=3.0"),
    ],
)
def test_what_a_target_is(text: object, metric: str, threshold: float, label: str, column: str) -> None:
    target = Target.parse(text)
    assert (target.metric, target.threshold, target.label, target.column) == (metric, threshold, label, column)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("80", "did you mean 80%?"),
        (80, "did you mean 80%?"),
        ("accuracy>=80", "did you mean 80%?"),
        ("120%", "at most 1"),
        ("0%", "above 0"),
        ("-1", "above 0"),
        ("nan", "above 0"),
        ("accurcy>0.8", "unknown metric 'accurcy'; did you mean 'accuracy'? there are accuracy, loss, perplexity"),
        ("acc>0.8", "unknown metric 'acc'; did you mean 'accuracy'?"),
        ("f1>0.8", "unknown metric 'f1'; there are accuracy, loss, perplexity"),
        ("macro-f1<0.8", "macro-f1 rises to it: write macro-f1>=0.8"),
        ("mae>2", "mae falls to it: write mae<=2"),
        ({"mine:auc": 0.7}, "write mine:auc>=0.7 or mine:auc<=0.7"),
        ({"accuracy": 0.8, "loss": 1}, "not a target"),
        ("r2>=nan", "a finite number"),
        ("accuracy<0.8", "accuracy rises to it: write accuracy>=0.8"),
        ("accuracy=80%", "accuracy rises to it: write accuracy>=80%"),
        ("loss>0.5", "loss falls to it: write loss<=0.5"),
        ("loss<50%", "only an accuracy can be in per cent"),
        ("loss<0", "above 0"),
        ("loss<inf", "above 0"),
        ("perplexity<0.5", "at least 1"),
        ("accuracy", "'accuracy' is not a number; write e.g. 80%"),
        ("loss<low", "'low' is not a number"),
        ("", "not a target; write e.g. 80%"),
        ("accuracy>=0.8 loss<1", "not a target"),
        (None, "not a target"),
        (True, "not a target"),
        (["80%"], "not a target"),
    ],
)
def test_invalid_targets_are_refused_in_one_line(text: object, part: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        Target.parse(text)
    assert str(refused.value).startswith("target ")
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_values_that_reach_a_target() -> None:
    values = [[0.79, 0.8], [np.nan, 0.9]]
    assert Target.parse("80%").met(values).tolist() == [[False, True], [False, True]]
    assert Target.parse("loss<0.8").met(values).tolist() == [[True, True], [False, False]]


@given(st.floats(1e-9, 1) | st.integers(1, 1000).map(lambda tenths: tenths / 1000))
@settings(max_examples=examples(100))
def test_its_column_is_itself(threshold: float) -> None:
    for target in (Target("accuracy", threshold), Target("loss", threshold), Target("perplexity", 1 + threshold)):
        assert Target.parse(target.column) == target


@given(st.text(max_size=12) | st.from_regex(r"(accuracy|loss|perplexity)[<>=]{0,2}[0-9.e%-]{0,6}", fullmatch=True))
@settings(max_examples=examples(200))
def test_any_text_is_a_target_or_one_line(text: str) -> None:
    said = ""
    try:
        target = Target.parse(text)
    except ExperimentError as refused:
        said = str(refused)
    assert (target == Target.parse(target.column)) if not said else len(said.splitlines()) == 1


def test_perplexity_of_an_image_data_set_is_refused() -> None:
    with pytest.raises(ExperimentError, match=naming("perplexity", "digits")):
        Target.parse("perplexity<90").check_workload("digits")
    Target.parse("perplexity<90").check_workload("synthetic-reddit")
