"""Whether a user-defined class keeps its contract: it inherits from a base class here, and misspells nothing."""

import difflib
import inspect
from abc import ABCMeta
from typing import Any

from testbed.errors import ExperimentError
from testbed.former_names import CONTRACT

_ALIKE = 0.85  # "max_participants" and "maximum_participants"; not "learned" and "learn"


def check_subclass(found: Any, base: ABCMeta, name: str, key: str) -> None:
    """Raise `ExperimentError` unless `found` inherits from `base`, overrides what is abstract, and misspells nothing.

    Misspelt is a public name much like one of `base` that the class leaves at its default: it would have no effect.

    Args:
        found: what the experiment names.
        base: the contract.
        name: as the experiment names it.
        key: where it does, e.g. ``selection.protocol``.
    """
    if not (isinstance(found, ABCMeta) and issubclass(found, base)):
        raise ExperimentError(f"{key}: {name}: must be a class that inherits from {base.__module__}.{base.__name__}")
    if lacking := sorted(found.__abstractmethods__):
        raise ExperimentError(f"{key}: {name}: lacks {', '.join(lacking)}; see {base.__module__}.{base.__name__}")
    check_former_names(found, base, f"{key}: {name}")
    hooks = [one for one in dir(base) if not one.startswith("_")]
    own = _own_names(found, base)
    for one in own:
        close = difflib.get_close_matches(one, [hook for hook in hooks if hook not in own], n=1, cutoff=_ALIKE)
        if one not in hooks and close:
            raise ExperimentError(f"{key}: {name}: {one} has no effect; did you mean {close[0]!r}?")


def check_former_names(found: type, base: type, where: str) -> None:
    """Raise `ExperimentError` where a class derived from `base` still uses a name that the contract no longer has."""
    for one in _own_names(found, base):
        if now := CONTRACT.get(one):
            raise ExperimentError(f"{where}: {one} is now called {now}; see {base.__module__}.{base.__name__}")


def _own_names(found: type, base: type) -> list[str]:
    """The public names that a class and its bases have below `base`."""
    kinds = [kind for kind in reversed(inspect.getmro(found)) if not issubclass(base, kind)]
    return list(dict.fromkeys(name for kind in kinds for name in _public(kind)))


def _public(kind: type) -> list[str]:
    """The public names that a class itself has, those that are annotated only among them."""
    return [one for one in {**vars(kind), **inspect.get_annotations(kind)} if not one.startswith("_")]
