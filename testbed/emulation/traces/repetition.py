"""Repetition of each device's recording over a longer time."""

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.errors import TraceError

_MOST_INTERVALS = 50_000_000


def repeat_recordings(
    where: str,
    rows: tuple[Ids, Floats, Floats],
    recorded: tuple[Floats, Floats],
    span: tuple[float, float],
) -> tuple[Ids, Floats, Floats]:
    """Return each recording repeated end to end over a span; parts beyond the span are cut off.

    Args:
        where: the source, for messages.
        rows: device, begin and end in seconds, `(m,)` each: disjoint intervals, sorted by device and time.
        recorded: begin and end of the recordings of the rows' devices, `(m,)` seconds each.
        span: begin and end in seconds.

    Returns:
        device, begin and end, `(r,)` each, sorted likewise.

    Raises:
        TraceError: too many intervals.
    """
    device, from_s, until_s = rows
    begin, end = recorded
    first_s, last_s = span
    length = end - begin
    lowest, highest = np.floor((first_s - begin) / length), np.ceil((last_s - begin) / length)
    if (total := float((highest - lowest).sum())) > _MOST_INTERVALS:
        raise TraceError(
            f"{where}: repeating the short recordings over the longest makes {total:.2g} intervals, more than "
            f"{_MOST_INTERVALS:.0g}; leave devices offline outside their recordings (--outside offline)"
        )
    copies = (highest - lowest).astype(np.int64)
    row = np.repeat(np.arange(len(device)), copies)
    copy = np.arange(len(row)) - np.repeat(np.cumsum(copies) - copies, copies) + lowest[row]
    shift = copy * length[row]
    device = device[row]
    from_s, until_s = np.maximum(from_s[row] + shift, first_s), np.minimum(until_s[row] + shift, last_s)
    order = np.lexsort((from_s, device))
    order = order[until_s[order] > from_s[order]]
    device, from_s, until_s = device[order], from_s[order], until_s[order]
    # Where copies meet, rounding can make them overlap by one unit in the last place.
    follows = np.flatnonzero(device[1:] == device[:-1]) + 1
    from_s[follows] = np.maximum(from_s[follows], until_s[follows - 1])
    keep = until_s > from_s
    return device[keep], from_s[keep], until_s[keep]
