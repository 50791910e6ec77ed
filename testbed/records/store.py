"""A directory on any pyarrow filesystem: files are written completely or not at all, and failures are retried."""

import contextlib
import errno
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs

from testbed.errors import ExperimentError, RunError, reason
from testbed.files import limits
from testbed.files.names import check_name, checked_uri, inside, without_parameters

AT_A_TIME = 8  # transfers; small files spend most of their time waiting for an answer
PAUSES_S = (1.0, 4.0, 10.0)  # before each retry; the filesystems also retry within each attempt
ABANDONED_AFTER_S = 3600  # age of a file of an unfinished write (writes take seconds; clocks of machines may differ)
_UNFINISHED = re.compile(r"\..+-[0-9a-f]{8}\.writing|\.probe-[0-9a-f]{8}")
_CHUNK = 8 << 20  # bytes
_OBJECT_STORES = ("s3", "gcs", "abfs")  # closing an object replaces the former object at once
_FOR_GOOD = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
}
_REFUSED = re.compile(
    "NO_SUCH_BUCKET|ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT|UNRECOGNIZED_CLIENT|SIGNATURE|EXPIRED|"
    "MISSING_AUTHENTICATION|HTTP status 40[0134]|(?i:credential|permission|unauthori|forbidden|libjvm|libhdfs)"
)
_MOST_BYTES = {"experiment.yaml": limits.YAML_BYTES, "log.jsonl": limits.LOG_BYTES, "summary.json": limits.YAML_BYTES}
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Stored:
    """Size (bytes) and time of change (ns, perhaps rounded to seconds) of a file in a store."""

    size: int
    mtime_ns: int


