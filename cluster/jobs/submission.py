"""Experiments as Ray jobs: the library under ``testbed submit`` and ``testbed jobs``.

All requests go through the dashboard's Jobs API (`ray.job_submission`), so that only its port must be reachable. The
testbed's own facts about a job are in its metadata: the experiment's name and the place of its records.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import requests
from packaging.version import InvalidVersion, Version
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from cluster.jobs import authentication, downloads, interpreter, package
from testbed.errors import ClusterError, ExperimentError, RunError
from testbed.files.names import file_name, is_uri, path_or_uri
from testbed.version import VERSION

MINIMUM_RAY = "2.54"  # as in pyproject.toml
DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_CONNECT_TIMEOUT_S = 10.0
_ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")


def default_address() -> str:
    """Return the dashboard that Ray's variables name, as for Ray's own command; else this machine's."""
    configured = (os.environ.get(variable, "") for variable in _ADDRESS_VARIABLES)
    return next((value for value in configured if value.startswith(("http://", "https://"))), DEFAULT_ADDRESS)


def connect(address: str) -> JobSubmissionClient:
    """Return a client of the Jobs API at `address`, http(s)://HOST:PORT.

    Raises:
        ExperimentError: an address of another kind.
        ClusterError: nothing answers there, the Ray version is too old, or the token is missing or wrong.
    """
    if not address.startswith(("http://", "https://")):
        raise ExperimentError(
            f"--address {address}: expected the dashboard's, http://HEAD:8265 (`testbed run --address` takes HEAD:6379)"
        )
    authentication.use_token()
    _check_reachable(address)
    for name in ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private.authentication"):
        logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)  # no messages about uploads
    with translated_errors(address), _without(_ADDRESS_VARIABLES):  # Ray prefers its variables to the argument
        client = JobSubmissionClient(address)
    version = str(client._server_ray_version)
    if Version(version) < Version(MINIMUM_RAY):
        raise ClusterError(f"{address}: this cluster runs Ray {version}; the testbed needs {MINIMUM_RAY} or newer")
    return client


@contextlib.contextmanager
def translated_errors(address: str, id: str | None = None) -> Iterator[None]:
    """Turn errors of the connection to the dashboard into the testbed's errors.

    Args:
        address: the dashboard's address.
        id: the job in question, if there is one.
    """
    try:
        yield
    except AuthenticationError as error:
        raise ClusterError(authentication.advice(str(error)) or _last_line(error)) from None
    except (requests.RequestException, ConnectionError) as error:
        raise ClusterError(f"{address}: the dashboard does not answer ({type(error).__name__})") from None
    except RuntimeError as error:
        text = str(error)
        if id is not None and "status code 404" in text:
            raise ExperimentError(f"no job {id} at {address}; `testbed jobs list` names them") from None
        if "status code 413" in text:
            raise ExperimentError(
                "the upload is too large for the cluster; put large files on its nodes, see --on-cluster"
            ) from None
        raise ClusterError(f"{address}: {_last_line(error)}") from None


def _check_reachable(address: str) -> None:
    """Raise `ClusterError` within seconds if nothing, or another service, answers at `address`."""
    try:
        answer = requests.get(f"{address}/api/version", timeout=_CONNECT_TIMEOUT_S)
    except (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, UnicodeError):
        raise ExperimentError(f"--address {address}: not an address, e.g. http://HEAD:8265") from None
    except requests.RequestException as error:
        why = "no answer in time" if isinstance(error, requests.Timeout) else "no connection"
        raise ClusterError(
            f"no Ray dashboard at {address}: {why}; is the head running, and its port reachable "
            "(ssh -L 8265:127.0.0.1:8265 HEAD)?"
        ) from None
    if answer.status_code in (401, 403) and "authentication token" in answer.text:
        return  # a guarded Ray: the token is checked later
    try:
        Version(answer.json()["ray_version"])
    except (ValueError, KeyError, TypeError, InvalidVersion):
        raise ClusterError(
            f"{address}: answers, but is not a Ray dashboard (HTTP {answer.status_code}); is the port right?"
        ) from None


