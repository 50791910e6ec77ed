"""What others have chosen is printed as text: no escape sequence, formula, markup or second line comes of it.

The experiment's name, the stage of a user-defined protocol and what a client says when it refuses are as hostile as
they can be, and everything goes through the real commands. The records hold all of it as it was.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.text import Text as FigureText
from rich.text import Text

import analysis.figures.comparison
from testbed.cli.terminal import Console, without_colours
from testbed.display import visible, visible_lines
from testbed.records import RunRecords
from testbed.records.log import RunLog

NAME = (
    "=1+1\x1b]0;o\x07\x1b[31m\x9b2J\u202et\u200b|`x`<img src=x>[l](https://x)$\\alpha$\\input{x}[red]r[/red] :bomb:\nn"
)
"""A formula, a window's title, colours, C1, bidirectional and unseen characters, a table cell, code, HTML, a link,
mathematics, a LaTeX command, Rich's markup and emoji, a line feed."""
CHECK, DETAIL, STAGE = f"@{NAME}", f"+{NAME}", f"-{NAME}"

PROTOCOL = f"""
from typing import ClassVar

import numpy as np

from testbed.errors import Refusal
from testbed.messages import Message, RoundNumber
from testbed.parties.client import Role, RoleSpec, handles
from testbed.selection.contract import Selection, SelectionProtocol


class Here(Message, frozen=True):
    pass


class AreYouThere(Message, frozen=True):
    stage: ClassVar[str] = {STAGE!r}
    Answer: ClassVar[type[Message] | None] = Here
    as_participant: ClassVar[bool] = False
    round: RoundNumber


class Insolent(Role):
    @handles(AreYouThere)
    def on_question(self, message):
        if self.client.number == 0:
            raise Refusal({CHECK!r}, {DETAIL!r})
        return Here()


class Hostile(SelectionProtocol):
    stages = (AreYouThere.stage,)
    roles = [RoleSpec(Insolent, None)]

    async def select(self, round_):
        replies = await round_.network.ask(round_.everyone, AreYouThere(round_.number))
        return Selection(np.sort(replies.ids[: self.parameters.participants]), len(replies))
"""

SMALL: dict[str, Any] = {
    "seed": 3,
    "rounds": 3,
    "population": 8,
    "workload": {"dataset": "digits", "model": "logistic"},
    "selection": {"participants": 4},
    "aggregation": {"protocol": "plain"},
    "time": {"compute": "modelled"},
    "cluster": {"network": "in-process"},
}
SKELLAM = {"protocol": "plain", "weights": "equal", "noise": {"mechanism": "skellam", "noise_multiplier": 1.0}}
Call = Callable[..., Any]
Written = Callable[..., Path]
Runs = list[Path]


def assert_harmless(text: str) -> None:
    """Nothing that a terminal obeys or that nobody sees, no emoji for a code, no second line for a line feed."""
    seen = {unicodedata.category(character) for character in text.replace("\n", "")}
    assert not seen & {"Cc", "Cf", "Zl", "Zp"}, ascii(text)
    assert "💣" not in text
    assert "n" not in text.splitlines()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Three runs of that name: two with a protocol and a client that are hostile, and one with noise."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile_protocol.py").write_text(PROTOCOL)
    hostile: dict[str, Any] = {"selection": {"protocol": "hostile_protocol:Hostile", "participants": 4}}
    hostile |= {"adversary": {"dishonest": 2}}
    experiments = {"hostile": hostile, "shorter": hostile | {"rounds": 2}, "noisy": {"aggregation": SKELLAM}}
    paths, calls = [], []
    for directory, changes in experiments.items():
        experiment = folder / f"{directory}.yaml"
        experiment.write_text(yaml.safe_dump(SMALL | {"name": NAME} | changes))
        paths.append(folder / directory)
        calls.append(["run", str(experiment), "--out", str(paths[-1])])
    # In a process of its own: nothing below imports the hostile module, and its stage is unknown to other tests.
    script = f"from testbed.cli import main\nfor call in {calls!r}:\n  assert main(call) == 0"
    command = [sys.executable, "-c", script]
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": path}, timeout=240)
    return paths


