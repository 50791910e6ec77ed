"""YAML as experiments are written in: a duplicate key is an error, and errors are one line with file and line."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from testbed.errors import ExperimentError
from testbed.files import limits, plain_yaml

# What PyYAML lets through for odd scalars, e.g. `2024-13-45`, `!!bool x`, numbers of 5000 digits.
_SCALAR_ERRORS = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)


class _Strict:
    """For a safe loader: a key that stands twice is an error, and 1e-3 is a number (as in YAML 1.2)."""

    def construct_mapping(self: Any, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key must be one word", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return dict(super().construct_mapping(node, deep))  # type: ignore[misc]  # of the loader mixed into


class _Loader(_Strict, yaml.SafeLoader):
    """Says best where a mistake is."""


class _QuickLoader(_Strict, plain_yaml.SAFE):  # type: ignore[misc]  # chosen at run time
    """Is quick where PyYAML was built with libyaml."""


for _loader in (_Loader, _QuickLoader):
    _loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.\d+|\d+(\.\d*)?)[eE][-+]?\d+$"), list("-+.0123456789")
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; raises `ExperimentError` with file and line."""
    try:
        text = limits.text(path, limits.YAML_BYTES)
    except FileNotFoundError:
        raise ExperimentError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise ExperimentError(f"{path}: not a text file (UTF-8)") from None
    except OSError as error:
        raise ExperimentError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ExperimentError(f"{path}: cannot be read: {error}") from None
    data = parsed(text, str(path))
    if not isinstance(data, dict):
        raise ExperimentError(f"{path}: an experiment is a mapping of keys to values; see `testbed schema`")
    return data


def parsed(text: str, where: str) -> Any:
    """The value that `text` is; raises `ExperimentError` with `where` and line."""
    try:
        try:
            return plain_yaml.parsed(text, _QuickLoader)
        except (yaml.YAMLError, *_SCALAR_ERRORS):
            return plain_yaml.parsed(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            where = f"{where}:{mark.line + 1}:{mark.column + 1}"
        problem = error.problem or error.context
    except (yaml.YAMLError, *_SCALAR_ERRORS) as error:
        problem = f"{error}" if isinstance(error, yaml.YAMLError | ValueError) else "a value cannot be read"
    raise ExperimentError(f"{where}: not valid YAML: {' '.join(str(problem).split())}")
