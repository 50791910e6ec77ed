"""A server that tells clients different survivors, with dishonest clients that sign anything: the three claims.

The clients are real; the server passes on every signature that helps it. Dishonest holders count for both secrets.
"""

import asyncio
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.secagg.messages import SURVIVORS_DOMAIN, CheckSurvivors, survivors_content
from testbed.aggregation.secagg_plus.graph import NeighbourGraph, NeighbourSignatures, UnmaskNeighbours, list_digest
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus
from tests.aggregation.federations import SmallFederation

N, K, T = 18, 6, 5
EXPERIMENT = b"a test's own id."
PARAMETERS = SecAggPlusParameters(neighbours=K, threshold=T, dropouts=0.5, accept_weaker=True)
GRAPH = NeighbourGraph(range(N), K, list_digest(bytes(32), 1, range(N)))
AROUND = {client: GRAPH.around(client) for client in range(N)}


@st.composite
def stories(draw: st.DrawFn) -> tuple[frozenset[int], dict[int, list[int]]]:
    """Draw dishonest clients (fewer than 2t - (k + 1)), and the survivors that each other client is told."""
    dishonest = draw(st.frozensets(st.integers(0, N - 1), max_size=2 * T - K - 2))
    told = []
    for _ in range(draw(st.integers(1, 3))):
        begin, length = draw(st.integers(0, N - 1)), draw(st.integers(0, K))
        gone = {GRAPH.circle()[(begin + step) % N] for step in range(length)}
        gone |= draw(st.frozensets(st.integers(0, N - 1), max_size=3))
        told.append([client for client in range(N) if client not in gone])
    cuts = sorted(draw(st.lists(st.integers(0, N), min_size=len(told) - 1, max_size=len(told) - 1)))
    hears = {client: told[sum(place >= cut for cut in cuts)] for place, client in enumerate(GRAPH.circle())}
    return dishonest, hears


async def revealed(dishonest: frozenset[int], hears: dict[int, list[int]]) -> dict[int, Any]:
    """Return the shares that the honest clients reveal."""
    small = SmallFederation(np.ones((N, 2)), PARAMETERS, protocol=SecAggPlus)
    start = await small.begin()
    protocol = small.protocol
    state = protocol.begin(start)
    await protocol.advertise_keys(state)
    await protocol.share_keys(state)
    await protocol.collect_masked_inputs(state)
    honest = [client for client in range(N) if client not in dishonest]
    signed: dict[int, bytes] = {}
    for client in honest:
        replies = await small.network.ask(np.array([client]), CheckSurvivors(1, hears[client]))
        signed.update({one: answer.signature for one, answer in replies.valid().items()})
    answers = {}
    for client in honest:
        content = survivors_content(1, hears[client], state.digest)
        rows = []
        for one in sorted(AROUND[client].intersection(hears[client])):
            if one in dishonest:
                signing = small.client(one).identity.signing
                rows.append(SignatureOf(one, signing.sign(SURVIVORS_DOMAIN + EXPERIMENT, content)))
            elif one in signed and hears[one] == hears[client]:
                rows.append(SignatureOf(one, signed[one]))
        replies = await small.network.ask(
            np.array([client]),
            UnmaskNeighbours(1),
            private={client: NeighbourSignatures(rows, state.graph.tags_for(state.inputs, client))},
        )
        answers.update(replies.valid())
    return answers


def part_of(client: int, clients: set[int]) -> set[int]:
    reached: set[int] = set()
    border = [client]
    while border:
        one = border.pop()
        if one not in reached:
            reached.add(one)
            border += AROUND[one] & clients
    return reached


def test_no_stories_give_two_secrets_or_one_update() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(stories())
    def play(case: tuple[frozenset[int], dict[int, list[int]]]) -> None:
        dishonest, hears = case
        answers = asyncio.run(revealed(dishonest, hears))
        honest = set(range(N)) - dishonest
        of_key = Counter(row.client for shares in answers.values() for row in shares.mask_keys)
        of_seed = Counter(row.client for shares in answers.values() for row in shares.self_masks)
        helped = {client: len(AROUND[client] & dishonest) for client in honest}
        without_key = {client for client in honest if of_key[client] + helped[client] >= T}
        without_seed = {client for client in honest if of_seed[client] + helped[client] >= T}
        assert not without_key & without_seed
        assert not without_key & answers.keys()
        for client in without_seed:
            assert len(part_of(client, honest - without_key)) >= T - helped[client]
        seen["stories that split"] += len({tuple(hears[client]) for client in answers}) > 1
        seen["rebuilt keys"] += bool(without_key)
        seen["rebuilt seeds"] += bool(without_seed)

    play()
    assert min(seen.values()) > 0, seen  # the server does get somewhere
    assert len(seen) == 3
