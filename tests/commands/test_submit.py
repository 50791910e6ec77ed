"""`testbed submit` and `testbed jobs` without a cluster: addresses that are none, and how ends are told."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer

from cluster.cli.jobs import end
from cluster.jobs.package import pack
from cluster.jobs.submission import Job, _LogPrinter, default_address, records_at, why_failed

JOB = Job("x-1", "FAILED", "x", "~/testbed-runs/x", None, None, None, "")


@pytest.fixture(autouse=True)
def no_ray_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # nothing here is Ray's own: this process stays as it is
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[Callable[[int, str], str]]:
    """An HTTP server that answers everything with the same; returns its address."""
    running = []

    def serve(status: int, body: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=running[-1].serve_forever, args=(0.02,), daemon=True).start()  # seconds to `shutdown`
        return f"http://127.0.0.1:{running[-1].server_port}"

    yield serve
    for each in running:
        each.shutdown()
        each.server_close()


@pytest.mark.parametrize(
    ("address", "code", "expected"),
    [
        ("http://127.0.0.1:1", 3, "no Ray dashboard at http://127.0.0.1:1"),
        ("HEAD:6379", 2, "expected the dashboard's"),
        ("ray://127.0.0.1:10001", 2, "expected the dashboard's"),
        ("http://[", 2, "not an address"),
    ],
)
def test_addresses_where_no_dashboard_is(
    call: Callable[..., Any], written: Callable[..., Path], address: str, code: int, expected: str
) -> None:
    for command in (("submit", written()), ("jobs", "list"), ("jobs", "stop", "x-1")):
        ended = call(*command, "--address", address)
        assert ended.code == code
        assert len(ended.errors) == 1
        assert expected in ended.err


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, "<html>It works!</html>", "is not a Ray dashboard"),
        (404, "", "is not a Ray dashboard"),
        (200, "[]", "is not a Ray dashboard"),
        (401, "Unauthorized: Missing authentication token", "requires a token"),
        (403, "Forbidden: Invalid authentication token", "token"),
        (403, "go away", "is not a Ray dashboard"),
        (200, '{"ray_version": "2.9.3"}', "needs 2.54 or newer"),
    ],
)
def test_servers_that_will_not_do(
    call: Callable[..., Any], server: Callable[[int, str], str], status: int, body: str, expected: str
) -> None:
    ended = call("jobs", "list", "--address", server(status, body))
    assert ended.code == 3
    assert len(ended.errors) == 1
    assert expected in ended.err


def test_a_mistake_in_the_experiment_needs_no_cluster(call: Callable[..., Any], written: Callable[..., Path]) -> None:
    ended = call("submit", written(), "--set", "rounds=0", "--address", "http://127.0.0.1:1")
    assert ended.code == 2
    assert "rounds" in ended.err


def test_results_would_go_over_something_else(
    call: Callable[..., Any], written: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("")
    ended = call("submit", written(), "--follow", "--to", tmp_path / "notes", "--address", "http://127.0.0.1:1")
    assert (ended.code, "--to" in ended.err) == (3, True)


def test_the_address_is_that_of_rays_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_address() == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "HEAD:6379")  # not a dashboard
    assert default_address() == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "http://a:1")
    assert default_address() == "http://a:1"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "https://b:2")
    assert default_address() == "https://b:2"


@pytest.mark.parametrize(
    ("out", "there"),
    [
        (None, "~/testbed-runs/small"),
        ("results/x", "~/results/x"),
        ("~/x", "~/x"),
        ("/shared/x", "/shared/x"),
        ("s3://bucket/x", "s3://bucket/x"),
    ],
)
def test_records_lie_where_they_last(written: Callable[..., Path], tmp_path: Path, out: str | None, there: str) -> None:
    assert records_at(out, pack(written(), [], tmp_path)) == there


@pytest.mark.parametrize(
    ("state", "exit_code", "code"),
    [("FAILED", 2, 2), ("FAILED", 3, 3), ("FAILED", 4, 4), ("FAILED", 130, 130), ("FAILED", 1, 3), ("FAILED", None, 3),
     ("FAILED", -9, 3), ("STOPPED", None, 130)],
)  # fmt: skip
def test_the_command_ends_as_the_job(
    capsys: pytest.CaptureFixture[str], state: str, exit_code: int | None, code: int
) -> None:
    job = replace(JOB, state=state, exit_code=exit_code, message="error: [x] is wrong\n")
    with pytest.raises(typer.Exit) as ended:
        end(job, "testbed submit x --resume")
    assert ended.value.exit_code == code
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert ("--resume" in said) == (code not in (2, 4))
    end(replace(JOB, state="SUCCEEDED", exit_code=0))


@pytest.mark.parametrize(
    ("exit_code", "message", "expected"),
    [
        (3, "failed with exit code 3, last available logs:\nx: round 1\nerror: a\nerror: [b]: c\n", "[b]: c"),
        (1, "logs:\nTraceback\nModuleNotFoundError: No module named 'typer'\n", "no module 'typer'"),
        (127, "logs:\nsh: 1: exec: python: not found\n", "no Python found"),
        (None, "runtime_env setup failed: Failed to set up\nCould not download\n", "Could not download"),
        (None, "", "no reason"),
    ],
)
def test_why_a_job_failed_is_one_line(exit_code: int | None, message: str, expected: str) -> None:
    line = why_failed(replace(JOB, exit_code=exit_code, message=message))
    assert expected in line
    assert "\n" not in line


def test_a_log_told_again_is_passed_on_once() -> None:
    told: list[str] = []
    seen = _LogPrinter(told.append)
    for chunks in (["ab", "cd"], ["abc", "def"], [], ["a", "b", "c", "d", "e", "f", "g"]):
        seen.begin()
        for chunk in chunks:
            seen.take(chunk)
    assert "".join(told) == "abcdefg"


def test_the_list_of_jobs(call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake:
        def __init__(self, address: str | None) -> None:
            pass

        def experiments(self) -> list[Job]:
            return [
                replace(JOB, state="RUNNING", started=datetime(2026, 1, 2, tzinfo=UTC)),
                replace(JOB, id="longer-name-2", state="PENDING"),
            ]

    monkeypatch.setattr("cluster.jobs.submission.Jobs", Fake)
    header, first, second = call("jobs", "list").out.splitlines()
    assert header.split() == ["ID", "STATE", "STARTED", "TOOK", "RECORDS"]
    assert first.startswith("x-1            running  ")
    assert second.split() == ["longer-name-2", "pending", "~/testbed-runs/x"]
    listed = json.loads(call("jobs", "list", "--format", "json").out)
    assert [job["started"] for job in listed] == ["2026-01-02T00:00:00+00:00", None]
