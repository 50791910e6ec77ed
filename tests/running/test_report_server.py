"""The server of the live report: it answers who knows its address, by its own name, and only with what it reads."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.commands import main
from testbed.errors import ExperimentError, RunError
from testbed.running.report_server import ReportServer, _Handler
from tests.analysis.recorded import synthetic_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    synthetic_run(folder / "random", rounds=3)
    return folder


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[ReportServer]:
    made = ReportServer([str(runs)])
    serving = threading.Thread(target=made.serve)
    serving.start()
    yield made
    made.stop()
    serving.join(10)


def ask(server: ReportServer, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    assert answer.headers["Cache-Control"] == "no-store" or found[0] >= 500
    connection.close()
    return found


def token(server: ReportServer) -> str:
    return server.address.split("/", 3)[3].strip("/")


def test_nothing_without_the_token(server: ReportServer) -> None:
    for path in (
        "/",
        "/progress",
        f"/{token(server)[:-1]}/",
        f"/{token(server)}x/progress",
        "/%C3%A9/",
    ):
        assert ask(server, path)[0] == 404
    assert ask(server, f"/{token(server)}/")[0] == 200
    assert len(token(server)) >= 32


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", ""])
def test_another_name_is_refused(server: ReportServer, host: str) -> None:
    assert ask(server, f"/{token(server)}/", host=host.format(port=server.port))[0] == 403


def test_it_only_reads(server: ReportServer) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(server, f"/{token(server)}/", method)[0] == 501
    assert ask(server, f"/{token(server)}/", "HEAD") == (200, b"")
    for path in ("../experiment.yaml", "rounds/-1", "rounds/99", "rounds/x", "rounds/1e1", "%2e%2e/x"):
        assert ask(server, f"/{token(server)}/{path}")[0] == 404


def test_progress_then_facts(server: ReportServer) -> None:
    for _ in range(200):
        standing = json.loads(ask(server, f"/{token(server)}/progress")[1])
        if standing["facts"] is not None:
            break
    assert standing["status"]["runs"][0]["rounds_done"] == 3
    facts = json.loads(ask(server, f"/{token(server)}/facts")[1])
    assert facts["title"] == "synthetic"
    assert ask(server, f"/{token(server)}/rounds/0")[0] == 200
    again = json.loads(ask(server, f"/{token(server)}/progress")[1])
    assert again["facts"] == standing["facts"]  # nothing has changed, so nothing is made anew


def test_without_the_last_slash_it_leads_to_the_page(server: ReportServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", f"/{token(server)}")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"], answer.read()) == (308, f"/{token(server)}/", b"")
    connection.close()


def test_what_browsers_call_the_default_port() -> None:
    asked = _Handler.__new__(_Handler)
    asked.port = 80
    assert asked._names() == {"127.0.0.1", "localhost", "127.0.0.1:80", "localhost:80"}
    asked.port = 8000
    assert asked._names() == {"127.0.0.1:8000", "localhost:8000"}


def test_runs_that_come_back_are_no_longer_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.running.report_server._LOOK_EVERY_S", 0.0)
    synthetic_run(tmp_path / "runs" / "random", rounds=2)
    made = ReportServer([str(tmp_path / "runs")])
    serving = threading.Thread(target=made.serve)
    serving.start()
    try:
        (tmp_path / "runs").rename(tmp_path / "away")
        missing = json.loads(ask(made, f"/{token(made)}/progress")[1])
        assert "no such directory" in missing["error"]
        assert missing["status"]["runs"][0]["rounds_done"] == 2  # the last that was seen
        (tmp_path / "away").rename(tmp_path / "runs")
        for _ in range(200):
            standing = json.loads(ask(made, f"/{token(made)}/progress")[1])
            if standing["facts"] is not None and standing["error"] == "":
                break
            time.sleep(0.02)
        else:
            raise AssertionError(standing["error"])
    finally:
        made.stop()
        serving.join(10)


def test_what_is_wrong_is_said_before_it_serves(
    server: ReportServer, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RunError, match="no runs here"):
        ReportServer([str(tmp_path)])
    with pytest.raises(ExperimentError, match=f"--port {server.port}: "):
        ReportServer([str(runs)], port=server.port)
    assert main(["report", str(runs), "--serve", "--out", str(tmp_path / "page.html")]) == 2
    assert main(["report", "s3://bucket/runs", "--serve"]) == 2
    assert main(["report", str(tmp_path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
