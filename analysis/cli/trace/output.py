"""Common parts of the commands on traces: durations as arguments, the output file, and its summary."""

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

Out = Annotated[Path, option("FILE", "File to write: .parquet or .csv.")]
Force = Annotated[bool, flag("Overwrite the file if it exists.", "--force")]
RoundSeconds = Annotated[str | None, option("DURATION", "Duration of a round, e.g. 300, 5min.")]

_TABLES = (".parquet", ".csv")
_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_FORM = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*", re.ASCII)


def seconds(text: str, option: str) -> float:
    """Parse a positive duration.

    Args:
        text: number with a unit (ms, s, min, h, d); without a unit seconds.
        option: name of the option, for messages.

    Returns:
        Seconds.

    Raises:
        ExperimentError: if the text is not a duration.

    Example:
        >>> seconds("5min", "--round-seconds")
        300.0
    """
    form = _FORM.fullmatch(text)
    if form and form[2] in _SECONDS:
        value = float(form[1]) * _SECONDS[form[2]]
        if 0 < value < math.inf:
            return value
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    raise ExperimentError(f"{option}: {shown!r} is not a duration; write e.g. 90, 90s, 5min, 12h or 7d")


def check_target(out: Path, force: bool, source: Path | None = None, suffixes: tuple[str, ...] = _TABLES) -> None:
    """Check that a file may be written, and create its folder.

    Args:
        out: the file.
        force: overwrite an existing file.
        source: the source, which must be another file.
        suffixes: allowed suffixes.

    Raises:
        ExperimentError: if the file may not be written.
    """
    if out.suffix not in suffixes:
        raise ExperimentError(f"--out: {out}: the file must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    if out.is_dir():
        raise ExperimentError(f"--out: {out}: a directory")
    if source is not None and out.exists() and source.exists() and out.samefile(source):
        raise ExperimentError(f"--out: {out}: the source itself; write somewhere else")
    if out.exists() and not force:
        raise ExperimentError(f"--out: {out}: exists already; --force overwrites it")
    make_folder(out.parent)


def check_target_folder(out: Path, force: bool, source: Path, why: str, files: tuple[str, ...] = ()) -> None:
    """Check that files may be written to a folder, and create it.

    Args:
        out: the folder.
        force: write into it even if it is not empty.
        source: the file or folder that is converted.
        why: reason why a folder is needed, for messages.
        files: suffixes of files, which the folder must not have.

    Raises:
        ExperimentError: if the folder may not be written to.
    """
    if (out.exists() and not out.is_dir()) or out.suffix in files:
        raise ExperimentError(f"--out: {out}: a file; {why}, so give a folder")
    if out.is_dir() and out.samefile(source):
        raise ExperimentError(f"--out: {out}: the source itself; write somewhere else")
    if source.is_dir() and source.resolve() in out.resolve().parents:
        raise ExperimentError(f"--out: {out}: inside the source, of which all files are read; write somewhere else")
    if out.is_dir() and any(out.iterdir()) and not force:
        raise ExperimentError(f"--out: {out}: not empty; --force overwrites files of the same names")
    make_folder(out)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents; raise `ExperimentError` if it fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"--out: {folder}: cannot be created: {error.strerror}") from None


def summarise(written: "AvailabilityTrace", out: Path) -> None:
    """Print a summary of the written file, and a note on facts that CSV cannot hold.

    Args:
        written: the trace.
        out: its file.
    """
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
