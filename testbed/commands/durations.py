"""Durations on the command line: 90, 90s, 5min, 12h, 7d."""

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
