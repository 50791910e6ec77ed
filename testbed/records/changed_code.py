"""Runs that went on although the user's own modules had changed: what their provenance says of it.

`provenance.modules` in ``experiment.yaml`` are the digests of the user's own modules when the run began;
`provenance.changed_code` has an entry for each time that somebody insisted on resuming with others.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed.errors import RunError, reason


def changed_modules(recorded: Mapping[str, Any], now: Mapping[str, str]) -> tuple[str, ...]:
    """Own modules that are not what a run has recorded, sorted: changed, gone, or new to it.

    Args:
        recorded: the run's provenance. One of before own modules were recorded says nothing.
        now: digests of the modules as they are (`testbed.plugins.sources.digests`).
    """
    if "modules" not in recorded and "changed_code" not in recorded:
        return ()
    changes = recorded.get("changed_code") or []
    then = changes[-1]["modules"] if changes else recorded["modules"]
    return tuple(sorted(name for name in {**then, **now} if then.get(name) != now.get(name)))


def with_changed_code(
    recorded: Mapping[str, Any], after_round: int, changed: tuple[str, ...], now: Mapping[str, str], at: str
) -> dict[str, Any]:
    """The provenance of a run that goes on after a round with other own modules than it has recorded."""
    entry = {"after_round": after_round, "at": at, "changed": list(changed), "modules": dict(now)}
    return {**recorded, "changed_code": [*(recorded.get("changed_code") or []), entry]}


def changed_after(path: Path, round_number: int) -> list[str]:
    """The modules with which the run at `path` went on after this round, and that had changed; mostly none."""
    file = path / "experiment.yaml"
    try:
        stored = yaml.load(file.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # safe either way
        changes = (stored.get("provenance") or {}).get("changed_code") or []
        return [str(name) for entry in changes if entry["after_round"] == round_number for name in entry["changed"]]
    except (OSError, yaml.YAMLError, AttributeError, TypeError, KeyError, ValueError) as error:
        raise RunError(f"{file}: cannot be read: {reason(error)}") from None
