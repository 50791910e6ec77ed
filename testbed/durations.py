"""Durations as text, in a form for each use."""

_UNITS = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))
_SMALL_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def clock_time(seconds: float) -> str:
    """Return seconds as a clock shows them.

    Example:
        >>> clock_time(7), clock_time(754), clock_time(3723)
        ('0:07', '12:34', '1:02:03')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def duration(seconds: float) -> str:
    """Return seconds to a tenth, from ten minutes on as a clock shows them; for progress.

    Example:
        >>> duration(22.3), duration(845), duration(12_000)
        ('22.3 s', '14:05 min', '3:20:00 h')
    """
    if seconds < 600:
        return f"{seconds:.1f} s"
    return f"{clock_time(seconds)} {'min' if round(seconds) < 3600 else 'h'}"


def rounded_duration(seconds: float) -> str:
    """Return rounded seconds, minutes or hours; for estimates.

    Example:
        >>> rounded_duration(100), rounded_duration(1000), rounded_duration(10_000)
        ('100 s', '17 min', '2.8 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def in_largest_unit(seconds: float) -> str:
    """Return seconds in the largest unit that they fill, to four digits; for facts of any length.

    Example:
        >>> in_largest_unit(0.02), in_largest_unit(19_800), in_largest_unit(0)
        ('20 ms', '5.5 h', '0 s')
    """
    symbol, size = next((unit for unit in _UNITS if abs(seconds) >= unit[1]), _UNITS[-1])
    return f"{seconds / size:.4g} {symbol}" if seconds else "0 s"


def aligned_duration(seconds: float) -> str:
    """Return a short time to three digits, right-aligned in 10 columns; for columns of measurements.

    Example:
        >>> aligned_duration(2.84e-10), aligned_duration(1.23)
        ('  0.284 ns', '   1.23 s ')
    """
    symbol, size = next((unit for unit in _SMALL_UNITS if seconds >= unit[1]), _SMALL_UNITS[-1])
    return f"{seconds / size:7.3g} {symbol:2}"
