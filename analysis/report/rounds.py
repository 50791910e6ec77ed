"""Data of the page's round explorer for a run: every stage of every client, in compact columns.

The explorer's data of a run are one block that is decoded only when the run is opened: the length of a header (4 bytes,
little endian), the header (JSON), then for each of `COLUMNS` its rows, byte plane by byte plane (all lowest bytes
first), which gzip compresses well: 350,000 exchanges (700 clients, 10 stages, 50 rounds) take about 2 MB.

One occurrence of a stage is an *ask*: consecutive rows of the stage. The cost of an ask and the numbers of clients that
answered or were lost are always included. If a run has more exchanges than `ROWS` allows, only the rows of participants
are included, and if these are too many, those of every k-th round.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.display import visible_lines
from testbed.records import RunRecords
from testbed.records.vocabulary import OUTCOMES

ROWS = 1_500_000
"""Largest number of exchanges in all runs of a page: about 10 MB."""
COLUMNS = {"client": 4, "took": 4, "compute": 4, "down": 4, "up": 4, "outcome": 1, "part": 1}
"""Columns of the rows and their bytes.

client: difference from the previous row, modulo 2**32; took (from question to answer) and compute in units of
`time_unit` seconds; down and up in units of `bytes_unit`; outcome: index in `OUTCOMES`; part: 1 participant, 2 in the
sum, 4 dishonest.
"""
NEVER = 2**32 - 1
"""Value of ``took`` for a missing answer."""
EVENTS = 2000
"""Largest number of events of a run in the explorer."""
_LONGEST_DETAIL = 300
_READ = ["round", "stage", "client", "sent_s", "received_s", "compute_s", "outcome"]
_BYTES = ["bytes_down", "bytes_up", "transport_down", "transport_up", "pki_bytes_down", "pki_bytes_up"]
_TIMES_PER_S = 1e5  # 10 microseconds; coarser where a client takes longer than half a day


@dataclass(frozen=True)
class Asks:
    """The asks of some rounds, with the rows included of them.

    Attributes:
        frame: a row per ask: round, stage, sent_s, kept (rows), the sums of the bytes, last_s (of the last answer), and
            the number of clients with each of `OUTCOMES`.
        rows: client, took_s (NaN: no answer), compute_s, bytes_down, bytes_up, outcome, part; in the order of asks.
    """

    frame: pd.DataFrame
    rows: pd.DataFrame


def packed(run: RunRecords, rows: int = ROWS) -> bytes:
    """Return the explorer's data of a run, gzipped; equal records give equal bytes.

    Args:
        run: the records; the run may be in progress.
        rows: largest number of exchanges to include.
    """
    every, others = _thinned(run, rows)
    asks_list = list(_asks(run, every, others))
    asks = pd.concat([part.frame for part in asks_list], ignore_index=True) if asks_list else pd.DataFrame()
    rows_kept = pd.concat([part.rows for part in asks_list], ignore_index=True) if asks_list else pd.DataFrame()
    took, compute = _column(rows_kept, "took_s"), _column(rows_kept, "compute_s")
    down, up = _column(rows_kept, "bytes_down"), _column(rows_kept, "bytes_up")
    time_unit = max(1 / _TIMES_PER_S, _largest(took, compute) / (NEVER - 1))
    bytes_unit = max(1.0, _largest(down, up) / (NEVER - 1))
    columns = {
        "client": np.diff(_column(rows_kept, "client").astype(np.uint32), prepend=np.uint32(0)),
        "took": np.where(np.isnan(took), NEVER, np.rint(np.nan_to_num(took) / time_unit)),
        "compute": np.rint(np.nan_to_num(compute) / time_unit),
        "down": np.rint(down / bytes_unit),
        "up": np.rint(up / bytes_unit),
        "outcome": _column(rows_kept, "outcome"),
        "part": _column(rows_kept, "part"),
    }
    events, more = _events(run)
    header = {
        "rounds": _by_column(_rounds(run)),
        "asks": _by_column(asks),
        "events": _by_column(events),
        "events_left_out": more,
        "clients": _by_column(_clients(run, columns["client"])),
        "outcomes": OUTCOMES,
        "columns": COLUMNS,
        "rows": len(rows_kept),
        "time_unit": time_unit,
        "bytes_unit": bytes_unit,
        "every": every,
        "participants_only": not others,
    }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    planes = [_planes(columns[name], size) for name, size in COLUMNS.items()]
    return gzip.compress(b"".join([len(text).to_bytes(4, "little"), text, *planes]), 6, mtime=0)


def _thinned(run: RunRecords, rows: int) -> tuple[int, bool]:
    """Return k, if rows of every k-th round are included, and whether rows of clients that did not participate are."""
    exchanges = sum(len(part) for part in run.exchanges_in_stretches(["round"]))
    if exchanges <= rows:
        return 1, True
    return max(1, -(-len(run.exchanges_of_participants) // max(rows, 1))), False


def _asks(run: RunRecords, every: int, others: bool) -> Iterator[Asks]:
    parts = _parts(run)
    numbers = run.rounds["round"].to_numpy(np.int64)
    listed = numbers[(np.arange(len(numbers)) % every == 0) | (np.arange(len(numbers)) == len(numbers) - 1)]
    for rows in run.exchanges_in_stretches([*_READ, *_BYTES]):
        rows = rows[rows["round"].isin(numbers)]
        if len(rows):
            yield _of_stretch(rows, parts, listed, others)


def _of_stretch(rows: pd.DataFrame, parts: "_Parts", listed: npt.NDArray[np.int64], others: bool) -> Asks:
    number, sent_s = rows["round"].to_numpy(np.int64), rows["sent_s"].to_numpy(np.float64)
    stage = rows["stage"].astype("category").cat
    changes = (np.diff(number) != 0) | (np.diff(sent_s) != 0) | (np.diff(stage.codes) != 0)
    begins = np.concatenate([[0], np.flatnonzero(changes) + 1])
    outcome = _outcomes(rows["outcome"])
    received = rows["received_s"].to_numpy(np.float64)
    part = parts.of(number, rows["client"].to_numpy(np.int64))
    is_kept = np.isin(number, listed) & (others | (part > 0))
    frame = pd.DataFrame({"round": number[begins], "stage": rows["stage"].astype(str).to_numpy(object)[begins]})
    frame["sent_s"] = sent_s[begins]
    frame["last_s"] = np.fmax.reduceat(received, begins)
    for name in _BYTES:
        frame[name] = np.add.reduceat(rows[name].to_numpy(np.int64), begins)
    for place, name in enumerate(OUTCOMES):
        frame[name] = np.add.reduceat((outcome == place).astype(np.int64), begins)
    frame["kept"] = np.add.reduceat(is_kept.astype(np.int64), begins)
    columns = {"client": rows["client"].to_numpy(np.int64), "took_s": received - sent_s}
    columns |= {name: rows[name].to_numpy() for name in ("compute_s", "bytes_down", "bytes_up")}
    columns |= {"outcome": outcome, "part": part}
    return Asks(frame, pd.DataFrame({name: values[is_kept] for name, values in columns.items()}))


def _outcomes(column: pd.Series) -> npt.NDArray[np.int64]:
    """Return indices in `OUTCOMES`; unknown words count as silence."""
    words = column.astype("category").cat
    places = [OUTCOMES.index(word) if word in OUTCOMES else 1 for word in words.categories]
    return np.asarray(places, np.int64)[words.codes.to_numpy()]


@dataclass(frozen=True)
class _Parts:
    """Roles of clients in rounds: sorted keys, and for each the sum of 1 participant, 2 in the sum, 4 dishonest."""

    keys: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    span: int

    def of(self, number: npt.NDArray[np.int64], client: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        key = number * self.span + client
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where((client < self.span) & (self.keys[place] == key), self.values[place], 0)


def _parts(run: RunRecords) -> _Parts:
    rows = run.participation
    span = int(rows["client"].max()) + 1 if len(rows) else 1
    key = rows["round"].to_numpy(np.int64) * span + rows["client"].to_numpy(np.int64)
    value = 1 + 2 * rows["survived"].to_numpy(np.int64) + 4 * rows["dishonest"].to_numpy(np.int64)
    order = np.argsort(key, kind="stable")
    if not len(key):
        return _Parts(np.array([-1]), np.array([0]), 1)
    return _Parts(key[order], value[order], span)


def _rounds(run: RunRecords) -> pd.DataFrame:
    names = ["round", "outcome", "reason", "started_s", "ended_s", "server_compute_s", "population", "candidates"]
    names += ["participants", "survivors", "bytes_down", "bytes_up", "accuracy"]
    return run.rounds[names].assign(reason=run.rounds["reason"].fillna("").map(_shortened))


def _events(run: RunRecords) -> tuple[pd.DataFrame, int]:
    """Return the events to include, refusals and attacks before restarts, and the number of events left out."""
    rows = run.events
    order = rows["kind"].isin(["restart", "resume"]).to_numpy().argsort(kind="stable")
    shown = rows.iloc[np.sort(order[:EVENTS])]
    return shown.assign(detail=shown["detail"].fillna("").map(_shortened)), len(rows) - len(shown)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_DETAIL else f"{text[: _LONGEST_DETAIL - 1]}…"


def _clients(run: RunRecords, differences: npt.NDArray[np.uint32]) -> pd.DataFrame:
    """Return the properties of clients with included rows."""
    shown = np.unique(np.cumsum(differences, dtype=np.uint32))
    rows = run.clients
    names = ["client", "class", "down_mbit_s", "up_mbit_s", "latency_ms", "device_factor", "samples"]
    return rows.loc[rows["client"].isin(shown), names].astype({"class": str})


def _by_column(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Return lists by column for JSON, with hidden characters in texts made visible.

    Floats are rounded to a hundredth of a millisecond; missing numbers are None.
    """
    lists: dict[str, list[Any]] = {}
    for name in frame:
        values = frame[name].to_numpy()
        lists[str(name)] = [visible_lines(value) if isinstance(value, str) else value for value in values.tolist()]
        if values.dtype.kind == "f":
            pairs = zip(np.round(values, 5).tolist(), np.isfinite(values).tolist(), strict=True)
            lists[str(name)] = [value if is_known else None for value, is_known in pairs]
    return lists


def _column(rows: pd.DataFrame, name: str) -> npt.NDArray[Any]:
    return rows[name].to_numpy() if name in rows else np.zeros(0)


def _largest(*arrays: npt.NDArray[Any]) -> float:
    return max((float(np.nanmax(each)) for each in arrays if len(each) and not np.isnan(each).all()), default=0.0)


def _planes(values: npt.NDArray[Any], size: int) -> bytes:
    """Return the bytes of unsigned integers of `size` bytes, all lowest bytes first."""
    whole = np.asarray(values).astype("<u4" if size == 4 else "u1")
    return np.ascontiguousarray(whole.view(np.uint8).reshape(-1, size).T).tobytes()
