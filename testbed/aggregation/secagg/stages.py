"""Which question a client of `secagg` answers when (`testbed.parties.client`): once each and in order.

Whoever could ask for a stage again, or go on after a refusal, could have both shares of a peer.
"""

from testbed.aggregation.secagg.dealt_shares import ProveShare
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    CheckSurvivors,
    MaskInput,
    ShareKeys,
    Unmask,
    UnmaskSurvivors,
)
from testbed.aggregation.secagg.noise import UnmaskAndRemove
from testbed.parties.client import Row, StageTable

STATES = ("new", "advertised", "shared", "masked", "signed", "revealed")


def row(after: str, then: str) -> Row:
    """One that comes after one state alone; the first begins the round."""
    return Row(after={after}, then=then, check="secagg.out-of-order", begins=after == "new")


STAGES = StageTable(
    start="new",
    rows={
        AdvertiseKeys: row("new", "advertised"),
        ShareKeys: row("advertised", "shared"),
        MaskInput: row("shared", "masked"),
        CheckSurvivors: row("masked", "signed"),
        Unmask: row("signed", "revealed"),
        UnmaskAndRemove: row("signed", "revealed"),
        UnmaskSurvivors: row("masked", "revealed"),  # not "signed", in which it would reveal more
        ProveShare: row("revealed", "revealed"),
    },
)
