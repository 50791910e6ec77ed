"""Flamingo: Multi-Round Single-Server Secure Aggregation with Applications to Private Federated Learning.

Source: Ma, Woods, Angel, Polychroniadou, Rabin, IEEE S&P 2023 (arXiv 2308.09883), sections 4.3 to 4.6.

Once for many rounds, a committee (the decryptors) sets up a key that is shared t of L. In a round client i sends y_i =
x_i +- sum of PRG(h_ij) over its neighbours j + PRG(m_i) modulo 2**bits. The seed h_ij follows from the round and a
long-term secret of i and j. Beside y_i it sends each h_ij encrypted to the committee, and shares of m_i sealed for the
members. Then it may leave. The server labels each participant as online or offline, and the members sign the labels
(cross-check). For each client offline, t members decrypt the h_ij that its neighbours have sent; for each client
online, they give their shares of m_i (reconstruction). They never do both for one client.

Deviations (reasons: docs/explanation/flamingo-paper.md):

- One threshold t, above half of the committee, for decrypting and for signing. The paper signs with two thirds and
  shares with one third.
- Clients and members keep no state between rounds except their keys in the PKI. So clients verify the committee's
  signatures in each round, and the server hands members the state that they have sealed for themselves (`state`).
- The seeds h_ij and the graph also depend on the list of participants, and h_ij on the client's training task. Clients
  that were told different facts have no mask in common, and an answer to one of them reveals nothing about the others.
- Authenticated hashed ElGamal (`testbed.crypto.threshold_elgamal`) where the paper encrypts a point of the curve.
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
    colluders_by_binding,
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
    """Server side. A malicious server overrides some of its methods."""

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
        """Return the guarantees, which hold if fewer than 2t - L members of the committee are dishonest.

        In each round they fail with probability at most 2**-security. With `labels: random` a single accomplice can be
        enough to connect one honest client with the rest of the graph, so nothing is guaranteed with any accomplice.
        """
        dishonest, dropouts = self.parameters.requirements.counts(participants)
        fewest = min(participants, max(participants - dropouts, dishonest + 2))  # as `Density.survivors`
        # Two honest clients must be left in the smallest sum.
        dishonest = min(dishonest, fewest - 2)
        if self.parameters.labels == "random":
            dishonest = 0
        dishonest = colluders_by_binding(self.parameters.model_binding, dishonest)
        return Guarantees(participants, dishonest, fewest, participants, fewest / participants)

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum the updates of the clients online, or raise `RoundAborted`."""
        state = await self.begin(round_)
        await self.report(state)
        await self.cross_check(state)
        await self.reconstruct(state)
        return quantised_mean(self.parameters, await self.unmasked_sum(state), state.online)

    async def begin(self, round_: AggregationRound) -> FlamingoRound:
        """Derive the graph, and get the committee; if its service begins now, the committee is set up."""
        listed = round_.participants.tolist()
        if len(listed) < 2:
            raise RoundAborted("below-threshold", f"{len(listed)} of 2 needed participants")
        density = self.parameters.density(len(listed))
        graph = round_graph(round_.directory.public_seed, round_.number, listed, density)
        self.complete_batches(round_, graph, round_.trained, "trained")
        return FlamingoRound(round_, await service_of_round(round_, self.parameters.committee), graph)

    def complete_batches(self, round_: AggregationRound, graph: RoundGraph, clients: Ids, what: str) -> Ids:
        """Return the clients that batches allow in a sum; raises `RoundAborted` if they are too few."""
        policy = self.parameters.batch_policy(round_.batches)
        return policy.require_complete_batches(clients, graph.density.survivors, what)

    # -- report -------------------------------------------------------------------------------------------------------

    async def report(self, state: FlamingoRound) -> None:
        """Collect the masked inputs, and choose the clients online."""
        round_, graph = state.start, state.graph
        if self.parameters.model_binding == "none":
            warn_of_weak_binding(round_)
        question = MaskedReport(round_.number, graph.listed, state.stored_service.certificate)
        state.reports = await round_.network.ask(round_.trained, question)
        answers = state.reports.valid()
        for client, answer in list(answers.items()):
            seeds = {row.neighbour: row for row in answer.seeds}
            if list(seeds) != graph.neighbours(client) or len(answer.seeds) != len(seeds):
                state.misbehaved(client, "report: does not have one seed for every neighbour")
            elif len(answer.shares) != len(state.members):
                state.misbehaved(client, "report: does not have one share for every member of the committee")
            else:
                state.seeds |= {(client, neighbour): row for neighbour, row in seeds.items()}
                continue
            del answers[client]
        inputs = {client: answer.input for client, answer in answers.items()}
        length = None if round_.dimension is None else round_.dimension + 1
        fitting = state.fitting(inputs, self.parameters.bits, length, "report")
        state.online = self.choose_online(state, fitting)

    def choose_online(self, state: FlamingoRound, arrived: Ids) -> Ids:
        """Return the clients in the sum; raises `RoundAborted` if the decryptors would refuse them.

        Clients with seeds that the decryptors would refuse are left out, so that one client cannot end the round.
        """
        online, checked = arrived, set()
        at_least(max(2, state.graph.density.survivors), len(online), state.reports, "reported")
        while True:
            online = self.complete_batches(state.start, state.graph, online, "reported")
            # Leaving out a client cuts new edges, so check until no edge is new.
            new = [edge for edge in state.graph.cut(online.tolist()) if edge not in checked]
            refused = {edge[0] for edge in new if not self.is_decryptable(state, edge)}
            if not refused:
                break
            checked.update(new)
            online = np.setdiff1d(online, sorted(refused))
            at_least(max(2, state.graph.density.survivors), len(online), state.reports, "can be opened")
        if weakness := state.graph.weakness(online.tolist()):
            raise RoundAborted("below-threshold", weakness)
        return online

    def is_decryptable(self, state: FlamingoRound, edge: Edge) -> bool:
        """Return whether the decryptors will accept the seed that a client has encrypted for a neighbour."""
        client, neighbour = edge
        row = state.seeds[edge]
        meter("edwards25519.multiply")  # to see that the order of a point is the group's takes as long
        try:
            edwards25519.validate_key(row.point)
            content = seed_content(state.digest, client, neighbour, row.point)
            verify(state.start, client, SEEDS_DOMAIN, content, row.signature)
            meter("ed25519.verify")
            associated = seed_associated(state.digest, client, neighbour)
            memo.verify(row.point, threshold_elgamal.KNOWN_DOMAIN, associated, row.proof_of_knowledge)
        except ProtocolError as error:
            state.misbehaved(client, f"report: the seed for client {neighbour}: {error}")
            return False
        return True

    # -- cross-check --------------------------------------------------------------------------------------------------

    async def cross_check(self, state: FlamingoRound) -> None:
        """Collect the members' signatures on the clients online."""
        states = {row.member: SealedMemberState(row.sealed) for row in state.stored_service.states}
        replies, state.signed = await self.signed_labels(state, states, state.online)
        at_least(self.threshold(state), len(state.signed), replies, "members of the committee signed the labels")

    async def signed_labels(
        self, state: FlamingoRound, states: Mapping[int, SealedMemberState], online: Ids
    ) -> tuple[Replies, dict[int, bytes]]:
        """Ask members to sign these labels; return the replies and the valid signatures by member."""
        round_, labels = state.start, online.tolist()
        question = CheckLabels(round_.number, state.graph.listed, labels, state.stored_service.certificate)
        replies = await round_.network.ask(ids(list(states)), question, private=states)
        content = labels_content(state.digest, labels)
        return replies, valid_signatures(round_, replies, LABELS_DOMAIN, content, "cross-check")

    def threshold(self, state: FlamingoRound) -> int:
        """Return t of the committee."""
        return self.parameters.committee.threshold_for(len(state.members))

    # -- reconstruct --------------------------------------------------------------------------------------------------

    async def reconstruct(self, state: FlamingoRound) -> None:
        """Collect the shares and decryptions of the members that have signed."""
        state.edges = self.cut_edges(state, state.online)
        replies, state.opened = await self.opened(state, state.signed, state.online, state.edges)
        at_least(self.threshold(state), len(state.opened), replies, "members of the committee decrypted")

    def cut_edges(self, state: FlamingoRound, online: Ids) -> list[CutEdge]:
        """Return the edges between clients online and offline, with their ciphertexts."""
        cut = state.graph.cut(online.tolist())
        rows = [(edge, state.seeds[edge]) for edge in cut]
        return [CutEdge(*edge, row.point, row.signature, row.proof_of_knowledge) for edge, row in rows]

    async def opened(
        self, state: FlamingoRound, signed: Mapping[int, bytes], online: Ids, edges: list[CutEdge]
    ) -> tuple[Replies, dict[int, Opened]]:
        """Ask members to open the shares of these labels; return the replies and the valid answers by member."""
        labels, ordered = online.tolist(), [member for member in state.members if member in signed]
        # The first t signatures: more prove nothing, and each costs every member a verification.
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
            # The order maps points to edges, so the answer needs one point for each edge.
            if len(answer.points) != len(edges) or len(set(rows)) != len(rows) or not set(rows) <= set(labels):
                state.misbehaved(member, "reconstruct: the answer does not match the shares and edges that it was sent")

                continue
            valid[member] = answer
        return replies, valid

    # -- the sum ------------------------------------------------------------------------------------------------------

    async def unmasked_sum(self, state: FlamingoRound) -> npt.NDArray[Any]:
        """Return the `(d+1,)` sum of the inputs of the clients online, without masks."""
        total = await state.reports.masked_total(state.online)
        return total.with_masks(self.masks_left(state)).materialised()

    def masks_left(self, state: FlamingoRound) -> Masks:
        """Return the negated masks that have not cancelled in the sum, which are to be added to it."""
        own = recovered_self_masks(state, self.threshold(state))
        pairs = recovered_pair_seeds(state, self.threshold(state))
        # Opposite signs of those in `FlamingoClient.masked`.
        signs = [-1] * len(own) + [-1 if neighbour > client else 1 for client, neighbour in pairs]
        length = len(state.reports[int(state.online[0])].input)
        meter(self.parameters.mask_operation, length * len(signs))
        return Masks([*own.values(), *pairs.values()], signs, self.parameters.prg)
