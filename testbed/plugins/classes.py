"""User-defined classes, named ``package.module:Name`` in an experiment: import, and check against their contract."""

import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from testbed.errors import ExperimentError, TestbedError, reason
from testbed.extras import extra_of, install_command
from testbed.plugins import installed, renamed, sources
from testbed.spelling import question, similar

PLUGIN_NAME = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
"""Pattern of the names of user-defined classes."""

IMPORT_CLASSES = "--import-classes"
"""Option of the commands that import user-defined classes only on request."""

IMPORTING_ADVICE = f"{IMPORT_CLASSES} (in Python: importing_classes(True))"
"""Advice to allow imports, in messages of commands and programs: see `importing_classes`."""

_OURS = ("testbed", "workloads")  # packages with contracts that user-defined classes inherit from

USER_DEFINED = "a user-defined class"
"""Tag of user-defined classes among the alternatives of a section."""


def alternative_by(key: str, default: str) -> Callable[[Any], str]:
    """Return a function from a union section's value to the tag of its alternative.

    Args:
        key: key of the section that names the alternative.
        default: tag if the section does not have the key.
    """

    def named(value: Any) -> str:
        name = value.get(key, default) if isinstance(value, dict) else getattr(value, key, default)
        return USER_DEFINED if isinstance(name, str) and ":" in name else str(name)

    return named


class NotImportedError(ExperimentError):
    """An experiment names code that is needed, but the user has not allowed to import or start it."""


_decisions: dict[int, list[bool]] = {}  # by thread: its open `importing_classes`, innermost last
_deciding = threading.Lock()


@contextmanager
def importing_classes(allowed: bool) -> Iterator[None]:
    """Allow or refuse to run code that a file names, until the end of the context.

    Outside of any context it is allowed. For programs that read files of others. `check_allowed` enforces the decision.
    The command `testbed` refuses unless a command runs experiments or `--import-classes` is given.

    Contexts may be open in several threads: in each thread its innermost context counts. Threads without a context,
    such as those that a command starts, are refused while any thread refuses.

    Args:
        allowed: whether to import modules and start programs that an experiment names.
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
    """Allow imports until the end of the thread's innermost `importing_classes`, for the option `IMPORT_CLASSES`."""
    with _deciding:
        if own := _decisions.get(threading.get_ident()):
            own[-1] = True


def _is_allowed() -> bool:
    with _deciding:
        own = _decisions.get(threading.get_ident())
        # A thread without a context may belong to a command that refuses: any refusal counts.
        return own[-1] if own else all(others[-1] for others in _decisions.values())


def check_allowed(key: str, name: str, refused_action: str) -> None:
    """Raise unless code that a file names may run; called before all such code is imported or started.

    Args:
        key: the experiment's key with the name.
        name: the name.
        refused_action: the kind of code and the refused action, e.g. "a Flower app is not run here".

    Raises:
        NotImportedError: the innermost `importing_classes` refuses.
    """
    if not _is_allowed():
        raise NotImportedError(f"{key}: {name}: {refused_action} unless you trust it and give {IMPORTING_ADVICE}")


