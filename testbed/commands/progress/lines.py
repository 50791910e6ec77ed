"""Progress for logs: a line for every round, beginning with the run that it is of."""

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.commands.durations import duration
from testbed.commands.progress.display import Display, Watched, finished_before, remarks, summarised
from testbed.display import visible
from testbed.engine.federation import Progress as Standing
from testbed.running import PlannedRun


class Lines(Display):
    """A line for every round, for logs."""

    def planned(self, runs: Sequence[PlannedRun]) -> None:
        """See `Observer`."""
        super().planned(runs)
        for run in runs:
            if run.complete:
                self._line(run, finished_before(run))

    def started(self, run: PlannedRun, outcomes: Sequence[str]) -> None:
        """See `Observer`."""
        super().started(run, outcomes)
        if outcomes:
            self._line(run, f"resuming after round {len(outcomes)}")

    def round_ended(self, watched: Watched, progress: Standing) -> None:
        """See `Display`."""
        accuracy = "" if progress.accuracy is None else f", accuracy {100 * progress.accuracy:.1f}%"
        self._line(
            watched.run,
            f"round {progress.round_number}/{progress.rounds} {progress.outcome}, "
            f"{watched.clock} time {duration(progress.now_s)}{accuracy}",
        )

    def ended(self, run: PlannedRun, summary: Mapping[str, Any]) -> None:
        """See `Observer`."""
        super().ended(run, summary)
        for text in (summarised(summary), *remarks(summary)):
            self._line(run, text)

    def _line(self, run: PlannedRun, text: str) -> None:
        self.console.print(f"{visible(run.label)}: {text}")
