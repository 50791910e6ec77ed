"""The reference of the library: pages for autodoc, made from the packages.

This file names and describes packages; their modules are read from the folders.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docs._ext.links import ROOT
from docs._ext.markdown import anchor, escaped


@dataclass(frozen=True)
class Part:
    """A page of the reference.

    Attributes:
        title: its heading.
        about: a sentence below it.
        packages: shown with all that lies in them, but for their private modules.
        named: of the modules in `packages`, only those with one of these names; empty: all.
    """

    title: str
    about: str
    packages: tuple[str, ...]
    named: tuple[str, ...] = ()


LIBRARY = ("testbed.experiment", "testbed.running", "analysis.library", "testbed.records")
"""Packages that are used from notebooks: the names of their ``__all__``."""

PARTS = {
    "contracts": Part(
        "Contracts",
        "What classes of your own derive from, or have to look like: [user-defined classes](/how-to/own-classes.md) "
        "says how an experiment names them.",
        ("testbed", "workloads"),
        ("contract", "contracts"),
    ),
    "selection": Part("Selection", "The protocols that choose participants.", ("testbed.selection",)),
    "aggregation": Part("Aggregation", "The protocols that make one update of many.", ("testbed.aggregation",)),
    "adversary": Part(
        "Adversaries",
        "Misbehaviours: overridden decisions of servers, overridden handlers of clients.",
        ("testbed.adversary",),
    ),
    "emulation": Part("Emulation", "Links, devices, availability, traces, compute.", ("testbed.emulation",)),
    "network": Part("Network", "The one verb `ask`, the virtual clock, the wall clock.", ("testbed.network",)),
    "privacy": Part("Privacy", "Noise, accounting, the ledger.", ("testbed.privacy",)),
    "crypto": Part("Cryptography", "One module a primitive.", ("testbed.crypto",)),
}
"""Parts by the name of the page. Packages of ANALYSIS make further pages."""

ANALYSIS, COMMANDS = "analysis", "analysis.cli"  # the commands have pages of their own


def parts() -> dict[str, Part]:
    """All pages but the library's: PARTS, and a page for each package of the analysis."""
    root = importlib.import_module(ANALYSIS)
    found = {}
    for module in pkgutil.iter_modules(root.__path__, f"{ANALYSIS}."):
        if module.ispkg and module.name != COMMANDS:
            about = (importlib.import_module(module.name).__doc__ or "").strip().partition("\n\n")[0].replace("\n", " ")
            found[module.name.replace(".", "-")] = Part(f"`{module.name}`", escaped(about), (module.name,))
    return {**PARTS, **found}


def pages() -> dict[str, str]:
    """The pages by name, as MyST Markdown."""
    shown = parts()
    listed = "".join(f"- [{part.title}]({name}.md): {part.about}\n" for name, part in shown.items())
    names = "\n".join(["library", *shown])
    index = f"""# The library

The same things as the command, for notebooks and scripts, and the parts that a class of your own builds on.

- [From Python](library.md): load, run, compare and read records.
{listed}
```{{toctree}}
:hidden:

{names}
```
"""
    return {"index": index, "library": _library(), **{name: _page(part) for name, part in shown.items()}}


def modules(part: Part) -> list[str]:
    """The modules that a page shows: contracts are on a page of their own."""
    found = [name for package in part.packages for name in _below(package)]
    contracts = PARTS["contracts"].named
    return [name for name in found if (name.rpartition(".")[2] in contracts) == bool(part.named)]


@cache
def entries() -> dict[Path, str]:
    """Return a link to the entry of each module on these pages, by the module's path."""
    found = {}
    for page, part in parts().items():
        for name in modules(part):
            path = ROOT.joinpath(*name.split("."))
            target = f"/reference/generated/api/{page}.md#{anchor(name)}"
            found[path if path.is_dir() else path.with_suffix(".py")] = target
    return found


def _below(package: str) -> Iterator[str]:
    root = importlib.import_module(package)
    yield package
    for module in pkgutil.walk_packages(root.__path__, f"{package}."):
        if not any(word.startswith("_") for word in module.name.split(".")):
            yield module.name


def _library() -> str:
    text = [
        """# From Python

```python
from testbed import Experiment, compare, run

experiment = Experiment.load("examples/quickstart.yaml")
directory = run(experiment, out="runs/quickstart")
table = compare(directory)  # a pandas frame
```

"""
    ]
    for name in LIBRARY:
        names = ", ".join(one for one in importlib.import_module(name).__all__ if not one.startswith("_"))
        text.append(f"## `{name}`\n\n{_auto(name, names)}\n")
    return "".join(text)


def _page(part: Part) -> str:
    shown = "".join(f"## `{name}`\n\n{_auto(name)}\n" for name in modules(part))
    return f"# {part.title}\n\n{part.about}\n\n{shown}"


def _auto(name: str, names: str = "") -> str:
    """Return the autodoc directive of a module: its own definitions, or the given names."""
    chosen = f"   :members: {names}\n   :imported-members:\n" if names else "   :members:\n   :ignore-module-all:\n"
    return f"```{{eval-rst}}\n.. automodule:: {name}\n{chosen}```\n"
