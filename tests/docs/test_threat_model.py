"""The tables of docs/explanation/threat-model.md equal the output of the command; no misbehaviour is missing."""

import pytest

from testbed.adversary.catalogue import CLIENTS, SERVER
from tests.docs.threat_model import PAGE, as_printed, block, surveyed, tables, written

TABLES = list(tables(PAGE.read_text()))
QUICK = "random"  # the shortest; the slow test has them all


def test_a_table_is_what_its_command_prints() -> None:
    (table,) = [one for one in TABLES if one.name == QUICK]
    assert table.printed == block(table.arguments, as_printed(surveyed(table.arguments)))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # fourteen surveys: four minutes of CPU
def test_the_page_is_as_it_comes_out() -> None:
    assert written(PAGE.read_text()) == PAGE.read_text()


def test_every_misbehaviour_has_a_row() -> None:
    page = PAGE.read_text()
    assert [kind.name for kind in (*SERVER, *CLIENTS) if f"| {kind.name} |" not in page] == []
