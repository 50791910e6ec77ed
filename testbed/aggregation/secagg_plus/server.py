"""Secure aggregation among neighbours: Bell, Bonawitz, Gascon, Lepoint, Raykova, Secure Single-Server Aggregation with
(Poly)Logarithmic Overhead, CCS 2020 (IACR ePrint 2020/704).

`secagg` on a sparse graph: each client agrees on masks with its k neighbours only, and shares its secrets among them
and itself, t of k + 1. Work and bytes per client grow with k, which grows with log s, instead of with s. The graph is
a circle in random order (`neighbourhood_graph`); k and t come from a failure bound (`neighbourhood_bound`).

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

from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.secagg.batches import NOBODY
from testbed.aggregation.secagg.messages import AdvertOf, KeyAdvert, ShareOf, Shares, SignatureOf
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.server import SecAgg
from testbed.aggregation.secagg_plus.bound import (
    Neighbourhood,
    Requirements,
    described,
    failure_bits,
    smallest_neighbourhood,
    with_neighbours,
)
from testbed.aggregation.secagg_plus.client import SecAggPlusClient
from testbed.aggregation.secagg_plus.graph import NeighbourGraph, list_digest
from testbed.aggregation.secagg_plus.messages import (
    AnnounceGraph,
    MaskedWith,
    MaskInputAmongNeighbours,
    NeighbourKeys,
    NeighbourSignatures,
    ShareKeysAmongNeighbours,
    UnmaskNeighbours,
    common_digest,
    graph_advert_content,
)
from testbed.arrays import Ids
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.messages import Message
from testbed.network import Replies
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec


class SecAggPlusParameters(SecAggParameters):
    """Sums that hide every single update, with work that hardly grows with the number of participants."""

    removes_noise: ClassVar[bool] = False  # secrets are shared within neighbourhoods, which see few of the drop-outs
    protocol: Literal["secagg-plus"] = "secagg-plus"  # type: ignore[assignment]  # another alternative, same fields
    threshold: int | None = Field(  # type: ignore[assignment]  # of a neighbourhood, and not a fraction
        None, gt=1, description="Holders that must remain, of k + 1 (t); none: the smallest that is safe"
    )
    consistency: Literal["signed"] = Field(  # the bound counts on signed survivors
        "signed", description="t of a client's holders sign the survivors before it unmasks; there is no other way here"
    )
    smallest_sum: None = Field(None, description="Has no effect here: `dropouts` says how many survive at least")

    @field_validator("smallest_sum", mode="before")
    @classmethod
    def _without_effect(cls, given: Any) -> Any:
        if given is not None:
            raise ValueError("has no effect with secagg-plus, where `dropouts` says how many survive; leave it out")
        return given

    neighbours: int | None = Field(
        None, gt=0, description="Neighbours of a client (k, even); none: the fewest that meet the requirements below"
    )
    dishonest: float = Field(
        0.1, ge=0, lt=1, description="Largest fraction of dishonest participants (the paper's gamma)"
    )
    dropouts: float = Field(
        0.1, ge=0, lt=1, description="Largest fraction that drops out (the paper's delta); with more there is no sum"
    )
    security: float = Field(
        40, ge=1, le=256, description="sigma: the server learns more than the sum with at most 2**-sigma"
    )
    correctness: float = Field(20, ge=1, le=256, description="eta: there is no sum with at most 2**-eta")
    accept_weaker: bool = Field(
        False, description="Run with given neighbours and threshold though they do not meet the requirements"
    )

    @model_validator(mode="after")
    def _threshold_has_neighbours(self) -> "SecAggPlusParameters":
        if self.threshold is not None and self.neighbours is None:
            raise ValueError("threshold: goes with neighbours; leave out both to have them computed")
        return self

    @property
    def requirements(self) -> Requirements:
        """What k and t must achieve."""
        return Requirements(self.dishonest, self.dropouts, self.security, self.correctness)

    def neighbourhood(self, participants: int) -> Neighbourhood:
        """k and t for s participants; raises `ValueError` where nothing fits."""
        if self.neighbours is None:
            return smallest_neighbourhood(participants, self.requirements)
        if self.neighbours % 2 and self.neighbours < participants - 1:
            nearest = " or ".join(str(k) for k in (self.neighbours - 1, self.neighbours + 1) if k)
            raise ValueError(
                f"neighbours: k = {self.neighbours} is odd; half of them stand on either side: take {nearest}"
            )
        return with_neighbours(participants, self.neighbours, self.threshold, self.requirements)

    def threshold_for(self, participants: int) -> int:
        """t of a neighbourhood, for s participants."""
        return self.neighbourhood(participants).threshold

    def tolerated(self, participants: int) -> int:
        """2t - (k + 1) - 1: even if all of them are among the k + 1 holders of one client's shares.

        -1 where nobody signs what was trained, as in `secagg`.
        """
        if self.model_binding == "none":
            return -1
        chosen = self.neighbourhood(participants)
        return 2 * chosen.threshold - (chosen.neighbours + 1) - 1

    def fewest_summed(self, participants: int) -> int:
        """Those who survive when as many drop out as `dropouts` allows."""
        return self.neighbourhood(participants).survivors

    def smallest_part(self, participants: int) -> int:
        """t of a neighbourhood: the honest among them, t - x or more, share masks that stay (see above)."""
        return self.neighbourhood(participants).threshold

    def weakness(self, participants: int) -> str:
        """What given neighbours and threshold fail to achieve, in one line; empty when they meet the requirements."""
        chosen = self.neighbourhood(participants)
        bits = failure_bits(participants, chosen.neighbours, chosen.threshold, self.requirements)
        if self.neighbours is None or bits.meets(self.requirements):
            return ""
        return (
            f"k = {chosen.neighbours}, t = {chosen.threshold} of {participants} participants: {described(bits)}; "
            f"required 2^-{self.security + 1:g}, 2^-{self.security + 1:g}, 2^-{self.correctness:g}"
        )

    def check(self, participants: int) -> None:
        """k and t must meet the requirements, unless the experiment accepts less; 2t must exceed k + 1."""
        if participants < 2:
            raise ValueError("protocol: secagg-plus needs at least 2 participants; the sum of one hides nothing")
        chosen = self.neighbourhood(participants)
        k, t = chosen.neighbours, chosen.threshold
        most = k + 1 if chosen.complete else k
        if not k + 1 < 2 * t <= 2 * most:
            raise ValueError(f"threshold: t = {t} of k = {k} neighbours; allowed {(k + 1) // 2 + 1} to {most}")
        weakness = self.weakness(participants)
        if weakness and not self.accept_weaker:
            raise ValueError(f"neighbours: {weakness}; leave out neighbours and threshold, or set accept_weaker: true")


class SecAggPlus(SecAgg):
    """Server side; the steps of `SecAgg`, each with the lists that concern a client's neighbours."""

    parameters: SecAggPlusParameters
    chosen: Neighbourhood  # this round's, as its graph
    _around: dict[int, frozenset[int]]
    _list_digest: bytes
    _told: dict[int, dict[int, bytes]]  # by client: its word to each neighbour that it is masked with

    def __init__(self, parameters: SecAggPlusParameters) -> None:
        super().__init__(parameters)

    @property
    def roles(self) -> list[RoleSpec]:
        """See `AggregationProtocol.roles`."""
        return [RoleSpec(SecAggPlusClient, self.parameters)]

    def threshold(self, round_: AggregationRound) -> int:
        """t of this round, whose graph is derived here; raises `RoundAborted` where clients would refuse it anyway."""
        participants = round_.participants.tolist()
        if len(participants) < 2:
            raise RoundAborted("below-threshold", f"{len(participants)} of 2 needed participants")
        if round_.experiment_id is None:
            raise RoundAborted("no-graph", "the graph is derived from the experiment's id")
        try:
            self.chosen = self.parameters.neighbourhood(len(participants))
        except ValueError as error:
            raise RoundAborted("no-neighbourhood", str(error)) from None
        k, t = self.chosen.neighbours, self.chosen.threshold
        if 2 * t <= k + 1:
            raise RoundAborted("threshold-too-low", f"t = {t} of k + 1 = {k + 1} holders, which must exceed half")
        weakness = self.parameters.weakness(len(participants))
        if weakness:
            round_.network.record_event("server", "weak-neighbourhood", weakness)
        if self.parameters.kept_whole(round_.batches) is not None:
            detail = "a malicious server may tell neighbourhoods different survivors; only secagg is batch-atomic then"
            round_.network.record_event("server", "weak-batches", detail)
        self._list_digest = list_digest(round_.experiment_id, round_.number, participants)
        graph = NeighbourGraph(participants, k, self._list_digest)
        self._around = {client: graph.around(client) for client in participants}
        return t

    def peers(self, client: int, among: Any) -> list[int]:
        """A client's neighbours."""
        around = self._around[client]
        return [peer for peer in among if peer in around and peer != client]

    def advert_content(self, round_: AggregationRound, client: int, advert: KeyAdvert) -> bytes:
        """A client signs its keys, the list of participants and what it was asked to train."""
        return graph_advert_content(
            round_.number, client, advert.sealing_key, advert.mask_key, self._list_digest, self._training
        )

    # -- round 0 --------------------------------------------------------------------------------------------------

    async def advertise_keys(self, round_: AggregationRound, t: int) -> dict[int, KeyAdvert]:
        """See `SecAgg.advertise_keys`."""
        participants = round_.participants.tolist()
        self._training = self.digest_of_training(round_)
        self._digest = common_digest(self._list_digest, self._training)
        meter("message", len(participants))
        question = AnnounceGraph(round_.number, participants, self.chosen.neighbours, t)
        replies = await round_.network.ask(round_.trained, question)
        return self._held(t, self._usable(replies.valid(), round_), replies, "advertised keys", round_)

    # -- round 1 --------------------------------------------------------------------------------------------------

    async def share_keys(
        self, round_: AggregationRound, t: int, adverts: dict[int, KeyAdvert]
    ) -> dict[int, dict[int, bytes]]:
        """See `SecAgg.share_keys`."""
        rows = {c: AdvertOf(c, a.sealing_key, a.mask_key, a.signature) for c, a in adverts.items()}
        private: dict[int, Message] = {}
        for client in adverts:
            around = [*self.peers(client, adverts), client]
            private[client] = NeighbourKeys([rows[one] for one in sorted(around)])
            meter("message", len(around))
        replies = await round_.network.ask(ids(list(adverts)), ShareKeysAmongNeighbours(round_.number), private=private)
        return self._held(t, self._whole(replies, adverts, round_), replies, "shared their keys", round_)

    def _held(
        self, t: int, answers: dict[int, Any], replies: Replies, what: str, round_: AggregationRound
    ) -> dict[int, Any]:
        """`answers` without those that too few neighbours are left for; they have sent no input yet."""
        kept = dict(answers)
        while True:
            lone = [client for client in kept if len(self.peers(client, kept)) + 1 < t]
            if not lone:
                return self._at_least(self.chosen.survivors, kept, replies, what)
            for client in lone:
                del kept[client]
                detail = f"{what}: fewer than {t} of its neighbourhood have, too"
                round_.network.record_event(f"client:{client}", "left-out", detail)

    # -- round 2 --------------------------------------------------------------------------------------------------

    async def collect_inputs(
        self, round_: AggregationRound, t: int, bundles: dict[int, dict[int, bytes]]
    ) -> tuple[Replies, Ids]:
        """See `SecAgg.collect_inputs`."""
        replies, sent = await super().collect_inputs(round_, self.chosen.survivors, bundles)
        self._told = {}
        for client in sent.tolist():
            told = {row.client: row.tag for row in replies[client].masked_with}
            if told.keys() >= set(self.peers(client, bundles)):
                self._told[client] = told
            else:
                round_.network.record_event(
                    f"client:{client}", "misbehaviour", "masked input: not with every neighbour"
                )
        self._at_least(self.chosen.survivors, self._told, replies, "sent their input")
        return replies, ids(list(self._told))

    def included(self, round_: AggregationRound, t: int, shared: Ids, arrived: Ids) -> Ids:
        """See `SecAgg.included`; from here on everybody's masks are in the sum and must be removable."""
        survivors = super().included(round_, t, shared, arrived)
        there = set(survivors.tolist())
        for client in shared.tolist():
            holders = self._around[client] & there
            if holders and len(holders) < t:
                detail = f"{len(holders)} of {t} needed neighbours of client {client} sent their input"
                raise RoundAborted("below-threshold", detail)
        return survivors

    # -- whole batches: who is not in the sum does not help, as the bound speaks of holders that are in it -----------

    def fewest(self, round_: AggregationRound, t: int) -> int:
        """What clients insist on."""
        return self.chosen.survivors

    def standing_by(self, round_: AggregationRound, shared: Ids) -> Ids:
        """Nobody: a client does not know whether its batch has shared."""
        return NOBODY

    def left_out(self, round_: AggregationRound, replies: Replies, shared: Ids, arrived: Ids, included: Ids) -> Ids:
        """Nobody is asked for help."""
        return NOBODY

    def mask_input(self, round_number: int) -> Message:
        """See `SecAgg.mask_input`."""
        return MaskInputAmongNeighbours(round_number)

    # -- round 4 --------------------------------------------------------------------------------------------------

    async def collect_shares(
        self, round_: AggregationRound, t: int, signed: dict[int, bytes], excluded: Ids = NOBODY
    ) -> dict[int, Shares]:
        """See `SecAgg.collect_shares`; asked are those that can be shown t signatures."""
        private: dict[int, Message] = {}
        for client in signed:
            around = sorted(self._around[client].intersection(signed))
            if len(around) >= t:  # more of them say no more, and each is verified
                told = self.told(client)
                meter("message", t + len(told))
                private[client] = NeighbourSignatures([SignatureOf(one, signed[one]) for one in around[:t]], told)
        if len(private) < t:
            raise RoundAborted("below-threshold", f"{len(private)} of {t} needed are shown {t} signatures")
        replies = await round_.network.ask(ids(list(private)), UnmaskNeighbours(round_.number), private=private)
        revealed = {client: self._own(client, shares, round_) for client, shares in replies.valid().items()}
        return self._at_least(t, revealed, replies, "revealed their shares")

    def told(self, client: int) -> list[MaskedWith]:
        """The words of those that are masked with this client."""
        return [MaskedWith(one, said[client]) for one, said in self._told.items() if client in said]

    def _own(self, client: int, shares: Shares, round_: AggregationRound) -> Shares:
        """The shares that this client can hold."""

        def held(rows: list[ShareOf]) -> list[ShareOf]:
            return [row for row in rows if row.client in self._around[client]]

        own = Shares(held(shares.mask_keys), held(shares.self_masks))
        if own != shares:
            round_.network.record_event(f"client:{client}", "misbehaviour", "unmask: shares of clients not around it")
        return own

    def unmask(
        self,
        round_: AggregationRound,
        total: npt.NDArray[Any],
        t: int,
        adverts: dict[int, KeyAdvert],
        shared: Ids,
        survivors: Ids,
        revealed: dict[int, Shares],
    ) -> None:
        """See `SecAgg.unmask`; who has no neighbour among the survivors has left no mask in the sum."""
        there = set(survivors.tolist())
        concerned = [client for client in shared.tolist() if self._around[client] & there]
        super().unmask(round_, total, t, adverts, np.array(concerned, np.int64), survivors, revealed)
