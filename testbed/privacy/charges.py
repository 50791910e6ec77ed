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

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from testbed.arrays import Ids
from testbed.privacy.ledger import Shares
from testbed.privacy.noise_plan import NoisePlan


@dataclass(frozen=True)
class PrivacyCharge:
    """What a round costs whom.

    Attributes:
        plan: the noise of the aggregation.
        dishonest: the clients that work for the server.
    """

    plan: NoisePlan
    dishonest: Collection[int]

    def of_round(
        self, participants: Ids, survivors: Ids, noise: float | None, asked: Ids, skipping: bool
    ) -> dict[Shares, Ids]:
        """What the ledger enters for whom.

        Args:
            participants: of the round, sorted.
            survivors: whose data are in the sum, sorted.
            noise: share of the planned noise in the sum; None: there is no sum, the round ended early.
            asked: sorted numbers of the clients that were asked anything in the last stage of the aggregation.
            skipping: whether the dishonest participants added no noise in this round.
        """
        if noise is None and not len(asked):
            return {}
        guarantees = self.plan.guarantees(len(participants))
        if noise is None:
            noise, in_sum = self.plan.min_share, participants
            adding = max(1, guarantees.min_sum_size)
        else:
            noise, in_sum = min(1.0, noise), survivors
            adding = len(in_sum)
        if self.plan.source != "shares":
            return {Shares(noise, noise, noise): asked if self.plan.source == "clients" else in_sum}
        among, accomplices = (int(np.isin(some, list(self.dishonest)).sum()) for some in (participants, in_sum))
        honest = noise * max(0, adding - accomplices) / adding
        alone = among > guarantees.max_colluders
        colluding = min(honest, 1 / len(participants)) if alone else honest
        charges = {Shares(noise, honest if skipping else noise, colluding): in_sum}
        lost = np.setdiff1d(participants, in_sum)
        if alone and len(lost):
            charges[Shares(None, None, colluding)] = lost
        return charges

    def of_attempt(self, participants: Ids, skipping: bool) -> dict[Shares, Ids]:
        """What the ledger enters for a round that reached the last stage, and of which nothing else is known.

        Args:
            participants: of the round, sorted.
            skipping: see `of_round`.
        """
        return self.of_round(participants, participants[:0], None, participants, skipping)
