"""``testbed check``: a line for each property, and an exit code."""

import re
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
        (["examples.own_noise:GaussianSums", "--set", NOISE], "The result is that of the survivors.*: it adds noise"),
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


@pytest.mark.parametrize("kind", ["selection", "aggregation"])
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


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["lightsecag"], "no protocol 'lightsecag'; did you mean 'lightsecagg'? give package.module:Name"),
        (["nowhere:Nothing"], "testbed check: nowhere:Nothing: no module 'nowhere'"),
        ([f"{__name__}:Path"], "inherits neither from testbed.SelectionProtocol nor from testbed.AggregationProtocol"),
        (["secagg", "--set", "aggregation.treshold=3"], "aggregation.treshold: unknown key; did you mean 'threshold'?"),
        (["secagg", "--set", "sweep={seed: [1, 2]}"], "leave the sweep out"),
        (["secagg", "--set", "time.clock=wall"], "rounds on the virtual clock with modelled compute are checked"),
        (["secagg", "--set", "rounds=1"], "--set rounds: the properties say how many rounds are run"),
        (["secagg", "--set", "aggregation.protocol=plain"], "secagg is checked, and no other protocol"),
        ([":Nothing"], "':Nothing' is no name of a class; give package.module:Name"),
    ],
)
def test_unusable_names_and_keys_are_bad_input(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, errors = checked(capsys, *arguments)
    assert (code, lines) == (2, [])
    assert line in " ".join(errors.split())
