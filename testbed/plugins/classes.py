"""User-defined classes, named ``package.module:Name`` in an experiment: found, and checked against their contract."""

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from testbed.errors import ExperimentError, TestbedError, reason
from testbed.extras import extra_of, install_command
from testbed.plugins import installed, sources
from testbed.spelling import question, similar

PLUGIN_NAME = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
"""What such a name looks like."""

IMPORT_CLASSES = "--import-classes"
"""The option of commands that import nothing of the user's own unless it is given."""

IMPORTING_ADVICE = f"{IMPORT_CLASSES} (in Python: importing_classes(True))"
"""The same for messages that reach programs, too: `importing_classes`."""

USER_DEFINED = "a user-defined class"
"""The alternative of a section that such a name stands for."""


def alternative_by(key: str, default: str) -> Callable[[Any], str]:
    """For a section that is a union: from its value to the alternative that `key` names, `default` if nothing does."""

    def named(value: Any) -> str:
        name = value.get(key, default) if isinstance(value, dict) else getattr(value, key, default)
        return USER_DEFINED if isinstance(name, str) and ":" in name else str(name)

    return named


class NotImportedError(ExperimentError):
    """Code that a file names is needed, and nobody has said that it may be imported or started."""


_decisions: dict[int, list[bool]] = {}  # the open `importing_classes` of each thread, the innermost last
_deciding = threading.Lock()


@contextmanager
def importing_classes(allowed: bool) -> Iterator[None]:
    """Allow or refuse, until the end of the context, to run code that a file names; outside of any, it is allowed.

    For programs that read files of others. See `check_allowed`, which refuses. The command `testbed` refuses unless a
    command runs experiments, or `--import-classes` is given. Several threads may do so at once: in each its own
    innermost context counts, and threads without one, such as those that a command starts, are refused while any
    thread refuses.

    Args:
        allowed: whether modules that an experiment names are imported, and programs that it names started.
    """
    thread = threading.get_ident()
    with _deciding:
        _decisions.setdefault(thread, []).append(allowed)
    try:
        yield
    finally:
        with _deciding:
            _decisions[thread].pop()
            if not _decisions[thread]:
                del _decisions[thread]


def allow_importing() -> None:
    """Allow it until the end of the thread's innermost `importing_classes`: the option `IMPORT_CLASSES` was given."""
    with _deciding:
        if own := _decisions.get(threading.get_ident()):
            own[-1] = True


def _is_allowed() -> bool:
    with _deciding:
        own = _decisions.get(threading.get_ident())
        return own[-1] if own else all(others[-1] for others in _decisions.values())


def check_allowed(key: str, name: str, what: str) -> None:
    """Raise unless code that a file names may run. Everything that imports or starts such code calls this before.

    Args:
        key: where the name stands in the experiment.
        name: the name.
        what: the kind of code, and what is not done with it, e.g. "a Flower app, whose code is not run here".

    Raises:
        NotImportedError: see `importing_classes`.
    """
    if not _is_allowed():
        raise NotImportedError(f"{key}: {name}: {what} unless you trust it and give {IMPORTING_ADVICE}")


def plugin_class(name: str, key: str) -> Any:
    """The class that `name` names, looked for on PYTHONPATH and, last, in the working directory.

    Args:
        name: ``package.module:Name``.
        key: where the name stands in the experiment, for the error.

    Raises:
        NotImportedError: see `importing_classes`.
        ExperimentError: no such module or class, or an installed package's plug-in that cannot be imported. What goes
            wrong inside another module comes through unchanged.
    """
    check_allowed(key, name, "a user-defined class, whose module is not imported here")
    module_name, _, class_name = name.partition(":")
    sources.search_working_directory()
    new = module_name not in sys.modules
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ExperimentError(f"{key}: {name}: no module {error.name!r}; {_advice(module_name)}") from None
        plugin = installed.offering(name)  # otherwise the module is there, and what goes wrong is something inside
        if plugin is None or isinstance(error, TestbedError):
            raise
        raise ExperimentError(
            f"{key}: {plugin.name}, of {plugin.origin}, cannot be imported: "
            f"{type(error).__name__}: {reason(str(error))}"
        ) from error
    if new:
        sources.note_imported(name)
    named_object = getattr(module, class_name, None)
    if not callable(named_object):
        instead = "".join(f"; {other} is another module of that name" for other in sources.hidden(module_name))
        where = getattr(module, "__file__", None)
        at = f" ({where})" if instead and where else ""
        raise ExperimentError(f"{key}: {name}: module {module_name}{at} has no class {class_name}{instead}")
    return named_object


def _advice(module: str) -> str:
    """What to do about a module that is not there."""
    hidden_files = sources.hidden(module)
    top = module.partition(".")[0]
    used = sources.source_of(top)
    if hidden_files and used is not None:
        return f"{hidden_files[0]} is hidden by {used.parent if used.name == '__init__.py' else used}; rename yours"
    if extra := extra_of(top):
        return f"{install_command(extra)} (on all nodes)"
    return "install it or add its folder to PYTHONPATH (on all nodes)"


# -- the contract ------------------------------------------------------------------------------------------------------


_ALIKE = 0.85  # "max_participants" and "maximum_participants"; not "learned" and "learn"


def check_subclass(candidate: Any, base: type, name: str, key: str) -> None:
    """Raise `ExperimentError` unless `candidate` inherits from `base`, overrides what is abstract, and misspells nothing.

    Misspelt is a public name much like one of `base` that the class leaves at its default: it would have no effect.

    Args:
        found: what the experiment names.
        base: the contract.
        name: as the experiment names it.
        key: where it does, e.g. ``selection.protocol``.
    """
    if not (isinstance(candidate, type) and issubclass(candidate, base)):
        raise ExperimentError(f"{key}: {name}: must be a class that inherits from {base.__module__}.{base.__name__}")
    if lacking := sorted(getattr(candidate, "__abstractmethods__", ())):
        raise ExperimentError(f"{key}: {name}: lacks {', '.join(lacking)}; see {base.__module__}.{base.__name__}")
    hooks = [own_name for own_name in dir(base) if not own_name.startswith("_")]
    own = _names_below(candidate, base)
    for own_name in own:
        close = similar(own_name, (hook for hook in hooks if hook not in own), cutoff=_ALIKE)
        if own_name not in hooks and close:
            raise ExperimentError(f"{key}: {name}: {own_name} has no effect; {question(close).rstrip()}")


def _names_below(candidate: type, base: type) -> list[str]:
    """The public names that a class and its bases have below `base`."""
    kinds = [kind for kind in reversed(inspect.getmro(candidate)) if not issubclass(base, kind)]
    return list(dict.fromkeys(name for kind in kinds for name in _public(kind)))


def _public(kind: type) -> list[str]:
    """The public names that a class itself has, those that are annotated only among them."""
    return [name for name in {**vars(kind), **inspect.get_annotations(kind)} if not name.startswith("_")]
