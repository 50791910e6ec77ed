"""What the network asks an availability model: one question per stage."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Presence:
    """What becomes of the clients asked in one stage; arrays aligned with the clients of the question.

    Attributes:
        reachable: `(m,)` bool, the client is there when the stage begins.
        drops: `(m,)` bool, the client gets the question and is lost before it begins to answer, however long that
            takes (models without a clock: Bernoulli, hazard, schedule). The network remembers it: such a client stays
            away until the round is over. False where not reachable.
        leaves_s: `(m,)` float64, virtual time at which a reachable client goes offline (models with a clock);
            infinite: it stays. Its answer counts only if it is complete by then.
    """

    reachable: Mask
    drops: Mask
    leaves_s: Floats

    @classmethod
    def of(cls, reachable: Mask, drops: Mask | None = None, leaves_s: Floats | None = None) -> "Presence":
        """With nobody dropping and nobody leaving where that is not said."""
        nobody = np.zeros(len(reachable), np.bool_)
        never = np.full(len(reachable), np.inf)
        return cls(reachable, nobody if drops is None else drops & reachable, never if leaves_s is None else leaves_s)


@runtime_checkable
class Availability(Protocol):
    """An availability model: who is reachable when, and who drops out where.

    A user's model inherits from this class, or has the same two members.

    Answers must depend on the arguments (and the model's own seed) alone, not on what was asked before: a resumed run
    asks only about its later rounds.
    """

    comes_back: bool = False
    """Whether a client that has been away in a stage can be back in a later stage of the same round.

    If not, the network remembers whoever was away, too, until the round is over."""

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """What becomes of `clients` (sorted numbers) when they are asked at virtual time `now_s` in this stage.

        Within a round, and from round to round, `now_s` never decreases.
        """
