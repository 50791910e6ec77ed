"""Seconds and bytes in the unit that a person would choose."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """A unit and how many decimals a number in it deserves.

    Attributes:
        symbol: e.g. ``"min"``.
        size: in base units, i.e. seconds or bytes.
        decimals: digits after the point.
    """

    symbol: str
    size: float
    decimals: int

    def number(self, value: float) -> str:
        """`value` (seconds or bytes) in this unit, without the symbol."""
        return f"{value / self.size:.{self.decimals}f}"

    def text(self, value: float) -> str:
        """`value` (seconds or bytes) in this unit, with the symbol."""
        return f"{self.number(value)} {self.symbol}"


# Symbol, size, and the smallest value for which the unit is chosen: minutes from two minutes on.
_SECONDS = (("h", 3600.0, 7200.0), ("min", 60.0, 120.0), ("s", 1.0, 1.0), ("ms", 1e-3, 0.0))
_BYTES = (("GB", 1e9, 1e9), ("MB", 1e6, 1e6), ("kB", 1e3, 1e3), ("B", 1.0, 0.0))


def seconds_unit(values: Iterable[float]) -> Unit:
    """One unit for all of `values` (s), so that they compare at a glance: that of the smallest positive one."""
    return _choose(_SECONDS, values)


def bytes_unit(values: Iterable[float]) -> Unit:
    """One unit (decimal: 1 MB is 10^6 bytes) for all of `values`: that of the smallest positive one."""
    return _choose(_BYTES, values)


def _choose(units: tuple[tuple[str, float, float], ...], values: Iterable[float]) -> Unit:
    smallest = min((value for value in values if value > 0), default=1.0)
    symbol, size, _ = next(unit for unit in units if smallest >= unit[2])
    scaled = smallest / size
    decimals = 3 if scaled < 1 else 2 if scaled < 10 else 1 if scaled < 1000 else 0
    return Unit(symbol, size, 0 if symbol == "B" else decimals)
