"""Availability of spot instances, as recorded by SkyPilot's authors: one JSON file per zone.

    {"metadata": {"gap_seconds": 600, ...}, "data": [1, 0, 0, 1, ...]}

`data` is the number of instances available at each tick, `gap_seconds` apart; here the number at a tick holds until the
next tick. Instance j of a zone is a device, online while the number is more than j. A zone of one instance is one
device, named after its file; in a zone of several instances each device is named `FILE#j`. Files do not state the time
of their recording, so each begins at time 0; they last from two days to two months, and each is repeated by itself.

Source:
    Wu et al., Can't Be Late: Optimizing Spot Instance Savings under Deadlines (NSDI 2024);
    github.com/skypilot-org/spot-traces.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from testbed.emulation.traces.conversion.collector import Collected, Counts, Outside, seconds
from testbed.emulation.traces.conversion.json_documents import read_json
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.text_files import shown
from testbed.errors import TraceError

_WHAT = 'a spot trace is {"metadata": {"gap_seconds": ...}, "data": [...]}'
_MOST_INSTANCES = 10_000


def convert(path: Path, outside: Outside = "repeat") -> tuple[AvailabilityTrace, Counts]:
    """Return the trace in a JSON file, or in all JSON files below a folder.

    Args:
        path: the file or folder; devices are named by the files' paths in it, without the suffix.
        outside: the state of a device outside its own recording.

    Returns:
        The trace, its horizon from 0 to the end of the longest recording, and the counts.

    Raises:
        TraceError: not such a file, or no instance is ever available.
    """
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    if not files:
        raise TraceError(f"{path}: no .json files below this folder; {_WHAT}")
    collected = Collected(str(path))
    for file in files:
        _collect(collected, file, str(file.relative_to(path).with_suffix("")) if path.is_dir() else file.stem)
    trace, counts = collected.trace(outside, keep_recordings=True)
    return trace, {"files": len(files)} | counts


def _collect(collected: Collected, file: Path, name: str) -> None:
    gap_s, data = _contents(file, read_json(file, _WHAT))
    available = np.array(data, np.int64)
    instances = max(1, int(available.max()))
    for instance in range(instances):
        device_name = name if instances == 1 else f"{name}#{instance}"
        device = collected.device(device_name, 0.0, len(available) * gap_s)
        edges = np.diff(np.concatenate([[0], available > instance, [0]]).astype(np.int8))
        for begin, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            collected.online(device, float(begin * gap_s), float(end * gap_s))


def _contents(file: Path, document: Any) -> tuple[float, list[int]]:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    gap_s = seconds(metadata.get("gap_seconds")) if isinstance(metadata, dict) else math.nan
    if not 0 < gap_s < math.inf:
        raise TraceError(f"{file}: no positive metadata.gap_seconds; {_WHAT}")
    data = document.get("data")
    if not isinstance(data, list) or not data:
        raise TraceError(f"{file}: no data; {_WHAT}")
    for tick, value in enumerate(data, start=1):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_INSTANCES:
            raise TraceError(f"{file}: row {tick}: {shown(value)} is no number of instances, 0 to {_MOST_INSTANCES}")
    return gap_s, data
