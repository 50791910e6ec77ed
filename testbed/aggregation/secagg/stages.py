"""Which question a participant of `secagg` answers when: once each and in order.

Whoever could ask for a stage again, or go on after a refusal, could have both shares of a peer.
"""

from testbed.aggregation.kit.participant import row
from testbed.aggregation.secagg.messages import (
    AdvertiseKeys,
    CheckSurvivors,
    MaskInput,
    ProveShare,
    ShareKeys,
    Unmask,
    UnmaskSurvivors,
)
from testbed.aggregation.secagg.noise import UnmaskAndRemove
from testbed.parties.client import StageTable

STATES = ("new", "advertised", "shared", "masked", "signed", "revealed")

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
