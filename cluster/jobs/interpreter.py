"""Which Python a cluster runs, for the commands of its jobs: ``python`` on the path may well be another one.

Ray starts a job's command through a shell, with the path that the head was started with; the head may have been
started as ``.venv/bin/ray``, with no or another Python on the path. So Ray's own process, which runs the command, is
made to name its interpreter first. This module is imported by every process of a job, so it imports next to nothing.
"""

import os
import sys

PYTHON = "TESTBED_PYTHON"
"""The environment variable that names the interpreter of Ray's processes."""

COMMAND = f'"${{{PYTHON}:-python}}"'
"""What a job's shell command begins with."""


def environment() -> dict[str, str]:
    """The ``env_vars`` of a job's runtime environment that let its processes call `tell` when they start.

    This is what the runtime environment's ``worker_process_setup_hook`` becomes for the processes that a driver
    starts; the one that runs the command comes before any driver, and gets the hook in this way alone.
    """
    from ray._private import ray_constants

    variable = getattr(ray_constants, "WORKER_PROCESS_SETUP_HOOK_ENV_VAR", None)
    return {} if variable is None else {variable: f"{__name__}.{tell.__name__}"}


def tell() -> None:
    """Name this process's interpreter in the environment, which a job's command inherits."""
    os.environ[PYTHON] = sys.executable
