"""User-defined classes that use a name of an earlier version are told the present one."""

import importlib
from pathlib import Path

import pytest

from testbed.adversary.misbehaviour import ClientMisbehaviour
from testbed.errors import ExperimentError
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
