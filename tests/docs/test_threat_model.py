"""The tables of docs/threat-model.md are what the command prints, and no misbehaviour is missing from them."""

import json

import pytest

from testbed.adversary.catalogue import CLIENTS, SERVER
from tests.docs.threat_model import PAGE, Table, block, matrix, surveyed, tables

TABLES = list(tables(PAGE.read_text()))
QUICK = "lotto-server-centric"


@pytest.mark.parametrize(
    "table",
    [pytest.param(one, id=one.name, marks=[] if one.name == QUICK else [pytest.mark.slow]) for one in TABLES],
)
def test_a_table_is_what_its_command_prints(table: Table) -> None:
    assert table.printed == block(table.arguments, surveyed(table.arguments, "markdown"))


@pytest.mark.slow
def test_the_matrix_is_made_of_the_tables() -> None:
    found = {one.name: json.loads(surveyed(one.arguments, "json"))["rows"] for one in TABLES}
    assert matrix(found) in PAGE.read_text()


def test_every_misbehaviour_has_a_row() -> None:
    page = PAGE.read_text()
    assert [kind.name for kind in (*SERVER, *CLIENTS) if f"| {kind.name} |" not in page] == []
