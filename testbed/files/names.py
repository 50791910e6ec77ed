"""Names of files and directories: made from text, given by others, or URIs.

A name made from text is valid on every file system and still readable. Names given by others (in a listing, an archive)
stay below their directory. URIs of directories with records are distinguished from paths, and refused if they contain a
secret.
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
_SHOWN = 80  # characters of a foreign name in a message
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MANGLED = re.compile(r"(s3|gs|gcs|hdfs|viewfs|abfss?|file):/(?!/)")
_SECRET = re.compile(r"key|secret|token|passw|signature|^sig$|^credentials?$|^auth", re.IGNORECASE)
_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS",
}


def directory_names(labels: Sequence[str]) -> list[str]:
    """Return a safe and unique directory name for each label, depending on the labels alone.

    Example:
        >>> directory_names(["rounds=3", "Rounds=3", "a/b"])
        ['rounds=3', 'Rounds=3-2', 'a-b']
    """
    names: list[str] = []
    for label in labels:
        name = file_name(label)
        number = 2
        while name.lower() in {other.lower() for other in names}:  # some file systems ignore case
            name = f"{file_name(label)}-{number}"
            number += 1
        names.append(name)
    return names


def file_name(text: str) -> str:
    """Return `text` as a readable name for every file system: only letters, digits and ``._=,+-``.

    Example:
        >>> file_name("lr 0.1 / momentum")
        'lr-0.1-momentum'
    """
    name = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", text).strip("-.") or "run"
    # File systems allow 255 bytes, and the name gets suffixes; the digest keeps long names distinct.
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        name = f"{name[:_LONGEST_NAME]}-{digest}"
    return name


def check_name(name: str, where: str) -> None:
    """Raise `RunError`, which names the entry, unless `name` is a relative path of ordinary components.

    Components that are empty, ``.`` or ``..``, or that contain a backslash, a control character or a drive letter are
    refused on every system, because the files may be copied to a system where they matter.

    Args:
        name: with slashes between its components.
        where: the listing or archive; begins the message.
    """
    for component in name.split("/"):
        if component in ("", ".", "..") or "\\" in component or not component.isprintable() or _DRIVE.match(component):
            raise RunError(f"{where}: the entry {_shown(name)} may lie outside the directory; nothing is read")


def inside(directory: Path, name: str, where: str) -> Path:
    """Return the path of `name` in `directory`, after `check_name`.

    Args:
        directory: the directory.
        name: with slashes between its components.
        where: the listing or archive; begins the message.

    Raises:
        RunError: the name is invalid, or symbolic links lead out of the directory; names the entry.
    """
    check_name(name, where)
    path = directory / name
    root = os.path.realpath(directory)
    # `check_name` cannot see links: resolve both paths.
    if os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise RunError(f"{where}: a symbolic link leads {_shown(name)} out of the directory; nothing is read")
    return path


def _shown(name: str) -> str:
    return ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}...")


def is_uri(text: str | Path) -> bool:
    """Return whether `text` is a URI (``scheme://...``) instead of a path; the URI may still be unusable."""
    return isinstance(text, str) and _URI.match(text) is not None


def path_or_uri(text: str | Path) -> str | Path:
    """Return a URI as `checked_uri` does, anything else as a path.

    Raises:
        ValueError: a URI with a secret, or one that was a `Path` and lost a slash; one line.
    """
    if is_uri(text):
        return checked_uri(str(text))
    if _MANGLED.match(str(text)):
        raise ValueError(f"{str(text)!r} is a URI that lost a slash; give it as text with ://, not as a path")
    return Path(text)


def checked_uri(uri: str) -> str:
    """Return `uri` without slashes at its end.

    A URI appears in records, logs and lists of processes, so it must not contain credentials, neither before an @ nor
    among the parameters. User names alone (``hdfs://user@host``, ``gs://anonymous@bucket``) are allowed.

    Raises:
        ValueError: it contains a secret, or cannot be parsed; one line, which does not repeat the secret.

    Example:
        >>> checked_uri("s3://bucket/runs/")
        's3://bucket/runs'
    """
    scheme = uri.partition("://")[0].lower()
    try:
        parts = urlsplit(uri)
        parameters = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise ValueError(f"{scheme}://...: cannot be parsed as a URI") from None
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
        raise ValueError(f"{scheme}://...: a URI of records must not have a part after #")
    return parts._replace(path=parts.path.rstrip("/") or ("/" if scheme == "file" else "")).geturl()


def without_parameters(uri: str) -> str:
    """Return `uri` for display, without its query."""
    return uri.partition("?")[0].rstrip("/")


def _must_not_hold(scheme: str, part: str) -> str:
    variables = _ENVIRONMENT.get(scheme)
    where = f"the environment ({variables})" if variables else "the environment"
    return f"{scheme}://...: {part} must not appear in a URI, which is recorded; give credentials in {where}"
