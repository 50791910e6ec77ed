"""What tells two experiments apart whose secrets must be unrelated: a digest of all that their results depend on.

Two runs with one seed that differ in anything, be it the learning rate of two points of one sweep, must not mask (or
add noise) alike: the difference of a client's two inputs would be that of its updates, bare, for anybody to see.
"""

import hashlib
import json
from pathlib import PurePath
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from testbed.experiment.schema import Experiment

_DOMAIN = b"testbed/experiment/secrets/v1"
_WITHOUT_EFFECT = frozenset({"cluster", "output", "provenance", "records", "sweep"})  # on what is computed
_ABSENT = object()


def secrets_context(experiment: Experiment) -> bytes:
    """32 bytes, the same wherever and whenever this point of an experiment is run, or gone on with.

    What is left at its default does not count, so that a key that a later version adds changes nothing; nor do paths,
    which differ from machine to machine. Runs that differ in nothing but where their files lie have the same secrets.
    """
    plain = {name: _plain(value) for name, value in _chosen(experiment) if name not in _WITHOUT_EFFECT}
    return hashlib.sha256(_DOMAIN + json.dumps(_without_paths(plain), sort_keys=True).encode()).digest()


def _chosen(model: BaseModel) -> list[tuple[str, Any]]:
    """The fields that are not at their default, and those that say which of several sections this is."""
    fields = type(model).model_fields
    values = dict(model)
    found = [(name, values[name]) for name in fields]
    kept = [
        (name, value)
        for name, value in found
        if _names_section(fields[name].annotation) or value != fields[name].get_default(call_default_factory=True)
    ]
    return [*kept, *(model.model_extra or {}).items()]


def _names_section(annotation: Any) -> bool:
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _plain(inner) for name, inner in _chosen(value)}
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, frozenset | set):
        return sorted(map(str, value))
    return _ABSENT if isinstance(value, PurePath) else value


def _without_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_paths(inner) for name, inner in value.items() if inner is not _ABSENT}
    if isinstance(value, list):
        return [_without_paths(inner) for inner in value if inner is not _ABSENT]
    return value
