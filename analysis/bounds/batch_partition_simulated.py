"""Batch partition's average cardinality by simulation: the selection itself, over rounds of drawn availability.

The sums of `batch_partition` are exact where they apply; this is what they are held against, and the value where they
do not: fair selection among batches of unequal size takes the larger ones less often, as they are whole less often.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from analysis.bounds.batch_partition import Dropout, batches_available, batches_of
from analysis.statistics import Proportion
from testbed.errors import RoundSkipped
from testbed.selection.batch_partition import BatchPartitionParameters, BatchPartitionSelection

_BLOCKS = 50  # rounds depend on those before them, means of long blocks hardly


@dataclass(frozen=True)
class Simulated:
    """What was found in so many rounds.

    Attributes:
        cardinality: mean users in a round, skipped rounds included.
        error: its standard error, from the means of 50 blocks of rounds (batch means).
        unavailable: the rounds that were skipped, of all.
    """

    cardinality: float
    error: float
    unavailable: Proportion


def simulated(
    users: int, selected: int, privacy: int, dropout: Dropout, rounds: int, seed: int, fair: bool = True
) -> Simulated:
    """Let the selection choose in `rounds` rounds; the first arguments are those of `average_cardinality`.

    Args:
        rounds: a multiple of 50.
        seed: of the generator.
        fair: Algorithm 2 for unequal dropout, else a uniform choice.

    Raises:
        ValueError: as `average_cardinality`, or rounds are no such multiple.
    """
    if rounds < _BLOCKS or rounds % _BLOCKS:
        raise ValueError(f"simulate: {rounds} rounds; must be a positive multiple of {_BLOCKS}")
    batches_available(batches_of(users, selected, privacy), dropout)  # for its errors
    parameters = BatchPartitionParameters(participants=selected, privacy=privacy, mode="fair" if fair else "uniform")
    selection = BatchPartitionSelection(parameters, users)
    rng, chances = np.random.default_rng(seed), np.asarray(dropout, np.float64)
    participations, sizes = np.zeros(users, np.int64), np.zeros(rounds, np.int64)
    for number in range(rounds):
        present = np.flatnonzero(rng.random(users) >= chances)
        try:
            members = selection.batches.members(selection.choose(present, participations, rng))
        except RoundSkipped:
            continue
        participations[members] += 1
        sizes[number] = len(members)
    means = sizes.reshape(_BLOCKS, -1).mean(axis=1)
    error = float(means.std(ddof=1)) / sqrt(_BLOCKS)
    return Simulated(float(sizes.mean()), error, Proportion.of(int((sizes == 0).sum()), rounds))
