"""Rows whose messages travel with different transports, although nobody has swept them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from analysis.comparison.labels import sweep_of
from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, counted, value_of
from analysis.findings.finding import Finding
from testbed.records import RunRecords
from testbed.records.point_names import leaves_of

KEY = "links.transport"


def transport_of(run: RunRecords) -> str | None:
    """The transport of a run's messages, e.g. ``tcp``, with `auto` resolved; None: the records do not tell.

    `auto` is `tcp` where a client has a latency or loss above 0, or a buffer (`testbed.emulation.links`).
    """
    transport = value_of(run, KEY)
    if isinstance(transport, Mapping):
        numbers = ", ".join(f"{key}={value}" for key, value in sorted(transport.items()) if key != "preset")
        return f"{transport.get('preset', 'own')} ({numbers})" if numbers else str(transport.get("preset", "own"))
    if transport != "auto":
        return None if transport is None else str(transport)
    takes_time = any(not _is_zero(value_of(run, f"links.{key}")) for key in ("latency_ms", "loss", "buffer_ms"))
    return "tcp" if takes_time or value_of(run, "links.model") is not None else "none"


def transport_differs(compared: ComparedRows) -> list[Finding]:
    """Rows with another transport than most rows, a finding for each of these transports.

    Rows that have swept the transport are left out: there the difference is the result.
    """
    found: list[tuple[Row, str]] = []
    for row in compared.rows:
        transport = None if _has_swept(row.runs[0]) else transport_of(row.runs[0])
        if transport is not None:
            found.append((row, transport))
    (common, number), *others = Counter(transport for _, transport in found).most_common() or [("", 0)]
    return [
        Finding(
            "transport-differs",
            f"messages travel with the transport {other}, those of {counted(number, 'other row')} with {common}: "
            "times and overheads do not compare",
            compared.labels(row for row, transport in found if transport == other),
            (KEY,),
        )
        for other, _ in others
    ]


def _has_swept(run: RunRecords) -> bool:
    leaves = (leaf for key, value in sweep_of(run).items() for leaf in leaves_of(key, value))
    return any(leaf == KEY or leaf.startswith(f"{KEY}.") for leaf in leaves)


def _is_zero(setting: Any) -> bool:
    """Whether a setting of the links is nothing for all clients."""
    values = setting if isinstance(setting, list) else [setting]
    return all(value is None or value == 0 for value in values)
