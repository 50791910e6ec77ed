"""Results fetched through the log of a job, if nothing but the dashboard's port is reachable.

On the cluster ``python -m cluster.jobs.downloads DIRECTORY`` prints a compressed tar of the directory as lines of
base64, framed by its size and SHA-256 digest; here `unpack` checks and unpacks it, and `merge_into` moves it to its
place. Output of a cluster is not trusted: only regular files are accepted, none outside of the directory, and no
decompression bombs.
"""

import argparse
import base64
import hashlib
import io
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TextIO

from testbed.errors import RunError
from testbed.files.limits import SmallHeaders
from testbed.files.names import check_name, inside
from testbed.workload.client_states import FOLDER as CLIENT_STATES

MAXIMUM_BYTES = 100 * 1024**2
"""Largest compressed tar that goes through a log: the dashboard holds all of it in memory, as text."""

_MAXIMUM_UNPACKED_BYTES = 64 * MAXIMUM_BYTES
_MAXIMUM_FILES = 1_000_000
_MAXIMUM_DEPTH = 100
"""Largest depth of nested folders; a run has three: a sweep's point, parts, a round."""
_BLOCK_BYTES = 1 << 20
_LINE_BYTES = 57 * 1024  # a multiple of three: every line is whole base64
_BEGIN, _END, _ERROR = "testbed-results begin", "testbed-results end", "testbed-results error:"
_PARTS = "parts"  # rounds that are not merged yet; gone when a run has ended


def send(directory: Path, output: TextIO, maximum: int = MAXIMUM_BYTES) -> bool:
    """Print the regular files at and below `directory`; return False, after a line with the reason, if that fails.

    Args:
        directory: the results.
        output: standard output of the job.
        maximum: largest size of the compressed tar in bytes.
    """
    if not directory.is_dir():
        print(f"{_ERROR} {directory}: no such directory on the head; did the run begin?", file=output, flush=True)
        return False
    with tempfile.TemporaryFile() as archive:
        # dereference: after a killed run, two checkpoints may be two names of one file (`keep_checkpoint`).
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1, dereference=True) as tar:
            for path in _regular_files(directory):
                tar.add(path, path.relative_to(directory).as_posix(), recursive=False, filter=_anonymous)
                if archive.tell() > maximum:
                    break
        size, digest = archive.tell(), _digest(archive)
        if size > maximum:
            print(
                f"{_ERROR} {directory}: more than {maximum // 1024**2} MiB of results; submit with --out URI (s3://, "
                "gs://, hdfs://), or copy the directory from the head",
                file=output,
                flush=True,
            )
            return False
        archive.seek(0)
        print(f"{_BEGIN} bytes={size} sha256={digest}", file=output)
        while block := archive.read(_LINE_BYTES):
            print(base64.b64encode(block).decode("ascii"), file=output)
        print(_END, file=output, flush=True)
    return True


def results_in_log(log: str) -> bytes:
    """Return the compressed tar in a job's log; raise `RunError` if there is none, or it is damaged."""
    lines = iter(log.splitlines())
    for line in lines:
        if line.startswith(_ERROR):
            raise RunError(line.removeprefix(_ERROR).strip())
        if line.startswith(_BEGIN):
            break
    else:
        last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "nothing")
        raise RunError(f"the results could not be fetched; the last line of the job on the cluster: {last[:200]}")
    announced = dict(part.partition("=")[::2] for part in line.split()[2:])
    blocks = []
    for line in lines:
        if line == _END:
            break
        blocks.append(line)
    try:
        data = base64.b64decode("".join(blocks), validate=True)
    except ValueError:
        data = b""
    # A log may be cut off, or hold lines of other processes.
    if str(len(data)) != announced.get("bytes") or hashlib.sha256(data).hexdigest() != announced.get("sha256"):
        raise RunError("the results arrived damaged or cut off; fetch them again (`testbed jobs fetch`)")
    return data


