"""Output of commands: `echo` for results, `messages` for progress and errors.

All output may contain text from another person's experiment, or from a client; control characters in it are made
visible (`testbed.display`). Rich's markup and emoji codes are off: ``[red]`` in a name is a name.
"""

import re
from collections.abc import Iterator
from typing import Any

import rich.console
import typer
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from testbed.display import visible, visible_lines

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def echo(text: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a result to standard output, with control characters made visible.

    Args:
        text: the result.
        nl: whether to end the line.
        err: whether to print to standard error.
    """
    typer.echo(visible_lines(str(text)), nl=nl, err=err)


def shortened(label: str, widest: int) -> str:
    """Return `label` made visible, in at most `widest` characters.

    Args:
        label: the label.
        widest: largest number of characters.

    Example:
        >>> shortened("aggregation.protocol=secagg", 12)
        'aggregation…'
    """
    label = visible(label)
    return label if len(label) <= widest else f"{label[: widest - 1]}…"


def without_colours(log: str) -> str:
    """Return another program's output without its colours, and with plain line feeds."""
    return _COLOURS.sub("", log).replace("\r\n", "\n")


class Console(rich.console.Console):
    """Rich's console without markup, so that styles come from the program alone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of a renderable, their text made visible."""
        for segment in super().render(renderable, options):
            # Control segments are rich's own cursor movements; all other text may come from outside.
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def messages() -> Console:
    """Return the console for progress and messages, on standard error; results go to standard output."""
    return Console(stderr=True, soft_wrap=True)