def plugin_class(name: str, key: str) -> Any:
    """Import a class from PYTHONPATH or, last, the working directory.

    Args:
        name: ``package.module:Name``.
        key: the experiment's key with the name, for the error.

    Raises:
        NotImportedError: `importing_classes` refuses.
        ExperimentError: no such module or class, or an installed package's plug-in that cannot be imported. Other
            errors within the module are passed on unchanged.
    """
    check_allowed(key, name, "a user-defined class is not imported here")
    module_name, _, class_name = name.partition(":")
    # Last on the path, so that a file there cannot hide an installed package.
    sources.search_working_directory()
    new = module_name not in sys.modules
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if present := renamed.advice(error):
            raise ExperimentError(f"{key}: {name}: {present}") from error
        # Only if the named module itself is missing: an import within it that fails is the user's own error.
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise ExperimentError(f"{key}: {name}: no module {error.name!r}; {_advice(module_name)}") from None
        plugin = installed.offering(name)  # the module exists, so the error comes from its code
        if plugin is None or isinstance(error, TestbedError):
            raise
        raise ExperimentError(
            f"{key}: {plugin.name} of {plugin.origin} cannot be imported: {type(error).__name__}: {reason(str(error))}"
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
    """Return advice for a missing module."""
    hidden_files = sources.hidden(module)
    top = module.partition(".")[0]
    used = sources.source_of(top)
    if hidden_files and used is not None:
        return f"{hidden_files[0]} is hidden by {used.parent if used.name == '__init__.py' else used}; rename yours"
    if extra := extra_of(top):
        return f"{install_command(extra)} (on all nodes)"
    return "install it or add its folder to PYTHONPATH (on all nodes)"


# -- the contract ------------------------------------------------------------------------------------------------------


_ALIKE = 0.85  # similarity: "max_participants" and "maximum_participants", but not "learned" and "learn"


def check_subclass(candidate: Any, base: type, name: str, key: str) -> None:
    """Raise `ExperimentError` unless a class inherits from `base`, overrides abstract methods, and misspells no name.

    A public name that is almost one of `base`, which the class does not override, counts as misspelt: it has no effect.

    Args:
        candidate: the object that the experiment names.
        base: the contract.
        name: the experiment's name for it.
        key: the experiment's key, e.g. ``selection.protocol``.
    """
    if not (isinstance(candidate, type) and issubclass(candidate, base)):
        raise ExperimentError(f"{key}: {name}: must be a class that inherits from {base.__module__}.{base.__name__}")
    if lacking := sorted(getattr(candidate, "__abstractmethods__", ())):
        raise ExperimentError(f"{key}: {name}: lacks {', '.join(lacking)}; see {base.__module__}.{base.__name__}")
    check_members(candidate, f"{key}: {name}")
    hooks = [hook for hook in dir(base) if not hook.startswith("_")]
    own = _names_below(candidate, base)
    for own_name in own:
        close = similar(own_name, (hook for hook in hooks if hook not in own), cutoff=_ALIKE)
        # A misspelt override would leave the contract's default in place, without any sign.
        if own_name not in hooks and close:
            raise ExperimentError(f"{key}: {name}: {own_name} has no effect; {question(close).rstrip()}")


def check_members(candidate: type, where: str) -> None:
    """Raise `ExperimentError` if a class overrides a member of its bases by the member's former name.

    Such an override has no effect, without any other sign.

    Args:
        candidate: a user-defined class; nothing to check if it is one of the testbed's.
        where: begins the line of the error.

    Example:
        >>> from testbed.training import Trainer
        >>> Mine = type("Mine", (Trainer,), {"told": None, "__module__": "mine"})
        >>> check_members(Mine, "mine:Mine")
        Traceback (most recent call last):
        testbed.errors.ExperimentError: mine:Mine: told has no effect; it is called training_report now
    """
    kinds = inspect.getmro(candidate)
    ours = [kind.__module__.partition(".")[0] in _OURS for kind in kinds]
    inherited = {name for kind, own in zip(kinds, ours, strict=True) if own for name in _public(kind)}
    for kind, own in zip(kinds, ours, strict=True):
        for name in () if own else _public(kind):
            present = [other for other in renamed.MEMBERS.get(name, ()) if other in inherited]
            if present and name not in inherited:
                raise ExperimentError(f"{where}: {name} has no effect; it is called {present[0]} now")


def _names_below(candidate: type, base: type) -> list[str]:
    """Return the public names that a class and its bases below `base` have."""
    kinds = [kind for kind in reversed(inspect.getmro(candidate)) if not issubclass(base, kind)]
    return list(dict.fromkeys(name for kind in kinds for name in _public(kind)))


def _public(kind: type) -> list[str]:
    """Return the public names that a class itself has, including names with an annotation only."""
    return [name for name in {**vars(kind), **inspect.get_annotations(kind)} if not name.startswith("_")]
