"""Classes of the user's own, named ``package.module:Name`` in an experiment."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from testbed.errors import ExperimentError

OWN_CLASS = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
"""What such a name looks like."""

OWN = "a class of your own"
"""The alternative of a section that such a name stands for."""


def alternative_by(key: str, default: str) -> Callable[[Any], str]:
    """For a section that is a union: from its value to the alternative that `key` names, `default` if nothing does."""

    def named(value: Any) -> str:
        name = value.get(key, default) if isinstance(value, dict) else getattr(value, key, default)
        return OWN if isinstance(name, str) and ":" in name else str(name)

    return named


def own_class(name: str, key: str) -> Any:
    """The class that `name` names, looked for on PYTHONPATH and, last, in the working directory.

    Args:
        name: ``package.module:Name``.
        key: where the name stands in the experiment, for the error.

    Raises:
        ExperimentError: no such module or class. What goes wrong inside the module comes through unchanged.
    """
    module_name, _, class_name = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; what is missing is something that it imports
        raise ExperimentError(
            f"{key}: {name}: no module {error.name!r}; install it or add its folder to PYTHONPATH (on all nodes)"
        ) from None
    found = getattr(module, class_name, None)
    if not callable(found):
        raise ExperimentError(f"{key}: {name}: module {module_name} has no class {class_name}")
    return found