def unpack(data: bytes, into: Path) -> None:
    """Unpack a compressed tar into an empty directory.

    Args:
        data: the compressed tar.
        into: the empty directory.

    Raises:
        RunError: it holds anything but regular files with different names below `into`, or is not a tar.
    """
    names: set[PurePosixPath] = set()
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz", tarinfo=SmallHeaders) as tar:
            for member in tar:
                check_name(member.name, "the results")
                name = PurePosixPath(member.name)
                total += member.size
                # A link could lead the next file out of the directory; a device or a pipe is no result.
                if not member.isreg():
                    raise RunError(f"the results hold {member.name!r}, which is not a file of a run; nothing was kept")
                if len(name.parts) > _MAXIMUM_DEPTH:
                    raise RunError(
                        f"the results hold folders nested {len(name.parts)} deep, and a run's are at most "
                        f"{_MAXIMUM_DEPTH} deep; nothing was kept"
                    )
                # A second file of one name would replace the checked one; the total stops decompression bombs.
                if name in names or len(names) >= _MAXIMUM_FILES or total > _MAXIMUM_UNPACKED_BYTES:
                    raise RunError(f"the results do not look like a run's (at {member.name!r}); nothing was kept")
                names.add(name)
                tar.extract(member, into, set_attrs=False, filter="data")
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise RunError(f"the results cannot be unpacked: {error}") from None


def copy_files(directory: Path, into: Path) -> None:
    """Copy the regular files at and below `directory` to the directory `into`.

    Args:
        directory: the source.
        into: the destination.
    """
    for path in _regular_files(directory):
        place = inside(into, path.relative_to(directory).as_posix(), str(into))
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def check_free(target: Path) -> None:
    """Raise `RunError` if results of a new run cannot be put at `target`, because it exists."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target}: exists already; give another directory with --to, or --resume to continue it")


def merge_into(fresh: Path, target: Path) -> Path:
    """Move the unpacked results in `fresh` to `target`, or into an earlier copy of the same run there.

    The user's own files (figures) stay.

    Args:
        fresh: the unpacked results.
        target: their destination.

    Returns:
        `target`.

    Raises:
        RunError: `target` exists and is not an earlier copy.
    """
    if target.is_dir() and any(target.iterdir()):
        _check_same(fresh, target)
    elif target.exists() and not target.is_dir():
        raise RunError(f"{target}: is a file; give another directory with --to")
    try:
        for old in list(target.rglob(_PARTS)) if target.is_dir() else []:
            if old.is_dir() and (old.parent / "experiment.yaml").is_file():
                # Rounds that have been merged since: the old parts would count them twice.
                shutil.rmtree(old)
        for path in _regular_files(fresh):
            place = inside(target, path.relative_to(fresh).as_posix(), str(target))
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, place)
    except OSError as error:
        raise RunError(f"{target}: cannot be written: {error.strerror or error}") from None
    return target


def _check_same(fresh: Path, target: Path) -> None:
    """Raise `RunError` unless `target` is a copy of the same run.

    A run's experiment.yaml is written once, with its time and seed: equal files belong to the same run.
    """
    earlier = sorted(target.rglob("experiment.yaml"))
    for file in earlier:
        new = fresh / file.relative_to(target)
        if not new.is_file() or new.read_bytes() != file.read_bytes():
            raise RunError(
                f"{file.parent}: is another run than the one on the cluster; give another directory with --to"
            )
    if not earlier:
        raise RunError(f"{target}: exists already and is not a run; give another directory with --to")


def _regular_files(directory: Path) -> Iterator[Path]:
    """Yield the regular files below a directory.

    Left out are symbolic links, hidden files (locks, which matter on their own machine alone), and the states that
    clients keep for the run itself.
    """
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name != CLIENT_STATES)
        for name in sorted(names):
            path = Path(folder, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _digest(archive: IO[bytes]) -> str:
    digest = hashlib.sha256()
    archive.seek(0)
    while block := archive.read(_BLOCK_BYTES):
        digest.update(block)
    return digest.hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Print a directory of results for `testbed jobs fetch`.")
    parser.add_argument("directory", type=Path)
    sys.exit(0 if send(parser.parse_args().directory.expanduser(), sys.stdout) else 3)
