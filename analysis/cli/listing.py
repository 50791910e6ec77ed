"""``testbed list``: names that an experiment may use, and results that can be reproduced.

Descriptions come from the docstrings of classes and from specifications, so this module needs no updates. Plug-ins of
installed packages are imported for the list; the row of a plug-in that cannot be imported says so.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Literal

import typer

from testbed.cli.invocation import Debug, examples, verb
from testbed.cli.terminal import echo

LIST_EPILOG = examples(
    "testbed list protocols",
    "testbed list misbehaviours --format markdown",
    "testbed list figures --format json",
)

_Rows = list[dict[str, str]]


def _summary(described: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(described) or "").partition("\n\n")[0].split())


def _protocols() -> _Rows:
    from testbed.aggregation.catalogue import PROTOCOLS as AGGREGATION
    from testbed.selection.catalogue import PROTOCOLS as SELECTION

    return [
        {
            "key": f"{section}.protocol",
            "name": parameters.model_fields["protocol"].default,
            "what": _summary(parameters),
        }
        for section, protocols in (("selection", SELECTION), ("aggregation", AGGREGATION))
        for parameters in protocols
    ] + [
        {"key": plugin["key"], "name": plugin["name"], "what": f"{plugin['what']} ({plugin['package']})"}
        for plugin in _plugins()
        if plugin["key"] in ("selection.protocol", "aggregation.protocol")
    ]


def _plugins() -> _Rows:
    """List the plug-ins of installed packages; the only list that imports their classes, for their docstrings."""
    from testbed.errors import ExperimentError
    from testbed.experiment.plugin_names import problem
    from testbed.plugins.classes import plugin_class
    from testbed.plugins.installed import KINDS, installed

    rows = []
    for plugin in installed():
        why = problem(plugin)
        summary = f"refused: {why}" if why else ""
        if not why:
            try:
                summary = _summary(plugin_class(plugin.target, ", ".join(KINDS[plugin.kind]))) or "no description"
            except ExperimentError as error:
                summary = f"refused: {error}"
        rows.append(
            {
                "key": ", ".join(KINDS.get(plugin.kind, ("none",))),
                "name": plugin.name,
                "package": plugin.origin,
                "class": plugin.target,
                "what": summary,
            }
        )
    return rows


def _datasets() -> _Rows:
    from testbed.workload.specs import datasets

    return [
        {
            "name": spec.name,
            "what": spec.summary,
            "model": spec.default_model,
            "files": spec.files or "none: included or generated",
        }
        for spec in datasets().values()
    ]


def _models() -> _Rows:
    from testbed.workload.specs import models

    return [
        {"name": model.name, "takes": ", ".join(form.value for form in model.takes), "what": model.summary}
        for model in models().values()
    ]


def _misbehaviours() -> _Rows:
    from testbed.adversary.catalogue import OF_PARTY, kinds_of, names

    return [
        {
            "key": f"adversary.{party}",
            "name": name,
            "under": ", ".join(dict.fromkeys(under for kind in kinds_of(party, name) for under in kind.applies_to)),
            "what": _summary(kinds_of(party, name)[0]),
        }
        for party in OF_PARTY
        for name in names(party)
    ]


def _figures() -> _Rows:
    from analysis.reproduction.catalogue import catalogue

    return [
        {
            "name": ", ".join([reproduction.name, *reproduction.aliases]),
            "what": reproduction.title,
            "source": reproduction.source,
        }
        for reproduction in catalogue().values()
    ]


_PROSE = ("what", "source", "under", "files", "takes")
_LISTS: dict[str, Callable[[], _Rows]] = {
    "protocols": _protocols,
    "datasets": _datasets,
    "models": _models,
    "misbehaviours": _misbehaviours,
    "figures": _figures,
    "plugins": _plugins,
}


@verb(LIST_EPILOG, imports=True)
def list_(
    what: Annotated[
        Literal["protocols", "datasets", "models", "misbehaviours", "figures", "plugins"],
        typer.Argument(help="The kind of names to list.", show_default=False),
    ],
    format: Annotated[Literal["text", "markdown", "csv", "json"], typer.Option(help="Output format.")] = "text",
    debug: Debug = False,
) -> None:
    """List protocols, data sets, models, misbehaviours, the figures that can be reproduced, or plug-ins."""
    import pandas as pd

    from analysis import tables

    rows = _LISTS[what]()
    if format in ("csv", "json"):
        echo(tables.data(pd.DataFrame(rows), format), nl=False)
        return
    if not rows:
        echo("no installed package offers plug-ins (entry points of the group sortition_testbed.plugins)")
        return
    heads = list(rows[0])
    cells = [[row[head] for head in heads] for row in rows]
    widths = _widths(heads, cells) if format == "text" else None
    echo(tables.render(tables.Table(heads, cells, widths=widths), format), nl=False)


def _widths(heads: list[str], cells: list[list[str]]) -> list[int]:
    """Return column widths: names in full, while columns of prose share the rest of the line."""
    from analysis.tables import WIDTH

    needed = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    prose = [place for place, head in enumerate(heads) if head in _PROSE]
    rest = WIDTH - sum(needed) - 2 * (len(heads) - 1) + sum(needed[place] for place in prose)
    for left, place in zip(range(len(prose), 0, -1), sorted(prose, key=needed.__getitem__), strict=True):
        needed[place] = min(needed[place], max(20, rest // left))
        rest -= needed[place]
    return needed
