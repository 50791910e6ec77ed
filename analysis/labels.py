"""What figures and tables call a run's protocols."""

from typing import Any


def protocol_name(section: Any) -> str | None:
    """The protocol that a section of an experiment names (``{"protocol": ...}``, or the name alone)."""
    if isinstance(section, dict):
        section = section.get("protocol")
    return None if section is None else str(section)
