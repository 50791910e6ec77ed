"""Options of user-defined classes; an option that the class does not declare is refused.

A class declares its options in one of two ways:

- as arguments of its ``__init__`` after the fixed ones, as in ``def __init__(self, section, rate=2.0)``: the
  experiment's options become keyword arguments;
- as a pydantic class, which also checks types and ranges: `Options` where the section of the experiment has a key
  ``options`` (devices, links, availability, workload), whose values `section.options` then holds with defaults filled
  in; for a protocol `Parameters`, a subclass of `SelectionParameters` or `AggregationParameters`, which the protocol is
  constructed with.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from testbed.errors import ExperimentError
from testbed.spelling import did_you_mean

_Made = TypeVar("_Made", bound=BaseModel)


def create_with_options(kind: Any, name: str, key: str, section: Any, *arguments: Any) -> Any:
    """Return ``kind(section, *arguments)``, with the options in ``section.options``.

    Args:
        kind: the user's class (or function).
        name: the experiment's name for it.
        key: key of the section, e.g. ``devices``; begins the lines of errors.
        section: section of the experiment.
        arguments: further fixed arguments.

    Raises:
        ExperimentError: an option that the class does not declare or take, or a missing one; one line each.
    """
    declared, keywords = checked(kind, name, key, section.options, 1 + len(arguments))
    if declared is not None:
        section = section.model_copy(update={"options": declared})
    bind(kind, name, key, (section, *arguments), keywords)
    return kind(section, *arguments, **keywords)


def check_callable(kind: Any, name: str, key: str, options: Mapping[str, Any], arguments: int) -> None:
    """Check options as `create_with_options` does, without a call.

    Args:
        kind, name, key: as in `create_with_options`.
        options: the options.
        arguments: number of fixed arguments, including the section.

    Raises:
        ExperimentError: as `create_with_options`.
    """
    _, keywords = checked(kind, name, key, options, arguments)
    bind(kind, name, key, (None,) * arguments, keywords)


def checked(
    kind: Any, name: str, key: str, options: Mapping[str, Any], arguments: int
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the options as values for ``section.options`` (None: unchanged), and as keyword arguments.

    Args:
        kind, name, key: as in `create_with_options`.
        options: the options.
        arguments: number of fixed arguments, including the section.

    Raises:
        ExperimentError: as `create_with_options`.
    """
    declared = getattr(kind, "Options", None)
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return validated(declared, options, f"{key}.options", f" (Options of {name})").model_dump(), {}
    return None, as_keywords(kind, name, f"{key}.options", options, arguments, "Options")


def as_keywords(
    kind: Any, name: str, where: str, options: Mapping[str, Any], arguments: int, model: str
) -> dict[str, Any]:
    """Return `options` as keyword arguments.

    Args:
        kind: the class or function to call.
        name: the experiment's name for it.
        where: begins each line of the error.
        options: the options.
        arguments: number of fixed arguments.
        model: name of the pydantic class that may declare options instead.

    Raises:
        ExperimentError: one line for each undeclared option.
    """
    if not options:
        return {}
    declared = _keywords(kind, arguments)
    lines = []
    for option in options:
        if option in declared:
            continue
        line = f"{where}.{option}: {unknown(option, tuple(declared))}"
        if not declared:
            line += f"; {name} declares no options: add arguments to its __init__, or a pydantic class {model}"
        lines.append(line)
    if lines:
        raise ExperimentError("\n".join(lines))
    return dict(options)


def check_methods(instance: Any, name: str, key: str, *methods: str) -> None:
    """Raise `ExperimentError` unless an object has these methods.

    Args:
        instance: an instance of the user's class.
        name: the experiment's name for the class.
        key: the experiment's key, e.g. ``devices.model``.
        methods: each with its arguments, as the error shows it.
    """
    for method in methods:
        if not callable(getattr(instance, method.partition("(")[0], None)):
            raise ExperimentError(f"{key}: {name}: lacks the method {method}")


def bind(kind: Any, name: str, key: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raise `ExperimentError` if `kind` cannot be called with these arguments.

    Args:
        kind, name, key: as in `create_with_options`.
        arguments: positional arguments.
        keywords: keyword arguments.
    """
    try:
        inspect.signature(kind).bind(*arguments, **keywords)
    except TypeError as error:
        shown_arguments = ", ".join((*("..." for _ in arguments), *(f"{option}=..." for option in keywords)))
        raise ExperimentError(f"{key}: {name}({shown_arguments}): {error}") from error
    except ValueError:
        pass  # no signature available: the call itself will raise


def validated(
    model: type[_Made], options: Mapping[str, Any], where: str, suffix: str = "", unsaid: Sequence[str] = ()
) -> _Made:
    """Return options strictly validated by `model`, as an experiment is.

    Names that the model does not have are refused, unless it has ``extra="allow"``.

    Args:
        model: the class that declares the options.
        options: the options.
        where: begins each line of the error.
        suffix: ends the lines about unknown names.
        unsaid: fields that are not listed as allowed.

    Raises:
        ExperimentError: one line per mistake.
    """
    lines = []
    if model.model_config.get("extra") != "allow":
        names = {name for field, info in model.model_fields.items() for name in (field, info.alias) if name}
        allowed = tuple(name for name in model.model_fields if name not in unsaid)
        lines = [f"{where}.{option}: {unknown(option, allowed)}{suffix}" for option in options if option not in names]
        options = {option: value for option, value in options.items() if option in names}
    try:
        # By JSON: strict validation of Python objects would refuse lists for tuples and text for paths.
        result = model.model_validate_json(to_json(dict(options), inf_nan_mode="constants"), strict=True)
        if not lines:
            return result
    except ValidationError as error:
        lines += problems(error, where)
    raise ExperimentError("\n".join(lines))


def problems(error: ValidationError, where: str) -> list[str]:
    """Return a line for each problem that pydantic reports.

    Args:
        error: pydantic's error.
        where: begins each line.
    """
    lines = []
    for problem in error.errors(include_url=False):
        path = ".".join((where, *(str(part) for part in problem["loc"])))
        message = str(problem["msg"]).removeprefix("Value error, ").replace("Input should be", "should be")
        if problem["type"] == "missing":
            lines.append(f"{path}: required")
        elif problem["type"] == "value_error":
            lines.append(f"{path}: {message}")
        else:
            lines.append(f"{path}: {message}, not {problem['input']!r}")
    return lines


def unknown(option: str, allowed: Sequence[str]) -> str:
    """Return the message for an unknown option.

    Args:
        option: the unknown option.
        allowed: the allowed options.
    """
    return f"unknown option; {did_you_mean(option, allowed)}allowed: {', '.join(allowed) or 'none'}"


def _keywords(kind: Any, arguments: int) -> list[str]:
    """Return the names of the arguments of `kind` beyond the first `arguments`; ``**anything`` declares nothing."""
    try:
        parameters = list(inspect.signature(kind).parameters.values())
    except (TypeError, ValueError):
        return []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = [parameter for parameter in parameters if parameter.kind in by_position][:arguments]
    # Without VAR_KEYWORD: ``**anything`` would accept every misspelt option.
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in parameters if parameter.kind in named and parameter not in first]
