"""The combinations of protocols that are searched, each as small as its attacks allow.

`FIXES` is the one place for the keys that close an attack: `guarded` sets them, `unguarded` switches them off, for the
search that must then find the attack again.
"""

from dataclasses import dataclass, replace
from typing import Any

from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.selection.lotto.variants import ClientCentricParameters, ServerCentricParameters
from testbed.selection.verifiable_batch_partition import VerifiableBatchPartitionParameters
from tests.search.world import Mix

PARAMETERS: dict[str, Any] = {
    "secagg": SecAggParameters,
    "secagg-plus": SecAggPlusParameters,
    "lotto-client-centric": ClientCentricParameters,
    "lotto-server-centric": ServerCentricParameters,
    "verifiable-batch-partition": VerifiableBatchPartitionParameters,
}


@dataclass(frozen=True)
class Fix:
    """A key that closes an attack.

    Attributes:
        attack: the kind of violation (`bounds`).
        section: section of the key.
        key: the key.
        on: the value that closes the attack.
        off: the value that leaves it open.
    """

    attack: str
    section: str
    key: str
    on: Any
    off: Any

    def known_to(self, mix: Mix) -> bool:
        """Return whether the mix's protocol has such a key."""
        return self.key in getattr(PARAMETERS.get(getattr(mix, self.section)["protocol"]), "model_fields", {})

    def set(self, mix: Mix, value: Any) -> Mix:
        """Return the mix with this value."""
        return replace(mix, **{self.section: {**getattr(mix, self.section), self.key: value}})


FIXES = (
    Fix("model inconsistency", "aggregation", "model_binding", "signed", "none"),
    Fix("skipped rounds", "selection", "max_round_gap", 1, None),
    Fix("parallel lists", "selection", "round_beacon", "public", "none"),
)


def guarded(mix: Mix) -> Mix:
    """Return the mix with all fixes that its protocols have."""
    for fix in FIXES:
        mix = fix.set(mix, fix.on) if fix.known_to(mix) else mix
    return mix


def unguarded(mix: Mix) -> Mix:
    """Return the mix without any fix."""
    for fix in FIXES:
        mix = fix.set(mix, fix.off) if fix.known_to(mix) else mix
    return mix


def left_open(mix: Mix) -> set[str]:
    """Return the attacks that no key of this mix's protocols closes."""
    return {fix.attack for fix in FIXES if not fix.known_to(mix)}


LOTTO = {"protocol": "lotto-client-centric", "participants": 4, "over_selection": 2.0}
SERVER_CENTRIC = {**LOTTO, "protocol": "lotto-server-centric"}
VERIFIABLE = {
    "protocol": "verifiable-batch-partition",
    "participants": 4,
    "privacy": 2,
    "over_selection": 2.0,
    "beacon": None,
}
BATCHES = {"protocol": "batch-partition", "participants": 4, "privacy": 2}
NEIGHBOURS = {
    "protocol": "secagg-plus",
    "neighbours": 4,
    "threshold": 4,
    "accept_weaker": True,
    "dishonest": 0.1,
    "dropouts": 0.34,
}
SKELLAM = {"mechanism": "skellam", "noise_multiplier": 1.0, "scale": 64}


def secagg(threshold: int, **more: Any) -> dict[str, Any]:
    """Return the section for `secagg`."""
    return {"protocol": "secagg", "threshold": threshold, **more}


def random(participants: int) -> dict[str, Any]:
    """Return the section for a selection that clients cannot verify."""
    return {"protocol": "random", "participants": participants}


MIXES = (
    Mix("secagg, 2 accomplices", random(5), secagg(4), 8, frozenset({6, 7})),
    Mix("secagg, 1 accomplice", random(6), secagg(4), 7, frozenset({6})),
    Mix("secagg, no accomplice", random(5), secagg(3), 6),
    Mix("secagg with noise", random(5), secagg(4, weights="equal", noise=SKELLAM), 6, frozenset({5})),
    Mix(
        "secagg with removable noise",
        random(5),
        secagg(4, weights="equal", noise={**SKELLAM, "enforcement": {"tolerated_dropouts": 1}}),
        6,
        frozenset({5}),
    ),
    Mix("secagg-plus, 2 accomplices", random(7), NEIGHBOURS, 9, frozenset({7, 8})),
    Mix("secagg, whole batches", BATCHES, secagg(3), 8),
    Mix("secagg, whole batches, smallest sum", BATCHES, secagg(3, smallest_sum=2), 8),
    Mix("secagg, whole batches, unsigned", BATCHES, secagg(3, consistency="none"), 8),
    Mix("lotto-client-centric with secagg", LOTTO, secagg(3), 8, frozenset({7}), rounds=2),
    Mix(
        "lotto-client-centric, few candidates",
        {**LOTTO, "over_selection": 1.25},
        secagg(3),
        8,
        frozenset({6, 7}),
        rounds=2,
    ),
    Mix("lotto-server-centric with secagg", SERVER_CENTRIC, secagg(3), 8, frozenset({7}), rounds=2),
    Mix(
        "lotto-server-centric with secagg-plus",
        {**SERVER_CENTRIC, "participants": 6, "over_selection": 1.5},
        NEIGHBOURS,
        9,
        frozenset({7, 8}),
        rounds=2,
    ),
    Mix("verifiable-batch-partition with secagg", VERIFIABLE, secagg(3), 8, frozenset({7}), rounds=2),
    Mix("secagg, more accomplices than it withstands", random(4), secagg(3), 4, frozenset({2, 3}), known_broken=True),
)
