"""Malicious SecAgg servers that sum over fewer clients than allowed.

If survivors are not signed, a sum over few honest clients can be unmasked (`ShrinkTheSum`). Every client accepts at
least t survivors, but a different set: clients that are declared gone to t - x others lose their mask keys, and the
server recovers the sum over the remaining clients, far fewer than t. In a variant the members of that sum are told
earlier that fewer have shared, so that they mask with fewer; then the sum is often over one client alone. The counting
is in `testbed.adversary.secagg.contradictions`. If survivors are signed, both attacks fail: no t clients sign one set.

`BreakBatch` claims that one member of a batch dropped out, and sums the others. In Multi-RoundSecAgg (arXiv 2106.03328,
section 4) a round has all members of a batch or none. The sum over a batch in one round minus the sum without one
member in another round is that member's update, if updates do not change: the multi-round privacy T falls to 1. Clients
that keep batches whole refuse (`testbed.aggregation.batch_policy`).
"""

from collections.abc import Mapping
from typing import ClassVar

from testbed.adversary.misbehaviour import AggregationMisbehaviour, MisbehaviourOptions
from testbed.adversary.secagg.contradictions import (
    InconsistentView,
    Isolation,
    denials,
    smallest_among_all,
    smallest_among_few,
)
from testbed.adversary.secagg.reconstruction import Contradicting, ReconstructionAttempt
from testbed.adversary.victims import VictimOptions, draw_victim
from testbed.aggregation.contract import Aggregate, AggregationRound
from testbed.aggregation.secagg.round import SecAggRound
from testbed.aggregation.secagg.server import SecAgg
from testbed.arrays import Ids
from testbed.errors import RoundAborted
from testbed.network.contract import ids


class ShrinkTheSum(Contradicting):
    """Claims different survivors to different clients; all clients have masked with all."""

    name: ClassVar[str] = "shrink-the-sum"
    _target: Isolation | None
    _peers: dict[int, frozenset[int]]

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Aggregate honestly; if the honest sum fails, return the small sum as the round's outcome."""
        try:
            return await super().aggregate(round_)
        except RoundAborted:
            if self.attempt is None or self.attempt.vector is None:
                raise
            members = sorted(self.attempt.members)
            mean, weight = self.noise.mean(self.attempt.vector, len(members), round_)
            noise = self.noise.remaining_share(len(members), len(round_.participants))
            return Aggregate(mean, weight, ids(members), noise)

    def views(self, state: SecAggRound) -> list[InconsistentView]:
        """Return a view for each client."""
        self._target = self.target(state)
        denied = {} if self._target is None else self._target.denied
        recipients: dict[tuple[int, ...], list[int]] = {}
        for client in self.honest(state):
            believed = self._peers[client] | {client}
            if self._target is None:
                believed &= frozenset(state.arrived.tolist())
            recipients.setdefault(tuple(sorted(believed - set(denied.get(client, ())))), []).append(client)
        return [InconsistentView(survivors, tuple(clients)) for survivors, clients in recipients.items()]

    def target(self, state: SecAggRound) -> Isolation | None:
        """Return the smallest recoverable sum; None if an honest server would have it, too."""
        honest, shared = self.honest(state), frozenset(state.sealed)
        lost = shared - set(state.arrived.tolist())
        ranked, accomplices = self.ranked(state, honest), len(self.accomplices(state))
        smallest = smallest_among_all(ranked, lost, accomplices, len(shared), state.graph.threshold)
        # The sum over all honest survivors is the protocol's own result, not an attack.
        return None if smallest is None or len(smallest.members) == len(honest) else smallest

    def peers_that_shared(self, state: SecAggRound) -> dict[int, list[int]]:
        """Return the honest claim and store it."""
        claims = super().peers_that_shared(state)
        self._peers = {client: frozenset(peers) for client, peers in claims.items()}
        return claims

    async def conclude(self, state: SecAggRound, keys: Mapping[int, bytes]) -> ReconstructionAttempt:
        """Reconstruct the sum over the target if there are t shares of each needed secret."""
        if self._target is None:
            return ReconstructionAttempt(frozenset(), None, "failed: no sum over fewer clients can be had")
        members, gone = self._target.members, self._target.gone
        honest = len(self.honest(state))
        label = f"sum over {len(members)} of {honest} honest survivors ({', '.join(map(str, sorted(members)))})"
        remaining_keys = {client: key for client, key in keys.items() if client not in gone}
        return await self.reconstructed(state, label, members, self._peers, gone, remaining_keys)


class SplitTheSharing(ShrinkTheSum):
    """Tells the members of the small sum that fewer have shared, so that they mask with fewer."""

    name: ClassVar[str] = "split-the-sharing"
    _planned: Isolation | None = None

    def peers_that_shared(self, state: SecAggRound) -> dict[int, list[int]]:
        """Tell members only of each other, of accomplices, and of clients with recoverable mask keys."""
        claims = super().peers_that_shared(state)
        if not self.attacking:
            return claims
        honest = [client for client in state.sealed if client not in self.dishonest]
        accomplices = self.dishonest & state.sealed.keys()
        ranked = self.ranked(state, honest)
        self._planned = smallest_among_few(ranked, len(accomplices), len(state.sealed), state.graph.threshold)
        if self._planned is not None and len(self._planned.members) < len(honest):
            members = self._planned.members
            few = members | self._planned.gone | accomplices
            claims |= {client: sorted(few - {client}) for client in members}
        self._peers = {client: frozenset(peers) for client, peers in claims.items()}
        return claims

    def target(self, state: SecAggRound) -> Isolation | None:
        """Return the planned sum, if its members survive and their peers' mask keys can still be recovered."""
        plan, honest, accomplices = self._planned, self.honest(state), self.accomplices(state)
        if plan is None or not plan.members < set(honest):
            return None
        masked_with = frozenset().union(*(self._peers[client] for client in plan.members))
        gone = masked_with - plan.members - accomplices
        t = state.graph.threshold
        room = {client: max(0, len(self._peers[client]) + 1 - t) for client in honest}
        denied = denials(room, gone, t - len(accomplices))
        return None if denied is None else Isolation(plan.members, gone, denied)


class BreakBatch(AggregationMisbehaviour, SecAgg):
    """Leaves one honest client out of the survivors, but not its batch-mates."""

    name: ClassVar[str] = "break-batch"
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus")
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions

    def choose_survivors(self, state: SecAggRound) -> Ids:
        """Return the honest choice without the victim; the whole honest choice if there are no batches or no victim."""
        survivors, round_ = super().choose_survivors(state), state.start
        victim = draw_victim(self, BreakBatch, survivors, round_)
        if round_.batches is None or victim is None:
            return survivors
        self.record_attack(BreakBatch, f"claimed that client {victim} of batch {round_.batches.of[victim]} dropped out")
        others: Ids = survivors[survivors != victim]
        return others
