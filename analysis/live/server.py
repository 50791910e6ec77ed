"""The report of runs in progress: a page on this machine's loopback, for readers with its address.

The address contains a random token that every request needs, and the server only reads. A request must also address the
server as 127.0.0.1 or localhost, so that a foreign page cannot reach it under a name of its own (DNS rebinding). Runs
are read only on request, and again only after they have recorded something.

Connections are limited in number and time. A silent connection, or one without the token, is closed soon; if there are
too many, the oldest of these is closed first, so that strangers cannot lock readers out.
"""

import contextlib
import functools
import hmac
import math
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ExperimentError, TestbedError, reason
from testbed.running.status import RunsAt, RunStatus, in_order, plain, run_directories, status

if TYPE_CHECKING:
    from analysis.live.page import LivePage
    from analysis.report.document import Document

HOST = "127.0.0.1"
WAITING_CONNECTIONS = 1024  # backlog of the listening socket, for many simultaneous readers
MOST_CONNECTIONS = 512  # each is a thread
SILENT_S, KNOWN_S = 3.0, 30.0  # time limits for a request, without and with the token
_LOOK_EVERY_S = 1.0
_SHARE = 4  # making the page takes at most one part in this many of the time
_PAGE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
}


class ReportServer:
    """Serves the page of the runs at or below some directories.

    Args:
        directories: of this machine; runs that are added later appear, too.
        targets, baseline: as for `analysis.report.write`.
        port: 0: any free port.

    Raises:
        ExperimentError: the port is in use or not permitted.
        RunError: there are no runs, or their records are damaged.
    """

    def __init__(
        self, directories: Sequence[str], targets: Sequence[str] = (), baseline: str | None = None, port: int = 0
    ) -> None:
        from analysis.live.page import LivePage

        self._token = secrets.token_urlsafe(24)
        self._runs = _Runs(directories, LivePage(targets, baseline))
        self._runs.progress()  # report errors in the directories before the first request
        try:
            self._server = _Server((HOST, port), _PageHandler)
        except OSError as error:
            raise ExperimentError(f"--port {port}: {error.strerror}; give another, or none for any free one") from None
        # Only now: with port 0, the system chooses the port as the server binds.
        self._server.RequestHandlerClass = _handler(self._runs, self._token, self.port)

    @property
    def port(self) -> int:
        """Port of the server."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """Address of the page, with the token that grants access."""
        return f"http://{HOST}:{self.port}/{self._token}/"

    def serve(self) -> None:
        """Answer requests until `stop` is called or an interrupt arrives."""
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self._server.server_close()

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._server.shutdown()


class _Server(ThreadingHTTPServer):
    """Server with a thread for each of at most `MOST_CONNECTIONS` connections."""

    daemon_threads = True
    request_queue_size = WAITING_CONNECTIONS

    def __init__(self, *arguments: Any) -> None:
        self._turn = threading.Lock()
        # Open connections, the oldest first, and whether they had the token.
        self._connections: dict[socket.socket, bool] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread; if there are too many connections, close another one."""
        with self._turn:
            if len(self._connections) >= MOST_CONNECTIONS:
                # The oldest connection without the token, if any.
                last = min(self._connections, key=self._connections.__getitem__)
                del self._connections[last]
                _hang_up(last)
            self._connections[request] = False
        super().process_request(request, client_address)

    def note_known(self, connection: socket.socket) -> None:
        """Note that the connection has shown the token; it will be closed last."""
        with self._turn:
            if self._connections.pop(connection, None) is not None:
                self._connections[connection] = True  # at the end: the oldest come first

    def shutdown_request(self, request: Any) -> None:
        """Close the connection and forget it."""
        with self._turn:
            self._connections.pop(request, None)
        super().shutdown_request(request)


def _hang_up(connection: socket.socket) -> None:
    """Shut down a connection of another thread, which then reads the end or fails to write and closes the socket."""
    with contextlib.suppress(OSError):  # already closed
        connection.shutdown(socket.SHUT_RDWR)


