"""Which rounds: ``3-5``, ``3,7-9``."""

import re
from collections.abc import Sequence

from testbed.errors import ExperimentError

_PART = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?")


def numbered(text: str) -> list[tuple[int, int]]:
    """The ranges that `text` names, first and last round of each; raises `ExperimentError` when it names none."""
    found = []
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None or int(match[1]) > int(match[2] or match[1]):
            raise ExperimentError(f"--rounds {text!r}: give rounds as 3, 3-5 or 3,7-9")
        found.append((int(match[1]), int(match[2] or match[1])))
    return found


def chosen(wanted: str | Sequence[int] | None, outcomes: Sequence[str], where: str) -> list[int]:
    """The numbers of the wanted rounds, in order.

    Args:
        wanted: as `numbered` takes it, or the numbers; None: the last completed round, or the last if none is.
        outcomes: of the run's rounds, from round 1 on.
        where: the run, for errors.

    Raises:
        ExperimentError: the run has no rounds, or lacks one of these.
    """
    last = len(outcomes)
    if not last:
        raise ExperimentError(f"{where}: no round has ended yet")
    if wanted is None:
        completed = [number for number, outcome in enumerate(outcomes, 1) if outcome == "completed"]
        return [completed[-1] if completed else last]
    ranges = numbered(wanted) if isinstance(wanted, str) else [(number, number) for number in wanted]
    if not ranges:
        raise ExperimentError(f"{where}: no rounds are named")
    for lowest, highest in ranges:
        if lowest < 1 or highest > last:
            missing = lowest if not 1 <= lowest <= last else highest
            raise ExperimentError(f"{where}: there is no round {missing}; it has rounds 1 to {last}")
    return sorted({number for lowest, highest in ranges for number in range(lowest, highest + 1)})
