"""Skeletons for user-defined classes: a module, its test, and an experiment that runs it.

The text files beside this module are these three for each kind, with ``$name`` and ``$Class`` for the names.
"""

import ast
import keyword
import re
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Literal, get_args

from testbed.errors import ExperimentError, RunError, reason
from testbed.plugins import sources

Kind = Literal["selection", "aggregation", "workload"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LONGEST_NAME = 60  # characters; names of files and classes are made of it


def class_name(name: str) -> str:
    """Return the name of the class in the module `name`.

    Example:
        >>> class_name("fair_lottery")
        'FairLottery'
    """
    return "".join(word.capitalize() for word in name.split("_"))


def check_name(name: str, folder: Path) -> None:
    """Raise `ExperimentError` for a name that is not valid for a module, or that another module has.

    Args:
        name: name of the module.
        folder: folder of the module.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise ExperimentError(
            f"{name!r}: must be a module name: lower-case letters, digits and single underscores, at most "
            f"{_LONGEST_NAME} characters, e.g. fair_lottery"
        )
    if keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise ExperimentError(f"{name!r}: is a keyword or a module of Python; choose another name")
    used = sources.source_of(name)
    if used is not None and used.resolve().parent != folder.resolve():
        raise ExperimentError(f"{name!r}: would be hidden by, or hide, {used}; choose another name")


def check_class_name(kind: Kind, name: str) -> None:
    """Raise `ExperimentError` for a name that makes a class named as a Python keyword or as a part of the skeleton.

    Args:
        kind: kind of the skeleton.
        name: name of the module.
    """
    class_of_name, used = class_name(name), set[str]()
    if keyword.iskeyword(class_of_name):
        raise ExperimentError(f"{name!r}: its class would be {class_of_name}, a keyword of Python; choose another name")
    for part in ("module.py", "test.py"):
        tree = ast.parse(_filled(kind, part, {"name": "a_name", "Class": "AName"}))
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                used.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                used.update(alias.asname or alias.name for alias in node.names)
    if clashes := sorted({class_of_name, f"{class_of_name}Parameters", f"{class_of_name}Client"} & used):
        raise ExperimentError(
            f"{name!r}: the skeleton uses {clashes[0]} for another object; choose another name, e.g. my_{name}"
        )


def _filled(kind: Kind, part: str, names: Mapping[str, str]) -> str:
    template = resources.files(__name__).joinpath(f"{kind}.{part}.txt").read_text(encoding="utf-8")
    return Template(template).substitute(names)


def write(kind: Kind, name: str, folder: Path) -> list[Path]:
    """Write the three files of a skeleton.

    Args:
        kind: a value of `KINDS`.
        name: name of the module.
        folder: folder of the files; created if missing.

    Returns:
        the paths of the module, its test and the experiment.

    Raises:
        ExperimentError: an invalid name, or a file that exists already; nothing is written.
        RunError: a file cannot be written.
    """
    check_name(name, folder)
    texts = {
        folder / f"{name}.py": "module.py",
        folder / f"test_{name}.py": "test.py",
        folder / f"{name}.yaml": "experiment.yaml",
    }
    if existing := [str(path) for path in texts if path.exists()]:
        raise ExperimentError(f"{', '.join(existing)}: exists already; choose another name, or another --out")
    names = {"name": name, "Class": class_name(name)}
    check_class_name(kind, name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, part in texts.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(_filled(kind, part, names))
    except OSError as error:
        raise RunError(f"{error.filename or folder}: cannot be written: {reason(error.strerror or error)}") from None
    return list(texts)
