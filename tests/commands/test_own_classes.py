"""User-defined classes in an experiment: imported only when that is asked for, and then checked like built-ins."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]
Written = Callable[..., Path]

MODULE = """
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from testbed.adversary.misbehaviour import ClientMisbehaviour, MisbehaviourOptions
from testbed.aggregation.plain import Plain, PlainParameters
from testbed.emulation.links import ClientLinks
from testbed.parties.client import RoleSpec
from testbed.selection.random_selection import RandomSelection, RandomParameters
from testbed.training import Trainer

Path({marker!r}).touch()


class TurnsParameters(RandomParameters):
    start: int = Field(0, ge=0)


class Turns(RandomSelection):
    Parameters = TurnsParameters


class Sums(Plain):
    def __init__(self, parameters):
        super().__init__(PlainParameters())


class Phones:
    def __init__(self, section, slow=2.0):
        self.slow = slow

    def speed_factors(self, population, generator):
        return np.full(population, self.slow)


class Lines:
    class Options(BaseModel):
        rate: float = Field(1e6, gt=0)

    def __init__(self, section):
        self.rate = section.options["rate"]

    def links(self, population, generator):
        rates = np.full(population, self.rate)
        return ClientLinks(rates, rates, np.zeros(population), 1e9, 1e9)


class Mornings:
    comes_back = False

    def __init__(self, section, population, randomness, *, until=12):
        self.until = until


class Data:
    def __init__(self, section, population, seed, noise=1.0):
        raise AssertionError("data are made by run alone")


class HoldOptions(MisbehaviourOptions):
    seconds: int = 1


class Nothing:
    def __init__(self, *arguments): ...


class Hold(ClientMisbehaviour):
    name = "hold"
    applies_to = ("train",)
    Options = HoldOptions

    @classmethod
    def concerns(cls, spec):
        return spec.role is Trainer
"""
OWN = {
    "selection.protocol": {"selection": {"protocol": "mine_all:Turns", "participants": 4}},
    "aggregation.protocol": {"aggregation": {"protocol": "mine_all:Sums"}},
    "devices.model": {"devices": {"model": "mine_all:Phones"}},
    "links.model": {"links": {"model": "mine_all:Lines"}},
    "availability.model": {"availability": {"model": "mine_all:Mornings"}},
    "workload.dataset": {"workload": {"dataset": "mine_all:Data"}},
    "adversary.clients": {"adversary": {"dishonest": 2, "clients": ["mine_all:Hold"]}},
}


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """A module of the user's own on the path; tells whether its code has run."""
    (tmp_path / "lib").mkdir()
    marker = tmp_path / "imported"
    (tmp_path / "lib" / "mine_all.py").write_text(MODULE.format(marker=str(marker)))
    monkeypatch.syspath_prepend(tmp_path / "lib")
    yield marker.exists
    sys.modules.pop("mine_all", None)


@pytest.mark.parametrize("key", OWN)
def test_validate_imports_nothing_and_says_what_it_has_not_checked(
    key: str, call: Call, written: Written, imported: Callable[[], bool]
) -> None:
    file = written(**OWN[key])
    ended = call("validate", file)
    assert ended.code == 0, ended.err
    (line,) = (line for line in ended.out.splitlines() if "not imported" in line)
    name = line.partition(f"{key} ")[2].partition(";")[0]
    assert line == f"  not imported, so not checked: {key} {name}; --import-classes imports them"
    assert name.startswith("mine_all:")
    assert not imported()


