"""The command itself: help, versions, mistakes, and messages of reading an experiment."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import testbed
from testbed.cli import main


@pytest.mark.parametrize("command", ["", "run", "trace convert"])
def test_help_ends_in_examples(command: str, call: Callable[..., Any]) -> None:
    ended = call(*command.split(), "--help")
    assert ended.code == 0
    after = ended.out.partition("Examples")[2]
    assert f"$ testbed {command}".strip() in after


def test_version(call: Callable[..., Any]) -> None:
    assert call("--version").out == f"testbed {testbed.__version__}\n"


@pytest.mark.parametrize("command", ["", "trace", "bound", "plan"])
def test_a_group_alone_prints_its_help(command: str, call: Callable[..., Any]) -> None:
    ended = call(*command.split())
    assert ended.code == 2
    assert " ".join(["Usage: testbed", *command.split(), "[OPTIONS] COMMAND"]) in ended.out
    assert "Examples" in ended.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rum"], "No such command 'rum'"),
        (["run"], "Missing argument 'EXPERIMENT.yaml'"),
        (["run", "x.yaml", "--foo"], "--foo"),
        (["compare", "runs", "--format", "word"], "'word'"),
        (["run", "x.yaml", "--network", "smoke-signals"], "smoke-signals"),
    ],
)
def test_a_mistake_in_the_command_line_is_one_line(arguments: list[str], said: str, call: Callable[..., Any]) -> None:
    line = call(*arguments).line(2, out="")
    assert line.startswith("error: ")
    assert said in line


def test_schema_describes_every_section(call: Callable[..., Any]) -> None:
    schema = json.loads(call("schema").out)
    assert {"workload", "selection", "aggregation", "links", "devices", "time", "sweep"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_validate_names_the_points(call: Callable[..., Any], written: Callable[..., Path]) -> None:
    file = written(sweep={"rounds": [2, 5], "selection.protocol": ["random", "bernoulli"]})
    ended = call("validate", file)
    assert ended.code == 0
    assert "4 points" in ended.out
    assert "rounds=5,bernoulli" in ended.out
    assert "5 rounds, 8 clients, bernoulli under plain" in ended.out


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["selection.protocol=randon"], "selection.protocol: unknown protocol 'randon'"),
        (["selection.participants=9"], "selection.participants"),
        (["workload.epoch=2"], "did you mean 'epochs'"),
        (["rounds=0"], "rounds"),
        (["sweep={rounds: [2, -1]}"], "sweep point rounds=-1"),
        (["workload=digits", "workload.epochs=2"], "workload is not a section"),
    ],
)
def test_validate_says_what_is_wrong_in_one_line(
    overrides: list[str], said: str, call: Callable[..., Any], written: Callable[..., Path]
) -> None:
    flags = [part for override in overrides for part in ("--set", override)]
    file = written()
    line = call("validate", file, *flags).line(2)
    assert line.startswith((f"error: {file}: ", "error: --set "))
    assert said in line


@pytest.mark.parametrize("content", ["rounds: [", "a: 1\na: 2\n", "- 1\n", "\x00", "rounds: 5\nrounds: &x [*x]\n"])
def test_bad_yaml_is_one_line_with_the_file(content: str, call: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(content)
    line = call("validate", file).line(2)
    assert str(file) in line


@pytest.mark.parametrize("command", ["run", "validate"])
def test_a_file_that_is_not_there(command: str, call: Callable[..., Any], tmp_path: Path) -> None:
    ended = call(command, tmp_path / "absent.yaml")
    assert ended.code == 2
    assert ended.errors == [f"error: {tmp_path / 'absent.yaml'}: no such file"]


@pytest.mark.parametrize("command", ["compare", "plot"])
def test_results_of_directories_without_runs(command: str, call: Callable[..., Any], tmp_path: Path) -> None:
    for directory, said in [(tmp_path, "no runs here"), (tmp_path / "absent", "no such directory")]:
        line = call(command, directory).line(2)
        assert said in line


def test_commands_that_only_read_do_not_import_what_is_slow(written: Callable[..., Path]) -> None:
    program = f"""
import sys
from testbed.cli import main
assert main(["validate", {str(written())!r}]) == 0
assert main(["schema"]) == 0
assert main(["run", "--help"]) == 0
assert main(["tune", {str(written())!r}, "--grid", "workload.learning_rate"]) == 2
print("slow:", sorted({{"ray", "torch", "pandas", "matplotlib", "scipy", "sklearn"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "slow: []"


def test_a_process_that_ends_is_not_searched_for_circles() -> None:
    program = """
import atexit, gc, sys
atexit.register(lambda: print("frozen:", gc.get_freeze_count() > 0))
from testbed.cli import main
assert main(["--version"]) == 0
sys.argv[1:] = ["--version"]
if {as_the_command}:
    assert main() == 0
"""
    for as_the_command in (True, False):
        told = [sys.executable, "-c", program.replace("{as_the_command}", str(as_the_command))]
        done = subprocess.run(told, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"frozen: {as_the_command}"


def test_a_reader_that_has_gone_is_no_error(written: Callable[..., Path]) -> None:
    """`testbed schema | head -1`: no traceback, no message."""
    command = [sys.executable, "-m", "testbed", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_an_unexpected_error_keeps_its_traceback_for_debug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], written: Callable[..., Path]
) -> None:
    def broken(path: object, overrides: object = ()) -> None:
        raise ZeroDivisionError("of the sixth kind")

    monkeypatch.setattr("testbed.experiment.load", broken)
    assert main(["validate", str(written())]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ZeroDivisionError: of the sixth kind (a bug")
    assert main(["validate", str(written()), "--debug"]) == 3
    assert "Traceback" in capsys.readouterr().err
