"""The only way from a command to the terminal: `echo` for results, `messages` for progress and errors.

Whatever is printed may hold text from an experiment of somebody else, or from a client; what a terminal would obey in
it is made visible (`testbed.display`). Rich's markup and emoji codes are off: ``[red]`` in a name is a name.
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
    """Print a result to standard output, as it is but for control characters; `nl`: end in a line feed."""
    typer.echo(visible_lines(str(text)), nl=nl, err=err)


def shortened(label: str, widest: int) -> str:
    """`label` made visible, in at most `widest` characters."""
    label = visible(label)
    return label if len(label) <= widest else f"{label[: widest - 1]}…"


def without_colours(log: str) -> str:
    """What another program has printed, without the colours it chose, and with plain line feeds."""
    return _COLOURS.sub("", log).replace("\r\n", "\n")


class Console(rich.console.Console):
    """Rich's console, in which text is text: whatever it says, styles come from the program alone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The segments of a renderable, their text made visible."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def messages() -> Console:
    """Where progress and messages go: standard error. Results go to standard output, unadorned."""
    return Console(stderr=True, soft_wrap=True)
