"""Counts and facts about traces, as text for people and as JSON for programs."""

import math
from collections.abc import Mapping

from analysis.tables import Table, require_format, to_json
from analysis.tables import render as render_table
from testbed.durations import in_largest_unit

_NAMES_SHOWN = 20


def counts_text(counts: Mapping[str, int]) -> str:
    """Return one line per count, the number first."""
    rows = [(str(value), _words(key)) for key, value in counts.items()]
    return render_table(Table((), rows, left=[1], ruled=False), "text")


def render(facts: Mapping[str, float | int], format: str = "text", names: Mapping[int, str] | None = None) -> str:
    """Return facts on a trace as text or JSON.

    Args:
        facts: by key; a fact that is NaN is unknown: no line in a text, null in JSON.
        format: ``text`` (a line with a unit for each fact) or ``json``.
        names: of clients or traces, by number: a text has the first twenty, JSON all as the object ``names``.
    """
    require_format(format, "text", "json")
    if format == "json":
        called = {"names": {str(number): name for number, name in names.items()}} if names else {}
        return to_json({**facts, **called}, ascii=True)
    rows = [_line(key, value) for key, value in facts.items() if not math.isnan(value)]
    what = "client" if "clients" in facts else "trace"
    rows += [(f"{what} {number}", name) for number, name in list((names or {}).items())[:_NAMES_SHOWN]]
    if names and len(names) > _NAMES_SHOWN:
        rows.append(("…", f"{len(names) - _NAMES_SHOWN} more names; --format json has all"))
    return render_table(Table((), rows, ruled=False), "text")


def _line(key: str, value: float | int) -> tuple[str, str]:
    """Return the name of a fact without its unit, and its value with the unit."""
    if key.endswith("_mbit_s"):
        return _words(key.removesuffix("_mbit_s")), f"{value:.3g} Mbit/s"
    if key.endswith("_ms"):
        return _words(key.removesuffix("_ms")), f"{value:.3g} ms"
    if key.endswith("_s"):
        return _words(key.removesuffix("_s")), in_largest_unit(value)
    if key.startswith("seconds"):
        return _words(key.replace("seconds", "length", 1)), in_largest_unit(value)
    if "fraction" in key or key.startswith("share"):
        return _words(key.replace("_fraction", "")), f"{100 * value:.3g} %"
    return _words(key), f"{value}"


def _words(key: str) -> str:
    return key.replace("_", " ")
