"""The page's table of clients: how many samples they hold, and on which devices and links they are."""

from collections.abc import Sequence

import pandas as pd

from analysis.report.sheets import Cell, Sheet, number, words
from testbed.records import RunRecords

_SPREAD = ("samples", "device_factor", "down_mbit_s", "up_mbit_s", "latency_ms")
_HEADS = {
    "samples": "Samples",
    "device_factor": "Device factor",
    "down_mbit_s": "Downlink [Mbit/s]",
    "up_mbit_s": "Uplink [Mbit/s]",
    "latency_ms": "Latency [ms]",
}


def clients(found: Sequence[RunRecords]) -> Sheet | None:
    """A row for each class of clients of each run; runs with the same clients share it. None: nothing is recorded."""
    kinds: list[tuple[list[str], pd.DataFrame]] = []
    for run in found:
        frame = run.clients
        if not len(frame):
            continue
        same = next((labels for labels, other in kinds if other.equals(frame)), None)
        if same is None:
            kinds.append(([run.label], frame))
        else:
            same.append(run.label)
    if not kinds:
        return None
    has_classes = any(frame["class"].astype(str).ne("").any() for _, frame in kinds)
    rows = []
    for labels, frame in kinds:
        whose = "all" if len(kinds) == 1 and len(labels) > 1 else ", ".join(labels)
        for name, members in frame.groupby(frame["class"].astype(str), sort=True):
            told = [words(whose), *([words(name)] if has_classes else []), number(len(members))]
            rows.append([*told, *(_spread(members[column]) for column in _SPREAD)])
    heads = ["Runs", *(["Class"] if has_classes else []), "Clients", *_HEADS.values()]
    numeric = tuple(range(len(heads) - len(_SPREAD) - 1, len(heads)))
    note = (
        "Median, with the least and the most in brackets. Who has which labels is drawn by "
        "testbed data inspect experiment.yaml --out DIR."
    )
    return Sheet("The clients", heads, rows, numeric, [note])


def _spread(values: pd.Series) -> Cell:
    """Its median, and where it differs among clients its range."""
    least, median, most = float(values.min()), float(values.median()), float(values.max())
    text = f"{median:.4g}" if least == most else f"{median:.4g} ({least:.4g} to {most:.4g})"
    return text, median
