"""Secure aggregation among neighbours: Bell, Bonawitz, Gascon, Lepoint, Raykova, Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead, CCS 2020 (IACR ePrint 2020/704).

`secagg` on a sparse graph: each client agrees on masks with its k neighbours only, and shares its secrets among them
and itself, t of k + 1. Work and bytes per client grow with k, which grows with log s, instead of with s. The graph is
a circle in random order (`graph`); k and t come from a failure bound (`bound`).

Who chooses the graph? Nobody: it follows from the experiment, the round and the list of participants, and every client
derives it. Under Lotto the list is the one that the participants have verified and signed. The server still has a say
in it, as it chooses s of the candidates: trying 2**g lists costs it g of the `security` bits. With a selection that
clients cannot verify, the server chooses the list, so the bound holds only if it does so without regard to the graph;
clients check no more than that their neighbours were told the same list, and sent the same model (their signed keys
cover both).

What a malicious server can do: clients sign the set of all survivors, and reveal shares only when t of their k + 1
holders (they among them) have signed the set that they have. Let a client's neighbourhood have fewer than 2t - (k + 1)
dishonest ones, as the bound says of all. Then (1) no two stories about one client can both find t holders, so that at
most one of its two secrets is rebuilt. And (2) an honest client that reveals anything is never made to look dropped
out: t - x of its holders, x being dishonest, have signed that it is there, and the others are fewer than t. (3) Who
reveals a share of a client's seed has masked with it (it holds the share) and knows that the client has masked with it
in turn: a client tells each neighbour that it masks with, under the key of the two. Without that a server could tell
one client of few neighbours, and have its seed from those that it does not mask with. So if a self-mask is removed, at
least t - x honest clients share masks with that client that stay, and what the server sees is a sum that contains all
of them: it may split the honest into parts with a sum each, but none smaller than t - x, which is more than half of
the honest of a neighbourhood. A server that tells everybody the same learns one sum, unless the survivors' graph is
disconnected.

Where selection has batches, the server leaves out those that are not whole, and clients refuse a list of survivors that
breaks one up. But batch-mates are seldom neighbours: a malicious server may tell the neighbourhood of one a list with
their batch, and that of another a list without. Only `secagg` is batch-atomic against such a server (`batch_atomic`).

This is not the paper's own malicious variant, in which clients choose neighbours and acknowledge inclusion one by one.
"""

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.secagg.batches import BatchPolicy, CompleteBatches
from testbed.aggregation.secagg.peer_graph import PeerGraph
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.client import SecAggPlusClient
from testbed.aggregation.secagg_plus.graph import RegularGraph
from testbed.aggregation.secagg_plus.parameters import SecAggPlusParameters
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec


class SecAggPlus(SecAgg):
    """Server side: `SecAgg` on another graph."""

    parameters: SecAggPlusParameters

    def __init__(self, parameters: SecAggPlusParameters) -> None:
        super().__init__(parameters)

    @property
    def roles(self) -> list[RoleSpec]:
        """See `AggregationProtocol.roles`."""
        return [RoleSpec(SecAggPlusClient, self.parameters)]

    def peer_graph(self, round_: AggregationRound) -> PeerGraph:
        """The round's graph; raises `RoundAborted` where clients would refuse it anyway."""
        participants = round_.participants.tolist()
        if len(participants) < 2:
            raise RoundAborted("below-threshold", f"{len(participants)} of 2 needed participants")
        if round_.experiment_id is None:
            raise RoundAborted("no-graph", "the graph is derived from the experiment's id")
        try:
            chosen = self.parameters.neighbourhood(len(participants))
        except ValueError as error:
            raise RoundAborted("no-neighbourhood", str(error)) from None
        k, t = chosen.neighbours, chosen.threshold
        if 2 * t <= k + 1:
            raise RoundAborted("threshold-too-low", f"t = {t} of k + 1 = {k + 1} holders, which must exceed half")
        weakness = self.parameters.weakness(len(participants))
        if weakness:
            round_.network.record_event("server", "weak-neighbourhood", weakness)
        return RegularGraph.of_round(round_.experiment_id, round_.number, participants, chosen)

    def batch_policy(self, round_: AggregationRound, graph: PeerGraph) -> BatchPolicy:
        """Only complete batches are summed, of as many clients as clients insist on."""
        batches = self.parameters.atomic_batches(round_.batches)
        if batches is None:
            return BatchPolicy()
        detail = "a malicious server may tell neighbourhoods different survivors; only secagg is batch-atomic then"
        round_.network.record_event("server", "weak-batches", detail)
        return CompleteBatches(batches, graph.min_survivors)