@pytest.mark.parametrize("key", OWN)
def test_validate_imports_them_when_asked_and_says_from_where(
    key: str, call: Call, written: Written, imported: Callable[[], bool], tmp_path: Path
) -> None:
    ended = call("validate", written(**OWN[key]), "--import-classes")
    assert ended.code == 0, ended.err
    assert imported()
    (line,) = (line for line in ended.out.splitlines() if line.startswith(f"  {key}: mine_all:"))
    assert line.endswith(f" from {tmp_path / 'lib' / 'mine_all.py'}")
    assert ended.err == ""
    assert "not imported" not in ended.out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"selection": {"protocol": "mine_all:Turns", "strt": 3, "participants": 4}},
            "selection.strt: unknown option; did you mean 'start'? allowed: participants, recorded, start "
            "(TurnsParameters of mine_all:Turns)",
        ),
        (
            {"selection": {"protocol": "mine_all:Turns", "start": -3, "participants": 4}},
            "selection.start: should be greater than or equal to 0, not -3",
        ),
        (
            {"aggregation": {"protocol": "mine_all:Sums", "bit": 16}},
            "aggregation.bit: unknown option; did you mean 'bits'? allowed: weights, batches, "
            "server_optimizer, bits, noise, compression, robust (PlainParameters of mine_all:Sums)",
        ),
        (
            {"devices": {"model": "mine_all:Phones", "options": {"slo": 3.0}}},
            "devices.options.slo: unknown option; did you mean 'slow'? allowed: slow",
        ),
        ({"devices": {"model": "mine_all:Phones", "options": {"slow": -1}}}, "devices.model: mine_all:Phones must"),
        (
            {"links": {"model": "mine_all:Lines", "options": {"rat": 3.0}}},
            "links.options.rat: unknown option; did you mean 'rate'? allowed: rate (Options of mine_all:Lines)",
        ),
        (
            {"availability": {"model": "mine_all:Mornings", "options": {"untill": 3}}},
            "availability.options.untill: unknown option; did you mean 'until'? allowed: until",
        ),
        (
            {"workload": {"dataset": "mine_all:Data", "options": {"nois": 0.5}}},
            "workload.options.nois: unknown option; did you mean 'noise'? allowed: noise",
        ),
        (
            {"adversary": {"dishonest": 2, "clients": [{"mine_all:Hold": {"second": 3}}]}},
            "adversary.clients: mine_all:Hold.second: unknown option; did you mean 'seconds'? allowed: seconds",
        ),
        ({"devices": {"model": "mine_all:Nothing"}}, "devices.model: mine_all:Nothing: lacks the method speed_f"),
        ({"links": {"model": "mine_all:Nothing"}}, "links.model: mine_all:Nothing: lacks the method links("),
        ({"devices": {"model": "mine_all:Tablets"}}, "devices.model: mine_all:Tablets: module mine_all has no class"),
        ({"workload": {"dataset": "mine_none:Data"}}, "workload.dataset: mine_none:Data: no module 'mine_none'"),
        (
            {"selection": {"protocol": "mine_all:Turns", "participants": 4},
             "availability": {"dropout": {"rate": 0.1, "stage": "secagg/unmask"}}},
            "availability.dropout.stage: 'secagg/unmask' is no stage of selection mine_all:Turns with aggregation",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_them_is_one_line(
    changes: dict[str, Any], said: str, call: Call, written: Written, imported: Callable[[], bool]
) -> None:
    file = written(**changes)
    assert call("validate", file).code == 0  # only the class can tell
    assert not imported()
    line = call("validate", file, "--import-classes").line(2, out="")
    assert line.startswith(f"error: {file}: {said}")


def test_run_refuses_the_same(call: Call, written: Written, imported: Callable[[], bool], tmp_path: Path) -> None:
    for changes in (
        {"selection": {"protocol": "mine_all:Turns", "strt": 3, "participants": 4}},
        {"devices": {"model": "mine_all:Phones", "options": {"slo": 3.0}}},
        {"availability": {"model": "mine_all:Mornings", "options": {"untill": 3}}},
        {"links": {"model": "mine_all:Nothing"}},
    ):
        file = written(**changes)
        ended = call("run", file, "--out", tmp_path / "out", "--quiet")
        assert ended.code == 2
        assert ended.errors == call("validate", file, "--import-classes").errors
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command", [("bound", "privacy"), ("attack", "registrations"), ("cluster", "check", "--address", "127.0.0.1:1")]
)
def test_other_commands_import_nothing_unless_asked(
    command: tuple[str, ...], call: Call, written: Written, imported: Callable[[], bool]
) -> None:
    file = written(**OWN["selection.protocol"])
    line = call(*command, file).line(2)
    asked = "give --import-classes (in Python: importing_classes(True))"
    assert "user-defined classes: mine_all:Turns; " in line
    assert line.endswith(asked)
    assert not imported()
    if command[0] != "cluster":  # which asks a cluster first
        call(*command, file, "--import-classes")
        assert imported()


def test_a_module_that_another_hides_is_told(
    call: Call, written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's `random.py` is not what `random:Phones` gets, and `workloads/` in a folder is not the testbed's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random.py").write_text("class Phones: ...\n")
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "mine.py").write_text("class Data: ...\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    ended = call("validate", written(devices={"model": "random:Phones"}), "--import-classes")
    (line,) = ended.errors
    assert "devices.model: random:Phones: module random (" in line
    assert line.endswith(f"has no class Phones; {tmp_path / 'random.py'} is another module of that name")
    ended = call("validate", written(workload={"dataset": "workloads.mine:Data"}), "--import-classes")
    (line,) = ended.errors
    assert "workload.dataset: workloads.mine:Data: no module 'workloads.mine'; " in line
    assert f"{tmp_path / 'workloads' / 'mine.py'} is hidden by " in line
    assert line.endswith("/workloads; rename yours")


def test_two_modules_of_one_name_are_a_warning(
    call: Call, written: Written, imported: Callable[[], bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_all.py").write_text("")
    file = written(**OWN["devices.model"])
    ended = call("validate", file, "--import-classes")
    assert ended.code == 0
    says = f"{tmp_path / 'mine_all.py'}: not used, module mine_all is {tmp_path / 'lib' / 'mine_all.py'}"
    assert ended.errors == [f"warning: {says}"]
    ended = call("run", file, "--out", tmp_path / "out")
    assert ended.code == 0, ended.err
    assert any(says in line for line in ended.errors)
