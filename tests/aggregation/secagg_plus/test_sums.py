"""The sum over a sparse graph against the plain quantised sum, with clients that leave at every stage."""

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.graph import NeighbourGraph, list_digest
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.errors import RoundAborted
from tests.aggregation.federations import KeepsTotal, SmallFederation
from tests.messages_named import naming
from tests.thoroughness import examples

EXPERIMENT = b"a test's own id."
STAGES = ("train", *SecAgg.stages)
N, K, T = 24, 8, 5
LOOSE = SecAggPlusParameters(neighbours=K, threshold=T, dropouts=0.5, accept_weaker=True)


class Kept(KeepsTotal, SecAggPlus):
    """Keeps the unmasked sum."""


def deltas(size: int = N, dimension: int = 9) -> Any:
    return np.random.default_rng(1).uniform(-1, 1, (size, dimension)).astype(np.float32)


def expected_end(around: dict[int, frozenset[int]], fates: list[str | None], chosen: Any) -> list[int] | None:
    """Return the clients in the sum, from the protocol's description alone; None: there is no sum."""

    def staying(stage: str, among: set[int]) -> set[int]:
        return {client for client in among if fates[client] != stage}

    def core(clients: set[int]) -> set[int]:
        while lone := {client for client in clients if len(around[client] & clients) < T}:
            clients = clients - lone
        return clients

    advertised = core(staying("secagg/advertise-keys", staying("train", set(range(N)))))
    shared = core(staying("secagg/share-keys", advertised))
    sent = staying("secagg/masked-input", shared)
    if min(len(advertised), len(shared), len(sent)) < chosen.survivors:
        return None
    if any(around[client] & sent and len(around[client] & sent) < T for client in shared):
        return None
    signed = staying("secagg/consistency", sent)
    asked = {client for client in signed if len(around[client] & signed) >= T}
    revealing = staying("secagg/unmask", asked)
    needed = {client for client in shared if client in sent or around[client] & sent}
    if len(signed) < T or any(len(around[client] & revealing) < T for client in needed):
        return None
    return sorted(sent)


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.sampled_from([None] * 16 + list(STAGES)), min_size=N, max_size=N), st.integers(1, 4))
def test_the_unmasked_sum_is_the_quantised_sum_of_the_survivors(fates: list[str | None], hosts: int) -> None:
    leaving = {stage: {i for i, fate in enumerate(fates) if fate == stage} for stage in STAGES}
    small = SmallFederation(deltas(), LOOSE, samples=range(1, N + 1), protocol=Kept, leaving=leaving, hosts=hosts)
    graph = NeighbourGraph(range(N), K, list_digest(bytes(32), 1, range(N)))
    survivors = expected_end({client: graph.around(client) for client in range(N)}, fates, LOOSE.neighbourhood(N))
    if survivors is None:
        with pytest.raises(RoundAborted, match="below-threshold"):
            small.run()
    else:
        assert small.run().survivors.tolist() == survivors
        assert small.protocol.total == small.quantised_sum(survivors).tolist()
    assert small.refusals() == []
    assert small.misbehaviour() == []


@pytest.mark.parametrize("size", [2, 3, 5, 30, 70])
def test_what_the_bound_chooses_sums_to_the_mean(size: int) -> None:
    given = deltas(size)
    small = SmallFederation(given, SecAggPlusParameters(), protocol=SecAggPlus)
    aggregate = small.run()
    assert aggregate.survivors.tolist() == list(range(size))
    assert np.abs(aggregate.mean - given.mean(0)).max() <= 2 / (2**16 - 1)
    assert small.network.events == []


