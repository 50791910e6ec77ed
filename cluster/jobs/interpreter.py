"""The Python interpreter of a cluster, for the commands of its jobs; ``python`` on the path may be another one.

Ray starts a job's command through a shell, with the path of the head. The head may have been started as
``.venv/bin/ray``, with no or another Python on the path. Ray's own process, which runs the command, therefore names its
interpreter first. Every process of a job imports this module, so it imports next to nothing.
"""

import os
import sys

PYTHON = "TESTBED_PYTHON"
"""The environment variable that names the interpreter of Ray's processes."""

COMMAND = f'"${{{PYTHON}:-python}}"'
"""First word of a job's shell command."""


def environment() -> dict[str, str]:
    """Return the ``env_vars`` of a job's runtime environment that make its processes call `tell` when they start.

    A runtime environment's ``worker_process_setup_hook`` becomes this variable for processes that a driver starts. The
    process that runs the command comes before any driver, and gets the hook only in this way.
    """
    from ray._private import ray_constants

    variable = getattr(ray_constants, "WORKER_PROCESS_SETUP_HOOK_ENV_VAR", None)
    return {} if variable is None else {variable: f"{__name__}.{tell.__name__}"}


def tell() -> None:
    """Set the environment variable `PYTHON`, which a job's command inherits, to this process's interpreter."""
    os.environ[PYTHON] = sys.executable
