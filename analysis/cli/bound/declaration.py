"""The declaration of a bound: a function from options to one flat object, and the labels of its results.

The object holds the parameters, the results, and a reason beside each null. No value is NaN or infinite. A probability
below the smallest double reads 0.0; its decimal logarithm stands beside it. Text has the parameters on the first line
and then a line for each result.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, Generic, Literal, ParamSpec

import typer

from testbed.cli.invocation import Debug, examples
from testbed.cli.terminal import echo
from testbed.errors import ExperimentError

Row = dict[str, Any]
P = ParamSpec("P")
_Format = Annotated[Literal["text", "json"], typer.Option(help="json is one flat object at full precision.")]


@dataclass(frozen=True)
class Bound(Generic[P]):
    """A command that prints a row.

    Attributes:
        compute: computes the row; its parameters are the options, its docstring is the help.
        text: formats the row as text.
        epilog: the end of the help.
    """

    compute: Callable[P, Row]
    text: Callable[[Row], str]
    epilog: str

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> Row:
        """Return the row."""
        return self.compute(*arguments, **options)

    def add_to(self, group: typer.Typer, name: str) -> None:
        """Add the command to a group, with the options that all bounds have.

        A `ValueError` that begins with the name of a parameter becomes a complaint about the option. A ``warning`` in
        the row goes to standard error, too.
        """

        def command(format: str, debug: bool, **options: Any) -> None:
            try:
                row = self.compute(**options)  # type: ignore[call-arg]
            except ValueError as error:
                parameter, colon, rest = str(error).partition(": ")
                raise ExperimentError(f"--{parameter.replace('_', '-')}{colon}{rest}") from None
            if "warning" in row:
                echo(f"warning: {row['warning']}", err=True)
            from analysis.tables import to_json  # slow to import

            echo(to_json(row, ascii=True) if format == "json" else self.text(row), nl=False)

        own = inspect.signature(self.compute, eval_str=True).parameters.values()
        common = {"format": ("text", _Format), "debug": (False, Debug)}
        more = [
            inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)
            for key, (default, annotation) in common.items()
        ]
        command.__signature__ = inspect.Signature([*own, *more])  # type: ignore[attr-defined]
        command.__doc__ = self.compute.__doc__
        group.command(name, epilog=self.epilog)(command)


def declare(text: Callable[[Row], str], *shown: str, then: str) -> Callable[[Callable[P, Row]], Bound[P]]:
    """Return a decorator that makes a function a `Bound`.

    Args:
        text: formats the row as text.
        shown: examples at the end of the help.
        then: note after the examples.
    """
    return lambda compute: Bound(compute, text, examples(*shown, then=then))


# -- rows -------------------------------------------------------------------------------------------------------------


def value_or_reason(name: str, value: Any, reason: str) -> Row:
    """Return a value under its name, or null and the reason if the value is None.

    Args:
        name: key of the row.
        value: the value, or None.
        reason: why there is no value.

    Example:
        >>> value_or_reason("largest_size", None, "no size fits")
        {'largest_size': None, 'largest_size_reason': 'no size fits'}
    """
    return {name: value} if value is not None else {name: None, f"{name}_reason": reason}


def finite(name: str, value: float, reason: str) -> Row:
    """Return a number under its name; for an infinite one, null and the reason.

    Args:
        name: key of the row.
        value: the number.
        reason: why it may be infinite.
    """
    return value_or_reason(name, value if isfinite(value) else None, reason)


# -- text -------------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Format a number: integers in full, others to six digits."""
    return f"{value}" if isinstance(value, int) else f"{value:.6g}"


def format_parameters(row: Row, symbols: Mapping[str, str]) -> str:
    """Format the parameters of a row, by the papers' symbols.

    Args:
        row: the row.
        symbols: symbol by key of the row.
    """
    return ", ".join(f"{symbols[key]} = {number(row[key])}" for key in row if key in symbols and row[key] is not None)


def target_line(row: Row) -> str:
    """Format the target of a plan, for one round or for a whole training."""
    target = number(row["target"])
    if row.get("rounds") is None:
        return (
            f"target: Pr[SecAgg fails] at most {target} in one fixed round. A server may skip to favourable rounds; "
            "--rounds R plans a whole training."
        )
    return (
        f"target: Pr[SecAgg fails] at most {target} in {row['rounds']} rounds, {number(row['target'] / row['rounds'])} "
        "per round (union bound; it covers servers that choose the rounds)."
    )


def probability(row: Row, key: str) -> str:
    """Format a result as `number`; a probability below all doubles as a power of ten.

    Args:
        row: the row, with the logarithm under the key with ``_log10``.
        key: of the result.
    """
    digits = row.get(f"{key}_log10")
    return f"10^{digits:.1f}" if row[key] == 0.0 and digits is not None else number(row[key])


def results(row: Row, labels: Mapping[str, str], shown: Callable[[Row, str], str] = probability) -> str:
    """Format the results of a row, one line each: the result as text, or the reason why there is none.

    Args:
        row: the row.
        labels: label by key, in order; a label may name keys of the row in braces. Keys that the row lacks are skipped.
        shown: formats one result.
    """
    from analysis.tables import Table, render  # slow to import

    lines = [
        (label.format_map(row), f"none: {row[f'{key}_reason']}" if row[key] is None else shown(row, key))
        for key, label in labels.items()
        if key in row
    ]
    return render(Table((), lines, ruled=False), "text")
