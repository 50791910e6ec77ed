"""Overrides such as ``selection.participants=20``, set in the data of an experiment before it is validated."""

from functools import cache
from typing import Any

from pydantic import BaseModel

from testbed.aggregation import catalogue as aggregations
from testbed.emulation.availability.section import MODELS
from testbed.emulation.links import form_of
from testbed.errors import ExperimentError
from testbed.experiment.strict_yaml import parsed
from testbed.selection import catalogue as selections


def apply_override(data: dict[str, Any], override: str) -> None:
    """Set what ``key=value`` says in `data`; raises `ExperimentError`."""
    where = f"--set {override if override.isprintable() else repr(override)}"
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ExperimentError(f"{where}: expected key=value, e.g. selection.participants=20")
    value = parsed(text, where)
    if value == {}:  # nothing to merge: the section is emptied
        set_key(data, key.strip(), None, where)
    set_key(data, key.strip(), value, where)


def set_key(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set a dotted key in nested mappings; a mapping is merged into the one that is there.

    Setting another `protocol` (or availability `model`) drops the keys of its section that the new one does not have.
    """
    *sections, last = key.split(".")
    if not all((*sections, last)):
        raise ExperimentError(f"{where}: {key!r} is not a key, e.g. selection.participants")
    for section in sections:
        if data.get(section) is None:
            data[section] = {}
        if not isinstance(data[section], dict):
            raise ExperimentError(f"{where}: {section} is not a section, so it has no key {last}")
        data = data[section]
    _merge(data, last, value)


def _merge(data: dict[str, Any], key: str, value: Any) -> None:
    if data.get(key, value) != value:
        # Another protocol or model: what only the one before knew goes with it.
        keys = _alternative_keys().get((key, str(value)))
        for other in [other for other in data if keys is not None and other not in keys]:
            del data[other]
    if isinstance(value, dict) and isinstance(data.get(key), dict) and not _another_form(data[key], value):
        for name, inner in value.items():
            _merge(data[key], name, inner)
    else:
        data[key] = value


def _another_form(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the two are different forms (or distributions) of a setting of the links, with nothing to merge."""
    forms = form_of(old), form_of(new)
    return None not in forms and (forms[0] != forms[1] or old.get("distribution") != new.get("distribution"))


@cache
def _alternative_keys() -> dict[tuple[str, str], frozenset[str]]:
    """The keys of each built-in alternative of a section, by what names it, e.g. ("protocol", "secagg")."""
    found = {}
    kinds: tuple[type[BaseModel], ...] = (*selections.PROTOCOLS, *aggregations.PROTOCOLS)
    for kind in kinds:
        found["protocol", str(kind.model_fields["protocol"].default)] = frozenset(kind.model_fields)
    for model in MODELS:
        found["model", str(model.model_fields["model"].default)] = frozenset(model.model_fields) - model.unread
    return found
