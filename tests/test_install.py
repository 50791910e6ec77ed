"""`make demo` and `make test` install their dependencies, with uv where it can follow pip's settings, else with pip."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import install
from tests.repository import ROOT


def planned(target: str, tmp_path: Path) -> list[str]:
    """The lines that make would run for a target in a new environment."""
    command = ["make", "-n", target, f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def installed(lines: list[str]) -> list[str]:
    """The parts that `tests/install.py` installs in some lines, in their order."""
    return [line.split()[-1] for line in lines if "tests/install.py" in line]


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("demo", ["demo"]),
        ("papers", ["demo"]),
        ("hashes", ["demo"]),
        ("wheel", ["demo"]),
        ("docs", ["demo", "docs"]),
        ("test", ["demo", "test"]),
        ("test-all", ["demo", "test"]),
        ("lint", ["demo", "test"]),
        ("oracles", ["demo", "test"]),
        ("coverage", ["demo", "test"]),
        ("fuzz", ["demo", "test"]),
        ("search", ["demo", "test"]),
        ("bench", ["demo", "test"]),
        ("faults", ["demo", "test"]),
    ],
)
def test_a_target_installs_what_it_needs(target: str, parts: list[str], tmp_path: Path) -> None:
    assert installed(planned(target, tmp_path)) == parts


def test_the_environment_of_a_flower_app_comes_after_the_tests_packages(tmp_path: Path) -> None:
    lines = planned("test", tmp_path)
    flower = next(number for number, line in enumerate(lines) if "beside.py" in line)
    assert flower > max(number for number, line in enumerate(lines) if "tests/install.py" in line)


def test_the_extras_exist_and_uv_is_pinned() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {part.extra for part in install.PARTS.values()} <= extras.keys()
    assert any(line.startswith("uv==") for line in (ROOT / "constraints.txt").read_text().splitlines())


def test_settings_of_pip_are_read_as_pip_weighs_them() -> None:
    listed = "\n".join(
        [
            ":env:.index-url='https://env.example/simple'",
            "global.extra-index-url='\\nhttps://one.example/simple\\nhttps://two.example/simple'",
            "global.index-url='https://file.example/simple'",
            "install.find-links='/wheels'",
            "list.format='columns'",
        ]
    )
    assert install.settings_of(listed) == {
        "index-url": "https://env.example/simple",
        "extra-index-url": "https://one.example/simple https://two.example/simple",
        "find-links": "/wheels",
    }


def test_settings_of_pip_reach_uv() -> None:
    settings = {"index-url": "https://mine.example/simple", "find-links": "/wheels", "timeout": "60"}
    made = install.uv_environment(settings, {"HOME": "/home/me"})
    assert made == {"HOME": "/home/me", "UV_DEFAULT_INDEX": "https://mine.example/simple", "UV_FIND_LINKS": "/wheels"}
    own = {"UV_DEFAULT_INDEX": "https://other.example/simple"}
    assert install.uv_environment(settings, own) == {**own, "UV_FIND_LINKS": "/wheels"}
    several = install.uv_environment({"extra-index-url": "https://more.example/simple"}, {})
    assert several is not None
    assert several["UV_INDEX"] == "https://more.example/simple"
    assert several["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_settings_that_uv_has_no_variable_for_leave_it_to_pip() -> None:
    assert install.uv_environment({"no-index": "true"}, {}) is None


UV_STUB = "import sys; print('uv', *sys.argv[1:]); sys.exit({code})"
PIP_STUB = """
import sys
print("pip", *sys.argv[1:])
if "list" in sys.argv:
    print({settings!r})
sys.exit("uv" in sys.argv and {uv_code})
"""


@pytest.mark.parametrize(
    ("uv", "uv_code", "settings", "ends_with"),
    [
        (True, 0, "", "uv"),
        (True, 1, "", "pip"),
        (False, 1, "", "pip"),
        (True, 0, "global.no-index='true'", "pip"),
    ],
    ids=["uv", "uv-fails", "no-uv", "a-setting-for-pip-alone"],
)
def test_what_installs(
    uv: bool, uv_code: int, settings: str, ends_with: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With stand-ins for both programs, each of which prints how it is called."""
    (tmp_path / "pip.py").write_text(PIP_STUB.format(settings=settings, uv_code=uv_code))
    if uv:
        text = UV_STUB.format(code=f"{uv_code} if 'install' in sys.argv else 0")
        (tmp_path / "uv.py").write_text(text)
    else:
        (tmp_path / "uv.py").write_text("raise ModuleNotFoundError")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import runpy; sys.argv = ['install.py', 'demo']\n"
    program += f"runpy.run_path({str(ROOT / 'tests/install.py')!r}, run_name='__main__')"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    calls = [line for line in done.stdout.splitlines() if line.endswith("--editable .[all]")]
    assert calls[-1].startswith(ends_with), done.stdout
    said = [line for line in done.stdout.splitlines() if line.startswith("installing ")]
    assert len(said) == (2 if uv and uv_code else 1)
    assert all("GB" in line and "minute" in line for line in said)
