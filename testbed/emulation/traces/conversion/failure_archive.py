"""The Failure Trace Archive's `event_trace.tab`: availability of the nodes of clusters, grids and desktops.

A row is an event of a component of a node: `event_id, component_id, node_id, platform_id, node_name, event_type,
event_start_time, event_stop_time, event_end_reason`, tab-separated, with a first line of names that may begin with
``#``. Type 0 is unavailability, 1 availability; other types (user present, CPU busy) do not affect availability here,
and are counted. Times are Unix seconds. Events of both types are recorded, so a node's recording goes from its first
event to its last.

Copies of the archive have rows with two tabs between cells. Without its empty cells such a row must have as many cells
as the first row; it is counted.

Source:
    Kondo et al., The Failure Trace Archive: Enabling Comparative Analysis of Failures in Diverse Distributed Systems
    (CCGrid 2010), and the archive's page "FTAFormat" (event_end_time there).
"""

import math
from collections import Counter
from pathlib import Path

from testbed.emulation.traces.conversion.collector import Collected, Counts, Outside
from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.text_files import is_number, shown, text_lines
from testbed.errors import TraceError

_COLUMNS = (
    "event_id",
    "component_id",
    "node_id",
    "platform_id",
    "node_name",
    "event_type",
    "event_start_time",
    "event_stop_time",
)
_OTHER_NAMES = {"event_end_time": "event_stop_time"}
_NEEDED = ("node_id", "event_type", "event_start_time", "event_stop_time")
_MOST_TYPES = 3  # digits; a time that stands in this column has ten
_WHAT = "an event_trace.tab has the columns " + ", ".join(_COLUMNS)

Key = tuple[str, str]


def convert(path: Path, outside: Outside = "repeat") -> tuple[AvailabilityTrace, Counts]:
    """Return the trace in an `event_trace.tab`, or in the folder that holds one.

    A device is a component of a node, named by `node_id`; with `:component_id` if a node has several.

    Args:
        path: the file, also `.gz`, or its folder.
        outside: the state of a node outside its own recording.

    Returns:
        The trace, with time 0 at the midnight (UTC) before the first event, and the counts: events, those of other
            types, those without an end and those with doubled tabs, devices and intervals.

    Raises:
        TraceError: one line with file and row: not such a file, a row of another width than the first, an invalid time,
            or no node is ever available.
    """
    file = path / "event_trace.tab" if path.is_dir() else path
    spans: dict[Key, tuple[float, float]] = {}
    online: list[tuple[Key, float, float]] = []
    counts = {"events": 0, "events_of_other_types": 0, "events_without_an_end": 0, "events_with_doubled_tabs": 0}
    with text_lines(file, _WHAT) as lines:
        places: dict[str, int] = {}
        row, width = 0, 0
        for line in lines:
            if not line.strip() or (not places and line.startswith("#") and "event_type" not in line):
                continue
            cells = [cell.strip() for cell in (line.split("\t") if "\t" in line else line.split())]
            if not places:
                places = _places(str(file), cells)
                width = len(places)
                if not cells[places["event_type"]].isdigit():
                    continue
                width = len(cells)  # without a line of names: the archive's columns, and additional ones
            elif line.startswith("#"):
                continue
            row += 1
            if len(cells) != width:
                cells = _in_columns(str(file), row, cells, width)
                counts["events_with_doubled_tabs"] += len(cells) == width
            _event(str(file), row, cells, places, spans, online, counts)
    if not spans:
        raise TraceError(f"{file}: no events; {_WHAT}")
    collected = Collected(str(file))
    collected.counts |= counts
    components = Counter(node for node, _ in spans)
    devices: dict[Key, int] = {}
    for key, (begin, end) in spans.items():
        # A recording without a length cannot be repeated.
        if begin == end:
            collected.unusable("no_recording")
        else:
            devices[key] = collected.device(key[0] if components[key[0]] == 1 else ":".join(key), begin, end)
    for key, from_s, until_s in online:
        if key in devices:
            collected.online(devices[key], from_s, until_s)
    origin_s, _ = collected.whole_days()
    return collected.trace(outside, origin_s, keep_recordings=True)


def _places(where: str, first: list[str]) -> dict[str, int]:
    """Return the positions of the columns: by the line of names, or in the order of the archive."""
    names = [_OTHER_NAMES.get(cell.lstrip("# ").lower(), cell.lstrip("# ").lower()) for cell in first]
    if "#" in first:  # "# event_id ..." split at white space
        names = [name for name in names if name]
    if "event_type" not in names:
        names = list(_COLUMNS)
        if len(first) < len(names) or not first[names.index("event_type")].isdigit():
            raise TraceError(f"{where}: no column event_type; {_WHAT}")
    if missing := [name for name in _NEEDED if name not in names]:
        raise TraceError(f"{where}: no column {missing[0]}; {_WHAT}")
    return {name: place for place, name in enumerate(names)}


def _in_columns(where: str, row: int, cells: list[str], width: int) -> list[str]:
    """Return the cells of a row that is wider or narrower than the first row, each in its column.

    A row may lack its last cell, the reason of the end. A wider row has doubled tabs if, without empty cells, it has as
    many cells as there are columns.
    """
    if len(cells) == width - 1 and all(cells):
        return cells
    filled = [cell for cell in cells if cell]
    if len(cells) > width and len(filled) == width:
        return filled
    raise row_error(where, row, f"{len(cells)} values, not {width}; {_WHAT}")


def _event(
    where: str,
    row: int,
    cells: list[str],
    places: dict[str, int],
    spans: dict[Key, tuple[float, float]],
    online: list[tuple[Key, float, float]],
    counts: Counts,
) -> None:
    if len(cells) <= max(places[name] for name in _NEEDED):
        raise row_error(where, row, f"{len(cells)} values; {_WHAT}")
    counts["events"] += 1
    kind, begin, end = (cells[places[name]] for name in _NEEDED[1:])
    if not kind.isdigit() or len(kind) > _MOST_TYPES:
        raise row_error(where, row, f"the event_type {shown(kind)} is no small whole number; {_WHAT}")
    following = cells[places["event_stop_time"] + 1 :]
    # A doubled tab before the end would otherwise look like an event without an end.
    if not end and following and is_number(begin) and is_number(following[0]) and float(following[0]) >= float(begin):
        raise row_error(where, row, f"no event_stop_time, and a time in the next column; {_WHAT}")
    if end.upper() in ("", "NULL", "NA", "-1", "\\N"):
        counts["events_without_an_end"] += 1
        return
    for text in (begin, end):
        if not is_number(text) or not math.isfinite(float(text)):
            raise row_error(where, row, f"{shown(text)} is not a time, in seconds since 1970")
    from_s, until_s = float(begin), float(end)
    if not until_s >= from_s:
        raise row_error(where, row, f"an event from {begin} until {end}; swap the two")
    component = places.get("component_id")
    key = cells[places["node_id"]], "" if component is None else cells[component]
    first, last = spans.get(key, (from_s, until_s))
    spans[key] = min(first, from_s), max(last, until_s)
    if kind == "1":
        online.append((key, from_s, until_s))
    elif kind != "0":
        counts["events_of_other_types"] += 1
