"""Run an experiment on the cluster of this head node, with a line for every round.

    ray submit cluster/launch/local.yaml cluster/submit.py -- examples/quickstart.yaml --out runs/quickstart

`ray submit` copies this file alone to the head's home directory and runs it there; all files that it reads must be
there already. The launch files bring the examples, and every other folder under ``file_mounts``, to
``~/sortition-testbed``; relative paths start there. The arguments are those of `testbed run`; ``--address auto`` is
added.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROJECT = "~/sortition-testbed"


def main(arguments: Sequence[str]) -> int:
    """Run ``testbed run`` with `arguments` on this node's cluster; return its exit code (see `testbed.cli.main`).

    The working directory is `PROJECT` if it exists. A lost connection (SIGHUP) stops the run like Ctrl-C.
    """
    project = Path(PROJECT).expanduser()
    if project.is_dir():
        os.chdir(project)
    # `ray submit` always provides a terminal; plain lines are also readable when its output goes to a file.
    os.environ["TERM"] = "dumb"
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _stop)
    if not any(argument.partition("=")[0] == "--address" for argument in arguments):
        arguments = [*arguments, "--address", "auto"]
    from testbed.cli import main as testbed

    return testbed(["run", *arguments])


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
