"""A server that labels an honest client's neighbours offline: what it has where labels are taken as random, and not."""

import hashlib
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from testbed.adversary.catalogue import update_recovered
from testbed.adversary.flamingo_labels import LabelNeighboursOffline
from testbed.adversary.misbehaviour import AttackContext, malicious_server
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.server import Flamingo
from testbed.committee.parameters import CommitteeSection
from tests.aggregation.flamingo_rounds import federation, played

N = 150
DELTAS = np.random.default_rng(5).uniform(-1, 1, (N, 3))
DISHONEST = frozenset(range(105, N))
HONEST_COMMITTEE = CommitteeSection(selection="given", members=tuple(range(9)), threshold=6)


@cache  # tests only look at what came of it
def attacked(victim: int | None = None, **more: Any) -> tuple[Any, Any, str]:
    """The federation, what the round came to, and the detail of the attack; all of the committee are honest."""
    fields = {"committee": HONEST_COMMITTEE, "weights": "equal", "dishonest": 0.3, "dropouts": 0.3} | more
    context = AttackContext(DISHONEST, {LabelNeighboursOffline: VictimOptions(victim=victim)})
    server = malicious_server(Flamingo, [LabelNeighboursOffline], context)
    small = federation(DELTAS, FlamingoParameters(**fields), protocol=server)
    (outcome,) = played(small, 1)
    (detail,) = [event.detail for event in small.network.events if event.kind == "attack"]
    return small, outcome, detail


def has_sum_of(small: Any, group: list[int], detail: str) -> bool:
    """Whether the digest in `detail` is that of the sum of the group's true updates."""
    total = 0
    for client in group:
        coins = small.randomness.simulation_key(client, 1, "stochastic rounding")
        total = total + small.parameters.quantisation.encode(np.float32(DELTAS[client]), 1, coins)
    return detail.endswith(hashlib.sha256(np.asarray(total).tobytes()).hexdigest())


def test_where_labels_are_taken_as_random_a_single_update_is_had_bit_for_bit() -> None:
    small, outcome, detail = attacked(labels="random")
    match = re.match(r"label-neighbours-offline: victim (\d+): (\d+) of its honest neighbours labelled offline", detail)
    assert match is not None
    victim, offline = map(int, match.groups())
    assert victim not in DISHONEST
    assert has_sum_of(small, [victim], detail)
    assert update_recovered(detail)
    assert small.refusals() == []
    assert len(outcome.survivors) == N - offline
    assert small.protocol.guarantees(N).max_colluders == 0


def test_a_victim_can_be_named() -> None:
    small, _, first = attacked(labels="random")
    others = [client for client in range(105) if f"victim {client}:" not in first]
    details = [attacked(victim, labels="random")[2] for victim in others[:3]]
    for victim, detail in zip(others[:3], details, strict=True):
        if "failed" not in detail:
            clients = [int(number) for number in re.findall(r"\d+", detail.split(": ")[1])]
            assert victim in clients
            assert has_sum_of(small, clients, detail)


@pytest.mark.parametrize("tries", [0, 40])
def test_where_the_bound_counts_with_chosen_labels_nobody_can_be_cut_off(tries: float) -> None:
    small, outcome, detail = attacked(tries=tries)
    assert detail.startswith("label-neighbours-offline: failed: no labels cut honest clients off")
    assert not update_recovered(detail)
    assert len(outcome.survivors) == N
    assert small.protocol.guarantees(N).max_colluders == 45
