"""URIs of directories that hold records: told from paths, and refused when they carry a secret."""

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_MANGLED = re.compile(r"(s3|gs|gcs|hdfs|viewfs|abfss?|file):/(?!/)")
_SECRET = re.compile(r"key|secret|token|passw|signature|^sig$|^credentials?$|^auth", re.IGNORECASE)
_ENVIRONMENT = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "gcs": "GOOGLE_APPLICATION_CREDENTIALS",
}


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
