"""docs/explanation/threat-model.md: write the output of ``testbed attack survey`` into its tables.

    python -m tests.docs.threat_model

Each table stands between two comments; the first one has the arguments of the survey. The matrix at the top is made of
all of them.
"""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from analysis.attacks.survey import SurveyFinding, SurveyTrial, render
from testbed.cli import main
from tests.repository import ROOT

PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
EXPERIMENT = "examples/threats.yaml"
_TABLE = re.compile(r"<!-- survey (?P<name>[^:]+): (?P<arguments>.*?) -->\n(?P<table>.*?)<!-- end -->\n", re.DOTALL)
_MATRIX = re.compile(r"<!-- matrix -->\n.*?<!-- end -->\n", re.DOTALL)
_NOT_HERE = "–"


@dataclass(frozen=True)
class Table:
    """One survey of the page: the name of its column in the matrix, its arguments, and its content."""

    name: str
    arguments: list[str]
    printed: str


def tables(page: str) -> Iterator[Table]:
    """The surveys of a page, in its order."""
    for found in _TABLE.finditer(page):
        yield Table(found["name"], json.loads(found["arguments"]), found["table"])


def surveyed(arguments: list[str]) -> list[dict[str, Any]]:
    """Return the output of the command, a row for each misbehaviour."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(["attack", "survey", str(ROOT / EXPERIMENT), "--quiet", "--format", "json", *arguments])
    if code:
        raise SystemExit(code)
    rows: list[dict[str, Any]] = json.loads(printed.getvalue())["rows"]
    return rows


def as_printed(rows: list[dict[str, Any]]) -> str:
    """The same as the command prints it with ``--format markdown``."""
    plain = [{key: value for key, value in row.items() if key != "outcome"} for row in rows]
    return render([SurveyFinding(**row | {"trial": SurveyTrial(**row["trial"])}) for row in plain], "markdown")


def block(arguments: list[str], rows: str) -> str:
    """The command and its table, as they stand on the page."""
    quoted = " ".join(f"'{one}'" if re.search(r"[\s{}\[\]]", one) else one for one in arguments)
    command = f"testbed attack survey {EXPERIMENT} --format markdown {quoted}".rstrip()
    return f"\n    {command}\n\n{rows}\n"


def matrix(found: dict[str, list[dict[str, Any]]]) -> str:
    """Misbehaviours and protocols: in a cell the check that refuses, the bound, or that there is none."""
    names = dict.fromkeys(row["trial"]["name"] for rows in found.values() for row in rows)
    lines = ["| | " + " | ".join(found) + " |", "| --- |" + " --- |" * len(found)]
    for name in names:
        tried = [{row["trial"]["name"]: row for row in rows} for rows in found.values()]
        cells = [_cell(rows[name]) if name in rows else _NOT_HERE for rows in tried]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n" + "\n".join(lines) + "\n\n"


def _cell(row: dict[str, Any]) -> str:
    if row["verdict"] == "did not arise":
        return _NOT_HERE
    if row["verdict"].startswith("refused"):
        check = row["checks"][0].partition(" at ")[0]
        name = re.match(r"[\w-]+\.[\w.-]+(?=:|$)|[\w.-]+$", check)  # alone, or before a colon and its detail
        named = f"`{name[0]}`" if name else "detected by the honest server"
        if row["verdict"] == "refused":
            return named
        return f"{named}, else {_bound(row)}" if row["limit"] else f"{named}, in part"
    if row["verdict"] == "bounded":
        return _bound(row)
    return "**not protected**"


def _bound(row: dict[str, Any]) -> str:
    """The theorem; or, of a protocol that is in no paper, the command."""
    named: str = row["limit"].partition(" (")[0]
    return f"`{named}`" if named.startswith("testbed ") else named


def written(page: str) -> str:
    """The page with its tables as they come out now."""
    found = {one.name: surveyed(one.arguments) for one in tables(page)}

    def table(match: re.Match[str]) -> str:
        head = match[0][: match[0].index("\n") + 1]
        rows = as_printed(found[match["name"]])
        return f"{head}{block(json.loads(match['arguments']), rows)}<!-- end -->\n"

    page = _TABLE.sub(table, page)
    return _MATRIX.sub(lambda _: f"<!-- matrix -->\n{matrix(found)}<!-- end -->\n", page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
