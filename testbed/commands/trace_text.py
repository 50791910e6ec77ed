"""Counts and facts about traces, as text for people and as JSON for programs."""

import json
import math
from collections.abc import Mapping

_DURATIONS = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))


def counts_table(counts: Mapping[str, int]) -> str:
    """One line per count, the number first."""
    width = max(len(str(value)) for value in counts.values())
    return "".join(f"{value:{width}}  {key.replace('_', ' ')}\n" for key, value in counts.items())


def facts_text(facts: Mapping[str, float | int]) -> str:
    """One line per fact, with its unit; what is not known is left out."""
    known = {key: value for key, value in facts.items() if not math.isnan(value)}
    lines = [_line(key, value) for key, value in known.items()]
    width = max(len(label) for label, _ in lines)
    return "".join(f"{label:{width}}  {text}\n" for label, text in lines)


def facts_json(facts: Mapping[str, float | int]) -> str:
    """A flat object; what is not known is null."""
    return json.dumps({key: None if math.isnan(value) else value for key, value in facts.items()}, indent=2) + "\n"


def _line(key: str, value: float | int) -> tuple[str, str]:
    """The name of a fact without its unit, and its value with it."""
    if key.endswith("_mbit_s"):
        return _words(key.removesuffix("_mbit_s")), f"{value:.3g} Mbit/s"
    if key.endswith("_s"):
        return _words(key.removesuffix("_s")), duration(value)
    if key.startswith("seconds"):
        return _words(key.replace("seconds", "length", 1)), duration(value)
    if "fraction" in key or key.startswith("share"):
        return _words(key.replace("_fraction", "")), f"{100 * value:.3g} %"
    return _words(key), f"{value}"


def _words(key: str) -> str:
    return key.replace("_", " ")


def duration(value_s: float) -> str:
    """Seconds in the largest unit that they fill, e.g. ``5.5 h``."""
    symbol, size = next((unit for unit in _DURATIONS if abs(value_s) >= unit[1]), _DURATIONS[-1])
    return f"{value_s / size:.4g} {symbol}" if value_s else "0 s"
