"""What every trace must be, whatever the run."""

import gzip
import json
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema

from testbed.records import RunRecords

SCHEMA = json.loads(Path(__file__).with_name("trace_event_format.json").read_text())
COLUMNS = ("bytes_down", "bytes_up", "transport_down", "transport_up", "pki_bytes_down", "pki_bytes_up")
SERVER, CLIENTS, FIRST = 1, 2, 3


def read(path: Path) -> dict[str, Any]:
    """The document; numbers with a point as they are written, not as the nearest float."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    document: dict[str, Any] = json.loads(text, parse_float=Fraction, parse_constant=lambda name: 1 / 0)
    return document


def of(document: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    """The events with these values."""
    return [one for one in document["traceEvents"] if all(one.get(key) == value for key, value in wanted.items())]


def check(path: Path, run: RunRecords, numbers: list[int]) -> dict[str, Any]:
    """The document, which has the format and says what the records of these rounds do."""
    plain = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    jsonschema.validate(plain, SCHEMA)
    document = read(path)
    _check_nesting(document)
    rows = run.exchanges[run.exchanges["round"].isin(numbers)]
    _check_exchanges(document, rows)
    _check_counters(document, rows)
    tracks = {one["tid"] for one in of(document, ph="M", pid=CLIENTS, name="thread_name")}
    assert {one["tid"] for one in of(document, pid=CLIENTS) if one["ph"] != "M"} == tracks
    assert [one["name"] for one in of(document, cat="round")] == [f"round {number}" for number in numbers]
    return document


def _check_nesting(document: dict[str, Any]) -> None:
    """On a track, a slice that begins within another ends in it; a parent comes before its children."""
    tracks = defaultdict(list)
    for one in of(document, ph="X"):
        tracks[one["pid"], one["tid"]].append((Fraction(one["ts"]), Fraction(one["ts"]) + Fraction(one["dur"])))
    assert tracks
    for (pid, _), slices in tracks.items():
        slack = Fraction(1, 10**4) if pid == SERVER else 0  # floats of microseconds
        open_until: list[Fraction] = []
        for begin, end in sorted(slices, key=lambda one: one[0]):  # stable: those that begin together stay in order
            while open_until and open_until[-1] <= begin + slack:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + slack
            open_until.append(end)


def _check_exchanges(document: dict[str, Any], rows: Any) -> None:
    """Every exchange once, as a slice or (offline) as an instant, with its bytes."""
    told = Counter(
        (one["args"]["round"], one["name"], one["tid"] - FIRST, one["args"]["outcome"])
        for one in of(document, cat="exchange")
    )
    lost = Counter(
        (one["args"]["round"], one["args"]["stage"], one["tid"] - FIRST, one["name"])
        for one in of(document, cat="loss")
    )
    there = rows[rows["outcome"] != "offline"]
    columns = ["round", "stage", "client", "outcome"]
    assert told == Counter(there[columns].itertuples(index=False, name=None))
    assert lost == Counter(rows.loc[rows["outcome"] != "answered", columns].itertuples(index=False, name=None))
    for name in COLUMNS:
        slices = of(document, cat="exchange")
        assert sum(one["args"][name] for one in slices) == rows[name].sum()
        parts = of(document, cat="transfer")
        assert sum(one["args"].get(name, 0) for one in parts) == rows[name].sum()
    for name in ("bytes_down", "bytes_up"):
        assert sum(one["args"][name] for one in of(document, cat="stage")) == rows[name].sum()


def _check_counters(document: dict[str, Any], rows: Any) -> None:
    counts = of(document, ph="C")
    for name, way in (("to clients", "down"), ("to the server", "up")):
        values = [one["args"][name] for one in counts]
        assert all(value >= 0 for value in values)
        assert not values or values[-1] == 0
        if max(values, default=0) > 0:
            assert rows[[f"bytes_{way}", f"transport_{way}"]].to_numpy().any()
    times = [Fraction(one["ts"]) for one in counts]
    assert times == sorted(set(times))
