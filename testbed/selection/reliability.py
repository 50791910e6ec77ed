"""Batches of clients with like reliability, by a record of earlier rounds.

A batch takes part only if all of its members are available. One unreliable member therefore keeps the other members
out, and batches of like reliability are complete more often than batches of mixed reliability. The mean cardinality C
of Multi-RoundSecAgg (So et al., arXiv 2106.03328, Theorem 1) rises; multi-round privacy T depends on the sizes of the
batches alone. The price is fairness: batches of unreliable clients hardly ever take part.

The record is a schedule (`testbed trace record`): the server has seen which clients were away or dropped out. The
server could write anything there, and a client can choose how often it is away. See
docs/papers/multi-round-like-reliability.md.
"""

from pathlib import Path

import numpy as np

from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.emulation.traces.schedule import PARTICIPANT, Schedule
from testbed.errors import TraceError


def read_lost_rounds(path: Path, population: int) -> Ids:
    """Return the number of recorded rounds in which each client was away or dropped out, `(n,)` int64.

    Args:
        path: a schedule, CSV or Parquet.
        population: number of clients n.

    Raises:
        TraceError: the file is no schedule, is of another population, or has no round.
    """
    schedule = Schedule.read(path)
    schedule.check_population(population)
    if not schedule.last_round:
        raise TraceError(f"{path}: no rounds; record a schedule with `testbed trace record`")
    # A client has at most one row beside `participant` in a round.
    return np.bincount(schedule.client[schedule.fate != PARTICIPANT], minlength=population).astype(np.int64)


def like_reliability(lost_rounds: Ids, size: int) -> Batches:
    """Return batches of clients that lost about equally many rounds, the most reliable clients first.

    Args:
        lost_rounds: `(n,)` see `read_lost_rounds`; ties are in the order of client numbers.
        size: least number of members of a batch.

    Example:
        >>> like_reliability(np.array([9, 0, 8, 1]), size=2).of.tolist()
        [1, 0, 1, 0]
    """
    of = np.empty(len(lost_rounds), np.int64)
    of[np.argsort(lost_rounds, kind="stable")] = Batches.consecutive(len(lost_rounds), size).of
    return Batches(of)
