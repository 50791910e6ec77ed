"""``testbed check``: a line for each property, and an exit code."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main
from testbed.plugins.skeletons import class_name, write
from tests.conformance import broken

NOISE = "aggregation={participants: 10, noise_multiplier: 4.0, clip: 1.0}"


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    """The exit code, the lines and the errors of the command."""
    code = main(["check", *arguments])
    printed = capsys.readouterr()
    return code, printed.out.splitlines(), printed.err


@pytest.mark.parametrize(
    ("arguments", "inapplicable"),
    [
        (["examples.own_selection:TakingTurns", "--set", "selection.start=3"], "Batches take part as a whole: it has"),
        (["examples.own_noise:GaussianSums", "--set", NOISE], "the result is that of the survivors.*: it adds noise"),
    ],
)
def test_the_examples_have_all_properties(
    arguments: list[str], inapplicable: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, errors = checked(capsys, *arguments)
    assert (code, errors) == (0, "")
    assert len(lines) >= 11
    (other,) = (line for line in lines if not line.startswith("passed          "))
    assert other.startswith("not applicable  ")
    assert re.search(inapplicable, other)


@pytest.mark.parametrize("kind", ["selection", "aggregation", "workload"])
def test_skeletons_have_all_properties(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"checked_{kind}"
    write(kind, name, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, lines, _ = checked(capsys, f"{name}:{class_name(name)}")
    assert code == 0
    assert {line.partition("  ")[0] for line in lines} <= {"passed", "not applicable"}


def test_a_class_that_lacks_a_property_ends_the_command_as_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{broken.__name__}:{broken.Unsorted.__name__}"
    code, lines, _ = checked(capsys, name)
    assert code == 3
    assert sum(line.startswith("failed          ") for line in lines) == 1
    assert lines[-1] == f"{name}: lacks 1 of {len(lines) - 1} properties"


def test_a_result_of_another_type_is_a_line_and_with_debug_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{broken.__name__}:{broken.NoMean.__name__}"
    code, lines, errors = checked(capsys, name)
    assert (code, errors) == (3, "")
    assert lines[0].startswith("failed          Rounds run")
    code, lines, errors = checked(capsys, name, "--debug")
    assert code == 3
    assert "Traceback" in errors


def test_a_class_that_ends_its_process_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = checked(capsys, f"{broken.__name__}:{broken.EndsItsProcess.__name__}")
    assert (code, errors) == (3, "")
    assert lines[0].startswith("failed          The class leaves its process running: the class ended its process")


def test_a_class_that_raises_keyboard_interrupt_fails_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = checked(capfd, f"{broken.__name__}:{broken.RaisesKeyboardInterrupt.__name__}")
    assert (code, errors) == (3, "")
    assert lines[0].startswith("failed          The class leaves its process running: the class raised KeyboardInterr")


def test_a_crash_is_one_line_and_advises_no_resumption(capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, errors = checked(capsys, f"{broken.__name__}:{broken.CrashingServer.__name__}")
    assert (code, errors, len(lines)) == (3, "", 2)
    assert "--resume" not in lines[0]


def test_a_signal_ends_the_check_of_a_class_that_never_ends() -> None:
    command = [sys.executable, "-m", "testbed", "check", f"{broken.__name__}:{broken.NeverEnds.__name__}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "runs\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == ""  # the other process, which has the pipe, too, has ended
    assert running.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lightsecag"], "no protocol 'lightsecag'; did you mean 'lightsecagg'? give package.module:Name"),
        (["nowhere:Nothing"], "testbed check: nowhere:Nothing: no module 'nowhere'"),
        ([f"{__name__}:Path"], "inherits neither from testbed.SelectionProtocol nor from testbed.AggregationProtocol"),
        (["secagg", "--set", "aggregation.treshold=3"], "aggregation.treshold: unknown key; did you mean 'threshold'?"),
        (["secagg", "--set", "sweep={seed: [1, 2]}"], "leave the sweep out"),
        (["secagg", "--set", "seed=2"], "--set seed: checks have the seed 1"),
        (["secagg", "--set", "time.clock=wall"], "rounds on the virtual clock with modelled compute"),
        (["secagg", "--set", "rounds=1"], "--set rounds: the properties determine the number of rounds"),
        (["secagg", "--set", "aggregation.protocol=plain"], "the checked protocol must stay secagg"),
        ([":Nothing"], "':Nothing' is not the name of a class; give package.module:Name"),
    ],
)
def test_unusable_names_and_keys_are_bad_input(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, errors = checked(capsys, *arguments)
    assert (code, lines) == (2, [])
    assert line in " ".join(errors.split())