class Store:
    """The directory at a URI. It need not exist: the first file creates it. Safe for several threads.

    Args:
        uri: see `testbed.files.names`; any URI of pyarrow, e.g. ``s3://bucket/path?region=eu-west-1``.

    Raises:
        ExperimentError: pyarrow does not know the scheme or a parameter, or the URI contains a secret.
        RunError: the filesystem cannot be reached, or its client library is missing.
    """

    def __init__(self, uri: str) -> None:
        try:
            self.uri = checked_uri(uri)
        except ValueError as error:
            raise ExperimentError(str(error)) from None
        self.shown = without_parameters(self.uri)
        try:
            self._fs, self._root = _filesystem(self.uri)
        except pa.ArrowInvalid as error:
            raise ExperimentError(f"{self.shown}: {_line(error)}; use s3://, gs://, hdfs:// or file://") from None
        except (OSError, pa.ArrowException) as error:
            raise RunError(f"{self.shown}: cannot be used: {_line(error)}{_advice(error)}") from None
        # Elsewhere a file is visible while it is written, so it gets a temporary name first (`_write`).
        self._whole = self._fs.type_name in _OBJECT_STORES
        self._top = self._root  # symbolic links may lead to anywhere below it

    def below(self, name: str) -> "Store":
        """Return the store of the directory `name` in this one."""
        if name in ("", "."):
            return self
        check_name(name, self.shown)
        # Without `__init__`, which would connect again: the filesystem is shared.
        inner = object.__new__(Store)
        inner.__dict__ |= self.__dict__
        inner._root = f"{self._root.rstrip('/')}/{name}"
        inner.shown = f"{self.shown}/{name}"
        return inner

    def probe(self) -> None:
        """Write and delete a small file.

        Raises:
            RunError: the store cannot be written.
        """
        name = f".probe-{secrets.token_hex(4)}"
        try:
            self._write(name, b"sortition-testbed\n")
            self._fs.delete_file(self._path(name))
        except (OSError, pa.ArrowException) as error:
            raise RunError(f"{self.shown}: cannot write: {_line(error)}{_advice(error)}") from None

    def files(self) -> dict[str, Stored]:
        """Return all files at and below this directory by their relative names; empty if the directory does not exist.

        Raises:
            RunError: the store cannot be listed, lists too many files, or lists an invalid name (see
                `names.check_name`).
        """
        selector = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        infos = self._retried("list", "", lambda: self._fs.get_file_info(selector))
        if len(infos) > limits.LISTED_FILES:
            raise RunError(f"{self.shown}: lists {len(infos)} files; at most {limits.LISTED_FILES} are read")
        start = f"{self._root.rstrip('/')}/"
        files = {}
        for info in infos:
            if info.type == fs.FileType.File:
                name = info.path.removeprefix(start)
                # A listing comes from outside: a name with ".." would be written outside of the local copy.
                check_name(name if info.path.startswith(start) else f"/{info.path}", self.shown)
                files[name] = Stored(info.size, info.mtime_ns)
        return files

    def info(self, name: str) -> Stored | None:
        """Return size and time of change of a file; None if the file does not exist."""
        (file_info,) = self._retried("read", name, lambda: self._fs.get_file_info([self._path(name)]))
        return Stored(file_info.size, file_info.mtime_ns) if file_info.type == fs.FileType.File else None

    def put(self, name: str, content: Path | bytes) -> None:
        """Write a file, replacing a former one.

        Args:
            name: relative to this directory.
            content: bytes, or the path of a local file.

        Raises:
            RunError: the file cannot be written.
        """
        self._retried("write", name, lambda: self._write(name, _read(content)))

    def read(self, name: str, most: int = limits.ARRAYS_BYTES) -> bytes:
        """Return the content of a file.

        Args:
            name: relative to this directory.
            most: largest size allowed, in bytes.

        Raises:
            FileNotFoundError: the file does not exist.
            RunError: the file cannot be read or is larger than `most`.
        """
        return self._retried("read", name, lambda: b"".join(self._chunks(name, most)))

    def copy_to(self, name: str, path: Path) -> None:
        """Copy a file to the local `path`, where it appears when it is complete; raises as `read`."""
        temporary = path.with_name(f".{path.name}.pulled")
        most = _MOST_BYTES.get(name.rpartition("/")[2], limits.ARRAYS_BYTES)

        def copy() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                for chunk in self._chunks(name, most):
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)

        try:
            self._retried("read", name, copy)
        finally:
            temporary.unlink(missing_ok=True)

    def delete_abandoned(self, files: Mapping[str, Stored]) -> None:
        """Delete files of unfinished writes of killed processes among `files`; failures are ignored.

        Files changed within the last `ABANDONED_AFTER_S` stay, because another machine may be writing them.
        """
        before = time.time_ns() - ABANDONED_AFTER_S * 10**9
        for name, info in files.items():
            if _UNFINISHED.fullmatch(name.rpartition("/")[2]) and info.mtime_ns is not None and info.mtime_ns < before:
                with contextlib.suppress(OSError, pa.ArrowException):
                    self._fs.delete_file(self._path(name))

    def delete_below(self, name: str) -> None:
        """Delete the directory `name` with its content; it need not exist."""

        def delete() -> None:
            try:
                self._fs.delete_dir(self._path(name))
            except FileNotFoundError:
                return

        self._retried("delete", name, delete)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _chunks(self, name: str, most: int) -> Iterator[bytes]:
        path = self._path(name)
        if self._fs.type_name == "local":  # the only kind of filesystem with symbolic links
            inside(Path(self._top), os.path.relpath(path, self._top), self.shown)
        with self._fs.open_input_stream(path) as stream:
            while chunk := stream.read(_CHUNK):
                most -= len(chunk)
                if most < 0:
                    raise RunError(f"{self.shown}/{name}: is larger than any file of a run; the copy was discarded")
                yield chunk

    def _write(self, name: str, content: Any) -> None:
        path = self._path(name)
        if self._whole:
            self._stream(path, content)
            return
        folder, _, last = path.rpartition("/")
        place = f"{folder}/.{last}-{secrets.token_hex(4)}.writing"  # unique, as other processes may write the same file
        self._fs.create_dir(folder, recursive=True)
        try:
            self._stream(place, content)
            self._fs.move(place, path)
        except BaseException:
            with contextlib.suppress(OSError, pa.ArrowException):
                self._fs.delete_file(place)
            raise

    def _stream(self, place: str, content: Any) -> None:
        stream = self._fs.open_output_stream(place)
        stream.write(content)  # in one piece, because closing the stream early would publish an incomplete object
        stream.close()

    def _retried(self, verb: str, name: str, call: Callable[[], _Result]) -> _Result:
        """Return the result of `call`; retry temporary failures after `PAUSES_S`.

        Raises:
            RunError: the failure is permanent, or the last attempt failed.
            FileNotFoundError: a file to read does not exist.
        """
        for pause in (*PAUSES_S, None):
            try:
                return call()
            except (OSError, pa.ArrowException) as error:
                if verb == "read" and isinstance(error, FileNotFoundError):
                    raise
                if pause is None or not _may_pass(error):
                    where = f"{self.shown}/{name}".rstrip("/")
                    raise RunError(
                        f"{where}: cannot {verb}: {_line(error)}{_advice(error)}; "
                        "records on this machine are intact, rerun with --resume"
                    ) from None
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def thread_map(call: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Return the results of `call` for each item, in their order; the first error cancels calls that have not begun.

    Args:
        call: called in up to `AT_A_TIME` threads.
        items: arguments.
    """
    pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="transfer")
    try:
        return list(pool.map(call, items))
    finally:
        pool.shutdown(cancel_futures=True)


def _filesystem(uri: str) -> tuple[Any, str]:
    if uri.lower().startswith("s3://"):
        try:  # one request for a small object instead of three; earlier versions of pyarrow lack the parameter
            filesystem, path = fs.FileSystem.from_uri(f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true")
            return filesystem, str(path)
        except pa.ArrowInvalid:
            pass
    filesystem, path = fs.FileSystem.from_uri(uri)
    return filesystem, str(path)


def _read(content: Path | bytes) -> Any:
    if isinstance(content, bytes) or content.stat().st_size == 0:
        return content if isinstance(content, bytes) else b""
    with pa.memory_map(str(content)) as file:
        return file.read_buffer()


def _may_pass(error: Exception) -> bool:
    if isinstance(error, pa.ArrowException) and not isinstance(error, OSError):
        return False
    return getattr(error, "errno", None) not in _FOR_GOOD and not _REFUSED.search(str(error))


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    aws_error = re.search(r"AWS Error .*", text)
    return reason(ValueError(re.sub(r" ?\(Request ID: [^)]*\)", "", aws_error.group() if aws_error else text)))


def _advice(error: Exception) -> str:
    text = str(error)
    if "NO_SUCH_BUCKET" in text:
        return "; create the bucket, or correct its name"
    if "AWS" in text and _REFUSED.search(text):
        return "; check the credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
    return ""
