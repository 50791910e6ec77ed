"""The keys of an experiment that somebody has written, in its file, its sweep or with --set; the rest are defaults."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from testbed.errors import TestbedError
from testbed.experiment.schema import Experiment, validated
from testbed.flattening import flattened

_ASIDE = {"sweep", "provenance"}
_NAMES_OF_KINDS = ("protocol", "model", "mechanism", "scheme")  # a kind has its own name as the default


def written_keys(experiment: Experiment) -> list[str]:
    """The dotted keys that somebody has set, in the order of the schema.

    The file in a run's directory has every default written out. Of an experiment that was read from one, these are the
    keys that the run has recorded, and any other key whose value is not the default.

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
    """The dotted keys whose values are not the defaults of this version of the testbed, in the order of the schema."""
    return _keys(_changed(experiment))


def written_in(plain: Mapping[str, Any]) -> list[str] | None:
    """The keys that somebody has set in the experiment of a recorded run.

    Args:
        plain: the run's ``experiment.yaml``. Runs of earlier versions do not say which keys were set: then these are
            the keys whose values are not the defaults.

    Returns:
        Dotted keys; None where this version cannot tell, because it does not read the experiment.
    """
    recorded = (plain.get("provenance") or {}).get("written")
    if isinstance(recorded, list):
        return [str(key) for key in recorded]
    try:
        return changed_keys(validated(dict(plain), "experiment.yaml"))
    except TestbedError:
        return None


def _changed(model: BaseModel) -> dict[str, Any]:
    """The values of a section that are not its defaults, as plain data; the name of its kind always counts."""
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
    """The dotted keys of nested mappings."""
    return [key for key, _ in flattened(plain, keep_empty=True)]
