"""The catalogue: every reproduction is complete, and found by its name."""

import pytest

from analysis.reproduction.catalogue import MODULES, catalogue, named
from testbed.errors import ExperimentError
from tests.messages_named import naming


def test_every_reproduction_is_described() -> None:
    found = catalogue()
    for name, one in found.items():
        assert one.name == name
        assert one.title
        assert "\n" not in one.title
        assert "arXiv" in one.source or "ePrint" in one.source
        assert callable(one.measure)
        assert callable(one.conclude)
    assert len(found) >= len(MODULES)


def test_names_are_words_of_a_command_line() -> None:
    assert all(name.replace("-", "").isalnum() and name == name.lower() for name in catalogue())


def test_named_keeps_the_order_and_takes_each_once() -> None:
    every = list(catalogue())
    assert [one.name for one in named([every[-1], *every, every[0]])] == [every[-1], *every[:-1]]


def test_all_is_every_one() -> None:
    assert [one.name for one in named(["all"])] == list(catalogue())


def test_a_mistyped_name_gets_similar_names() -> None:
    with pytest.raises(ExperimentError, match=naming("lotto-tabel2", "did you mean lotto-table2")) as raised:
        named(["lotto-tabel2"])
    assert "\n" not in str(raised.value)
    assert "theorem" not in str(raised.value)  # close ones only


def test_an_unknown_name_gets_all_names() -> None:
    with pytest.raises(ExperimentError, match=naming("qqqq", "lotto-fig1b, ")):
        named(["qqqq"])