def test_the_records_keep_what_was_said(runs: Runs) -> None:
    records = RunRecords(runs[0])
    assert records.label == NAME
    assert STAGE in set(records.exchanges["stage"])
    assert f"{CHECK}: {DETAIL}" in set(records.events["detail"])


def test_a_run_tells_its_progress_harmlessly(call: Call, written: Written, tmp_path: Path) -> None:
    ended = call("run", written(name=NAME), "--out", tmp_path / "run")
    assert ended.code == 0
    assert_harmless(ended.out + ended.err)
    assert "[red]r[/red] :bomb:" in ended.err  # as it is, in the program's colours


@pytest.mark.parametrize(
    "command",
    [
        "status", "compare", "dropouts", "metrics", "metrics --every 1", "metrics --format markdown", "attack summary",
        "compare --format markdown", "compare --format csv", "compare --format latex", "dropouts --format markdown",
        "dropouts --format csv", "metrics --format csv", "attack summary --format markdown",
        "attack summary --format csv",
    ],
)  # fmt: skip
def test_no_command_prints_what_a_terminal_obeys(call: Call, runs: Runs, command: str) -> None:
    ended = call(*command.split(), *runs)
    assert ended.code == 0, ended.err
    assert_harmless(ended.out + ended.err)
    assert "\\u001b" in ended.out or "textbackslash{}u001b" in ended.out  # it is there, and seen


def test_the_privacy_of_a_run_too(call: Call, runs: Runs) -> None:
    for format in ("text", "markdown"):
        ended = call("privacy", runs[2], "--format", format)
        assert ended.code == 0, ended.err
        assert_harmless(ended.out + ended.err)


@pytest.mark.parametrize("command", ["status", "compare", "dropouts", "metrics", "attack summary"])
def test_json_is_harmless_and_says_the_same(call: Call, runs: Runs, command: str) -> None:
    ended = call(*command.split(), *runs, "--format", "json")
    assert ended.code == 0, ended.err
    assert_harmless(ended.out)
    assert NAME in set(strings(json.loads(ended.out)))


def strings(value: Any) -> Iterator[str]:
    """All texts in a JSON value, and the parts of a row's label before its directory."""
    if isinstance(value, str):
        yield from (value, value.rpartition(" [")[0])
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)


@pytest.mark.parametrize("command", ["compare", "dropouts", "metrics", "attack summary"])
def test_no_cell_of_a_csv_is_a_formula_and_numbers_are_numbers(call: Call, runs: Runs, command: str) -> None:
    ended = call(*command.split(), *runs, "--format", "csv")
    assert ended.code == 0, ended.err
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    cells = [cell for row in rows for cell in row.values()]
    assert any(cell.startswith("'=1+1") for cell in cells)
    for cell in cells:
        assert not cell.startswith(("=", "+", "@", "\t", "\r")), cell
        assert not cell.startswith("-") or float(cell) < 0, cell
    numbers = {"compare": "round_s", "dropouts": "rounds", "metrics": "cardinality", "attack summary": "due"}
    assert all(float(row[numbers[command]]) >= 0 for row in rows)


@pytest.mark.parametrize("command", ["compare", "dropouts", "metrics", "attack summary", "privacy"])
def test_markdown_stays_a_table_of_text(call: Call, runs: Runs, command: str) -> None:
    ended = call(*command.split(), *(runs[2:] if command == "privacy" else runs), "--format", "markdown")
    assert ended.code == 0, ended.err
    tables = [block.splitlines() for block in ended.out.split("\n\n") if block.startswith("|")]
    assert tables
    for heads, *rows in tables:
        for row in rows:
            assert unescaped(row).count("|") == unescaped(heads).count("|"), row
            assert not re.search(r"[`*\[\]<>~$]|://", unescaped(row)), row