@contextlib.contextmanager
def _without(variables: tuple[str, ...]) -> Iterator[None]:
    removed = {name: os.environ.pop(name) for name in variables if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(removed)


def _last_line(error: Exception) -> str:
    """Return the last line of an error: Ray sends whole tracebacks."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" .\t")]
    return (lines[-1] if lines else type(error).__name__)[:300]


HOME_RUNS = "testbed-runs"
"""Folder in the head's home directory for records without ``--out``; a job's own directory is deleted."""

_LONGEST_ID = 48
_LOST_TIMES = 6  # broken connections in a row while following, with pauses of 1, 2, 4, ... seconds
_POLL_S = 0.5
_PREFIX = "testbed_"  # of the metadata's keys
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class Job:
    """A submitted experiment.

    Attributes:
        id: its submission id.
        state: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED.
        experiment: the experiment's name.
        out: directory on the head, or URI, of its records.
        started, ended: in UTC; None: not yet.
        exit_code: exit code of the command; None while it runs and if it never began.
        message: Ray's message about the state; may have many lines.
    """

    id: str
    state: str
    experiment: str
    out: str
    started: datetime | None
    ended: datetime | None
    exit_code: int | None
    message: str

    @property
    def over(self) -> bool:
        """Whether the job has ended, in any state."""
        return self.state in _ENDED


class Jobs:
    """The jobs of one cluster.

    Args:
        address: address of the dashboard, http(s)://HOST:PORT; None: `default_address`.

    Raises:
        ExperimentError: an address of another kind.
        ClusterError: nothing answers there, the Ray version is too old, or the token is missing or wrong.
    """

    def __init__(self, address: str | None = None) -> None:
        self.address = (address or default_address()).rstrip("/")
        self._client = connect(self.address)
        self.ray_version = str(self._client._server_ray_version)

    def submit(self, packed: package.Packed, out: str, resume: bool = False, accept_changed_code: bool = False) -> str:
        """Upload a packed experiment and start it; return the submission id.

        Args:
            packed: result of `package.pack`.
            out: result of `records_at`.
            resume: continue the runs at `out`.
            accept_changed_code: resume even if the user's own modules have changed.
        """
        name = packed.experiment.name
        arguments = ["-m", "testbed", "run", package.EXPERIMENT, "--address", "auto", *(["--resume"] if resume else [])]
        arguments += ["--accept-changed-code"] if accept_changed_code else []
        # exec: the shell is replaced, so that Ray's signal to stop reaches Python.
        command = f"exec {interpreter.COMMAND} {shlex.join(arguments)} --out {_shell(out)}"
        metadata = {"experiment": name, "out": out, "version": VERSION, "kind": "run"}
        return self._start(f"{file_name(name)[:_LONGEST_ID]}-{secrets.token_hex(3)}", command, packed.path, metadata)

    def experiments(self) -> list[Job]:
        """Return the experiments submitted to this cluster since its head started, oldest first."""
        with translated_errors(self.address):
            details_of_jobs = self._client.list_jobs()
        jobs = [_job(details) for details in details_of_jobs if _metadata(details, "kind") == "run"]
        return sorted(jobs, key=lambda job: (job.started is None, job.started or datetime.min, job.id))

    def job(self, id: str) -> Job:
        """Return one job; raise `ExperimentError` if there is none with this id."""
        if not id:
            raise ExperimentError("a job's id is needed; `testbed jobs list` shows them")
        with translated_errors(self.address, id):
            return _job(self._client.get_job_info(id))

    def logs(self, id: str) -> str:
        """Return the output of a job so far, standard output and standard error together."""
        with translated_errors(self.address, id):
            return str(self._client.get_job_logs(id))

    def follow(self, id: str, write: Callable[[str], None]) -> Job:
        """Pass the output of a job to `write`, from its beginning, until the job ends; return the ended job.

        A broken connection is opened again.

        Raises:
            ClusterError: the connection is lost for good; the job continues.
        """
        printer = _LogPrinter(write)
        lost = 0
        while True:
            before = printer.characters
            try:
                asyncio.run(self._tail(id, printer))
                job = self.job(id)
            except BrokenPipeError:
                raise  # our own output: its reader has gone
            except (aiohttp.ClientError, RuntimeError, ConnectionError, ClusterError, TimeoutError) as error:
                # Output since the last break: the connection works, and counting begins again.
                lost = 1 if printer.characters > before else lost + 1
                if advised := authentication.advice(str(error)):
                    raise ClusterError(advised) from None
                if lost >= _LOST_TIMES:
                    raise ClusterError(
                        f"{self.address}: lost the connection to the dashboard; the job continues if its cluster does: "
                        f"`testbed jobs logs {id} --follow`"
                    ) from None
                time.sleep(2.0 ** (lost - 1))
                continue
            if job.over:
                return job
            time.sleep(_POLL_S)

    def stop(self, id: str) -> bool:
        """Stop a job; return whether it was running. Its finished rounds stay."""
        with translated_errors(self.address, id):
            return bool(self._client.stop_job(id))

    def fetch(self, id: str, to: Path) -> Path:
        """Copy the records of a job that has ended to the directory `to`; return `to`.

        Records at a URI are read there; records on the head come through the log of a second, small job.

        Raises:
            ExperimentError: no such job.
            RunError: the job still runs, there are no records or too many, or `to` holds something else.
        """
        job = self.job(id)
        if not job.over:
            raise RunError(f"{id}: still {job.state.lower()}; follow it (`testbed jobs logs {id} --follow`) or stop it")
        if not job.out:
            raise ExperimentError(f"{id}: not submitted by the testbed; it has no records to fetch")
        place = to.absolute()  # "." has a parent only as an absolute path
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as folder:
            fresh = Path(folder)
            if is_uri(job.out):
                from testbed.records.mirror import local_copy_for_reading

                downloads.copy_files(local_copy_for_reading(job.out), fresh)
            else:
                downloads.unpack(self._records_through_job(id, job.out), fresh)
            downloads.merge_into(fresh, place)
        return to

    def _records_through_job(self, id: str, directory: str) -> bytes:
        """Return the records on the head as a compressed tar, through a job that is deleted afterwards."""
        with tempfile.TemporaryDirectory() as folder:
            code = package.pack_code(Path(folder))
            command = f"exec {interpreter.COMMAND} -m cluster.jobs.downloads {_shell(directory)}"
            name = f"{id}-fetch-{secrets.token_hex(3)}"
            fetch = self._start(name, command, code, {"kind": "fetch"})
        try:
            while not self.job(fetch).over:
                time.sleep(_POLL_S)
            return downloads.results_in_log(self.logs(fetch))
        finally:
            with contextlib.suppress(ClusterError, ExperimentError, RuntimeError):
                # The log holds all results, and the dashboard keeps logs in memory.
                self._client.delete_job(fetch)

    def _start(self, id: str, command: str, working_directory: Path, metadata: dict[str, str]) -> str:
        environment = {"working_dir": str(working_directory), "env_vars": interpreter.environment()}
        prefixed = {f"{_PREFIX}{key}": value for key, value in metadata.items()}
        with translated_errors(self.address):
            return str(
                self._client.submit_job(
                    entrypoint=command, submission_id=id, runtime_env=environment, metadata=prefixed
                )
            )

    async def _tail(self, id: str, printer: "_LogPrinter") -> None:
        printer.begin()
        async for text in self._client.tail_job_logs(id):
            printer.take(text)


class _LogPrinter:
    """A writer that passes on each character once of a log that every connection repeats from its beginning."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._position = 0
        self.characters = 0

    def begin(self) -> None:
        self._position = 0

    def take(self, text: str) -> None:
        # Every connection repeats the log from its beginning; only characters beyond the printed ones are new.
        new = text[max(0, self.characters - self._position) :]
        self._position += len(text)
        if new:
            self.characters += len(new)
            self._write(new)


def records_at(out: str | None, packed: package.Packed) -> str:
    """Return the destination of a job's records.

    Args:
        out: a URI or an absolute path, used unchanged; another path is relative to the head's home directory; None: a
            folder named after the experiment.
        packed: the packed experiment.

    Raises:
        ExperimentError: a URI with a secret, which would stand in the job's command for all to read.
    """
    if out is None:
        return f"~/{HOME_RUNS}/{file_name(packed.experiment.name)}"
    try:
        path_or_uri(out)
    except ValueError as error:
        raise ExperimentError(f"--out: {error}") from None
    return out if is_uri(out) or out.startswith(("/", "~/")) else f"~/{out}"


def why_failed(job: Job) -> str:
    """Return the reason of a job's failure in one line: the command's own last error if there is one, else Ray's."""
    lines = [line.strip() for line in job.message.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    if job.exit_code in (2, 3, 4) and errors:
        return errors[-1]
    if job.exit_code == 1 and lines and lines[-1].startswith("ModuleNotFoundError: "):
        module = lines[-1].rpartition("No module named ")[2]
        return f"the cluster's Python has no module {module}; install the testbed's requirements on all nodes"
    if job.exit_code == 127:
        return "no Python found on the head; start Ray there with its environment activated"
    return (lines[-1] if lines else "Ray gives no reason")[:300]


def _job(details: Any) -> Job:
    return Job(
        id=details.submission_id or details.job_id or "",
        state=str(details.status.value),
        experiment=_metadata(details, "experiment"),
        out=_metadata(details, "out"),
        started=_moment(details.start_time),
        ended=_moment(details.end_time),
        exit_code=details.driver_exit_code,
        message=details.message or "",
    )


def _metadata(details: Any, key: str) -> str:
    return str((details.metadata or {}).get(f"{_PREFIX}{key}", ""))


def _moment(milliseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def _shell(path: str) -> str:
    """Return `path` quoted for a shell, which still expands a leading ``~/``."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)
