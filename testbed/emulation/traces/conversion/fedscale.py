"""FedScale's device traces: two pickles of plain data, about availability and about capacity.

`client_behave_trace`, by client:

    {3834: {'duration': 211625, 'active': [12788, 100044, ...], 'inactive': [65881, 133574, ...],
            'finish_time': 518400, 'model': 'CPH1801'}, ...}

The client is active from each time in `active` to the time at the same position in `inactive`, and again after every
`finish_time`: FedScale (`fedscale/cloud/internal/client_metadata.py`, `is_active`) takes the time modulo `finish_time`.
All times are in seconds; the time of day is unknown.

`client_device_capacity`, by client:

    {432802: {'computation': 162.0, 'communication': 5648.109619499134}, ...}

`computation` is the latency of inference in ms per sample; `communication` is one rate for both directions in kbit/s
(FedScale divides the model's size in kbit by it).

Source:
    Lai et al., FedScale: Benchmarking Model and System Performance of Federated Learning at Scale (ICML 2022);
    github.com/SymbioticLab/FedScale, `benchmark/dataset/data/device_info`.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.emulation.traces.conversion.collector import Collected, Counts, Outside, seconds, whole_number
from testbed.emulation.traces.conversion.plain_pickle import read_plain_pickle
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.text_files import shown
from testbed.errors import TraceError

_BEHAVIOUR, _CAPACITY = ("active", "inactive", "finish_time"), ("computation", "communication")
_WHAT = (
    "FedScale's pickles are {client: {'active': [...], 'inactive': [...], 'finish_time': ...}} and "
    "{client: {'computation': ms, 'communication': kbit/s}}"
)
_KBIT_PER_MBIT = 1000.0


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Read the clients in one of FedScale's pickles, by their numbers or names as text; nothing is executed.

    Raises:
        TraceError: not a pickle of plain data, or not a mapping of clients to dicts.
    """
    clients = read_plain_pickle(path)
    if not isinstance(clients, dict) or not clients:
        raise TraceError(f"{path}: not a dict of clients; {_WHAT}")
    for name, entry in clients.items():
        if not isinstance(name, str):
            raise TraceError(f"{path}: client {shown(name)}: not a number and not a string; {_WHAT}")
        if not isinstance(entry, dict):
            raise TraceError(f"{path}: client {shown(name)}: a {type(entry).__name__}, not a dict; {_WHAT}")
    return clients


def is_capacity(clients: dict[str, dict[str, Any]]) -> bool:
    """Return whether this is the pickle of capacities, judged by its first client."""
    return "computation" in next(iter(clients.values()))


def behaviour_trace(
    clients: dict[str, dict[str, Any]], where: str, outside: Outside = "repeat"
) -> tuple[AvailabilityTrace, Counts]:
    """Return the trace of a `client_behave_trace` read by `read`; its horizon is the longest `finish_time`.

    Args:
        clients: entries by number or name.
        where: the file, for messages.
        outside: the state of a client after its own, shorter `finish_time`.

    Returns:
        The trace, its clients numbered as in the file, and the counts: devices in the file, unusable by reason, never
            online, kept; intervals in the file, dropped by reason, kept.

    Raises:
        TraceError: not such a file, or no usable client.
    """
    collected = Collected(where)
    longest = 0.0
    for name, entry in clients.items():
        _require(entry, _BEHAVIOUR, name, where)
        active, inactive, finish_s = (entry[key] for key in _BEHAVIOUR)
        if not isinstance(active, list) or not isinstance(inactive, list):
            raise TraceError(f"{where}: client {shown(name)}: active and inactive must be lists; {_WHAT}")
        finish_s = seconds(finish_s)
        if len(active) != len(inactive):
            collected.unusable("active_and_inactive_differ_in_length")
        elif not 0 < finish_s < math.inf:
            collected.unusable("no_finish_time")
        else:
            longest = max(longest, finish_s)
            device = collected.device(name, 0.0, finish_s)
            for from_s, until_s in zip(active, inactive, strict=True):
                collected.online(device, seconds(from_s), seconds(until_s))
    return collected.trace(outside, 0.0, longest)


def capacity_table(clients: dict[str, dict[str, Any]], where: str) -> tuple[pd.DataFrame, Counts]:
    """Return the capacities of a `client_device_capacity` read by `read`.

    Args:
        clients: entries by number or name.
        where: the file, for messages.

    Returns:
        A table with the columns client (int64, as in the file, or in order of appearance), computation_ms (per sample),
        down_mbit_s and up_mbit_s (the same rate), sorted by client; and the counts.

    Raises:
        TraceError: not such a file, or no usable client.
    """
    counts = {"devices": len(clients), "devices_unusable": 0, "devices_kept": 0}
    names, rows = [], []
    for name, entry in clients.items():
        _require(entry, _CAPACITY, name, where)
        speed_ms, rate = (seconds(entry[key]) for key in _CAPACITY)
        if 0 < speed_ms < math.inf and 0 < rate < math.inf:
            names.append(name)
            rows.append((speed_ms, rate / _KBIT_PER_MBIT, rate / _KBIT_PER_MBIT))
        else:
            counts["devices_unusable"] += 1
    if not rows:
        raise TraceError(f"{where}: no client has a positive computation and communication")
    numbers: list[int | None] = [whole_number(name) for name in names]
    if None in numbers or len(np.unique(np.array(numbers, np.int64))) < len(numbers):
        numbers, counts["devices_renumbered"] = list(range(len(names))), len(names)
    table = pd.DataFrame(rows, columns=["computation_ms", "down_mbit_s", "up_mbit_s"])
    table.insert(0, "client", pd.Series(numbers, dtype="int64"))
    counts["devices_kept"] = len(table)
    return table.sort_values("client", ignore_index=True), counts


def _require(entry: dict[str, Any], keys: tuple[str, ...], name: str, where: str) -> None:
    if missing := [key for key in keys if key not in entry]:
        raise TraceError(f"{where}: client {shown(name)}: no {missing[0]}; {_WHAT}")
