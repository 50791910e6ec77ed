"""A server that labels an honest client's neighbours offline: bounds for random and for chosen labels."""

import re
from typing import Any

import numpy as np
import pytest

from testbed.adversary.catalogue import update_recovered
from testbed.adversary.flamingo_labels import LabelNeighboursOffline
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.server import Flamingo
from testbed.committee.parameters import CommitteeSection
from tests.adversary import rounds
from tests.aggregation.flamingo_rounds import federation

N = 30
DELTAS = np.random.default_rng(5).uniform(-1, 1, (N, 3))
DISHONEST = {7, 12, 15, 16, 24, 26}
SPARSE = {"security": 10, "correctness": 5}  # few neighbours, so that a small round has such labels
HONEST_COMMITTEE = CommitteeSection(selection="given", members=(0, 1, 2, 3, 4, 5, 6, 8, 9), threshold=6)


def attacked(victim: int | None = None, **more: Any) -> tuple[Any, Any, str]:
    """Return the federation, the round's outcome, and the detail of the attack; the whole committee is honest."""
    fields = {"committee": HONEST_COMMITTEE, "weights": "equal", "dishonest": 0.2, "dropouts": 0.4} | SPARSE | more
    parameters, options = FlamingoParameters(**fields), VictimOptions(victim=victim)
    small, outcome, (detail,) = rounds.attacked(
        Flamingo, LabelNeighboursOffline, parameters, DELTAS, DISHONEST, options, federation
    )
    return small, outcome, detail


def test_with_the_bound_for_random_labels_a_single_update_is_recovered() -> None:
    small, outcome, detail = attacked(labels="random")
    match = re.match(r"label-neighbours-offline: victim (\d+): (\d+) of its honest neighbours labelled offline", detail)
    assert match is not None
    victim, offline = map(int, match.groups())
    assert victim not in DISHONEST
    assert detail.endswith(rounds.digest_of(small, [victim], DELTAS))
    assert update_recovered(detail)
    assert small.refusals() == []
    assert len(outcome.survivors) == N - offline
    assert small.protocol.guarantees(N).max_colluders == 0


def test_the_named_victim_is_attacked() -> None:
    small, _, detail = attacked(20, labels="random")
    clients = [int(number) for number in re.findall(r"\d+", detail.split(": ")[1])]
    assert 20 in clients
    assert detail.endswith(rounds.digest_of(small, clients, DELTAS))


@pytest.mark.parametrize("tries", [0, 40])
def test_with_the_bound_for_chosen_labels_no_client_can_be_cut_off(tries: float) -> None:
    small, outcome, detail = attacked(tries=tries)
    assert detail.startswith("label-neighbours-offline: failed: no labels cut honest clients off")
    assert not update_recovered(detail)
    assert len(outcome.survivors) == N
    assert small.protocol.guarantees(N).max_colluders == len(DISHONEST)