def test_the_sum_is_that_of_secagg_and_costs_less() -> None:
    given, leaving = deltas(40, 2000), {"secagg/masked-input": {3, 17}}
    plus = SmallFederation(given, SecAggPlusParameters(), protocol=SecAggPlus, leaving=leaving)
    full = SmallFederation(given, SecAggParameters(), leaving=leaving)
    assert plus.run().mean.tobytes() == full.run().mean.tobytes()
    for what in ("bytes_down", "compute_s"):
        of_plus, of_full = (
            sum(float(getattr(stage, what).sum()) for stage in small.network.exchanges[1:]) for small in (plus, full)
        )
        assert of_plus < of_full / 2


def test_among_few_everybody_is_a_neighbour_and_shares_are_those_of_secagg() -> None:
    """k = s - 1: the same masked inputs, bit for bit."""
    parameters = SecAggPlusParameters(neighbours=50, threshold=6, accept_weaker=True)
    inputs = []
    for chosen, protocol in ((parameters, SecAggPlus), (SecAggParameters(threshold=6), SecAgg)):
        small = SmallFederation(deltas(9), chosen, protocol=protocol, leaving={"secagg/masked-input": {4}})
        kept = asyncio.run(masked_inputs(small))
        inputs.append({client: vector.values.tobytes() for client, vector in kept.items()})
    assert inputs[0] == inputs[1]
    assert len(inputs[0]) == 8


async def masked_inputs(small: Any) -> Any:
    await small.aggregate()
    stage = next(delivery for delivery, _ in small.hosts.seen if delivery.kind.stage == "secagg/masked-input")
    return await small.hosts.vectors(stage.key, np.setdiff1d(small.everybody, [4]))


def with_one_alone(stage: str) -> tuple[Any, int]:
    """Run a round in which five neighbours of one client leave at `stage`, and fewer of others; return the client."""
    circle = NeighbourGraph(range(N), K, list_digest(bytes(32), 1, range(N))).circle()
    leaving = {stage: {circle[place] for place in (0, 1, 2, 3, 5)}}
    return SmallFederation(deltas(), LOOSE, protocol=Kept, leaving=leaving), circle[4]


@pytest.mark.parametrize("stage", STAGES[:3])
def test_who_has_too_few_neighbours_before_its_input_is_left_out(stage: str) -> None:
    small, alone = with_one_alone(stage)
    aggregate = small.run()
    assert [(event.party, event.kind) for event in small.network.events] == [
        ("server", "weak-neighbourhood"),  # accepted: the graph of a test is small
        (f"client:{alone}", "isolated"),
    ]
    gone = small.network.availability.at[stage]
    assert set(aggregate.survivors.tolist()) == set(range(N)) - gone - {alone}
    assert small.protocol.total == small.quantised_sum(aggregate.survivors.tolist()).tolist()


@pytest.mark.parametrize("stage", ["secagg/masked-input", "secagg/consistency", "secagg/unmask"])
def test_a_mask_that_cannot_be_removed_ends_the_round(stage: str) -> None:
    small, _ = with_one_alone(stage)
    with pytest.raises(RoundAborted, match=rf"below-threshold: [34] of {T} needed .* client"):
        small.run()


def test_more_dropouts_than_the_bound_speaks_of_end_the_round() -> None:
    parameters = SecAggPlusParameters(dropouts=0.1)
    assert parameters.neighbourhood(40).survivors == 36
    for gone, fits in (({1, 9, 20, 33}, True), ({1, 9, 20, 33, 38}, False)):
        small = SmallFederation(deltas(40), parameters, protocol=SecAggPlus, leaving={"train": gone})
        if fits:
            assert len(small.run().survivors) == 36
        else:
            with pytest.raises(RoundAborted, match=naming("below-threshold", "35 of 36", "advertised")):
                small.run()


def test_measured_compute_gives_the_same_sum() -> None:
    small = SmallFederation(deltas(), LOOSE, protocol=SecAggPlus)
    small.network.compute = small.environment.compute = ComputeModel(True, REFERENCE_COSTS)
    assert small.run().mean.tobytes() == SmallFederation(deltas(), LOOSE, protocol=SecAggPlus).run().mean.tobytes()
