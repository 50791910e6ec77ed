"""Server side of local training: who is asked to train what."""

from dataclasses import dataclass

from testbed.arrays import Ids
from testbed.network.contract import Network
from testbed.randomness import Randomness
from testbed.training.client import Train
from testbed.workload.contract import Workload

Asked = list[tuple[Ids, Train]]
"""Who is asked to train what; the groups are asked one after the other."""


@dataclass(frozen=True)
class TrainingRound:
    """What the server knows when training begins.

    Attributes:
        number: the round.
        network: how to reach the clients.
        trainers: sorted numbers of the clients that are to train.
        randomness: for the server's own coins.
        workload: what it knows of what is learned, the architecture among it; None: nothing.
    """

    number: int
    network: Network
    trainers: Ids
    randomness: Randomness
    workload: Workload | None = None


class Broadcast:
    """The honest server: everybody is sent the same model. A malicious one overrides `questions_for`."""

    def questions_for(self, round_: TrainingRound, question: Train) -> Asked:
        """Who is asked what; aggregation goes by what the first group is asked."""
        return [(round_.trainers, question)]
