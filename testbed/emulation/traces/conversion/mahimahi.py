"""Mahimahi's packet-delivery traces: each line is a time stamp in ms, the opportunity to deliver one packet.

A line holds the whole number of milliseconds since the beginning at which one packet can cross the link; several
packets within a millisecond are equal lines. Each packet has 1504 bytes (`PACKET_SIZE` of `link_queue.hh`, "default max
TUN payload size"; the manual of `mm-link` says 1500), so the rate is that of IP packets. At its last stamp the trace
begins again: that is its period (`LinkQueue::use_a_delivery_opportunity`).

Source:
    Netravali et al., Mahimahi: Accurate Record-and-Replay for HTTP (USENIX ATC 2015); recorded with the Saturator of
    Winstein et al., Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks (NSDI 2013).
"""

import math
from pathlib import Path

import numpy as np

from testbed.emulation.traces.conversion.collector import Counts
from testbed.emulation.traces.interval_files import row_error
from testbed.emulation.traces.series import Steps
from testbed.emulation.traces.text_files import shown, text_lines
from testbed.errors import TraceError

PACKET_BYTES = 1504
_WHAT = "a mahimahi trace has a whole number of milliseconds in each line"
_MOST_BINS = 50_000_000
_LATEST_MS = 10**12
_MOST_DIGITS = 20  # more are no stamp; int() of thousands of digits raises
_MBIT_S_PER_BYTE_MS = 8e-3


def convert(path: Path, bin_s: float = 0.1) -> tuple[Steps, Counts]:
    """Return the rate over time of a packet-delivery trace.

    Opportunities are counted in bins of equal length (the last bin may be shorter), so that no byte is lost; an
    opportunity at the very end counts in the last bin. Within a bin the rate is constant.

    Args:
        path: the file; also `.gz`.
        bin_s: length of a bin in seconds, a whole number of milliseconds.

    Returns:
        The steps in Mbit/s, neighbours of equal rate joined, and the counts: opportunities, bins, steps.

    Raises:
        TraceError: a line that is not such a number, or smaller than the line before; a trace without length.
    """
    width_ms = round(bin_s * 1000)
    if width_ms < 1 or abs(width_ms - bin_s * 1000) > 1e-6:
        raise TraceError(f"{path}: bins of {bin_s:g} s; give a whole number of milliseconds (--bin 100ms)")
    stamps: list[int] = []
    with text_lines(path, _WHAT) as lines:
        for row, line in enumerate(lines, start=1):
            text = line.strip()
            if not text:
                continue
            # Cut before `int`, which takes quadratic time for very long digits.
            if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) <= _LATEST_MS):
                raise row_error(str(path), row, f"{shown(text)}; {_WHAT}")
            stamps.append(int(text))
            if len(stamps) > 1 and stamps[-1] < stamps[-2]:
                raise row_error(str(path), row, f"{stamps[-1]} ms, and {stamps[-2]} in the row before; stamps ascend")
    if not stamps or not stamps[-1]:
        raise TraceError(f"{path}: the last stamp must be later than 0 ms; {_WHAT}")
    period_ms = stamps[-1]
    bins = math.ceil(period_ms / width_ms)
    if bins > _MOST_BINS:
        raise TraceError(f"{path}: {bins} bins of {width_ms} ms; at most {_MOST_BINS:,}: choose longer ones (--bin)")
    # The last stamp is the period itself: its packets belong to the last bin.
    packets = np.bincount(np.minimum(np.array(stamps) // width_ms, bins - 1), minlength=bins)
    begin_ms = np.arange(bins) * width_ms
    rate = packets * PACKET_BYTES / np.diff(np.append(begin_ms, period_ms)) * _MBIT_S_PER_BYTE_MS
    changes = np.flatnonzero(np.append(True, rate[1:] != rate[:-1]))
    steps = Steps(begin_ms[changes] / 1000, rate[changes], period_ms / 1000)
    return steps, {"opportunities": len(stamps), "bins": bins, "steps": len(changes)}
