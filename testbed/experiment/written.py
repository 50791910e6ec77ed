"""Keys of an experiment that the user has set in its file, its sweep or with --set; all others are defaults."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from testbed.errors import TestbedError
from testbed.experiment.schema import Experiment, validated
from testbed.flattening import flattened

_ASIDE = {"sweep", "provenance"}
_NAMES_OF_KINDS = ("protocol", "model", "mechanism", "scheme")  # the default of these is the kind's own name


def written_keys(experiment: Experiment) -> list[str]:
    """Return the dotted keys that the user has set, in the order of the schema.

    The file in a run's directory has every default written out. For an experiment read from such a file, these are the
    keys that the run has recorded, and all other keys with values that differ from the defaults.

    Args:
        experiment: one point of a sweep, or an experiment without one.

    Example:
        >>> written_keys(Experiment(rounds=3, selection={"participants": 5}))
        ['rounds', 'selection.participants']
    """
    recorded = (experiment.provenance or {}).get("written")
    if isinstance(recorded, list):
        return list(dict.fromkeys([*map(str, recorded), *changed_keys(experiment)]))
    return _keys(experiment.model_dump(mode="json", exclude_unset=True, exclude=_ASIDE))


def changed_keys(experiment: Experiment) -> list[str]:
    """Return the dotted keys with values that differ from this version's defaults, in the order of the schema."""
    return _keys(_changed(experiment))


def written_in(plain: Mapping[str, Any]) -> list[str] | None:
    """Return the keys that the user has set in the experiment of a recorded run.

    Args:
        plain: the run's ``experiment.yaml``. Runs of earlier versions did not record the keys; for these the result is
            the keys with values that differ from the defaults.

    Returns:
        Dotted keys; None if this version cannot read the experiment.
    """
    recorded = (plain.get("provenance") or {}).get("written")
    if isinstance(recorded, list):
        return [str(key) for key in recorded]
    try:
        return changed_keys(validated(dict(plain), "experiment.yaml"))
    except TestbedError:
        return None


def _changed(model: BaseModel) -> dict[str, Any]:
    """Return the non-default values of a section as plain data; the name of its kind always counts."""
    changed: dict[str, Any] = {}
    plain = model.model_dump(mode="json")
    values = {name: getattr(model, name) for name in type(model).model_fields}  # a default may follow from another key
    for name, field in type(model).model_fields.items():
        if name in _ASIDE or name not in plain:
            continue
        value = values[name]
        default = field.get_default(call_default_factory=True, validated_data=values)
        if isinstance(value, BaseModel):
            if value != default:
                changed[name] = _changed(value)
        elif value != default or (name in _NAMES_OF_KINDS and value is not None):
            changed[name] = plain[name]
    return changed


def _keys(plain: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys of nested mappings."""
    return [key for key, _ in flattened(plain, keep_empty=True)]
