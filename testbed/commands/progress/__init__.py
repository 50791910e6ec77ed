"""How `testbed run` shows where it stands: bars on a terminal, a line per round elsewhere, or nothing.

`display` has what the displays have in common; `bars` and `lines` draw.
"""

from testbed.commands.progress.bars import Bars
from testbed.commands.progress.display import Display
from testbed.commands.progress.lines import Lines
from testbed.commands.terminal import Console


def display_for(console: Console, quiet: bool) -> Display:
    """The display that suits `console`; a context manager."""
    if quiet:
        return Display(console)
    return Bars(console) if console.is_terminal and not console.is_dumb_terminal else Lines(console)
