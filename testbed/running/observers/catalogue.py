"""The observers that an experiment names (``output.observers``), or ``--observe``."""

import importlib
from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict, ValidationError, validate_call

from testbed.errors import ExperimentError, reason
from testbed.experiment.sections import OBSERVERS, NamedObserver, observer_and_options
from testbed.extras import first_missing, missing_extra
from testbed.plugins.classes import check_subclass, plugin_class
from testbed.plugins.options import as_keywords, bind, problems
from testbed.running.observers.contract import Observer
from testbed.running.observers.export import initialised

_CLASSES = {
    "csv": ("csv_rounds", "CsvRounds"),
    "tensorboard": ("tensorboard_events", "TensorBoardEvents"),
    "mlflow": ("mlflow_runs", "MlflowRuns"),
    "wandb": ("wandb_runs", "WandbRuns"),
}
assert tuple(_CLASSES) == OBSERVERS
KEY = "output.observers"


def made(entries: Sequence[NamedObserver], where: str, *, import_classes: bool = True) -> list[tuple[str, Observer]]:
    """Create the named observers, in their order, each with its name.

    Args:
        entries: entries of the experiment.
        where: prefix of error lines.
        import_classes: False leaves out user-defined classes.

    Raises:
        ExperimentError: an unknown class or option, or an extra that is not installed; one line each.
    """
    observers = []
    for entry in entries:
        name, options = observer_and_options(entry)
        if ":" not in name or import_classes:
            try:
                observers.append((name, _made(name, options)))
            except ExperimentError as error:
                raise ExperimentError("\n".join(f"{where}: {line}" for line in str(error).splitlines())) from error
    return observers


def _made(name: str, options: dict[str, Any]) -> Observer:
    kind = _own(name) if ":" in name else _built_in(name)
    keywords = as_keywords(kind, name, f"{KEY}.{name}", options, 0, "Options")
    bind(kind, name, KEY, (), keywords)
    try:
        if ":" not in name:
            _check_types(kind, keywords)
        observer: Observer = kind(**keywords)
        if not initialised(observer):
            raise ExperimentError(f"{KEY}: {name}: its __init__ must call super().__init__()")
    except ValidationError as error:
        raise ExperimentError("\n".join(problems(error, f"{KEY}.{name}"))) from None
    except ValueError as error:
        raise ExperimentError(f"{KEY}.{name}: {reason(error)}") from None
    return observer


def _check_types(kind: Any, keywords: dict[str, Any]) -> None:
    """Raise pydantic's `ValidationError` for options of other types than the class declares."""
    made = kind.__new__(kind)
    validate_call(config=ConfigDict(strict=True))(made.__init__)(**keywords)


def _own(name: str) -> Any:
    kind = plugin_class(name, KEY)
    check_subclass(kind, Observer, name, KEY)
    return kind


def _built_in(name: str) -> Any:
    module, attribute = _CLASSES[name]
    kind = getattr(importlib.import_module(f"testbed.running.observers.{module}"), attribute)
    for needed in kind.needs:
        if first_missing(needed):
            raise missing_extra(needed, f"{KEY}: {name}")
    return kind
