"""Survivors in LightSecAgg are not signed: a server that names two sets recovers one client's update, or part of it."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.adversary.catalogue import update_recovered
from testbed.adversary.lightsecagg import ContradictSurvivors, ParallelGroups
from testbed.adversary.misbehaviour import AttackContext, malicious_server
from testbed.adversary.selection.lists import ListsOptions
from testbed.adversary.victims import VictimOptions
from testbed.aggregation.kit.message_parts import point_of
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.lightsecagg.server import LightSecAgg
from testbed.crypto.prime_field import PRIME
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from tests.adversary import rounds
from tests.aggregation.federations import SmallFederation

DELTAS = np.random.default_rng(3).uniform(-1, 1, (10, 7))
VICTIM = 4


def attacked(needed: int, accomplices: int, **more: Any) -> rounds.Played:
    """Return the federation, the round's outcome, and the details of the attack."""
    parameters = LightSecAggParameters(threshold=needed, max_colluders=2, weights="equal")
    dishonest, options = set(range(10 - accomplices, 10)), VictimOptions(victim=VICTIM)
    return rounds.attacked(LightSecAgg, ContradictSurvivors, parameters, DELTAS, dishonest, options, **more)


@pytest.mark.parametrize("needed", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("accomplices", [0, 1, 2, 3, 4])
def test_two_sums_need_two_times_u_holders(needed: int, accomplices: int) -> None:
    """The attack needs 2 (U - x) of the 10 - x honest survivors, because each sums once."""
    small, aggregate, (said,) = attacked(needed, accomplices)
    assert aggregate.survivors.tolist() == list(range(10))
    assert np.abs(aggregate.mean - np.float32(DELTAS).mean(0)).max() < 1e-4
    assert small.refusals() == []
    can_be = 2 * max(0, needed - accomplices) <= 10 - accomplices
    assert ("; reconstructed, weight 1, sha256 " in said) == can_be
    if can_be:
        assert said.endswith(rounds.digest_of(small, [VICTIM], DELTAS, "<u4"))
        assert update_recovered(said)
    else:
        assert said.endswith("; failed: too few sums")


def test_two_spare_holders_tolerate_one_dropout_of_either_sum() -> None:
    """U = 5 with two accomplices needs 6 of the 8 honest survivors: 4 are asked for each sum."""
    _, _, (said,) = attacked(5, 2, leaving={"lightsecagg/sum-pieces": {0, 5}})
    assert "; reconstructed, weight 1, sha256 " in said
    _, ended, _ = attacked(5, 2, leaving={"lightsecagg/sum-pieces": {0, 1}})
    assert isinstance(ended, RoundAborted)
    assert "4 of 5" in str(ended)


def test_a_victim_that_dropped_out_is_not_attacked() -> None:
    assert attacked(4, 2, leaving={"lightsecagg/masked-input": {VICTIM}})[2] == []


def apart(needed: int, accomplices: int, lists: int | None = None, **more: Any) -> tuple[Any, list[str]]:
    """Return the round's outcome, and the details of `parallel-lists`; empty: not carried out."""
    parameters = LightSecAggParameters(threshold=needed, max_colluders=2, weights="equal")
    dishonest, options = set(range(10 - accomplices, 10)), ListsOptions(lists=lists)
    small, outcome, said = rounds.attacked(LightSecAgg, ParallelGroups, parameters, DELTAS, dishonest, options, **more)
    assert small.refusals() == []
    return outcome, said


@pytest.mark.parametrize(
    ("needed", "accomplices", "lists", "over"),
    [
        (5, 0, None, [5, 5]),
        (3, 0, None, [4, 3, 3]),
        (7, 4, None, [3, 3]),
        (5, 2, None, [4, 4]),
        (5, 4, None, [1] * 6),  # U - 1 accomplices: a sum over one honest client each
        (3, 0, 2, [5, 5]),
        (6, 1, None, None),  # 9 honest clients, 5 for each group: one group alone
    ],
)
def test_each_group_is_summed_separately(
    needed: int, accomplices: int, lists: int | None, over: list[int] | None
) -> None:
    """As many groups as have U members with the accomplices; the model is the mean of their sums."""
    aggregate, said = apart(needed, accomplices, lists)
    assert aggregate.survivors.tolist() == list(range(10))
    groups = 1 if over is None else len(over)
    expected = f"parallel-lists: {groups} sums in one round, over {', '.join(map(str, over or []))} honest clients"
    assert said == ([] if over is None else [expected])
    updates, times = np.float32(DELTAS), np.ones(10)
    times[10 - accomplices :] = groups  # accomplices are in each
    assert aggregate.weight == times.sum()
    assert np.abs(aggregate.mean - times @ updates / times.sum()).max() < 1e-4


def test_with_enough_accomplices_a_groups_sum_is_one_clients_update() -> None:
    """With U - 1 accomplices: a group's sum minus their inputs is the update of its one honest client."""
    sums: list[Any] = []

    class Seen(ParallelGroups):
        name = "seen-groups"

        async def unmasked_sum(self, state: Any) -> Any:
            sums.append((state.survivors.tolist(), await super().unmasked_sum(state)))
            return sums[-1][1]

    context = AttackContext(frozenset(range(6, 10)), {ParallelGroups: ListsOptions()})
    parameters = LightSecAggParameters(threshold=5, max_colluders=2, weights="equal")
    SmallFederation(DELTAS, parameters, protocol=malicious_server(LightSecAgg, [Seen], context)).run()
    assert [members for members, _ in sums] == [[client, 6, 7, 8, 9] for client in range(6)]
    for (client, *_), total in sums:
        mean, _ = parameters.quantisation.decode(total, 5)
        left = 5 * mean - np.float32(DELTAS)[6:].sum(0)
        assert np.abs(left - np.float32(DELTAS)[client]).max() < 1e-3


def test_a_group_with_too_many_dropouts_has_no_sum() -> None:
    aggregate, said = apart(5, 0, leaving={"lightsecagg/masked-input": {7}})
    assert said == ["parallel-lists: 1 sums in one round, over 5 honest clients"]
    assert aggregate.survivors.tolist() == [0, 1, 2, 3, 4]
    assert isinstance(apart(5, 0, leaving={"lightsecagg/masked-input": {2, 7}})[0], RoundAborted)


def test_two_groups_too_small_for_a_sum_can_reveal_one_update() -> None:
    """N - U + x = T, and still: 1/2 + 1/12 = 1/3 + 1/4 of the holders' points, so that all other masks cancel."""
    participants, victim = ids([1, 2, 3, 11]), 3
    told_all, told_others = ids([1, 11]), ids([2, 3])
    deltas = np.random.default_rng(3).uniform(-1, 1, (12, 6))

    async def play() -> tuple[SmallFederation, Any, dict[int, Any], Any]:
        parameters = LightSecAggParameters(threshold=3, max_colluders=1)
        small = SmallFederation(deltas, parameters, protocol=LightSecAgg)
        protocol: Any = small.protocol
        state = protocol.begin(replace(await small.begin(), participants=participants, trained=participants))
        await protocol.advertise_keys(state)
        await protocol.share_masks(state)
        await protocol.collect_masked_inputs(state)
        _, with_it = await protocol.summed_pieces(state, told_all, participants)
        _, without = await protocol.summed_pieces(state, told_others, participants[participants != victim])
        return small, state.code, {**with_it, **without}, await state.uploads.total(ids([victim]))

    small, code, said, upload = asyncio.run(play())
    assert small.refusals() == []
    assert (code.needed, code.private, len(said)) == (3, 1, 4)  # two holders a group: fewer than U
    (a, b), (c, d) = [[point_of(client) for client in group.tolist()] for group in (told_all, told_others)]
    scale = -(b * b - a * a) * pow(d * d - c * c, -1, PRIME)
    factors = {a: b * b, b: -a * a, c: scale * d * d, d: -scale * c * c}
    heard = sum(factors[point] * piece.astype(object) for point, piece in said.items()) % PRIME
    weights = [sum(factors[point] * point**power for point in (a, b)) % PRIME for power in range(3)]
    assert weights[2] == 0  # no uniform piece hides the mask
    assert 0 not in weights[:2]

    def combined(vector: Any) -> list[int]:
        own = np.zeros(2 * code.piece_length, object)
        own[: len(vector)] = vector
        return [int(one) for one in (weights[0] * own[: code.piece_length] + weights[1] * own[code.piece_length :])]

    coins = small.randomness.simulation_key(victim, 1, "stochastic rounding")
    update = small.parameters.quantisation.encode(np.float32(deltas[victim]), 1, coins)
    masked = [one % PRIME for one in combined(upload)]
    told = [(one - other) % PRIME for one, other in zip(masked, heard.tolist(), strict=True)]
    assert told == [one % PRIME for one in combined(update)]
