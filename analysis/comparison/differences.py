"""Keys in which experiments differ, those first that somebody wrote."""

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.flattening import flattened
from testbed.records.point_names import canonical

_ASIDE = ("seed", "provenance", "output", "sweep", "cluster", "targets", "name")
_ABSENT = "\0"


def differing_keys(experiments: Sequence[Mapping[str, Any]]) -> list[str]:
    """The dotted keys in which experiments differ, without those that say where and how often they run.

    Where the protocol of a section differs (or another key that names an alternative), the keys that only one of the
    alternatives has follow from that, and are left out.
    """
    flat = [
        dict(flattened({key: value for key, value in experiment.items() if key not in _ASIDE}))
        for experiment in experiments
    ]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    differing = [key for key in keys if len({canonical(one.get(key, _ABSENT)) for one in flat}) > 1]
    sections = {key.rpartition(".")[0] for key in differing if key.rpartition(".")[2] in ("protocol", "model")}
    return [
        key
        for key in differing
        if all(key in one for one in flat) or not any(key.startswith(f"{section}.") for section in sections)
    ]
