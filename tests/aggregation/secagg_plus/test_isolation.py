"""A server that tells one client that hardly any neighbour has shared, and all others everything: alone with its sum.

It needs one accomplice fewer around the victim than two stories about one client do (2t - k - 2), so the bound does not
exclude it: the tags by which neighbours know their masks do.
"""

import itertools
from collections.abc import Collection
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from testbed.adversary.misbehaviour import AttackContext, malicious_server
from testbed.adversary.secagg.dishonest_clients import HandOver, SecAggAccomplice
from testbed.adversary.secagg.reconstruction import Contradicting, ReconstructionAttempt
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.secagg.messages import CheckSurvivors, RevealedShares
from testbed.aggregation.secagg.round import SecAggRound
from testbed.aggregation.secagg_plus.graph import (
    MaskedAmongNeighbours,
    MaskInputAmongNeighbours,
    NeighbourSignatures,
    RegularGraph,
    UnmaskNeighbours,
)
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.aggregation.secagg_plus.protocol import SecAggPlus, SecAggPlusClient
from testbed.errors import RoundAborted
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec, StageTable, handles
from tests.aggregation.federations import SmallFederation
from tests.messages_named import naming

N = 20
DISHONEST = (0, 1)  # a tenth, as the parameters say; then k = 6 and t = 5
DELTAS = np.random.default_rng(4).uniform(-1, 1, (N, 6)).astype(np.float32)


class Accomplice(SecAggAccomplice, SecAggPlusClient, answers=(*SecAggPlusClient.questions, HandOver)):
    """Signs and reveals anything that it is asked for."""

    STAGES: ClassVar[StageTable] = SecAggPlusClient.STAGES.extended(SecAggAccomplice.STAGES.rows)


class Plan(NamedTuple):
    """The neighbours that the victim is told of, and the two views."""

    victim: int
    told: frozenset[int]
    victims_survivors: frozenset[int]
    survivors: frozenset[int]


class Isolate(Contradicting, SecAggPlus):
    """Story one, to the victim and the few honest clients it masks with: the other neighbours have dropped out.

    Story two, to everybody else: those few have. The victim's seed and the mask keys of all it masks with come out.
    """

    name = "isolate"
    applies_to = ("secagg-plus",)
    accomplice_roles = (Accomplice,)
    plan: Plan | None = None

    def begin(self, round_: Any) -> SecAggRound:
        """Without the honest server's check that everybody has masked with all neighbours."""
        state = super().begin(round_)
        graph: Any = state.graph
        graph.is_masked_with_all = lambda *_: True
        self.state = state
        return state

    def find(self, graph: Any, everybody: Collection[int]) -> Plan | None:
        around, most, t = (
            {one: graph.around(one) for one in everybody},
            len(everybody) - graph.min_survivors,
            graph.threshold,
        )
        for victim in sorted(set(everybody) - self.dishonest):
            bad = around[victim] & self.dishonest
            honest = sorted(around[victim] - bad - {victim})
            for few in map(frozenset, itertools.combinations(honest, t - 1 - len(bad))):
                others = frozenset(honest) - few
                if max(len(others), len(few)) > most:
                    continue
                first, second = frozenset(everybody) - others, frozenset(everybody) - few
                if any(len(first & around[one]) < t for one in (victim, *few)):
                    continue
                signers = second - {victim}
                reveal = {one for one in signers if len(around[one] & signers) >= t} | bad
                enough = all(len(around[one] & (reveal | self.dishonest)) >= t for one in few)
                if enough and len(around[victim] & (reveal | {victim})) >= t:
                    return Plan(victim, few, first, second)
        return None

    def peers_that_shared(self, state: SecAggRound) -> dict[int, list[int]]:
        told, graph = super().peers_that_shared(state), state.graph
        assert isinstance(graph, RegularGraph)
        self.plan = self.find(graph, sorted(state.sealed))
        assert self.plan is not None
        told[self.plan.victim] = sorted(self.plan.told | (graph.around(self.plan.victim) & self.dishonest))
        self.masked_peers = {client: frozenset(peers) for client, peers in told.items()}
        return told

    async def collect_shares(self, state: SecAggRound) -> None:
        assert self.plan is not None
        victim, few, first, second = self.plan
        round_, graph = state.start, state.graph
        assert isinstance(graph, RegularGraph)
        revealed: dict[int, RevealedShares] = {}
        for said, signing, listening in (
            (first, {victim, *few}, {victim}),
            (second, second - {victim} - self.dishonest, second - {victim} - self.dishonest),
        ):
            question = CheckSurvivors(round_.number, sorted(said))
            signed = (await round_.network.ask(ids(sorted(signing | self.dishonest)), question)).valid()
            private = {}
            for one in sorted(listening & signed.keys()):
                rows = [
                    SignatureOf(other, signed[other].signature) for other in sorted(graph.around(one) & signed.keys())
                ]
                private[one] = NeighbourSignatures(rows, graph.tags_for(state.inputs, one))
            asked = UnmaskNeighbours(round_.number)
            revealed |= (await round_.network.ask(ids(sorted(private)), asked, private=private)).valid()
        handed = (await round_.network.ask(ids(sorted(self.dishonest)), HandOver(round_.number))).valid()
        revealed |= {one: RevealedShares(answer.mask_keys, answer.self_masks) for one, answer in handed.items()}
        keys = {one: answer.mask_key for one, answer in handed.items()}
        state.revealed = revealed
        self.attempt = await self.reconstructed(state, "", {victim}, self.masked_peers, few, keys)
        raise RoundAborted("over", "")


