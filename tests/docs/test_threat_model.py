"""The tables of docs/explanation/threat-*.md have the outcome of each misbehaviour in a run; none is missing."""

import pytest

from testbed.adversary.catalogue import CLIENTS, SERVER
from tests.docs.threat_model import EXPERIMENTS, FAMILIES, pages, recorded, survey

QUICK = "random"  # the shortest; the slow test has them all


def test_a_survey_gives_the_recorded_rows() -> None:
    assert survey(QUICK) == recorded()[QUICK]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != QUICK])
def test_every_survey_gives_the_recorded_rows(name: str) -> None:
    assert survey(name) == recorded()[name]


def test_the_tables_on_the_pages_are_those_of_the_recorded_rows() -> None:
    assert [page for page, (text, written) in pages(recorded()).items() if text != written] == []


def test_every_experiment_is_recorded() -> None:
    assert list(recorded()) == list(EXPERIMENTS)


def test_every_misbehaviour_has_a_row() -> None:
    texts = "".join(text for text, _ in pages(recorded()).values())
    catalogue = {kind.name for kind in (*SERVER, *CLIENTS)}
    assert {name for family in FAMILIES.values() for name in family} == catalogue
    assert [name for name in sorted(catalogue) if f"| `{name}` |" not in texts] == []
