"""Metadata of an availability trace: its horizon, the recordings of its clients, and their names.

Keys of the Parquet metadata:

- ``testbed.horizon_s``: begin and end of the trace, in seconds;
- ``testbed.never_online``: clients that were watched and never online;
- ``testbed.recorded_s``: clients that were watched for a part of the horizon only, with begin and end;
- ``testbed.names``: names of clients in the source of the trace.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.errors import TraceError

_HORIZON, _NEVER_ONLINE, _RECORDED, _NAMES = (
    f"testbed.{key}".encode() for key in ("horizon_s", "never_online", "recorded_s", "names")
)


def _nobody() -> Ids:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Recordings:
    """Clients that were not watched for the whole horizon.

    Attributes:
        clients: `(j,)` int64 client numbers.
        from_s, until_s: `(j,)` float64 seconds of the trace's own time.
    """

    clients: Ids = field(default_factory=_nobody)
    from_s: Floats = field(default_factory=lambda: np.empty(0))
    until_s: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, eq=False)
class Extent:
    """Metadata of an availability trace.

    Attributes:
        horizon: begin and end in seconds; None: from the first begin to the last end of an interval.
        never_online: `(j,)` int64 clients without rows.
        recordings: recordings that are shorter than the horizon.
        names: names of clients, by their numbers.
    """

    horizon: tuple[float, float] | None = None
    never_online: Ids = field(default_factory=_nobody)
    recordings: Recordings = field(default_factory=Recordings)
    names: Mapping[int, str] = field(default_factory=dict)

    def metadata(self) -> dict[bytes, str]:
        """Return the metadata as Parquet stores it; `of_metadata` reads it."""
        entries: dict[bytes, Any] = {_HORIZON: self.horizon, _NEVER_ONLINE: self.never_online.tolist()}
        if len(self.recordings.clients):
            columns = self.recordings.clients, self.recordings.from_s, self.recordings.until_s
            entries[_RECORDED] = [column.tolist() for column in columns]
        if self.names:
            entries[_NAMES] = [[client, name] for client, name in sorted(self.names.items())]
        return {key: json.dumps(value) for key, value in entries.items()}


def of_metadata(metadata: Mapping[bytes, bytes], path: Path) -> Extent:
    """Return the extent in the metadata of a file.

    Args:
        metadata: Parquet metadata.
        path: the file, for errors.

    Raises:
        TraceError: the metadata are damaged.
    """
    try:
        horizon = json.loads(metadata.get(_HORIZON, b"null"))
        if horizon is not None:
            begin, end = map(float, horizon)
            horizon = begin, end
        never = [int(client) for client in json.loads(metadata.get(_NEVER_ONLINE, b"[]"))]
        clients, from_s, until_s = json.loads(metadata.get(_RECORDED, b"[[], [], []]"))
        recordings = Recordings(np.array(clients, np.int64), np.array(from_s, float), np.array(until_s, float))
        names = {int(client): str(name) for client, name in json.loads(metadata.get(_NAMES, b"[]"))}
        shapes = {len(recordings.clients), recordings.from_s.size, recordings.until_s.size}
        if len(shapes) > 1 or recordings.from_s.ndim != 1 or recordings.until_s.ndim != 1:
            raise ValueError("columns that differ in length")
        return Extent(horizon, np.array(never, np.int64), recordings, names)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise TraceError(f"{path}: the file's metadata is damaged; convert the trace again") from None