class _Runs:
    """Status and page of the runs, updated on request after changes."""

    def __init__(self, directories: Sequence[str], page: "LivePage") -> None:
        self._directories = directories
        self._page = page
        self._lock = threading.Lock()
        self._watched: list[RunsAt] = []
        self._looked_s = -math.inf
        self._statuses: dict[Path, tuple[str, RunStatus]] = {}
        self._stamps: tuple[str, ...] = ()
        self._made: Document | None = None
        self._facts: bytes | None = None
        self._number = 0
        self._missing = ""  # why the directories cannot be read at present
        self._error = ""  # why the page could not be made
        self._maker: threading.Thread | None = None
        self._not_before_s = 0.0

    def progress(self) -> bytes:
        """Return JSON: ``status`` (`testbed.running.status.plain`), the number of ``facts`` or null, an ``error``."""
        with self._lock:
            if time.monotonic() - self._looked_s >= _LOOK_EVERY_S:
                self._look()
                self._looked_s = time.monotonic()
            answer = {
                "status": plain(self._watched),
                "facts": self._number or None,
                "error": self._missing or self._error,
            }
        return _json(answer)

    def facts(self) -> bytes | None:
        """Return JSON of the page's content; None before it has been made."""
        return self._facts  # no lock: the maker replaces the whole reference

    def rounds(self, place: int) -> bytes | None:
        """Return the round explorer's data of a run, by its index in the facts; None if there is no such run."""
        made = self._made
        return made.rounds[place] if made is not None and 0 <= place < len(made.rounds) else None

    def _look(self) -> None:
        from analysis.live.page import stamp_of

        try:
            stamps, watched = [], []
            for where in self._directories:
                paths = run_directories(Path(where))
                stamps += [f"{path} {stamp_of(path)}" for path in paths]
                watched.append(RunsAt(where, in_order(map(self._status, paths)), Path(where) in paths))
            self._watched = watched
        except TestbedError as error:
            if not self._watched:  # the first look is at the start, and its errors are the user's
                raise
            self._missing = str(error)
            self._stamps = ()  # the page in the making failed, too: make it again when the directories are back
            return
        self._missing = ""
        making = self._maker is not None and self._maker.is_alive()
        if tuple(stamps) != self._stamps and not making and time.monotonic() >= self._not_before_s:
            self._stamps = tuple(stamps)
            paths = [run.path for directory in watched for run in directory.runs]
            self._maker = threading.Thread(target=self._make, args=(paths,), daemon=True)
            self._maker.start()

    def _status(self, path: Path) -> RunStatus:
        """Return the status of a run, cached for finished runs that have not changed."""
        from analysis.live.page import stamp_of

        stamp, cached = stamp_of(path), self._statuses.get(path)
        if cached is None or cached[0] != stamp or cached[1].state != "finished":
            self._statuses[path] = cached = (stamp, status(path))
        return cached[1]

    def _make(self, paths: Sequence[Path]) -> None:
        began_s = time.monotonic()
        try:
            made = self._page.document(list(dict.fromkeys(paths)))
        except TestbedError as error:  # e.g. a baseline that has not begun; retried after the next change
            self._error = str(error)
        except Exception as error:  # an error of the testbed: the page reports it and stays unchanged
            self._error = f"the page could not be made ({type(error).__name__}: {reason(error)}); this is a bug"
        else:
            self._made, self._facts, self._error = made, _json(made.facts), ""
            self._number += 1
        self._not_before_s = time.monotonic() + (_SHARE - 1) * (time.monotonic() - began_s)


def _json(value: Any) -> bytes:
    from analysis.tables import to_json

    return to_json(value).encode()


def _handler(runs: _Runs, token: str, port: int) -> type["_PageHandler"]:
    return type("_BoundHandler", (_PageHandler,), {"runs": runs, "token": token, "port": port})


class _PageHandler(BaseHTTPRequestHandler):
    """Handler that answers GET and HEAD of the page only."""

    runs: _Runs
    token: str
    port: int
    timeout = SILENT_S
    server: _Server
    server_version = "testbed"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer with the page, or a part of its data."""
        if self.headers.get("Host", "").lower() not in self._names():
            self.close_connection = True
            self._answer(HTTPStatus.FORBIDDEN, b"this server answers as 127.0.0.1 only\n", "text/plain")
            return
        _, token, *rest = [*self.path.partition("?")[0].split("/", 2), ""][:3]
        # In constant time, and by bytes: compare_digest refuses text that is not ASCII.
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode()):
            self.close_connection = True
            self._answer(HTTPStatus.NOT_FOUND, b"nothing here\n", "text/plain")
            return
        self.connection.settimeout(KNOWN_S)
        self.server.note_known(self.connection)
        if self.path.count("/") == 1:  # the page asks for its data below its own address
            self._answer(HTTPStatus.PERMANENT_REDIRECT, b"", "text/plain", {"Location": f"/{self.token}/"})
            return
        content, kind = self._content(rest[0])
        if content is None:
            self._answer(HTTPStatus.NOT_FOUND, b"nothing here (yet)\n", "text/plain")
        else:
            self._answer(HTTPStatus.OK, content, kind)

    do_HEAD = do_GET

    def _content(self, name: str) -> tuple[bytes | None, str]:
        kind, _, place = name.partition("/")
        if name == "":
            return _page(), "text/html; charset=utf-8"
        if name == "progress":
            return self.runs.progress(), "application/json"
        if name == "facts":
            return self.runs.facts(), "application/json"
        # isdigit alone takes digits that int() refuses, such as a superscript two.
        if kind == "rounds" and place.isascii() and place.isdigit() and len(place) < 7:
            return self.runs.rounds(int(place)), "application/octet-stream"
        return None, ""

    def _names(self) -> set[str]:
        """Return the host names by which requests may address this server; browsers omit port 80."""
        ports = ("", ":80") if self.port == 80 else (f":{self.port}",)
        return {name + port for name in (HOST, "localhost") for port in ports}

    def _answer(self, code: HTTPStatus, content: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        own = {"Content-Type": kind, "Content-Length": str(len(content))}
        if self.close_connection:
            own["Connection"] = "close"
        for name, value in (_PAGE_HEADERS | own | dict(more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def handle(self) -> None:
        """Handle one connection; a reader that disconnects within an answer is no error."""
        try:
            super().handle()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because requests contain the token."""


@functools.cache
def _page() -> bytes:
    from analysis.report.document import Document
    from analysis.report.render import render

    return render(Document("Runs under way", {}, []), live=True).encode()
