"""Verbs of `testbed` are entry points: of this project, imported when they are called, and of other packages."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from testbed.cli.verbs import GROUP, OTHERS, PANELS
from testbed.extras import PROJECT
from testbed.plugins.entry_points import own_points
from tests.commands.conftest import SMALL, Ended
from tests.repository import ROOT

Call = Callable[..., Ended]
Install = Callable[..., None]

HELLO = """
import typer
from testbed.cli.invocation import Debug, verb
from testbed.cli.terminal import echo

@verb("", imports=True)
def hello(name: str, debug: Debug = False) -> None:
    '''Greet somebody.'''
    echo(f"hello {name}")

several = typer.Typer(help="Say several things.")

@several.command()
def goodbye() -> None:
    '''Say goodbye.'''
    echo("goodbye")

@several.command()
def thanks() -> None:
    '''Say thanks.'''
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a package as pip would leave it, the first on the path. The tree of commands is built anew at each call."""
    built_once: Any = typer.main.get_command
    monkeypatch.setattr(typer.main, "get_command", built_once.__wrapped__)

    def made(distribution: str, verbs: Mapping[str, str], **modules: str) -> None:
        site = tmp_path / f"site-{distribution}"
        about = site / f"{distribution.replace('-', '_')}-1.5.dist-info"
        about.mkdir(parents=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        lines = [f"[{GROUP}]", *(f"{name} = {target}" for name, target in verbs.items())] if verbs else []
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(site)

    return made


def test_each_verb_of_ours_has_its_place_in_the_help() -> None:
    places = [name for names in PANELS.values() for name in names]
    assert sorted(places) == sorted(own_points(GROUP))
    assert len(places) == len(set(places))


def test_a_verb_imports_no_other() -> None:
    code = f"""
import sys
from testbed.cli import main
from testbed.plugins.entry_points import own_points
assert main(["new", "--help"]) == 0
print(*sorted({{point.module for point in own_points({GROUP!r}).values()}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "testbed.cli.new"


def test_other_packages_add_verbs_and_groups(install: Install, call: Call) -> None:
    install("greetings", {"hello": "greetings_module:hello", "say": "greetings_module:several"}, greetings_module=HELLO)
    assert call("hello", "Ada").out == "hello Ada\n"
    assert call("say", "goodbye").out == "goodbye\n"
    lines = call("--help").out.splitlines()
    (panel,) = [number for number, line in enumerate(lines) if OTHERS in line]
    assert "hello" in lines[panel + 1]
    assert "Greet somebody." in lines[panel + 1]
    assert "say" in lines[panel + 2]


def test_a_name_of_ours_stays_ours(install: Install, call: Call) -> None:
    install("impostor", {"schema": "impostor_module:schema"}, impostor_module="raise RuntimeError('imported')")
    assert call("schema").code == 0


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit", "KeyboardInterrupt"])
def test_a_verb_that_cannot_be_imported_spoils_no_other(error: str, install: Install, call: Call) -> None:
    install("broken", {"broken": "broken_module:verb"}, broken_module=f"raise {error}('no licence')")
    why = f"of broken 1.5, cannot be imported: {error}: no licence"
    assert call("broken").errors == [f"error: testbed broken: {why}"]
    assert call("broken").code == 3
    ended = call("--help")
    assert ended.code == 0
    assert "Not usable: of broken 1.5" in ended.out


def test_a_damaged_package_of_others_spoils_no_verb(install: Install, tmp_path: Path) -> None:
    install("damaged", {})
    site = tmp_path / "site-damaged"
    (site / "damaged-1.5.dist-info" / "entry_points.txt").write_text("[console_scripts]\nno equals sign\n")
    experiment = tmp_path / "small.yaml"
    experiment.write_text(yaml.safe_dump(SMALL | {"rounds": 1}))
    arguments = ["run", str(experiment), "--out", str(tmp_path / "run"), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "testbed", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_stop_while_a_verb_is_imported_stops(install: Install, call: Call) -> None:
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    install("slow", {"slow": "slow_module:verb"}, slow_module=stop)
    assert call("slow").code == 143


def test_an_object_that_is_no_verb_is_refused(install: Install, call: Call) -> None:
    install("careless", {"careless": "careless_module:NUMBER"}, careless_module="NUMBER = 3\n")
    (line,) = call("careless").errors
    assert "TypeError: 3 is neither a Verb of testbed.cli.invocation nor a typer.Typer" in line


def test_two_packages_with_one_verb_are_refused_where_it_is_called(install: Install, call: Call) -> None:
    install("one", {"hello": "one_module:hello"}, one_module=HELLO)
    install("two", {"hello": "two_module:hello"}, two_module=HELLO)
    line = "error: testbed hello: offered by one 1.5 and two 1.5; uninstall all but one"
    assert call("hello").errors == [line]
    assert call("schema").code == 0


def test_an_installation_older_than_the_code_is_a_line(install: Install, call: Call) -> None:
    install(PROJECT, {})
    assert metadata.version(PROJECT) == "1.5"
    for arguments in (["--help"], ["schema"], ["no-such-verb"]):
        line = call(*arguments).line(3)
        assert line == (
            f"error: the installation of {PROJECT} is older than its code and lacks the entry points {GROUP}; "
            "install it again, e.g. `pip install --editable .` in its folder"
        )


def test_an_installation_with_verbs_of_an_earlier_version_is_a_line(install: Install, call: Call) -> None:
    install(PROJECT, {"validate": "testbed.commands.validate:validate", "run": "testbed.cli.run:run_it"})
    for verb in ("validate", "run", "check"):
        line = call(verb, "mine.yaml").line(3)
        assert line == (
            f"error: the installation of {PROJECT} is older than its code and lacks {verb} of {GROUP}; "
            "install it again, e.g. `pip install --editable .` in its folder"
        )


def test_a_console_script_of_an_earlier_installation_reaches_the_command() -> None:
    code = "from testbed.commands import main; raise SystemExit(main(['--version']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("testbed ")
