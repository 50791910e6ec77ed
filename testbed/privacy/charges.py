"""Whose data a round has shown, and what hid them there: the entries of the privacy ledger.

A completed round charges its survivors. Who is no survivor is in no sum: of a masked input that came too late, or was
left out with a batch, nobody but its own client knows the self-mask, and clients do not reveal both of its masks.

A round that ended early charges all participants as soon as anybody was asked in its last stage, where clients reveal
what unmasks the sum: what the server then had, it alone knows, and a malicious one may only claim that the round
failed. It is charged with the least noise that a sum can have. Before that stage nothing can be unmasked: no charge.

Where every client's noise is its own, and everybody is asked (DP-SGD with a server that is not trusted), a client's
answer is released as soon as it is sent, in whichever sum it ends: all are charged that were asked in the last stage.
A trusted server adds its noise to the sum alone, and nobody else sees what is in no sum: its survivors are charged.

Too many accomplices break secure aggregation: then they and the server see each participant's input by itself, with no
more noise than its own, whether it survived or not.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from testbed.arrays import Ids
from testbed.engine.round import Outcome
from testbed.privacy.ledger import Shares


@dataclass(frozen=True)
class Charging:
    """How rounds are charged.

    Attributes:
        least_noise: see `Ledger`.
        dishonest: the clients that work for the server.
        tolerated: of so many participants, how many may be dishonest before somebody's input is seen by itself.
        fewest: of so many participants, how many a sum has at least.
        shares_noise: the noise is a sum of the participants' shares; else nobody can leave out, or subtract, a part.
        own_noise: each answer is released by itself, with all of its noise (where `shares_noise` is false).
    """

    least_noise: float
    dishonest: Collection[int]
    tolerated: Callable[[int], int]
    fewest: Callable[[int], int]
    shares_noise: bool = True
    own_noise: bool = False

    def of_round(self, outcome: Outcome, asked: Ids, skipping: bool) -> dict[Shares, Ids]:
        """What the ledger charges whom.

        Args:
            outcome: how the round went.
            asked: sorted numbers of the clients that were asked anything in the last stage of the aggregation.
            skipping: whether the dishonest participants added no noise in this round.
        """
        if outcome.aggregate is None and not len(asked):
            return {}
        participants = outcome.participants
        if outcome.aggregate is None:
            noise, in_sum = self.least_noise, participants
            adding = max(1, self.fewest(len(participants)))
        else:
            noise, in_sum = min(1.0, outcome.aggregate.noise), outcome.survivors
            adding = len(in_sum)
        if not self.shares_noise:
            return {Shares(noise, noise, noise): asked if self.own_noise else in_sum}
        among, accomplices = (int(np.isin(some, list(self.dishonest)).sum()) for some in (participants, in_sum))
        honest = noise * max(0, adding - accomplices) / adding
        alone = among > self.tolerated(len(participants))
        colluding = min(honest, 1 / len(participants)) if alone else honest
        charges = {Shares(noise, honest if skipping else noise, colluding): in_sum}
        lost = np.setdiff1d(participants, in_sum)
        if alone and len(lost):
            charges[Shares(None, None, colluding)] = lost
        return charges

    def of_attempt(self, participants: Ids, skipping: bool) -> dict[Shares, Ids]:
        """What the ledger charges for a round that reached the last stage, and of which nothing else is known.

        Args:
            participants: of the round, sorted.
            skipping: see `of_round`.
        """
        ended = Outcome(np.zeros(0, np.float32), "aborted", participants=participants)
        return self.of_round(ended, participants, skipping)
