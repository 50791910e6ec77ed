"""The common parts of the commands about traces: durations as arguments, the output file, and its summary."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.cli.invocation import flag, option
from testbed.cli.terminal import echo, messages
from testbed.durations import in_largest_unit
from testbed.errors import ExperimentError

if TYPE_CHECKING:
    from testbed.emulation.traces.intervals import AvailabilityTrace

Out = Annotated[Path, option("FILE", "What to write: .parquet or .csv.")]
Force = Annotated[bool, flag("Overwrite the file if it is there.", "--force")]
RoundSeconds = Annotated[str | None, option("DURATION", "How long a round lasts, e.g. 300, 5min.")]

_TABLES = (".parquet", ".csv")
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_FORM = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*", re.ASCII)


def seconds(text: str, option: str) -> float:
    """The positive duration that `text` says, in seconds; raises `ExperimentError` that begins with `option`."""
    form = _FORM.fullmatch(text)
    if form and form[2] in _SECONDS:
        value = float(form[1]) * _SECONDS[form[2]]
        if 0 < value < math.inf:
            return value
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    raise ExperimentError(f"{option}: {shown!r} is no duration; write e.g. 90, 90s, 5min, 12h or 7d")


def check_target(out: Path, force: bool, source: Path | None = None, suffixes: tuple[str, ...] = _TABLES) -> None:
    """Raise `ExperimentError` unless `out` is a file that may be written, and make its folder."""
    if out.suffix not in suffixes:
        raise ExperimentError(f"--out: {out}: the file must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    if out.is_dir():
        raise ExperimentError(f"--out: {out}: a directory")
    if source is not None and out.exists() and source.exists() and out.samefile(source):
        raise ExperimentError(f"--out: {out}: the source itself; write somewhere else")
    if out.exists() and not force:
        raise ExperimentError(f"--out: {out}: is there already; --force overwrites it")
    make_folder(out.parent)


def check_target_folder(out: Path, force: bool, source: Path, why: str, files: tuple[str, ...] = ()) -> None:
    """Raise `ExperimentError` unless `out` is a folder that may be written to, and make it.

    Args:
        out: the folder.
        force: write into it even if it is not empty.
        source: the file or folder that is converted.
        why: a folder is needed, for messages.
        files: the suffixes of files, which the folder must not have.
    """
    if (out.exists() and not out.is_dir()) or out.suffix in files:
        raise ExperimentError(f"--out: {out}: a file; {why}, so give a folder")
    if out.is_dir() and out.samefile(source):
        raise ExperimentError(f"--out: {out}: the source itself; write somewhere else")
    if source.is_dir() and source.resolve() in out.resolve().parents:
        raise ExperimentError(f"--out: {out}: in the source, below which all files are read; write somewhere else")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise ExperimentError(f"--out: {out}: not empty; --force overwrites what has the same names")
    make_folder(out)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; raises `ExperimentError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"--out: {folder}: cannot be made: {error.strerror}") from None


def summarise(written: "AvailabilityTrace", out: Path) -> None:
    """Print a summary of the written file, and a note on facts that CSV has no place for."""
    if out.suffix == ".csv":
        never = len(written.never_online)
        lost = [f"the {never} clients that are never online"] if never else []
        lost += ["the names of clients"] if written.names else []
        lost += ["recordings, which are repeated up to the horizon"] if written.has_own_recordings else []
        if lost:
            note = f"note: CSV has no place for {', for '.join(lost)}, nor for the horizon; .parquet has"
            messages().print(note, markup=False)
    length = in_largest_unit(written.horizon_s)
    echo(f"{out}: {len(written)} clients, {len(written.online_from_s)} intervals, {length}")
