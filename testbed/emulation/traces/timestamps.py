"""Moments in files: numbers of a unit, ISO 8601 with or without a zone, and the format of phone loggers.

- `2019-11-26T13:20:43.5+01:00`, `2019-11-26 13:20:43Z`: ISO 8601; without a zone it is taken as UTC. One file must not
  mix the two.
- `2019.11.26_13.20.43`: G-NetTrack Pro, used for the 5G data set of University College Cork (Raca et al., Beyond
  Throughput, the Next Generation: a 5G Dataset with Channel and Context Metrics, MMSys 2020).

Digits alone are a number, even if they look like a date (`20240501115950`) or milliseconds since 1970. Such numbers are
refused with the likely meaning, unless the given unit makes them plausible.
"""

import math
import re
from datetime import UTC, datetime
from typing import Literal, get_args

from testbed.emulation.traces.text_files import is_number, shown

TimeUnit = Literal["s", "ms", "us", "min", "h"]
TIME_UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)
SECONDS: dict[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0}

_LOGGER = re.compile(r"(\d{4})\.(\d\d)\.(\d\d)_(\d\d)\.(\d\d)\.(\d\d)", re.ASCII)
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d(:\d\d([.,]\d+)?)?( ?[ap]m)?", re.ASCII | re.IGNORECASE)
_COMPACT_DATE = re.compile(r"(?:19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])((?:[01]\d|2[0-3])[0-5]\d([0-5]\d)?)?")
_DAY = 8  # digits of a compact date without a time of day
_EPOCH, _NAIVE_EPOCH = datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1)
_FARTHEST_S = 1e10  # the year 2286, in seconds since 1970
_SINCE_1970_S = (1e8, 1e10)  # from the year 1973: the range in which a number is plausible in some unit
_OF_A_DATE = "write it like 2024-05-01T12:00:00Z"


class Timestamps:
    """A reader of the moments of one file.

    Args:
        unit: unit of moments that are numbers; None: not stated, taken as seconds.
        option: option of the command line that sets the unit, for messages.

    Attributes:
        form: form of the moments: ``"numbers"``, ``"dates"``, ``"dates with a zone"``; None before the first.
    """

    def __init__(self, unit: str | None = None, option: str = "--time-unit") -> None:
        self._unit, self._option = unit, option
        self._seconds = SECONDS[unit or "s"]
        self.form: str | None = None
        self._first_day = ""  # as long as all moments look like 20240501

    @property
    def are_dates(self) -> bool:
        """Whether the moments are dates; seconds then count from 1970-01-01 00:00 UTC."""
        return self.form is not None and self.form != "numbers"

    def seconds(self, cell: str) -> float:
        """Return the moment in a cell, in seconds.

        Raises:
            ValueError: the cell is not a moment, or not of the form of the moments before; the message names the fault.

        Example:
            >>> Timestamps("ms").seconds("1500")
            1.5
            >>> Timestamps().seconds("1970-01-02T00:00:00Z")
            86400.0
        """
        if is_number(cell):
            kind, value = "numbers", float(cell) * self._seconds
            if _FARTHEST_S < abs(value) < math.inf:  # infinity is the caller's to refuse
                raise ValueError(self._beyond(cell))
            if self._unit is None:
                self._note_day(cell)
        else:
            moment = _moment(cell)
            with_zone = moment.tzinfo is not None
            kind = "dates with a zone" if with_zone else "dates"
            value = (moment - (_EPOCH if with_zone else _NAIVE_EPOCH)).total_seconds()
        if self.form not in (None, kind):
            raise ValueError(f"the time {shown(cell)} belongs to {kind}, the times before are {self.form}")
        self.form = kind
        return value

    def check(self) -> None:
        """Raise `ValueError` if all moments were days like 20240501, which have been read as seconds."""
        if self._first_day:
            raise ValueError(
                f"all times look like the date {self._first_day}; {_OF_A_DATE}, or say {self._option} s if they are "
                "seconds"
            )

    def _note_day(self, cell: str) -> None:
        digits = _without_zeros(cell)
        is_day = len(digits) == _DAY and _COMPACT_DATE.fullmatch(digits)
        if self.form is None:
            self._first_day = cell if is_day else ""
        # One number that is no day shows that all of them are seconds.
        elif self._first_day and not is_day:
            self._first_day = ""

    def _beyond(self, cell: str) -> str:
        if _COMPACT_DATE.fullmatch(_without_zeros(cell)):
            return f"the time {shown(cell)} looks like a date without separators; {_OF_A_DATE}"
        first, last = _SINCE_1970_S
        value = abs(float(cell))
        for unit in ("s", "ms", "us"):
            if unit != (self._unit or "s") and first <= value * SECONDS[unit] <= last:
                return f"the time {shown(cell)} looks like {unit} since 1970; say {self._option} {unit}"
        if first <= value * 1e-9 <= last:
            return f"the time {shown(cell)} looks like ns since 1970; divide by 1000 and say {self._option} us"
        return f"the time {shown(cell)} is more than {_FARTHEST_S:g} s; correct it, or say its unit ({self._option})"


def is_moment(cell: str) -> bool:
    """Return whether a cell is a date or a time of day; numbers are not moments here."""
    try:
        _moment(cell)
    except ValueError:
        return bool(_TIME_OF_DAY.fullmatch(cell))
    return True


def _without_zeros(cell: str) -> str:
    """Return a whole number without the ``.0`` that pandas writes in a column of floats."""
    return cell.removesuffix(".0")


def _moment(cell: str) -> datetime:
    text = cell
    if form := _LOGGER.fullmatch(cell):
        text = "{}-{}-{} {}:{}:{}".format(*form.groups())
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        if _TIME_OF_DAY.fullmatch(cell):
            raise ValueError(
                f"{shown(cell)} is a time of day; date and time must be in one column, like 2024-05-01T12:00:00Z"
            ) from None
        raise ValueError(f"{shown(cell)} is not a time, in seconds or like 2024-05-01T12:00:00Z") from None
