"""What the server has seen of the updates in some rounds of a run: sums, and who is in them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.records import RunRecords

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class View:
    """The completed ones of a stretch of rounds.

    Attributes:
        rounds: `(r,)` their numbers.
        skipped: how many others there were between first and last.
        participation: `(r, n)` bool, P: whose update is in the sum.
        sums: `(r, d)` float64, sums of the updates times their weights.
        model: `(d,)` float32 at the start of the first of them.
    """

    rounds: Integers
    skipped: int
    participation: npt.NDArray[np.bool_]
    sums: Floats
    model: npt.NDArray[np.float32]


def view(run: RunRecords, first: int, last: int) -> View:
    """What the server has seen in rounds `first` to `last`, both included.

    Raises:
        ExperimentError: there are no such rounds, none of them completed, or the run has not recorded one that did.
    """
    recorded = run.rounds
    done = len(recorded)
    if not 1 <= first <= last <= done:
        raise ExperimentError(f"{run.path}: rounds {first} to {last}; there are rounds 1 to {done}, the earlier first")
    stretch = recorded[recorded["round"].between(first, last)]
    rounds = stretch.loc[stretch["outcome"] == "completed", "round"].to_numpy(np.int64)
    if not len(rounds):
        raise ExperimentError(f"{run.path}: none of rounds {first} to {last} was completed; take more")
    seen = []
    for number in rounds.tolist():
        aggregate = run.aggregate(number)
        if aggregate is None:
            raise ExperimentError(
                f"{run.path}: has no aggregate of round {number}; run it with records.aggregates: all, "
                f"or [{first}, {last}]"
            )
        seen.append(aggregate)
    rows = run.participation
    rows = rows[rows["survived"] & rows["round"].isin(rounds)]
    participation = np.zeros((len(rounds), int(run.experiment["population"])), np.bool_)
    participation[np.searchsorted(rounds, rows["round"]), rows["client"]] = True
    sums = np.array([aggregate.mean * aggregate.weight for aggregate in seen])
    return View(rounds, last - first + 1 - len(rounds), participation, sums, seen[0].model)
