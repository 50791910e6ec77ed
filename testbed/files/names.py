"""Names of files and of places: made from text, given by somebody else, or a URI.

A name made from text is safe on every file system and still readable. Names that somebody else has given (a listing, an
archive) stay below the directory that they are for. URIs of directories that hold records are told from paths, and
refused when they carry a secret.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from testbed.errors import RunError

_LONGEST_NAME = 100
_DRIVE = re.compile(r"[A-Za-z]:")
_SHOWN = 80
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MANGLED = re.compile(r"(s3|gs|gcs|hdfs|viewfs|abfss?|file):/(?!/)")
_SECRET = re.compile(r"key|secret|token|passw|signature|^sig$|^credentials?$|^auth", re.IGNORECASE)
_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS",
}


def directory_names(labels: Sequence[str]) -> list[str]:
    """A safe and unique directory name for each label, depending on the labels alone."""
    names: list[str] = []
    for label in labels:
        name = file_name(label)
        number = 2
        while name.lower() in {other.lower() for other in names}:  # some file systems do not tell A from a
            name = f"{file_name(label)}-{number}"
            number += 1
        names.append(name)
    return names


def file_name(text: str) -> str:
    """`text` as a name that every file system takes, still readable: only letters, digits and ``._=,+-``."""
    name = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", text).strip("-.") or "run"
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        name = f"{name[:_LONGEST_NAME]}-{digest}"
    return name


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


def is_uri(text: str | Path) -> bool:
    """Whether `text` is a URI (``scheme://...``), not a path; says nothing of whether it can be used."""
    return isinstance(text, str) and _URI.match(text) is not None


def path_or_uri(text: str | Path) -> str | Path:
    """A URI as `checked_uri` returns it, anything else as a path.

    Raises `ValueError` (one line) for a URI with a secret, and for one that has been a `Path` and lost a slash.
    """
    if is_uri(text):
        return checked_uri(str(text))
    if _MANGLED.match(str(text)):
        raise ValueError(f"{str(text)!r} is a URI that lost a slash: give it as text, not as a path, with ://")
    return Path(text)


def checked_uri(uri: str) -> str:
    """`uri` without slashes at its end.

    What stands in a URI ends up in records, logs and lists of processes, so credentials must not: neither before an @
    nor among the parameters. Names alone (``hdfs://user@host``, ``gs://anonymous@bucket``) are fine.

    Raises:
        ValueError: it holds a secret, or cannot be taken apart; one line, which does not repeat the secret.
    """
    scheme = uri.partition("://")[0].lower()
    try:
        parts = urlsplit(uri)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise ValueError(f"{scheme}://...: not a URI that can be read") from None
    name, at, host = parts.netloc.rpartition("@")
    no_name = scheme == "s3" or (scheme in ("gs", "gcs") and name != "anonymous")
    if ":" in name or (at and no_name) or (":" in host and not re.fullmatch(r".*:\d+|\[.*\]", host)):
        raise ValueError(_must_not_hold(scheme, "credentials before the host"))
    for parameter, _ in parameters:
        if _SECRET.search(parameter):
            raise ValueError(_must_not_hold(scheme, f"the parameter {parameter}"))
    if not parts.netloc and scheme in ("s3", "gs", "gcs"):
        raise ValueError(f"{scheme}://...: names no bucket")
    if parts.fragment:
        raise ValueError(f"{scheme}://...: a URI of records has no part after #")
    return parts._replace(path=parts.path.rstrip("/") or ("/" if scheme == "file" else "")).geturl()


def without_parameters(uri: str) -> str:
    """`uri` as it is shown to people: without what comes after the question mark."""
    return uri.partition("?")[0].rstrip("/")


def _must_not_hold(scheme: str, what: str) -> str:
    variables = _ENVIRONMENT.get(scheme)
    where = f"the environment ({variables})" if variables else "the environment"
    return f"{scheme}://...: {what} must not stand in a URI, which is recorded; give credentials in {where}"
