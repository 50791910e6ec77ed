"""A protocol is one line in the catalogue of its kind; the schema, its errors and the engine follow."""

import subprocess
import sys
from typing import get_args

import pytest

from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters, AggregationProtocol
from testbed.experiment.sections import AggregationSection, SelectionSection
from testbed.selection import catalogue as selections
from tests.repository import ROOT

NEW = '''
from typing import Literal

from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.plain import Plain, PlainParameters
from testbed.selection import catalogue as selections
from testbed.selection.random_selection import RandomParameters, RandomSelection


class NewestParameters(RandomParameters):
    """The newest clients."""

    protocol: Literal["newest"] = "newest"
    age: int = 3


class Newest(RandomSelection):
    pass


class MedianParameters(PlainParameters):
    """The median."""

    protocol: Literal["median"] = "median"


class Median(Plain):
    pass


selections.PROTOCOLS[NewestParameters] = Newest
aggregations.PROTOCOLS[MedianParameters] = Median

from testbed.engine.registry import aggregation_protocol, selection_protocol
from testbed.errors import ExperimentError
from testbed.experiment.reading import apply_override
from testbed.experiment.schema import validated
from testbed.experiment.schema import Experiment

data = {"population": 4, "selection": {"protocol": "newest", "age": 1, "participants": 2}}
experiment = validated({**data, "aggregation": {"protocol": "median"}}, "new")
assert type(selection_protocol(experiment.selection, 4)) is Newest
assert type(aggregation_protocol(experiment.aggregation)) is Median
for section, key in (("selection", "aeg"), ("aggregation", "wieghts")):
    try:
        validated({section: {"protocol": "newest" if section == "selection" else "median", key: 1}}, "new")
    except ExperimentError as error:
        print(error)
try:
    validated({"selection": {"protocol": "newset"}}, "new")
except ExperimentError as error:
    print(error)
apply_override(data, "selection.protocol=random")
assert data["selection"] == {"protocol": "random", "participants": 2}
schema = Experiment.model_json_schema()
assert {"NewestParameters", "MedianParameters"} <= set(schema["$defs"])
'''


def test_a_protocol_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NEW], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("new: selection.aeg: unknown key; did you mean 'age'? allowed: age, ")
    assert lines[1].startswith("new: aggregation.wieghts: unknown key; did you mean 'weights'? allowed: ")
    assert lines[2].startswith("new: selection.protocol: unknown protocol 'newset'; did you mean 'newest'? allowed: ")


@pytest.mark.parametrize(
    ("section", "built_in"), [(SelectionSection, selections.PROTOCOLS), (AggregationSection, aggregations.PROTOCOLS)]
)
def test_names_are_given_once(section: object, built_in: dict[type, type]) -> None:
    names = [get_args(one)[1].tag for one in get_args(get_args(section)[0])]
    assert len(set(names)) == len(names) == len(built_in) + 1


@pytest.mark.parametrize("parameters", aggregations.PROTOCOLS)
def test_updates_wait_at_the_server_where_it_fetches_them_one_by_one(parameters: type[AggregationParameters]) -> None:
    fetches = aggregations.PROTOCOLS[parameters].upload_question is not AggregationProtocol.upload_question
    assert fetches == (parameters.asynchronous_buffer == "server")
