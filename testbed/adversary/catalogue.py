"""Every built-in misbehaviour, by party. One more is one more line here.

Classes of one name override the same decision in different protocols.
"""

from collections.abc import Iterable

from testbed.adversary.batch_lists import (
    CopyBatch,
    ForgeBatch,
    KeepDishonestBatches,
    OmitHonestBatches,
    ReserveMostSelectedBatch,
    ShowDifferentBatches,
    SplitBatch,
    TellMembersApart,
)
from testbed.adversary.clients import (
    ClaimCandidacy,
    ClaimFalseNumber,
    InflateUtility,
    SkipNoise,
    WithholdNumber,
    WrongSignature,
)
from testbed.adversary.free_choice import PreferDishonest
from testbed.adversary.lotto.lists import (
    CopyOutput,
    ForgeOutput,
    ForgeSignatures,
    KeepDishonestCandidates,
    ListTwice,
    OmitHonestCandidates,
    ReserveMostSelected,
    ShowDifferentLists,
)
from testbed.adversary.lotto.parallel_lists import ParallelLists
from testbed.adversary.lotto.rounds import (
    GrindRound,
    RefineOutHonest,
    ReuseRound,
    ShowDifferentPopulations,
    TellDifferentPopulations,
    UnderstatePopulation,
)
from testbed.adversary.lotto.skipped_rounds import AbortUnfavourableRounds, SkipRounds
from testbed.adversary.misbehaviour import ClientMisbehaviour, Misbehaviour, ServerMisbehaviour
from testbed.adversary.model_inconsistency import PassOnAllKeys, SendCraftedModel, SendDifferentModels
from testbed.adversary.secagg.broken_batches import BreakBatch
from testbed.adversary.secagg.inconsistent_shares import DealInconsistentShares
from testbed.adversary.secagg.parallel_sums import ParallelSums
from testbed.adversary.secagg.reconstruction import ContradictDropouts
from testbed.adversary.secagg.small_sums import ShrinkTheSum, SplitTheSharing

SERVER: tuple[type[ServerMisbehaviour], ...] = (
    PreferDishonest,
    KeepDishonestCandidates,
    ReserveMostSelected,
    OmitHonestCandidates,
    UnderstatePopulation,
    RefineOutHonest,
    TellDifferentPopulations,
    ShowDifferentPopulations,
    ReuseRound,
    GrindRound,
    SkipRounds,
    AbortUnfavourableRounds,
    ForgeOutput,
    CopyOutput,
    ListTwice,
    ShowDifferentLists,
    ParallelLists,
    ParallelSums,
    ForgeSignatures,
    KeepDishonestBatches,
    ReserveMostSelectedBatch,
    OmitHonestBatches,
    TellMembersApart,
    ForgeBatch,
    CopyBatch,
    SplitBatch,
    ShowDifferentBatches,
    ContradictDropouts,
    ShrinkTheSum,
    SplitTheSharing,
    BreakBatch,
    SendDifferentModels,
    PassOnAllKeys,
    SendCraftedModel,
)
CLIENTS: tuple[type[ClientMisbehaviour], ...] = (
    InflateUtility,
    ClaimCandidacy,
    ClaimFalseNumber,
    WithholdNumber,
    WrongSignature,
    SkipNoise,
    DealInconsistentShares,
)
OF_PARTY: dict[str, tuple[type[Misbehaviour], ...]] = {"server": SERVER, "clients": CLIENTS}


def names(party: str, protocols: Iterable[str] | None = None) -> list[str]:
    """The misbehaviours of "server" or "clients", in the order above; only those that apply to one of `protocols`."""
    wanted = None if protocols is None else set(protocols)
    found = [
        kind.name
        for kind in OF_PARTY[party]
        if wanted is None or (wanted & set(kind.applies_to) and not kind.only_follows)
    ]
    return list(dict.fromkeys(found))


def kinds_of(party: str, name: str) -> list[type[Misbehaviour]]:
    """The classes of one name."""
    return [kind for kind in OF_PARTY[party] if kind.name == name]
