"""End the remaining processes of a Ray that this machine's driver has started, once the driver is gone.

Linux kills the processes that Ray has started directly when the driver ends. Their own children, Ray's agents, try to
reach them for a minute or more before they give up. A small process therefore waits for the driver's end and ends them.
It identifies them by two properties that no other process has together: a program of the installed package `ray`, or
the title that such a program sets; and the driver's session, named in the command line or as the folder of an open file
(the agents' logs).

Run as a script this file is that process: ``python -I -S leftovers.py SESSION PACKAGE``, with the driver at the other
end of its standard input.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

_TITLE = "ray::"  # e.g. ray::DashboardAgent, in place of the whole command line
PASSES, EVERY_S = 10, 0.5  # a process that is being started may appear a little later


def processes_of(session: str, package: str) -> list[int]:
    """Return the ids of this user's processes of `package` that belong to a session of Ray.

    Args:
        session: the name of its folder, e.g. ``session_2026-11-27_14-32-48_794348_1963``.
        package: the folder of the installed package `ray`.
    """
    process_ids = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            # Other users' processes can be neither read nor ended.
            if os.stat(f"/proc/{name}").st_uid != os.getuid():
                continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                arguments = os.fsdecode(file.read()).split("\0")
            # The program stands behind the interpreter and its options.
            is_rays = any(argument.startswith(package.rstrip("/") + "/") for argument in arguments[:4])
            if not is_rays and not arguments[0].startswith(_TITLE):
                continue
            # The session as a whole folder name: another session's name may begin in the same way.
            if any(f"/{session}/" in f"{place}/" for place in (*arguments, *_open_files(name))):
                process_ids.append(int(name))
        except OSError:  # the process has ended
            continue
    return process_ids


def _open_files(process: str) -> list[str]:
    """Return the paths of the files that a process has open."""
    folder, paths = f"/proc/{process}/fd", []
    for descriptor in os.listdir(folder):
        with contextlib.suppress(OSError):  # closed meanwhile
            paths.append(os.readlink(f"{folder}/{descriptor}"))
    return paths


def watch(session: str, package: str) -> "subprocess.Popen[bytes]":
    """Start the process that waits for the end of this one, or of its standard input.

    Args:
        session: see `processes_of`.
        package: see `processes_of`.
    """
    command = [sys.executable, "-I", "-S", __file__, session, package]
    output = subprocess.DEVNULL  # own session: not reached by Ctrl-C or the end of a terminal
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True)


def main(session: str, package: str) -> None:
    """Wait until standard input ends, then end the processes of the session.

    Args:
        session: see `processes_of`.
        package: see `processes_of`.
    """
    sys.stdin.buffer.read()
    for _ in range(PASSES):
        for process in processes_of(session, package):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
