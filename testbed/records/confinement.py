"""Names of files that somebody else has given (a listing, an archive) stay below the directory that they are for."""

import os
import re
from pathlib import Path

from testbed.errors import RunError

_DRIVE = re.compile(r"[A-Za-z]:")
_SHOWN = 80


def check_name(name: str, where: str) -> None:
    """Raise `RunError`, which names the entry, unless `name` is a relative path of ordinary components.

    Refused are components that are empty, ``.`` or ``..``, with a backslash, NUL or another control character, or a
    drive letter, on any system: what is harmless here may be copied to where it is not.

    Args:
        name: with slashes between its components.
        where: what lists it; begins the message.
    """
    for component in name.split("/"):
        if component in ("", ".", "..") or "\\" in component or not component.isprintable() or _DRIVE.match(component):
            raise RunError(f"{where}: the entry {_shown(name)} could lie outside of the directory; nothing is read")


def inside(directory: Path, name: str, where: str) -> Path:
    """The path of `name` in `directory`, after `check_name`, and none that symbolic links lead out of it.

    Raises `RunError`, which names the entry.
    """
    check_name(name, where)
    path = directory / name
    root = os.path.realpath(directory)
    if os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise RunError(f"{where}: a symbolic link leads {_shown(name)} out of the directory; nothing is read")
    return path


def _shown(name: str) -> str:
    return ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")
