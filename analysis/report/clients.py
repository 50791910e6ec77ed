"""The page's table of clients: samples, devices and links."""

from collections.abc import Collection, Sequence

import pandas as pd

from analysis.report.settings import value_text, written_in
from analysis.report.sheets import Cell, Sheet, number, words
from testbed.flattening import flattened
from testbed.records import RunRecords

_SPREAD = ("samples", "device_factor", "down_mbit_s", "up_mbit_s", "latency_ms")
_HEADS = {
    "samples": "Samples",
    "device_factor": "Device factor",
    "down_mbit_s": "Downlink [Mbit/s]",
    "up_mbit_s": "Uplink [Mbit/s]",
    "latency_ms": "Latency [ms]",
}
_MOST_NAMED = 3
"""Largest number of runs of a group that are listed by name."""


def clients(runs: Sequence[RunRecords]) -> Sheet | None:
    """Return a row for each class of clients of each run; runs with the same clients share it. None: not recorded."""
    kinds: list[tuple[list[RunRecords], pd.DataFrame]] = []
    for run in runs:
        frame = run.clients
        if not len(frame):
            continue
        same = next((group for group, other in kinds if other.equals(frame)), None)
        if same is None:
            kinds.append(([run], frame))
        else:
            same.append(run)
    if not kinds:
        return None
    has_classes = any(frame["class"].astype(str).ne("").any() for _, frame in kinds)
    names = _group_names([group for group, _ in kinds])
    rows = []
    for name, (_, frame) in zip(names, kinds, strict=True):
        for kind, members in frame.groupby(frame["class"].astype(str), sort=True):
            first = [words(name), *([words(kind)] if has_classes else []), number(len(members))]
            rows.append([*first, *(_spread(members[column]) for column in _SPREAD)])
    heads = ["Runs", *(["Class"] if has_classes else []), "Clients", *_HEADS.values()]
    numeric = tuple(range(len(heads) - len(_SPREAD) - 1, len(heads)))
    note = (
        "Median over the clients (minimum to maximum). `testbed data inspect experiment.yaml --out DIR` draws each "
        "client's labels."
    )
    return Sheet("Clients", heads, rows, numeric, [note])


def _group_names(groups: Sequence[Sequence[RunRecords]]) -> list[str]:
    """Return a name for the runs of each group: their labels if there are few, otherwise settings unique to them."""
    if len(groups) == 1:
        return ["all" if len(groups[0]) > 1 else groups[0][0].label]
    written = [written_in(run.experiment) for group in groups for run in group]
    keys = {key for some in written for key in some or ()} | {"seed"}
    values = [[_values(run, None if None in written else keys) for run in group] for group in groups]
    names = []
    for place, group in enumerate(groups):
        if len(group) <= _MOST_NAMED:
            names.append(", ".join(run.label for run in group))
            continue
        others = [values_of_run for at, other in enumerate(values) for values_of_run in other if at != place]
        settings_text = _settings_of_all(values[place], others)
        names.append(
            f"{len(group)} runs: {settings_text}" if settings_text else f"{len(group)} runs, e.g. {group[0].label}"
        )
    return names


def _settings_of_all(group: Sequence[dict[str, str]], others: Sequence[dict[str, str]]) -> str:
    """Return the fewest settings, one or two, that all runs of a group and no other run have; empty if there are none.

    Args:
        group: values by key, of each run.
        others: of the runs of the other groups.
    """
    shared = [(key, value) for key, value in group[0].items() if all(setting.get(key) == value for setting in group)]
    telling = [(key, value) for key, value in shared if any(setting.get(key) != value for setting in others)]
    pairs = [(setting, other) for place, setting in enumerate(telling) for other in telling[place + 1 :]]
    for chosen in [*((setting,) for setting in telling), *pairs]:
        if not any(all(other.get(key) == value for key, value in chosen) for other in others):
            return ", ".join(f"{key}={value}" for key, value in chosen)
    return ""


def _values(run: RunRecords, keys: Collection[str] | None) -> dict[str, str]:
    """Return the values of the experiment by dotted key; None: of all keys."""
    plain = {key: part for key, part in run.experiment.items() if key not in ("provenance", "name", "sweep")}
    flat = dict(flattened(plain, keep_empty=True))
    return {key: value_text(value) for key, value in flat.items() if keys is None or key in keys}


def _spread(values: pd.Series) -> Cell:
    """Return the median and, if the values differ among clients, their range."""
    least, median, most = float(values.min()), float(values.median()), float(values.max())
    text = f"{median:.4g}" if least == most else f"{median:.4g} ({least:.4g} to {most:.4g})"
    return text, median
