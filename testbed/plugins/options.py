"""Options of user-defined classes: one that a class does not declare is a mistake, and refused.

A class declares what it takes in one of two ways:

- as arguments of its ``__init__`` after those that it is always called with, as in
  ``def __init__(self, section, rate=2.0)``: what the experiment says is handed over as keyword arguments;
- as a pydantic class, which checks types and ranges too: `Options` where the section of the experiment has a key
  ``options`` (devices, links, availability, workload), whose values `section.options` then holds, defaults filled in;
  and for a protocol `Parameters`, a subclass of `SelectionParameters` or `AggregationParameters`, which it is
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


def made(kind: Any, name: str, key: str, section: Any, *arguments: Any) -> Any:
    """``kind(section, *arguments)``, with the options that ``section.options`` has for it.

    Args:
        kind: the class (or function) of the user's own.
        name: as the experiment names it.
        key: the section's, e.g. ``devices``; begins the lines of errors.
        section: of the experiment.
        arguments: what else it is called with.

    Raises:
        ExperimentError: an option that it does not declare, lacks, or does not take; one line each.
    """
    declared, keywords = checked(kind, name, key, section.options, 1 + len(arguments))
    if declared is not None:
        section = section.model_copy(update={"options": declared})
    bind(kind, name, key, (section, *arguments), keywords)
    return kind(section, *arguments, **keywords)


def check_callable(kind: Any, name: str, key: str, options: Mapping[str, Any], arguments: int) -> None:
    """Raise as `made` does, without making anything; `arguments` counts the section."""
    _, keywords = checked(kind, name, key, options, arguments)
    bind(kind, name, key, (None,) * arguments, keywords)


def checked(
    kind: Any, name: str, key: str, options: Mapping[str, Any], arguments: int
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """What `kind` makes of `options`: values for ``section.options`` (None: as they are), and keyword arguments.

    Raises as `made` does.
    """
    declared = getattr(kind, "Options", None)
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return validated(declared, options, f"{key}.options", f" (Options of {name})").model_dump(), {}
    return None, as_keywords(kind, name, f"{key}.options", options, arguments, "Options")


def as_keywords(
    kind: Any, name: str, where: str, options: Mapping[str, Any], arguments: int, model: str
) -> dict[str, Any]:
    """`options` as keyword arguments beyond the first `arguments`; raises `ExperimentError`, a line for each mistake.

    Args:
        kind: what is called.
        name: as the experiment names it.
        where: begins each line.
        options: as the experiment says.
        arguments: how many it is called with in any case.
        model: what a pydantic class that declares options is called here.
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
            line += f": {name} declares none, neither as arguments of its __init__ nor as a pydantic class {model}"
        lines.append(line)
    if lines:
        raise ExperimentError("\n".join(lines))
    return dict(options)


def check_methods(made: Any, name: str, key: str, *methods: str) -> None:
    """Raise `ExperimentError` unless `made`, of the class `name`, has these methods.

    Args:
        made: an instance.
        name: as the experiment names it.
        key: where the experiment names it, e.g. ``devices.model``.
        methods: each with its arguments, as the error shows it.
    """
    for method in methods:
        if not callable(getattr(made, method.partition("(")[0], None)):
            raise ExperimentError(f"{key}: {name}: has no method {method}")


def bind(kind: Any, name: str, key: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Raise `ExperimentError` when `kind` cannot be called so."""
    try:
        inspect.signature(kind).bind(*arguments, **keywords)
    except TypeError as error:
        shown_arguments = ", ".join((*("..." for _ in arguments), *(f"{option}=..." for option in keywords)))
        raise ExperimentError(f"{key}: {name}({shown_arguments}): {error}") from error
    except ValueError:
        pass  # no signature to be had: the call itself will tell


def validated(
    model: type[_Made], options: Mapping[str, Any], where: str, suffix: str = "", unsaid: Sequence[str] = ()
) -> _Made:
    """`options` as a `model`, strictly, as an experiment is; raises `ExperimentError`, a line for each mistake.

    Names that the model does not have are refused whether or not it forbids them; ``extra="allow"`` takes any.
    `where` begins each line, `suffix` ends those about unknown names; fields in `unsaid` are not for the experiment.
    """
    lines = []
    if model.model_config.get("extra") != "allow":
        names = {name for field, info in model.model_fields.items() for name in (field, info.alias) if name}
        allowed = tuple(name for name in model.model_fields if name not in unsaid)
        lines = [f"{where}.{option}: {unknown(option, allowed)}{suffix}" for option in options if option not in names]
        options = {option: value for option, value in options.items() if option in names}
    try:
        result = model.model_validate_json(to_json(dict(options), inf_nan_mode="constants"), strict=True)
        if not lines:
            return result
    except ValidationError as error:
        lines += problems(error, where)
    raise ExperimentError("\n".join(lines))


def problems(error: ValidationError, where: str) -> list[str]:
    """A line for each thing that pydantic has found wrong."""
    lines = []
    for problem in error.errors(include_url=False):
        path = ".".join((where, *(str(part) for part in problem["loc"])))
        message = str(problem["msg"]).removeprefix("Value error, ").replace("Input should be", "should be")
        if problem["type"] == "missing":
            lines.append(f"{path}: is required")
        elif problem["type"] == "value_error":
            lines.append(f"{path}: {message}")
        else:
            lines.append(f"{path}: {message}, not {problem['input']!r}")
    return lines


def unknown(option: str, allowed: Sequence[str]) -> str:
    """What is wrong with an option that is none of those that are known."""
    return f"unknown option; {did_you_mean(option, allowed)}allowed: {', '.join(allowed) or 'none'}"


def _keywords(kind: Any, arguments: int) -> list[str]:
    """The names of what `kind` takes beyond its first `arguments`; ``**anything`` declares nothing."""
    try:
        parameters = list(inspect.signature(kind).parameters.values())
    except (TypeError, ValueError):
        return []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = [parameter for parameter in parameters if parameter.kind in by_position][:arguments]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [parameter.name for parameter in parameters if parameter.kind in named and parameter not in first]
