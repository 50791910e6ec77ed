"""Durations on the command line: as they are given (90, 90s, 5min, 12h, 7d), and as they are shown."""

import math
import re

from testbed.errors import ExperimentError

_SECONDS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_FORM = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]*)\s*", re.ASCII)


def seconds(text: str, option: str) -> float:
    """The positive duration that `text` says, in seconds; raises `ExperimentError` that begins with `option`."""
    form = _FORM.fullmatch(text)
    if form and form[2] in _SECONDS:
        value = float(form[1]) * _SECONDS[form[2]]
        if 0 < value < math.inf:
            return value
    shown = text if len(text) <= 40 else f"{text[:40]}…"
    raise ExperimentError(f"{option}: {shown!r} is no duration; write e.g. 90, 90s, 5min, 12h or 7d")


def clock_time(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def duration(seconds: float) -> str:
    """Seconds as a person would say them: 22.3 s, 14:05 min, 3:20:00 h."""
    if seconds < 600:
        return f"{seconds:.1f} s"
    return f"{clock_time(seconds)} {'min' if round(seconds) < 3600 else 'h'}"
