"""Circles among the files that are shipped: files that import each other, directly or through others.

    python -m tests.layers

prints how many there are, and which; which package may import which stands in `pyproject.toml` (``lint-imports``).
Imports count wherever they stand: at the top, in functions, and for type checkers.
"""

import sys
from collections.abc import Mapping, Set

import grimp

PACKAGES = ("testbed", "cluster", "workloads", "analysis")


def imports() -> dict[str, set[str]]:
    """The modules that each module of `PACKAGES` imports, of the same packages."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def circles(graph: Mapping[str, Set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, or of one that imports itself (Tarjan 1972)."""
    order: dict[str, int] = {}
    earliest: dict[str, int] = {}
    path: list[str] = []
    found = []

    def visit(module: str) -> None:
        order[module] = earliest[module] = len(order)
        path.append(module)
        for other in sorted(graph[module]):
            if other not in order:
                visit(other)
            if other in path:
                earliest[module] = min(earliest[module], earliest[other])
        if earliest[module] == order[module]:
            place = path.index(module)
            component = sorted(path[place:])
            del path[place:]
            if len(component) > 1 or module in graph[module]:
                found.append(component)

    for module in sorted(graph):
        if module not in order:
            visit(module)
    return sorted(found)


def main() -> int:
    """Print the number of circles, and each in a line; 1 when there are any."""
    found = circles(imports())
    print(len(found))
    for circle in found:
        print(" <-> ".join(circle))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
