"""The way to a cluster's dashboard: its address, the connection, and what goes wrong in between, in one line each."""

import contextlib
import logging
import os
from collections.abc import Iterator

import requests
from packaging.version import InvalidVersion, Version
from ray.exceptions import AuthenticationError
from ray.job_submission import JobSubmissionClient

from cluster.jobs import authentication
from testbed.errors import ClusterError, ExperimentError

MINIMUM_RAY = "2.54"  # as in pyproject.toml
DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_CONNECT_TIMEOUT_S = 10.0
_ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")


def default_address() -> str:
    """The dashboard that Ray's own command would ask, when its variables name one; else this machine's."""
    named = (os.environ.get(variable, "") for variable in _ADDRESS_VARIABLES)
    return next((value for value in named if value.startswith(("http://", "https://"))), DEFAULT_ADDRESS)


def connected(address: str) -> JobSubmissionClient:
    """A client of the Jobs API at `address`, http(s)://HOST:PORT.

    Raises:
        ExperimentError: no such kind of address.
        ClusterError: nothing answers there, or no Ray that will do, or the token is missing or wrong.
    """
    if not address.startswith(("http://", "https://")):
        raise ExperimentError(
            f"--address {address}: expected the dashboard's, http://HEAD:8265 (`testbed run --address` takes HEAD:6379)"
        )
    authentication.use_token()
    _check_reachable(address)
    for name in ("dashboard.modules.dashboard_sdk", "dashboard.modules.job.sdk", "_private.authentication"):
        logging.getLogger(f"ray.{name}").setLevel(logging.ERROR)  # what it uploads is not ours to tell
    with talking(address), _without(_ADDRESS_VARIABLES):  # Ray lets its variables go before what it is given
        client = JobSubmissionClient(address)
    version = str(client._server_ray_version)
    if Version(version) < Version(MINIMUM_RAY):
        raise ClusterError(f"{address}: this cluster runs Ray {version}; the testbed needs {MINIMUM_RAY} or newer")
    return client


@contextlib.contextmanager
def talking(address: str, id: str | None = None) -> Iterator[None]:
    """What goes wrong between here and the dashboard, as the testbed's errors; `id`: the job it is about."""
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
                "the cluster takes smaller uploads than this; put large files on its nodes, see --on-cluster"
            ) from None
        raise ClusterError(f"{address}: {_last_line(error)}") from None


def _check_reachable(address: str) -> None:
    """Raise `ClusterError` in seconds when nothing, or something else, answers at `address`."""
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
        return  # Ray's: whether our token will do is found out with it
    try:
        Version(answer.json()["ray_version"])
    except (ValueError, KeyError, TypeError, InvalidVersion):
        raise ClusterError(
            f"{address}: answers, but is no Ray dashboard (HTTP {answer.status_code}); is the port right?"
        ) from None


@contextlib.contextmanager
def _without(variables: tuple[str, ...]) -> Iterator[None]:
    kept = {name: os.environ.pop(name) for name in variables if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def _last_line(error: Exception) -> str:
    """Ray sends whole tracebacks: their last line says it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" .\t")]
    return (lines[-1] if lines else type(error).__name__)[:300]
