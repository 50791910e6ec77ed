"""The server of the live report: it answers who knows its address, by its own name, and only with what it reads."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from analysis.live import server as report_server
from analysis.live.server import SILENT_S, ReportServer, _PageHandler
from testbed.cli import main
from testbed.errors import ExperimentError, RunError
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


@contextmanager
def served(runs: Path) -> Iterator[ReportServer]:
    """A server of its own, while the block runs."""
    made = ReportServer([str(runs)])
    serving = threading.Thread(target=made.serve)
    serving.start()
    try:
        yield made
    finally:
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


def test_many_readers_who_come_at_once_are_all_answered(runs: Path) -> None:
    """They wait until they are accepted; a queue that is full drops them, and they come again after seconds."""
    made = ReportServer([str(runs)])
    readers = [socket.create_connection(("127.0.0.1", made.port), timeout=2) for _ in range(200)]
    serving = threading.Thread(target=made.serve)
    serving.start()
    try:
        for reader in readers:
            reader.settimeout(60)
            reader.sendall(f"GET /{token(made)}/ HTTP/1.1\r\nHost: 127.0.0.1:{made.port}\r\n\r\n".encode())
        pages = {read_answer(reader) for reader in readers}
    finally:
        made.stop()
        serving.join(10)
    (page,) = pages
    assert b"Runs under way" in page
    for reader in readers:
        reader.close()


def read_answer(reader: socket.socket) -> bytes:
    """The body of an answer on a connection that stays open."""
    answer = http.client.HTTPResponse(reader)
    answer.begin()
    assert answer.status == 200
    return answer.read()


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server has closed the connection."""
    connection.settimeout(30)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_connection_that_says_nothing_is_closed(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _PageHandler.timeout == SILENT_S <= 5
    monkeypatch.setattr(_PageHandler, "timeout", 0.05)
    with served(runs) as made, socket.create_connection(("127.0.0.1", made.port)) as silent:
        assert is_closed(silent)


def test_who_does_not_know_the_token_is_asked_no_more(server: ReportServer) -> None:
    for path, host in (("/x/", "127.0.0.1"), (f"/{token(server)}/", "evil.example")):
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{server.port}\r\n\r\n".encode())
            answer = http.client.HTTPResponse(stranger)
            answer.begin()
            assert (answer.status in (403, 404), answer.headers["Connection"]) == (True, "close")
            answer.read()
            assert is_closed(stranger)


def test_strangers_who_are_too_many_keep_no_reader_out(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_server, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(_PageHandler, "timeout", 600)
    with served(runs) as made:
        reader = http.client.HTTPConnection("127.0.0.1", made.port, timeout=30)
        reader.request("GET", f"/{token(made)}/progress")
        assert reader.getresponse().read()
        strangers = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(5)]
        assert all(is_closed(stranger) for stranger in strangers[:3])  # the oldest first
        reader.request("GET", f"/{token(made)}/progress")  # on the same connection
        assert reader.getresponse().read()
        assert ask(made, f"/{token(made)}/")[0] == 200
        for stranger in strangers:
            stranger.close()
        reader.close()


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
    asked = _PageHandler.__new__(_PageHandler)
    asked.port = 80
    assert asked._names() == {"127.0.0.1", "localhost", "127.0.0.1:80", "localhost:80"}
    asked.port = 8000
    assert asked._names() == {"127.0.0.1:8000", "localhost:8000"}


def test_runs_that_come_back_are_no_longer_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.live.server._LOOK_EVERY_S", 0.0)
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
