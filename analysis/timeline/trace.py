"""The trace file: Chrome's trace format, in its JSON object form, plain or gzipped."""

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.timeline import events as told
from analysis.timeline.placed import placed
from testbed.errors import ExperimentError, RunError
from testbed.files.atomic import atomic_write
from testbed.records import RunRecords

_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")
DERIVED = {
    "begin, end": "estimated: the rest of an exchange beside the computing is divided among question, look-up at the "
    "key directory and answer as the time that each would take alone on the client's own link; without an answer they "
    "take that time, as far as the exchange goes",
    "begin": "follows from the estimated end of the question; how long is recorded",
    "end": "somebody did not answer, so it lasts until the next stage began, or the round ended",
    "time": "not recorded; it stands at the end of its exchange or stage, or of its round",
}
"""Explanations of the values of an event's `derived`; all other fields are recorded."""


@dataclass(frozen=True)
class Written:
    """The trace that was written.

    Attributes:
        path: the file.
        rounds: numbers of the rounds in it.
        events: number of events.
        size: of the file, in bytes.
    """

    path: Path
    rounds: tuple[int, ...]
    events: int
    size: int


def write(run: RunRecords, rounds: str | Sequence[int] | None, out: Path) -> Written:
    """Write rounds of a run as a trace for Perfetto or chrome://tracing.

    Times are microseconds since the run began, by the run's clock.

    Args:
        run: the records; the run may be unfinished.
        rounds: ``3-5``, ``3,7-9``, or their numbers; None: the last completed round.
        out: the file; gzipped if its name ends with ``.gz``.

    Raises:
        ExperimentError: the run has no such round.
        RunError: the records are damaged, or the file cannot be written.
    """
    numbers = _chosen(rounds, [str(outcome) for outcome in run.rounds["outcome"]], str(run.path))
    count = 0
    with ExitStack() as stack:
        file: Any = stack.enter_context(atomic_write(out, lambda why: RunError(f"{out}: cannot be written: {why}")))
        if out.suffix == ".gz":
            # No time of writing: equal rounds have equal bytes.
            file = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0))
        file.write(b'{"displayTimeUnit":"ms","otherData":' + json.dumps(_about(run, numbers)).encode())
        file.write(b',"traceEvents":[')
        for lines in _events(run, numbers):
            if lines:
                file.write((",\n" if count else "\n").encode() + ",\n".join(lines).encode())
                count += len(lines)
        file.write(b"\n]}\n")
    return Written(out, tuple(numbers), count, out.stat().st_size)


def _about(run: RunRecords, numbers: Sequence[int]) -> dict[str, Any]:
    experiment = run.experiment
    return {
        "run": run.label,
        "experiment": experiment.get("name"),
        "seed": experiment.get("seed"),
        "rounds": list(numbers),
        "clock": run.value("time.clock", "virtual"),
        "versions": run.value("provenance.versions", {}),
        "derived": DERIVED,
    }


def _events(run: RunRecords, numbers: Sequence[int]) -> Iterator[list[str]]:
    there = placed(run, numbers)
    happened = run.events[run.events["round"].isin(numbers)]
    happened = told.with_parties(there, happened)
    clients = np.union1d(there.exchanges["client"], happened.loc[happened["client"] >= 0, "client"])
    classes = None if run.clients.empty else run.clients.set_index("client")["class"]
    yield told.tracks(clients.tolist(), classes)
    yield told.of_server(there)
    for columns in (told.of_clients, told.counters):
        for lines in columns(there):
            yield lines.to_pylist()
    for lines in told.losses(there, happened):
        yield lines.to_pylist()
    yield told.other_events(there, happened)


def numbered(text: str) -> list[tuple[int, int]]:
    """Return the ranges in a text, first and last round of each.

    Args:
        text: e.g. ``3,7-9``.

    Raises:
        ExperimentError: the text has no range.

    Example:
        >>> numbered("3,7-9")
        [(3, 3), (7, 9)]
    """
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise ExperimentError(f"--rounds {text!r}: give rounds as 3, 3-5 or 3,7-9")
        ranges.append((int(match[1]), int(match[2] or match[1])))
    return ranges


def _chosen(requested: str | Sequence[int] | None, outcomes: Sequence[str], where: str) -> list[int]:
    """Return the numbers of the requested rounds, in order.

    Args:
        requested: as `numbered` takes it, or the numbers; None: the last completed round, or the last if none is
            completed.
        outcomes: of the run's rounds, from round 1 on.
        where: name of the run, for errors.

    Raises:
        ExperimentError: the run has no rounds, or lacks one of the requested rounds.
    """
    last = len(outcomes)
    if not last:
        raise ExperimentError(f"{where}: no round has ended yet")
    if requested is None:
        completed = [number for number, outcome in enumerate(outcomes, 1) if outcome == "completed"]
        return [completed[-1] if completed else last]
    ranges = numbered(requested) if isinstance(requested, str) else [(number, number) for number in requested]
    if not ranges:
        raise ExperimentError(f"{where}: no rounds are named")
    for lowest, highest in ranges:
        if lowest < 1 or highest > last:
            missing = lowest if not 1 <= lowest <= last else highest
            raise ExperimentError(f"{where}: there is no round {missing}; it has rounds 1 to {last}")
    return sorted({number for lowest, highest in ranges for number in range(lowest, highest + 1)})
