"""A Flamingo server that labels the honest neighbours of a few clients offline, after it has seen the graph.

Masks between online and offline clients are decrypted, and the server's accomplices know their masks with honest
clients. So the server recovers the sum over a group of honest clients if no other honest online client is a neighbour
of the group. No message is out of order: the committee refuses the labels only if they leave too few clients online, a
client with too few neighbours, or a disconnected graph (section 4.4 of the paper). Denser graphs contain no such group
(`testbed.aggregation.flamingo.bound`).
"""

from typing import ClassVar

import numpy as np

from testbed.adversary.cut_off import CutOff, smallest_cut_off
from testbed.adversary.flamingo import AgainstOneVictim
from testbed.aggregation.flamingo.client import FlamingoClient
from testbed.aggregation.flamingo.round import FlamingoRound
from testbed.aggregation.flamingo.seeds import recovered_pair_seeds, recovered_self_masks
from testbed.arrays import Ids
from testbed.messages import ClientId, Key32, Message, RoundNumber
from testbed.network.contract import ids
from testbed.parties.client import StageTable, Transition, handles


class PairSeed(Message, frozen=True):
    """The seed of a mask."""

    seed: Key32


class TellPairSeed(Message, frozen=True):
    """Ask a client for the seed of its pairwise mask with a neighbour."""

    stage: ClassVar[str] = "adversary/tell-pair-seed"
    Answer: ClassVar[type[Message] | None] = PairSeed

    round: RoundNumber
    neighbour: ClientId


class TellingClient(FlamingoClient, answers=(*FlamingoClient.questions, TellPairSeed)):
    """A participant with honest messages that reveals its pairwise seeds to the server."""

    STAGES: ClassVar[StageTable] = FlamingoClient.STAGES.extended(
        {TellPairSeed: Transition(sources={"reported"}, target=None, refusal="flamingo.out-of-order")}
    )

    @handles(TellPairSeed)
    def on_tell_pair_seed(self, message: TellPairSeed) -> PairSeed:
        """Reveal the seed of the pairwise mask."""
        return PairSeed(self.pair_seed(message.neighbour))


class LabelNeighboursOffline(AgainstOneVictim):
    """Finds honest clients that labels can cut off from the other honest clients, and recovers their sum.

    Uses the smallest group that `smallest_cut_off` finds; with `victim`, a group that contains the victim. If there is
    none, the labels are honest, and the record says so.
    """

    name: ClassVar[str] = "label-neighbours-offline"
    added_stages: ClassVar[tuple[str, ...]] = (TellPairSeed.stage,)
    accomplice_roles = (*AgainstOneVictim.accomplice_roles, TellingClient)
    _group: tuple[int, ...] = ()
    _counted: str = ""

    def choose_online(self, state: FlamingoRound, arrived: Ids) -> Ids:
        """Leave out the honest neighbours of the group."""
        self._group = ()
        honest_choice = super().choose_online(state, arrived)
        if not self.attacking:
            return honest_choice
        cut_off = self._cut_off(state, arrived)
        if cut_off is None:
            size = f"{len(arrived)} clients, {state.graph.density.mean_neighbours:.0f} neighbours each"
            self.record_attack(LabelNeighboursOffline, f"failed: no labels cut honest clients off ({size})")
            return honest_choice
        listed = np.asarray(state.graph.listed)
        group = tuple(listed[list(cut_off.group)].tolist())
        # The honest choice for fewer arrivals: the committee checks the labels by the same rules (section 4.4).
        online = super().choose_online(state, np.setdiff1d(arrived, listed[list(cut_off.offline)]))
        if not set(group) <= set(online.tolist()):  # whole batches, or a seed that the committee would refuse
            self.record_attack(LabelNeighboursOffline, f"failed: clients {sorted(group)} cannot be online")
            return online
        self._group = group
        self._counted = f"{len(cut_off.offline)} of its honest neighbours labelled offline, {len(online)} online"
        return online

    def _cut_off(self, state: FlamingoRound, arrived: Ids) -> CutOff | None:
        graph = state.graph
        listed = np.asarray(graph.listed)
        present = np.isin(listed, arrived)
        victim = self.context.options_of(LabelNeighboursOffline).victim
        if victim is not None and victim not in arrived:
            return None
        return smallest_cut_off(
            graph.adjacency,
            np.isin(listed, sorted(self.dishonest)),
            present,
            len(arrived) - graph.density.survivors,
            lambda online: not graph.weakness(listed[online].tolist()),
            member=None if victim is None else int(np.searchsorted(listed, victim)),
        )

    async def unmasked_sum(self, state: FlamingoRound) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
        """Return the honest sum; also recover the sum over the group."""
        total = await super().unmasked_sum(state)
        if self._group:
            self.record_attack(LabelNeighboursOffline, await self._sum_of_group(state))
        return total

    async def _sum_of_group(self, state: FlamingoRound) -> str:
        """Remove the masks from the group's inputs, and describe the result in one line."""
        group, threshold = set(self._group), self.threshold(state)
        own = {client: seed for client, seed in recovered_self_masks(state, threshold).items() if client in group}
        common = {edge: seed for edge, seed in recovered_pair_seeds(state, threshold).items() if edge[0] in group}
        online = set(state.online.tolist())
        for client in self._group:
            # In the group's sum its masks with online peers do not cancel; accomplices simply reveal theirs.
            accomplices = [peer for peer in state.graph.neighbours(client) if peer in online & self.dishonest]
            question = TellPairSeed(state.start.number, client)
            replies = await state.start.network.ask(ids(accomplices), question)
            common |= {(client, peer): answer.seed for peer, answer in replies.valid().items()}
        first = f"victim {self._group[0]}" if len(group) == 1 else f"group of clients {sorted(group)}"
        return await self.recovery_of_group(state.reports, self._group, own, common, f"{first}: {self._counted}")
