"""Display of runs in notebooks: progress while they run, and their outcome as a table.

The output is plain HTML that IPython displays and replaces; there are no widgets.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path, PosixPath
from typing import Any

from testbed.display import visible
from testbed.engine.federation import RunProgress
from testbed.running.observers import Observer
from testbed.running.preparation import PlannedRun

_BETWEEN_S = 0.2  # seconds between two pictures
_SHOWN = 200  # runs of a table


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, which shows HTML."""
    # Without an import: in a notebook IPython is loaded, elsewhere it would only cost time.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class RunsPath(PosixPath):
    """The directory of runs: an ordinary path, displayed in notebooks as a table of the runs' outcomes."""

    def _repr_html_(self) -> str | None:
        """Return the HTML for notebooks; None: display as text."""
        if not self.is_dir():
            return None
        rows = []
        files = sorted(self.rglob("summary.json"))
        for file in files[:_SHOWN]:
            try:
                rows.append(_outcome(json.loads(file.read_text()), file.parent.name))
            except (OSError, ValueError, TypeError, AttributeError):  # damaged
                continue
        if len(files) > _SHOWN:
            rows.append([f"and {len(files) - _SHOWN} more", "", "", "", ""])
        heads = ("run", "rounds", "round time", "accuracy", "remarks")
        return f"<p>records: <code>{_text(str(self))}</code></p>{_table(heads, rows)}"


class NotebookProgress(Observer):
    """A bar for each run that goes on, in the output of the cell."""

    def __init__(self) -> None:
        self._runs: dict[Path, list[Any]] = {}  # label, rounds done, rounds, current activity
        self._warnings: list[str] = []
        self._handle: Any = None
        self._shown_s = 0.0

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        for run in runs:
            rounds = run.point.experiment.rounds
            self._runs[run.path] = [run.label, run.rounds_done, rounds, "finished before" if run.complete else "waits"]
        self._show()

    def doing(self, what: str, run: PlannedRun | None = None) -> None:
        if run is not None and run.path in self._runs:
            self._runs[run.path][3] = what
            self._show()

    def warned(self, run: PlannedRun, line: str) -> None:
        self._warnings.append(f"{run.label}: warning: {line}")
        self._show()

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        entry = self._runs[run.path]
        entry[1] = progress.round_number - (not progress.outcome)
        entry[3] = progress.stage or progress.outcome
        if progress.accuracy is not None:
            entry[3] += f", accuracy {100 * progress.accuracy:.1f} %"
        if time.monotonic() - self._shown_s > _BETWEEN_S or entry[1] == entry[2]:
            self._show()

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        accuracy = summary.get("final_accuracy")
        failed = f": {summary['reasons']}" if summary.get("reasons") else ""
        self._runs[run.path][3] = f"ended{failed}" + _number(accuracy, 100, 1, " %", ", accuracy ")
        self._show()

    def stopped(self, run: PlannedRun) -> None:
        self._runs[run.path][3] = "stopped; resume=True goes on"
        self._show()

    def html(self) -> str:
        """Return the current display."""
        rows = [
            f"<tr><td>{_text(label)}</td><td><progress value='{done}' max='{rounds}' aria-label='{_text(label)}'>"
            f"</progress></td><td>{done}/{rounds}</td><td>{_text(now)}</td></tr>"
            for label, done, rounds, now in list(self._runs.values())[:_SHOWN]
        ]
        return f"<table>{''.join(rows)}</table>" + "".join(f"<p>{_text(line)}</p>" for line in self._warnings)

    def _show(self) -> None:
        from IPython.display import HTML, display

        self._shown_s = time.monotonic()
        if self._handle is None:
            self._handle = display(HTML(self.html()), display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(HTML(self.html()))  # type: ignore[no-untyped-call]


def _outcome(summary: Mapping[str, Any], name: str) -> list[str]:
    """Return the table cells for a run's summary."""
    counts = [f"{summary.get(f'rounds_{name}', 0)} {name}" for name in ("completed", "skipped", "aborted")]
    return [
        str(summary.get("label", name)),
        ", ".join(count for count in counts if not count.startswith("0 ")),
        _number(summary.get("mean_round_s"), 1, 2, " s"),
        _number(summary.get("final_accuracy"), 100, 1, " %"),
        str(summary.get("reasons") or ""),
    ]


def _number(value: float | None, factor: float, digits: int, unit: str, before: str = "") -> str:
    return "" if value is None else f"{before}{factor * value:.{digits}f}{unit}"


def _text(value: str) -> str:
    return escape(visible(value))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th scope='col'>{_text(title)}</th>" for title in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