def attempted(roles: Collection[RoleSpec] = ()) -> tuple[Any, ReconstructionAttempt]:
    context = AttackContext(frozenset(DISHONEST))
    kind = malicious_server(SecAggPlus, [Isolate], context)
    small = SmallFederation(DELTAS, SecAggPlusParameters(), protocol=kind, samples=range(3, N + 3), roles=roles)
    with pytest.raises(RoundAborted, match="over"):
        small.run()
    return small, small.protocol.attempt


def test_the_server_stays_within_the_bound() -> None:
    small, _ = attempted()
    graph = small.protocol.state.graph
    chosen = graph.chosen
    around = [len(graph.around(one) & set(DISHONEST)) for one in range(N) if one not in DISHONEST]
    assert max(around) < 2 * chosen.threshold - chosen.neighbours - 1


def test_neighbours_that_the_victim_has_not_masked_with_keep_their_shares() -> None:
    small, attempt = attempted()
    assert attempt.vector is None
    assert small.refusals() == []
    graph = small.protocol.state.graph
    t, bad = graph.threshold, graph.around(small.protocol.plan.victim) & set(DISHONEST)
    assert f"{len(bad) + 1} of {t} of the self-mask seed" in attempt.detail  # the accomplices' and the victim's own


class Trusting(SecAggPlusClient):
    """Does not check which neighbours have masked with it."""

    def has_masked_with_me(self, peer: int) -> bool:
        return True


def test_if_they_did_not_ask_the_update_would_be_out() -> None:
    honest = frozenset(range(N)) - set(DISHONEST)
    small, attempt = attempted([RoleSpec(Trusting, SecAggPlusParameters(), honest)])
    assert attempt.vector is not None
    (victim,) = attempt.members
    rounding = small.randomness.simulation_key(victim, 1, "stochastic rounding")
    truth = small.parameters.quantisation.encode(DELTAS[victim], victim + 3, rounding)
    assert np.array_equal(attempt.vector, truth)
    assert small.refusals() == []


class TellsNobody(SecAggPlusClient):
    """Says of no neighbour that it is masked with it."""

    @handles(MaskInputAmongNeighbours)
    def on_mask_input_among_neighbours(self, message: Any, private: Any) -> MaskedAmongNeighbours:
        return MaskedAmongNeighbours(super().on_mask_input_among_neighbours(message, private).input, [])


def test_a_client_that_tells_nobody_is_left_out() -> None:
    roles = [RoleSpec(TellsNobody, SecAggPlusParameters(), frozenset({5}))]
    small = SmallFederation(DELTAS, SecAggPlusParameters(), protocol=SecAggPlus, roles=roles)
    assert small.run().survivors.tolist() == [one for one in range(N) if one != 5]
    assert small.misbehaviour() == [(5, "masked input: not masked with every neighbour")]


class TellsFew(SecAggPlusClient):
    """Leaves three of four neighbours without a tag that holds."""

    def tag_content(self, sender: int, receiver: int) -> tuple[bytes, bytes]:
        nonce, associated = super().tag_content(sender, receiver)
        return nonce, associated + (b"!" if sender == self.client.number and receiver % 4 else b"")


def test_a_client_whose_word_is_false_is_no_worse_than_bad_shares() -> None:
    roles = [RoleSpec(TellsFew, SecAggPlusParameters(), frozenset({5}))]
    small = SmallFederation(DELTAS, SecAggPlusParameters(), protocol=SecAggPlus, roles=roles)
    with pytest.raises(RoundAborted, match=naming("shares", "client 5")):
        small.run()
