"""Sections of aggregation protocols that do not fit the experiment are refused in one line that names the key."""

from typing import Any

import pytest

from testbed.errors import ExperimentError
from testbed.experiment.schema import validated

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("flamingo", {"committee": {"size": 200}}, ".committee.size: 200 members of a population of "),
    ("flamingo", {"committee": {"size": 6, "threshold": 3}}, ".committee.threshold: 3 of 6 members; allowed 4 to 6"),
    ("flamingo", {"committee": {"selection": "given"}}, ".committee.members: required with `selection: given`"),
    ("flamingo", {"committee": {"size": 6}, "dropouts": 0.9}, ".dropouts: 9 of 10 participants may drop out"),
    ("flamingo", {"noise": {"noise_multiplier": 1}}, ".noise: "),
    ("flamingo", {"committee": {"size": 6}, "bits": 70}, ".bits: "),
    ("flamingo", {"committee": {"sizes": 6}}, ".committee.sizes: unknown key; did you mean 'size'?"),
    ("lightsecagg", {"threshold": 0.2}, ".max_colluders: T = 5 of 10 participants"),
    ("lightsecagg", {"noise": {"noise_multiplier": 1}}, ".noise: "),
    ("lightsecagg", {"bits": 40}, ".bits: "),
    ("one-shot", {"committee": {"size": 200}}, ".committee.size: 200 members of a population of 100; at most 100"),
    ("one-shot", {"committee": {"threshold": 20}}, ".committee.threshold: 20 of 60 members; allowed 31 to 60"),
    ("one-shot", {"max_colluders": 30}, ".max_colluders: T = 30 of 60 members"),
    ("one-shot", {"min_survivors": 11}, ".min_survivors: 11 of 10 participants"),
    ("one-shot", {"noise": {"noise_multiplier": 1}}, ".noise: "),
    ("one-shot", {"bits": 40}, ".bits: "),
    ("pine", {"helper": 100}, ".helper: client 100; the population has clients 0 to 99"),
    ("pine", {"weights": "samples"}, ": weights: "),
    ("pine", {"min_survivors": 11}, ".min_survivors: 11 of 10 participants"),
    ("pine", {"norm_bound": 1e5}, ": norm_bound: 100000 with 20 bits"),
    ("pine", {"noise": {"noise_multiplier": 1}}, ".noise: "),
]


def refusal(keys: dict[str, Any]) -> str:
    with pytest.raises(ExperimentError) as refused:
        validated(keys, "test")
    (line,) = str(refused.value).splitlines()
    return line


@pytest.mark.parametrize(("protocol", "changes", "says"), REFUSED)
def test_a_section_that_does_not_fit_is_refused(protocol: str, changes: dict[str, Any], says: str) -> None:
    keys = {"selection": {"participants": 10}, "aggregation": {"protocol": protocol, **changes}}
    assert refusal(keys).startswith(f"test: aggregation{says}")


def test_lightsecagg_tells_no_more_clients_apart_than_its_field_has_elements() -> None:
    line = refusal({"population": 2**32 - 5, "aggregation": {"protocol": "lightsecagg"}})
    assert line.startswith("test: aggregation.protocol: lightsecagg supports up to 4294967290 clients, not ")


@pytest.mark.parametrize(
    ("neighbours", "says"),
    [
        (40, ".neighbours: k = 40, "),
        (10, ".dishonest, dropouts: "),  # ten of ten neighbours are dishonest too often
    ],
)
def test_neighbours_of_secagg_plus_are_enough_or_refused(neighbours: int, says: str) -> None:
    section = {"protocol": "secagg-plus", "neighbours": neighbours}
    line = refusal({"population": 2000, "selection": {"participants": 700}, "aggregation": section})
    assert line.startswith(f"test: aggregation{says}")
