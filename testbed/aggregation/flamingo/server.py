"""Flamingo: Ma, Woods, Angel, Polychroniadou, Rabin, Flamingo: Multi-Round Single-Server Secure Aggregation with
Applications to Private Federated Learning, IEEE S&P 2023 (arXiv 2308.09883), sections 4.3 to 4.6.

Once for many rounds a committee, the decryptors, sets up a key that t of its members have together. In a round client i
sends y_i = x_i +- sum of PRG(h_ij) over its neighbours j + PRG(m_i) modulo 2**bits, where h_ij follows from the round
and a secret that i and j have in common for good; beside it, each h_ij encrypted to the committee, and shares of m_i
sealed for its members. Then it may leave. The server labels each participant as online or offline. The members sign the
labels (cross-check), and t of them decrypt, for clients that are offline, the h_ij that their neighbours have sent, and
give their shares of m_i for those online (reconstruct): never both for one client.

Where this differs from the paper, and why: docs/explanation/flamingo.md. In short:

- One threshold t, above half of the committee, for decrypting and for signing. The paper signs with two thirds and
  shares with one third.
- Clients and members keep nothing from round to round but their keys in the PKI. So clients are shown, and verify, the
  committee's signatures in each round, and members are handed back what they have sealed for themselves (`state`).
- Seeds h_ij, and the graph, follow from the list of participants and from what a client was asked to train, too: those
  that were told different things have no mask in common, and an answer to either says nothing of the other.
- Hashed ElGamal that authenticates (`testbed.crypto.threshold_elgamal`) where the paper encrypts a point of the curve.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.aggregation.flamingo.client import FlamingoClient
from testbed.aggregation.flamingo.decryptor import Decryptor
from testbed.aggregation.flamingo.graph import RoundGraph, round_graph
from testbed.aggregation.flamingo.messages import (
    LABELS_DOMAIN,
    SEEDS_DOMAIN,
    CheckLabels,
    CutEdge,
    MaskedReport,
    Opened,
    Reconstruct,
    SealedMemberState,
    SharesForMember,
    labels_content,
    seed_associated,
    seed_content,
)
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.flamingo.round import Edge, FlamingoRound
from testbed.aggregation.flamingo.seeds import recovered_pair_seeds, recovered_self_masks
from testbed.aggregation.flamingo.service import service_of_round
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.kit.server_checks import (
    at_least,
    quantised_mean,
    valid_signatures,
    verify,
    warn_of_weak_binding,
)
from testbed.arrays import Ids
from testbed.committee.sortition import committee_roles
from testbed.crypto import edwards25519, memo, threshold_elgamal
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.network import Replies
from testbed.network.contract import ids
from testbed.network.masked_vectors import Masks
from testbed.parties.client import RoleSpec
from testbed.privacy.noise_plan import Guarantees


class Flamingo(AggregationProtocol):
    """Server side. A malicious server overrides some decisions."""

    parameters: FlamingoParameters
    needs_registration = True

    def __init__(self, parameters: FlamingoParameters) -> None:
        super().__init__(parameters)
        self.stages = parameters.stages_of_round()

    @property
    def roles(self) -> list[RoleSpec]:
        own = [RoleSpec(FlamingoClient, self.parameters), RoleSpec(Decryptor, self.parameters)]
        return [*own, *committee_roles(self.parameters.committee)]

    def guarantees(self, participants: int) -> Guarantees:
        """See `AggregationProtocol.guarantees`.

        They hold if fewer than 2t - L members of the committee are dishonest, and in each round but with probability
        2**-security. Where labels are taken as random (`labels: random`), one accomplice can be enough to connect a
        single honest client with the rest of the graph, so nothing holds with any.
        """
        dishonest, dropouts = self.parameters.requirements.counts(participants)
        fewest = min(participants, max(participants - dropouts, dishonest + 2))  # as `Density.survivors`
        dishonest = min(dishonest, fewest - 2)
        if self.parameters.labels == "random":
            dishonest = 0
        if self.parameters.model_binding == "none":
            dishonest = -1
        return Guarantees(participants, dishonest, fewest, participants, fewest / participants)

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum the updates of the clients online, or raise `RoundAborted`."""
        state = await self.begin(round_)
        await self.report(state)
        await self.cross_check(state)
        await self.reconstruct(state)
        return quantised_mean(self.parameters, await self.unmasked_sum(state), state.online)

    async def begin(self, round_: AggregationRound) -> FlamingoRound:
        """The graph, and the committee, which is set up where its service begins."""
        listed = round_.participants.tolist()
        if len(listed) < 2:
            raise RoundAborted("below-threshold", f"{len(listed)} of 2 needed participants")
        density = self.parameters.density(len(listed))
        graph = round_graph(round_.directory.public_seed, round_.number, listed, density)
        self.complete_batches(round_, graph, round_.trained, "trained")
        return FlamingoRound(round_, await service_of_round(round_, self.parameters.committee), graph)

    def complete_batches(self, round_: AggregationRound, graph: RoundGraph, clients: Ids, what: str) -> Ids:
        """Those that may be summed, as far as batches say; `RoundAborted` when they are too few."""
        policy = self.parameters.batch_policy(round_.batches)
        return policy.require_complete_batches(clients, graph.density.survivors, what)

    # -- report -------------------------------------------------------------------------------------------------------

    async def report(self, state: FlamingoRound) -> None:
        """The masked inputs that arrive, and whose are summed."""
        round_, graph = state.start, state.graph
        if self.parameters.model_binding == "none":
            warn_of_weak_binding(round_)
        question = MaskedReport(round_.number, graph.listed, state.kept.certificate)
        state.reports = await round_.network.ask(round_.trained, question)
        answers = state.reports.valid()
        for client, answer in list(answers.items()):
            seeds = {row.neighbour: row for row in answer.seeds}
            if list(seeds) != graph.neighbours(client) or len(answer.seeds) != len(seeds):
                state.misbehaved(client, "report: not a seed for every neighbour")
            elif len(answer.shares) != len(state.members):
                state.misbehaved(client, "report: not a share for every member of the committee")
            else:
                state.seeds |= {(client, neighbour): row for neighbour, row in seeds.items()}
                continue
            del answers[client]
        inputs = {client: answer.input for client, answer in answers.items()}
        length = None if round_.dimension is None else round_.dimension + 1
        fitting = state.fitting(inputs, self.parameters.bits, length, "report")
        state.online = self.choose_online(state, fitting)

    def choose_online(self, state: FlamingoRound, arrived: Ids) -> Ids:
        """Whose inputs are summed; raises `RoundAborted` where decryptors would refuse that.

        Without those whose seeds decryptors would refuse: one client must not be able to end everybody's round.
        """
        online, checked = arrived, set()
        at_least(max(2, state.graph.density.survivors), len(online), state.reports, "reported")
        while True:
            online = self.complete_batches(state.start, state.graph, online, "reported")
            new = [edge for edge in state.graph.cut(online.tolist()) if edge not in checked]
            refused = {edge[0] for edge in new if not self.is_decryptable(state, edge)}
            if not refused:
                break
            checked.update(new)
            online = np.setdiff1d(online, sorted(refused))
            at_least(max(2, state.graph.density.survivors), len(online), state.reports, "reported what can be opened")
        if weakness := state.graph.weakness(online.tolist()):
            raise RoundAborted("below-threshold", weakness)
        return online

    def is_decryptable(self, state: FlamingoRound, edge: Edge) -> bool:
        """Whether decryptors will take what a client has encrypted for a neighbour."""
        client, neighbour = edge
        row = state.seeds[edge]
        meter("edwards25519.multiply")  # to see that the order of a point is the group's takes as long
        try:
            edwards25519.validate_key(row.point)
            content = seed_content(state.digest, client, neighbour, row.point)
            verify(state.start, client, SEEDS_DOMAIN, content, row.signature)
            meter("ed25519.verify")
            associated = seed_associated(state.digest, client, neighbour)
            memo.verify(row.point, threshold_elgamal.KNOWN_DOMAIN, associated, row.known)
        except ProtocolError as error:
            state.misbehaved(client, f"report: the seed for client {neighbour}: {error}")
            return False
        return True

    # -- cross-check --------------------------------------------------------------------------------------------------

    async def cross_check(self, state: FlamingoRound) -> None:
        """The members' signatures on who is online."""
        states = {row.member: SealedMemberState(row.sealed) for row in state.kept.states}
        replies, state.signed = await self.signed_labels(state, states, state.online)
        at_least(self.threshold(state), len(state.signed), replies, "members of the committee signed the labels")

    async def signed_labels(
        self, state: FlamingoRound, states: Mapping[int, SealedMemberState], online: Ids
    ) -> tuple[Replies, dict[int, bytes]]:
        """What members that are told these labels sign, by member."""
        round_, labels = state.start, online.tolist()
        question = CheckLabels(round_.number, state.graph.listed, labels, state.kept.certificate)
        replies = await round_.network.ask(ids(list(states)), question, private=states)
        content = labels_content(state.digest, labels)
        return replies, valid_signatures(round_, replies, LABELS_DOMAIN, content, "cross-check")

    def threshold(self, state: FlamingoRound) -> int:
        """t of the committee."""
        return self.parameters.committee.threshold_for(len(state.members))

    # -- reconstruct --------------------------------------------------------------------------------------------------

    async def reconstruct(self, state: FlamingoRound) -> None:
        """What the members open that have signed."""
        state.edges = self.cut_edges(state, state.online)
        replies, state.opened = await self.opened(state, state.signed, state.online, state.edges)
        at_least(self.threshold(state), len(state.opened), replies, "members of the committee decrypted")

    def cut_edges(self, state: FlamingoRound, online: Ids) -> list[CutEdge]:
        """The edges between clients online and offline, with what is to be decrypted of them."""
        cut = state.graph.cut(online.tolist())
        rows = [(edge, state.seeds[edge]) for edge in cut]
        return [CutEdge(*edge, row.point, row.signature, row.known) for edge, row in rows]

    async def opened(
        self, state: FlamingoRound, signed: Mapping[int, bytes], online: Ids, edges: list[CutEdge]
    ) -> tuple[Replies, dict[int, Opened]]:
        """What members open of these labels, by member, shown t of their signatures."""
        labels, ordered = online.tolist(), [member for member in state.members if member in signed]
        shown = [SignatureOf(member, signed[member]) for member in ordered[: self.threshold(state)]]
        private = {
            member: SharesForMember([state.reports[client].shares[state.members[member] - 1] for client in labels])
            for member in ordered
        }
        meter("message", len(ordered) * len(labels) + len(edges))
        question = Reconstruct(state.start.number, shown, edges)
        replies = await state.start.network.ask(ids(ordered), question, private=private)
        valid = {}
        for member, answer in replies.valid().items():
            rows = [row.client for row in answer.shares]
            if len(answer.points) != len(edges) or len(set(rows)) != len(rows) or not set(rows) <= set(labels):
                state.misbehaved(member, "reconstruct: not what it was asked to open")
                continue
            valid[member] = answer
        return replies, valid

    # -- the sum ------------------------------------------------------------------------------------------------------

    async def unmasked_sum(self, state: FlamingoRound) -> npt.NDArray[Any]:
        """`(d+1,)` the sum of the inputs of those online, from what the members have opened."""
        total = await state.reports.masked_total(state.online)
        return total.with_masks(self.masks_left(state)).materialised()

    def masks_left(self, state: FlamingoRound) -> Masks:
        """What has not cancelled in the sum, to be added: the opposite of what clients have added."""
        own = recovered_self_masks(state, self.threshold(state))
        pairs = recovered_pair_seeds(state, self.threshold(state))
        signs = [-1] * len(own) + [-1 if neighbour > client else 1 for client, neighbour in pairs]
        length = len(state.reports[int(state.online[0])].input)
        meter(self.parameters.mask_operation, length * len(signs))
        return Masks([*own.values(), *pairs.values()], signs, self.parameters.prg)
