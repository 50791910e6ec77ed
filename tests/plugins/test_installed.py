"""Plug-ins of installed packages: found by name without an import, refused in a line, imported when they are used."""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from testbed import Experiment, run
from testbed.cli import main
from testbed.errors import ExperimentError
from testbed.experiment.inputs import plugin_classes
from testbed.experiment.plugin_names import BUILT_IN
from testbed.experiment.schema import points, validated
from testbed.plugins import installed as installed_now
from testbed.plugins.installed import GROUP, KINDS, installed
from testbed.records import find_runs
from tests.commands.conftest import SMALL
from tests.repository import ROOT

Install = Callable[..., Path]
MODULE = (ROOT / "examples" / "own_selection.py").read_text()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a package as pip would leave it: modules, metadata, entry points; its modules are forgotten afterwards."""

    def made(distribution: str, points: Mapping[str, str], **modules: str) -> Path:
        site = tmp_path / f"site-{distribution}"
        about = site / f"{distribution.replace('-', '_')}-1.5.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        lines = [f"[{GROUP}]", *(f"{name} = {target}" for name, target in points.items())]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(site)
        return site

    return made


def experiment(**sections: object) -> Experiment:
    return validated({"population": 20, **sections}, "file.yaml")


@pytest.fixture
def turns(install: Install) -> Path:
    return install("turn-taking", {"selection.turns": "turn_taking_plugin:TakingTurns"}, turn_taking_plugin=MODULE)


TURNS = {"protocol": "turns", "participants": 5, "start": 3}


def test_a_name_stands_for_the_class_and_nothing_is_imported(turns: Path) -> None:
    found = experiment(selection=TURNS)
    assert found.selection.protocol == "turn_taking_plugin:TakingTurns"
    assert found.selection.model_extra == {"start": 3}
    assert plugin_classes(found) == [("selection.protocol", "turn_taking_plugin:TakingTurns")]
    assert "turn_taking_plugin" not in sys.modules
    assert Experiment(population=20, selection=TURNS) == found  # built in Python, too


def test_a_point_of_a_sweep_may_name_one_and_is_called_so(turns: Path) -> None:
    both = experiment(selection={"participants": 5}, sweep={"selection.protocol": ["random", "turns"]})
    labels = {point.label: point.experiment.selection.protocol for point in points(both, "file.yaml")}
    assert labels == {"random": "random", "turns": "turn_taking_plugin:TakingTurns"}


def test_it_runs_and_the_records_say_where_it_is_from_and_need_no_package(
    turns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Experiment(**{**SMALL, "rounds": 1, "population": 20, "selection": TURNS})
    run(asked, out=tmp_path / "run", network="in-process")
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(turns)])
    monkeypatch.delitem(sys.modules, "turn_taking_plugin")
    (recorded,) = find_runs(tmp_path / "run")
    assert recorded.participation["client"].tolist() == [3, 4, 5, 6, 7]
    written = yaml.safe_load((tmp_path / "run" / "experiment.yaml").read_text())
    assert written["provenance"]["plugins"] == {"turn_taking_plugin:TakingTurns": "selection.turns of turn-taking 1.5"}
    assert "turn_taking_plugin.py" in written["provenance"]["modules"]
    assert Experiment.load(tmp_path / "run" / "experiment.yaml").selection.protocol == "turn_taking_plugin:TakingTurns"
    assert "turn_taking_plugin" not in sys.modules


def test_every_place_for_a_class_takes_a_name(install: Install) -> None:
    install("many", {f"{kind}.mine": "many_plugins:Mine" for kind in KINDS})
    found = experiment(
        selection={"protocol": "mine"},
        aggregation={"protocol": "mine", "server_optimizer": {"name": "mine"}},
        workload={
            "dataset": "mine",
            "model": "mine",
            "partition": {"scheme": "mine"},
            "loss": "mine",
            "metrics": ["mine"],
            "optimizer": "mine",
        },
        devices={"model": "mine"},
        links={"model": "mine"},
        availability={"model": "mine"},
        classes={"phones": {"share": 0.5, "device": {"model": "mine"}}, "others": {"share": 0.5}},
        adversary={"dishonest": 1, "server": "mine", "clients": [{"mine": {"much": 2}}]},
        output={"observers": [{"name": "mine", "file": "x"}]},
    )
    keys = {key for key, _ in plugin_classes(found)}
    declared = {key.replace("*", "phones") for kind in KINDS for key in KINDS[kind]} - {"output.observers"}
    assert keys == declared - {"aggregation.robust.rule"}  # a section of plain
    plain = experiment(aggregation={"protocol": "plain", "weights": "equal", "robust": {"rule": "mine"}})
    assert plugin_classes(plain) == [("aggregation.robust.rule", "many_plugins:Mine")]
    assert {name for _, name in plugin_classes(found)} == {"many_plugins:Mine"}
    assert found.output.observers == [{"name": "many_plugins:Mine", "file": "x"}]
    assert found.adversary is not None
    assert found.adversary.clients == [{"many_plugins:Mine": {"much": 2}}]
    assert BUILT_IN.keys() == KINDS.keys()


def test_a_built_in_name_stays_what_it_is_and_the_list_says_why_the_other_is_refused(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("impostor", {"selection.random": "impostor_plugin:Random"})
    assert experiment().selection.protocol == "random"
    (row,) = _listed(capsys)
    assert row["what"] == "refused: random is built in; give the plug-in another name"


def test_two_packages_with_one_name_are_refused_where_it_is_used(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("one", {"selection.turns": "one_plugin:Turns"})
    install("two", {"selection.turns": "two_plugin:Turns"})
    with pytest.raises(ExperimentError) as refused:
        experiment(selection=TURNS)
    why = "offered by one 1.5 and two 1.5; uninstall all but one, or name the class as package.module:Name"
    assert str(refused.value) == f"file.yaml: selection.protocol: turns: {why}"
    assert experiment(aggregation={"protocol": "plain"}).selection.protocol == "random"
    assert [row["what"] for row in _listed(capsys)] == [f"refused: {why}"] * 2


@pytest.mark.parametrize(
    ("name", "target", "says"),
    [
        ("turns", "broken:Turns", "its name must be KIND.NAME, in lower case, with one of the kinds selection, "),
        ("sellection.turns", "broken:Turns", "its name must be KIND.NAME"),
        ("selection.Turns", "broken:Turns", "its name must be KIND.NAME"),
        ("selection.turns", "broken", "'broken' must be package.module:Name"),
    ],
)
def test_an_entry_point_that_is_none_is_named_in_the_list(
    name: str, target: str, says: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("careless", {name: target})
    (row,) = _listed(capsys)
    assert row["what"].startswith(f"refused: {says}")
    assert row["package"] == "careless 1.5"


def test_one_that_cannot_be_imported_is_a_line_for_whoever_names_it_and_nobody_else(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = "raise RuntimeError('no licence\\nhere')"
    install("broken", {"selection.broken": "broken_plugin:Broken"}, broken_plugin=broken)
    file = tmp_path / "e.yaml"
    file.write_text(yaml.safe_dump({**SMALL, "selection": {"protocol": "broken", "participants": 5}}))
    line = "broken of broken 1.5 cannot be imported: RuntimeError: no licence here"
    assert main(["validate", str(file), "--import-classes"]) == 2
    assert capsys.readouterr().err == f"error: {file}: selection.protocol: {line}\n"
    assert main(["validate", str(file)]) == 0  # imports nothing
    capsys.readouterr()
    (row,) = _listed(capsys)
    assert row["what"] == f"refused: selection.protocol: {line}"
    assert main(["validate", str(file), "--set", "selection.protocol=random", "--import-classes"]) == 0


def test_one_that_exits_hides_nothing_and_ends_nothing(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("exits", {"selection.exits": "exits_plugin:Exits"}, exits_plugin="import sys\nsys.exit(0)\n")
    line = "selection.protocol: exits of exits 1.5 cannot be imported: SystemExit: 0"
    assert [row["what"] for row in _listed(capsys)] == [f"refused: {line}"]
    assert {"random", "exits"} <= {row["name"] for row in _listed(capsys, "protocols")}
    file = tmp_path / "e.yaml"
    file.write_text(yaml.safe_dump({**SMALL, "selection": {"protocol": "exits", "participants": 5}}))
    assert main(["run", str(file), "--network", "in-process", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == f"error: {file}: {line}\n"


@pytest.mark.parametrize("group", ["console_scripts", GROUP])
def test_a_package_whose_entry_points_cannot_be_read_concerns_nobody(
    group: str, turns: Path, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    site = install("garbled", {})
    (site / "garbled-1.5.dist-info" / "entry_points.txt").write_text(f"[{group}]\nno equals sign\n")
    installed_now._installed.cache_clear()
    assert experiment(selection=TURNS).selection.protocol == "turn_taking_plugin:TakingTurns"
    others = [row for row in _listed(capsys) if row["name"] != "turns"]
    if group != GROUP:
        assert others == []
    else:
        (row,) = others
        assert row["package"] == "garbled 1.5"
        assert row["what"].startswith("refused: its entry_points.txt cannot be read: ")


def test_a_package_is_read_once_wherever_it_lies_again(install: Install, tmp_path: Path) -> None:
    install("twice", {"selection.twice": "twice_plugin:Twice"})
    again = tmp_path / "site-twice" / "again"
    again.mkdir()
    shutil.copytree(tmp_path / "site-twice" / "twice-1.5.dist-info", again / "twice-1.5.dist-info")
    sys.path.insert(0, str(again))
    try:
        assert [(one.name, one.problem) for one in installed()] == [("twice", "")]
    finally:
        sys.path.remove(str(again))


def test_a_misspelt_name_is_answered_with_the_one_that_is_offered(turns: Path) -> None:
    with pytest.raises(ExperimentError) as refused:
        experiment(selection={"protocol": "turn"})
    line = "file.yaml: selection.protocol: unknown 'turn'; did you mean 'turns' of turn-taking 1.5?"
    assert str(refused.value) == line
    with pytest.raises(ExperimentError, match="unknown protocol 'auction'; did you mean 'partition'"):
        experiment(selection={"protocol": "auction"})


def test_the_lists_have_what_is_installed_and_what_it_says_of_itself(
    turns: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = _listed(capsys)
    assert row == {
        "key": "selection.protocol",
        "name": "turns",
        "package": "turn-taking 1.5",
        "class": "turn_taking_plugin:TakingTurns",
        "what": row["what"],
    }
    assert row["what"].startswith("The next K clients that are there")
    assert "turn_taking_plugin" in sys.modules
    found = [one for one in _listed(capsys, "protocols") if one["name"] == "turns"]
    assert [(one["key"], one["what"]) for one in found] == [("selection.protocol", f"{row['what']} (turn-taking 1.5)")]


def test_nothing_installed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert installed() == ()
    assert main(["list", "plugins"]) == 0
    assert capsys.readouterr().out.startswith("no installed package offers plug-ins")
    assert _listed(capsys) == []


def _listed(capsys: pytest.CaptureFixture[str], what: str = "plugins") -> list[dict[str, str]]:
    capsys.readouterr()
    assert main(["list", what, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["rows"]
