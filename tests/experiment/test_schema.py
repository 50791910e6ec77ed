"""The schema as a whole: defaults, JSON schema, round trips, and no float that can be NaN or infinite."""

import json
import math
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from testbed.errors import ExperimentError
from testbed.experiment import Experiment, load
from testbed.experiment.schema import validated
from testbed.experiment.sections import UserDefinedAggregation, UserDefinedSelection
from tests.repository import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for argument in get_args(annotation):
        yield from models_in(argument)


def wrapped(inner: Callable[[float], Any], into: Callable[[Any], Any], bad: float) -> Any:
    return into(inner(bad))


def float_shapes(annotation: Any) -> Iterator[Callable[[float], Any]]:
    """How a bad float can be put into a field of this type: alone, in a list, as a value of a mapping."""
    if annotation is float:
        yield lambda bad: bad
    elif get_origin(annotation) in (list, dict):
        for inner in float_shapes(get_args(annotation)[-1]):
            if get_origin(annotation) is list:
                yield partial(wrapped, inner, lambda value: [value])
            else:
                yield partial(wrapped, inner, lambda value: {"hmac": value})
    elif get_origin(annotation) in (Union, types.UnionType):
        for argument in get_args(annotation):
            yield from float_shapes(argument)
    elif get_origin(annotation) is Annotated:
        yield from float_shapes(get_args(annotation)[0])


FLOATS = [
    pytest.param(model, name, shape, id=f"{model.__name__}.{name}-{position}")
    for model in dict.fromkeys(models_in(Experiment))
    for name, field in model.model_fields.items()
    for position, shape in enumerate(float_shapes(field.annotation))
]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("model", "name", "shape"), FLOATS)
def test_no_number_may_be_nan_or_infinite(model: type[BaseModel], name: str, shape: Callable, bad: float) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate({name: shape(bad)})
    assert any(problem["loc"][0] == name for problem in refused.value.errors())


def test_the_floats_are_really_found() -> None:
    found = {parameter.id for parameter in FLOATS}
    assert {
        "Links.latency_ms-0", "Links.latency_ms-1", "Time.costs-0", "Time.deadline_s-0", "Dropout.rate-1",
        "ClientCentricParameters.over_selection-0", "BernoulliParameters.assumed_unavailable-0",
    } <= found  # fmt: skip


def test_every_setting_is_described() -> None:
    for model in dict.fromkeys(models_in(Experiment)):
        for name, field in model.model_fields.items():
            if name != "protocol" or model in (UserDefinedSelection, UserDefinedAggregation):
                assert field.description, f"{model.__name__}.{name}"


def test_the_json_schema_is_plain_json_with_every_section() -> None:
    schema = json.loads(json.dumps(Experiment.model_json_schema()))
    assert set(schema["properties"]) == set(Experiment.model_fields)
    assert "lotto-client-centric" in json.dumps(schema)
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path) -> None:
    assert load(path).name


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"seed": 0, "rounds": 1, "population": 20},
        {"selection": {"protocol": "lotto-server-centric", "signatures": 3, "min_population": 50}},
        {"selection": {"protocol": "lotto-client-centric", "refine": {"by": ["loss"], "exclude": 0.1}}},
        {"selection": {"protocol": "oort", "blacklist_rounds": 10, "unexplored": "check-in"}},
        {
            "selection": {"protocol": "theirs:Own", "anything": {"x": None}},
            "aggregation": {"protocol": "a.b:C", "k": 1},
        },
        {"availability": {"model": "bernoulli", "unavailable": [0.1, 0.3], "dropout": {"rate": 0.5, "stage": "train"}}},
        {"links": {"latency_ms": [0, 10], "down_mbit_s": 1e-3}, "output": {"directory": "some/where"}},
        {"time": {"costs": {"hmac": 1e-9}, "compute": "modelled"}, "cluster": {"hosts": 3, "address": "auto"}},
        {"sweep": {"rounds": [1, 2], "selection": [{"protocol": "random"}]}, "provenance": {"label": "x"}},
        {"classes": {"b": {"share": 0.5, "up_mbit_s": [1, 2]}, "a": {"device": {"model": "zipf"}, "latency_ms": 0}}},
    ],
)
def test_an_experiment_survives_being_written_out(data: dict) -> None:
    experiment = validated(data, "here")
    plain = experiment.plain()
    assert set(plain) == set(Experiment.model_fields) - (
        {"adversary", "asynchronous", "privacy", "records", "classes", "stop_at", "targets"} - set(data)
    )  # unset: no key
    assert validated(plain, "again") == experiment
    assert validated(yaml.safe_load(yaml.safe_dump(plain)), "again") == experiment


def test_an_experiment_cannot_be_changed() -> None:
    experiment = Experiment()
    for section in (experiment, experiment.links, experiment.selection, experiment.availability.dropout):
        with pytest.raises(ValidationError, match="frozen"):
            section.__class__.__setattr__(section, next(iter(type(section).model_fields)), 1)


def test_a_class_of_ones_own_keeps_its_further_keys() -> None:
    experiment = validated({"selection": {"protocol": "theirs:Own", "participants": 3, "size": [1, 2]}}, "here")
    assert isinstance(experiment.selection, UserDefinedSelection)
    assert experiment.selection.model_extra == {"size": [1, 2]}


def test_loading_by_the_class_takes_overrides(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("rounds: 3")
    assert Experiment.load(file, ["rounds=4"]).rounds == 4
    assert Experiment.load(str(file)).rounds == 3


def test_a_key_of_another_protocol_is_named_as_such() -> None:
    with pytest.raises(ExperimentError) as error:
        validated({"aggregation": {"protocol": "pine", "threshold": 0.5}}, "here")
    line = str(error.value)
    assert line.startswith("here: aggregation.threshold: unknown key; it is a key of secagg, ")
    assert ", and not of pine; allowed: " in line
    with pytest.raises(ExperimentError) as error:
        validated({"availability": {"model": "always", "mean_online_s": 5}}, "here")
    assert "unknown key; it is a key of markov, diurnal-weibull, and not of always; allowed: " in str(error.value)