def unescaped(line: str) -> str:
    """Markdown without what a backslash or an entity makes plain text."""
    return re.sub(r"\\[!-/:-@\[-`{-~]|&(lt|gt|amp|#58|#46);", "", line)


def test_latex_gets_no_commands(call: Call, runs: Runs) -> None:
    ended = call("compare", *runs, "--format", "latex")
    assert ended.code == 0, ended.err
    assert "\\input" not in ended.out
    assert "\\alpha" not in ended.out
    assert r"\textbackslash{}input\{x\}" in ended.out
    rows = [line for line in ended.out.splitlines() if line.startswith("=1+1")]
    assert len(rows) == 12 * len(runs)  # a part of the tables in each, so that they fit the page
    assert all(line.endswith(r"\\") for line in rows)


def test_figures_are_drawn_and_have_no_formulas(call: Call, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []

    def draw(figure: Figure, path: Path, *_: Any) -> list[Path]:
        figure.canvas.draw()
        drawn.append(figure)
        return [path]

    monkeypatch.setattr(analysis.figures.comparison, "save", draw)
    ended = call("plot", *runs)
    assert ended.code == 0, ended.err
    told = [text.get_text() for figure in drawn for text in figure.findobj(FigureText)]
    assert any("alpha" in text for text in told)
    assert not any(is_math_text(text) for text in told if "alpha" in text)


@pytest.mark.parametrize("command", ["metrics", "privacy"])
def test_figures_of_single_runs_are_drawn(call: Call, runs: Runs, tmp_path: Path, command: str) -> None:
    option = {"metrics": "--out", "privacy": "--figures"}[command]
    ended = call(command, runs[2], option, tmp_path)
    assert ended.code == 0, ended.err
    assert list(tmp_path.glob("*.png"))


def test_the_log_is_harmless_and_says_the_same(runs: Runs) -> None:
    text = (runs[0] / "log.jsonl").read_text()
    assert_harmless(text)
    log = RunLog(runs[0])
    log.write("round-ended", reason=DETAIL)
    assert_harmless(log.path.read_text())
    assert log.read()[-1]["reason"] == DETAIL


def test_what_validate_refuses_is_told_in_a_line(call: Call, written: Written) -> None:
    for changes in ({NAME: 1}, {"selection": {"protocol": NAME}}, {"name": NAME, "sweep": {f"selection.{NAME}": [1]}}):
        ended = call("validate", written(**changes))
        assert ended.code == 2
        assert_harmless(ended.err)
        assert all(line.startswith("error: ") for line in ended.errors), ended.err


def test_a_traceback_is_harmless(call: Call, written: Written) -> None:
    ended = call("validate", written(selection={"protocol": NAME}), "--debug")
    assert ended.code == 2
    assert "Traceback" in ended.err
    assert_harmless(ended.err)


def test_a_terminal_gets_the_styles_of_the_program_alone() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system="standard", width=1000)
    console.print(Text(visible(NAME), style="bold"))
    console.print(f"{NAME} [red]red[/red]")
    styles = re.findall(r"\x1b\[[0-9;]*m", shown.getvalue())
    assert styles == ["\x1b[1m", "\x1b[0m"]
    text = without_colours(shown.getvalue())
    assert not {unicodedata.category(one) for one in text.replace("\n", "")} & {"Cc", "Cf"}


def test_what_a_job_says_loses_its_colours_and_nothing_else_acts() -> None:
    said = visible_lines(without_colours("\x1b[36m(pid=7)\x1b[0m round 1\r\n\x1b]0;owned\x07\tx\n"))
    assert said == "(pid=7) round 1\n\\u001b]0;owned\\u0007\tx\n"


def test_the_tags_of_metrics_are_short_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = pytest.importorskip("cluster.metrics")
    monkeypatch.setenv(metrics.RAYS_SWITCH, "0")
    word = metrics.RunMetrics(NAME, "random")._word("check", CHECK * 20)
    assert_harmless(word)
    assert len(word) == metrics.LONGEST_WORD
