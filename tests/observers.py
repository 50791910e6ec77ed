"""Observers that tests hand to runs."""

from testbed.engine.federation import RunProgress
from testbed.running import Observer, PlannedRun


class StopIn(Observer):
    """Interrupts a run, as Ctrl-C does.

    Args:
        round_number: the round in which the run is interrupted.
        ended: wait until that round has ended and is recorded.
    """

    def __init__(self, round_number: int, *, ended: bool = False) -> None:
        self.round_number = round_number
        self.ended_first = ended

    def progressed(self, run: PlannedRun, progress: RunProgress) -> None:
        if progress.round_number == self.round_number and (progress.outcome or not self.ended_first):
            raise KeyboardInterrupt


class Warnings(Observer):
    """Keeps the lines of all warnings."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warned(self, run: PlannedRun, line: str) -> None:
        self.lines.append(line)
