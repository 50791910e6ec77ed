"""User-defined classes that use a name of an earlier version are told the present one."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.adversary.misbehaviour import ClientMisbehaviour
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment import Experiment
from testbed.plugins import renamed
from testbed.plugins.classes import check_subclass, plugin_class
from testbed.selection.contract import Selection, SelectionProtocol, SelectionRound
from tests.messages_named import naming


def test_present_names_exist_and_former_ones_do_not() -> None:
    for former, present in renamed.MODULES.items():
        importlib.import_module(present)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(former)
    for module, names in renamed.NAMES.items():
        there = importlib.import_module(module)
        for former, present in names.items():
            assert hasattr(there, present), (module, present)
            assert not hasattr(there, former), (module, former)


@pytest.mark.parametrize(
    ("line", "former", "present"),
    [
        ("from testbed.parties.client import Role, Row", "Row", "Transition"),
        ("from testbed.crypto.remembered import verify", "testbed.crypto.remembered", "testbed.crypto.memo"),
        ("from testbed.crypto import remembered", "testbed.crypto.remembered", "testbed.crypto.memo"),
        ("from testbed import of_shape", "of_shape", "clients_with_shape"),
    ],
)
def test_an_import_of_a_former_name(
    line: str, former: str, present: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "former_import.py").write_text(f"{line}\nclass Mine: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ExperimentError, match=naming("selection.protocol", "former_import:Mine", former, present)):
        plugin_class("former_import:Mine", "selection.protocol")


def test_another_import_error_comes_through_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other_import.py").write_text("from testbed.parties.client import Rows\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="Rows"):
        plugin_class("other_import:Mine", "selection.protocol")


def test_an_attribute_with_a_former_name() -> None:
    class Mine(SelectionProtocol):
        by_losses = True

        roles = ()

        async def select(self, round_: SelectionRound) -> Selection:
            raise NotImplementedError

    with pytest.raises(ExperimentError, match=naming("by_losses", "uses_reported_losses")):
        check_subclass(Mine, SelectionProtocol, "mine:Mine", "selection.protocol")


def test_a_method_of_a_misbehaviour_with_a_former_name() -> None:
    class Mine(ClientMisbehaviour):
        @classmethod
        def wanted(cls, options: object) -> None:
            raise NotImplementedError

    with pytest.raises(ExperimentError, match=naming("wanted", "attacked_samples")):
        check_subclass(Mine, ClientMisbehaviour, "mine:Mine", "adversary.clients")


MINE = """
from testbed.parties.client import RoleSpec
from testbed.selection.check_in import CheckInRole
from testbed.adversary.misbehaviour import ClientMisbehaviour
from testbed.adversary.poisoned_samples import FlipLabels
from testbed.selection.contract import SelectionParameters
from testbed.selection.random_selection import RandomSelection
from testbed.training import Trainer

class Relabelled(ClientMisbehaviour, Trainer):
    name, extends = "relabelled", Trainer
    @classmethod
    def wanted(cls, options): return None

class Boastful(ClientMisbehaviour, Trainer):
    name, extends = "boastful", Trainer
    def told(self, *arguments): return None

class Flipped(FlipLabels):
    name = "flipped"
    def learned(self, *arguments): return None

class LossyParameters(SelectionParameters):
    @property
    def by_losses(self): return "start"

class Lossy(RandomSelection):
    Parameters = LossyParameters

class Sure(CheckInRole):
    def certain_answer(self, *arguments): return None

class WithRole(RandomSelection):
    Parameters = SelectionParameters
    roles = (RoleSpec(Sure, None),)
"""


@pytest.mark.parametrize(
    ("section", "place", "former", "present"),
    [
        ({"adversary": {"dishonest": 2, "clients": ["former:Relabelled"]}}, "clients", "wanted", "attacked_samples"),
        ({"adversary": {"dishonest": 2, "clients": ["former:Boastful"]}}, "clients", "told", "training_report"),
        ({"adversary": {"dishonest": 2, "clients": ["former:Flipped"]}}, "clients", "learned", "train_on_poisoned"),
        (
            {"selection": {"protocol": "former:Lossy", "participants": 4}},
            "selection",
            "by_losses",
            "uses_reported_losses",
        ),
        (
            {"selection": {"protocol": "former:WithRole", "participants": 4}},
            "Sure",
            "certain_answer",
            "shared_answer_predicate",
        ),
    ],
)
def test_an_experiment_with_an_override_of_a_former_name(
    section: dict[str, Any], place: str, former: str, present: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "former.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "former", raising=False)
    settings = {"selection": {"participants": 4}, "aggregation": {"protocol": "plain"}} | section
    with pytest.raises(ExperimentError, match=naming(place, former, present)):
        RunPlan(Experiment(name="former", rounds=1, population=12, **settings), 1)
