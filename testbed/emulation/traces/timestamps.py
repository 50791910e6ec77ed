"""Moments as files write them: numbers of some unit, ISO 8601 with or without a zone, and what loggers of phones write.

- `2019-11-26T13:20:43.5+01:00`, `2019-11-26 13:20:43Z`: ISO 8601; without a zone it is taken as UTC. One file must not
  mix the two.
- `2019.11.26_13.20.43`: G-NetTrack Pro, which the 5G data set of University College Cork was recorded with (Raca et
  al., Beyond Throughput, the Next Generation: a 5G Dataset with Channel and Context Metrics, MMSys 2020).
"""

import re
from datetime import UTC, datetime
from typing import Literal, get_args

from testbed.emulation.traces.text_files import is_number, shown

TimeUnit = Literal["s", "ms", "us", "min", "h"]
TIME_UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)
SECONDS: dict[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0}

_LOGGER = re.compile(r"(\d{4})\.(\d\d)\.(\d\d)_(\d\d)\.(\d\d)\.(\d\d)", re.ASCII)
_EPOCH, _NAIVE_EPOCH = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)


class Timestamps:
    """Reads the moments of one file.

    Args:
        unit: of moments that are numbers.

    Attributes:
        form: what the moments are: ``"numbers"``, ``"dates"``, ``"dates with a zone"``; None before the first.
    """

    def __init__(self, unit: str = "s") -> None:
        self._seconds = SECONDS[unit]
        self.form: str | None = None

    @property
    def are_dates(self) -> bool:
        """Whether they are: then seconds count from 1970-01-01 00:00 UTC, so that midnight is a multiple of 86400."""
        return self.form is not None and self.form != "numbers"

    def seconds(self, cell: str) -> float:
        """The moment in seconds; raises `ValueError`, with what is wrong, for what is none, or mixes forms."""
        if is_number(cell):
            found, value = "numbers", float(cell) * self._seconds
        else:
            moment = _moment(cell)
            with_zone = moment.tzinfo is not None
            found = "dates with a zone" if with_zone else "dates"
            value = (moment - (_EPOCH if with_zone else _NAIVE_EPOCH)).total_seconds()
        if self.form not in (None, found):
            raise ValueError(f"the time {shown(cell)} is of the {found}, those before are {self.form}")
        self.form = found
        return value


def _moment(cell: str) -> datetime:
    text = cell
    if form := _LOGGER.fullmatch(cell):
        text = "{}-{}-{} {}:{}:{}".format(*form.groups())
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{shown(cell)} is not a time, in seconds or like 2024-05-01T12:00:00Z") from None
