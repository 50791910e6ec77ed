"""The token that is sent, and messages without one; each in its own process, because Ray reads tokens once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.jobs import authentication
from tests.repository import ROOT

SECRET = "5ec4e7" * 10


def said(code: str, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Return the output of a process that has no token but those in `environment`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", f"from cluster.jobs.authentication import *\n{code}"],
        env=kept | {"HOME": str(tmp_path)} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


SENDS = """
use_token()
from ray._raylet import AuthenticationTokenLoader
print("sent" if AuthenticationTokenLoader.instance().get_token_for_http_header() else "nothing")
"""


def test_a_token_is_sent_when_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    for environment in ({"RAY_AUTH_TOKEN": SECRET}, {"RAY_AUTH_TOKEN_PATH": str(file)}):
        assert said(SENDS, tmp_path, **environment).stdout == "sent\n"
    assert said(SENDS, tmp_path).stdout == "nothing\n"
    assert said(SENDS, tmp_path, RAY_AUTH_TOKEN=SECRET, RAY_AUTH_MODE="disabled").stdout == "nothing\n"
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(SECRET)
    assert said(SENDS, tmp_path).stdout == "sent\n"


def test_a_path_without_a_file_is_one_line(tmp_path: Path) -> None:
    done = said(SENDS, tmp_path, RAY_AUTH_TOKEN_PATH=str(tmp_path / "nowhere"))
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1].startswith("testbed.errors.ClusterError: RAY_AUTH_TOKEN_PATH: ")


def test_a_mode_without_a_token_names_the_place_for_a_token(tmp_path: Path) -> None:
    done = said(SENDS, tmp_path, RAY_AUTH_MODE="token")
    assert done.returncode != 0
    line = done.stderr.strip().splitlines()[-1].removeprefix("testbed.errors.ClusterError: ")
    assert line.startswith("RAY_AUTH_MODE=token requires a token, and none was found: put it into ~/.ray/auth_token")


@pytest.mark.parametrize("variable", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", None])
def test_advice_names_the_source_and_never_the_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str | None
) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "token"
    file.write_text(SECRET)
    if variable is not None:
        monkeypatch.setenv(variable, SECRET if variable == "RAY_AUTH_TOKEN" else str(file))
    for text in (
        "Forbidden: Invalid authentication token",
        f"Unauthenticated: RPC error: InvalidAuthToken: Authentication token {SECRET} is missing or incorrect",
    ):
        line = authentication.advice(text)
        assert line is not None
        assert (variable or "none was found") in line
        assert SECRET not in line
        assert "\n" not in line


def test_advice_when_the_mode_keeps_the_token_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", SECRET)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    line = authentication.advice("Unauthorized: Missing authentication token")
    assert line is not None
    assert "unset RAY_AUTH_MODE" in line


@pytest.mark.parametrize("text", ["", "Failed to connect to Ray cluster", "Request failed with status code 500: no."])
def test_other_errors_are_not_about_tokens(text: str) -> None:
    assert authentication.advice(text) is None


@pytest.mark.parametrize("address", ["auto", "ray://head:10001", "127.0.0.1:1", "head", ":6379"])
def test_where_nothing_answers_nothing_is_refused(address: str) -> None:
    assert authentication.refused(address) is None
