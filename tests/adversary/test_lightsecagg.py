"""Nobody signs the survivors of LightSecAgg: a server that tells two sets has one client's update."""

import hashlib
from typing import Any

import numpy as np
import pytest

from testbed.adversary.lightsecagg import ContradictSurvivors
from testbed.adversary.misbehaviour import AttackContext, malicious_server
from testbed.adversary.secagg.reconstruction import ReconstructionOptions
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg
from tests.aggregation.federations import SmallFederation

DELTAS = np.random.default_rng(3).uniform(-1, 1, (10, 7))
VICTIM = 4


def attacked(needed: int, accomplices: int, **more: Any) -> tuple[SmallFederation, Any, str]:
    """The federation, the round's outcome, and what the attack came to."""
    dishonest = frozenset(range(10 - accomplices, 10))
    context = AttackContext(dishonest, {ContradictSurvivors: ReconstructionOptions(victim=VICTIM)})
    server = malicious_server(LightSecAgg, [ContradictSurvivors], context)
    parameters = LightSecAggParameters(threshold=needed, max_colluders=2, weights="equal")
    small = SmallFederation(DELTAS, parameters, protocol=server, **more)
    aggregate = small.run()
    (said,) = [event.detail for event in small.network.events if event.kind == "attack"]
    return small, aggregate, said


@pytest.mark.parametrize("needed", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("accomplices", [0, 1, 2, 3, 4])
def test_two_sums_can_be_had_where_two_times_u_holders_can_be(needed: int, accomplices: int) -> None:
    """2 (U - x) of the 10 - x honest survivors, each of whom sums once."""
    small, aggregate, said = attacked(needed, accomplices)
    assert aggregate.survivors.tolist() == list(range(10))
    assert np.abs(aggregate.mean - np.float32(DELTAS).mean(0)).max() < 1e-4
    assert small.refusals() == []
    can_be = 2 * max(0, needed - accomplices) <= 10 - accomplices
    assert ("; reconstructed, weight 1, sha256 " in said) == can_be
    if can_be:
        coins = small.randomness.simulation_key(VICTIM, 1, "stochastic rounding")
        update = small.parameters.quantisation.encode(np.float32(DELTAS[VICTIM]), 1, coins)
        assert said.endswith(hashlib.sha256(update.astype("<u4").tobytes()).hexdigest())
        assert ContradictSurvivors.update_recovered is not None
        assert ContradictSurvivors.update_recovered.search(said.removeprefix("contradict-dropouts: "))
    else:
        assert said.endswith("; failed: too few sums")


def test_a_victim_that_has_left_is_not_attacked() -> None:
    with pytest.raises(ValueError, match="not enough values to unpack"):
        attacked(4, 2, leaving={"lightsecagg/masked-input": {VICTIM}})
