"""Practical Secure Aggregation for Privacy-Preserving Machine Learning.

Source: Bonawitz, Ivanov, Kreuter, et al., CCS 2017 (IACR ePrint 2017/281), Figure 4, the variant against malicious
adversaries.

Client i sends y_i = x_i - sum_{j<i} PRG(s_ij) + sum_{j>i} PRG(s_ij) + PRG(b_i) modulo 2**bits. In the sum over all
clients the pairwise masks cancel. The client's mask key and its seed b_i are secret-shared t-of-s among its peers, so
that the server can remove the masks that do not cancel: those of a dropout with its mask key, the self-mask of a
survivor with its b_i. No client reveals both kinds of shares of one peer, and clients unmask only a set of survivors
that t of them have signed. Without signatures (``consistency: none``, the paper's variant against an honest-but-curious
server) every client believes the set of survivors that it is told.

Clients sign the training task with their keys, and mask only with clients that have the same task (``model_binding:
signed``, against the attack of `testbed.adversary.crafted_models`).

Four decisions are separate from the protocol: quantisation and noise (`noise`), the clients that may be summed together
(`testbed.aggregation.batch_policy`), the graph (`round.PeerGraph`), and the recovery of secrets from shares, including
contradictory ones (`share_recovery`).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.aggregation.batch_policy import BatchPolicy
from testbed.aggregation.contract import Aggregate, AggregationRound
from testbed.aggregation.kit.key_adverts import usable_adverts
from testbed.aggregation.kit.ring_elements import NoisyProtocol
from testbed.aggregation.kit.server_checks import (
    at_least,
    check_equal_weights,
    colluders_by_binding,
    digest_of_training,
    valid_signatures,
)
from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.messages import (
    KEYS_DOMAIN,
    SURVIVORS_DOMAIN,
    CheckSurvivors,
    KeyAdvert,
    SealedFromPeers,
    SharesFor,
    UnmaskSurvivors,
    survivors_content,
)
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.aggregation.secagg.round import CompleteGraph, PeerGraph, Question, SecAggRound, listed
from testbed.aggregation.secagg.share_recovery import Secrets, recovered_secrets
from testbed.arrays import Ids
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.network import Replies
from testbed.network.contract import ids
from testbed.network.masked_vectors import Masks, Seed, agreed_seed
from testbed.network.sums import Sum
from testbed.parties.client import RoleSpec
from testbed.privacy.noise_plan import Guarantees


class SecAgg(NoisyProtocol):
    """Server side; `aggregate` follows the paper's rounds 0 to 4. A malicious server overrides some of its methods."""

    parameters: SecAggParameters
    needs_registration = True
    stages = SecAggParameters.stages

    def __init__(self, parameters: SecAggParameters) -> None:
        super().__init__(parameters)
        self.noise = parameters.noise_policy()
        self.stages = parameters.stages_of_round()

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(SecAggClient, self.parameters)]

    def guarantees(self, participants: int) -> Guarantees:
        """Return the guarantees.

        Colluders: 2t - s - 1, since with one more, t shares of either kind can be had for one client (CCS 2017, Theorem
        6.5); and few enough that two honest clients are left in the smallest sum. The value is -1 if the survivors or
        the training task are not signed, or if `smallest_sum` lets a malicious server sum single batches. In these
        cases the server learns sums over few clients without any accomplice, and each client counts as seen alone.

        Smallest sum: t, or `smallest_sum` with whole batches; against a malicious server only with signed survivors.
        """
        parameters = self.parameters
        t = parameters.threshold_for(participants)
        split = parameters.consistency == "none" or parameters.smallest_sum is not None
        colluders = -1 if split else min(2 * t - participants - 1, t - 2)
        fewest = min(t, parameters.smallest_sum or t)
        return Guarantees(
            participants,
            max_colluders=colluders_by_binding(parameters.model_binding, colluders),
            min_sum_size=fewest,
            min_partition_size=participants,
            min_noise_share=self.noise.remaining_share(fewest, participants),
        )

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum the survivors' updates; raises `RoundAborted` if there are fewer than t."""
        state = self.begin(round_)
        await self.advertise_keys(state)
        await self.share_keys(state)
        await self.collect_masked_inputs(state)
        await self.check_consistency(state)
        total = await self.unmask(state)
        # After the masks: excess noise is subtracted from the plain sum, in the ring.
        self.noise.remove_excess(state, total)
        mean, weight = self.noise.mean(total, len(state.survivors), round_)
        check_equal_weights(self.parameters, weight, len(state.survivors))
        noise_share = self.noise.remaining_share(len(state.survivors), len(round_.participants))
        return Aggregate(mean, weight, state.survivors, noise_share)

    def begin(self, round_: AggregationRound) -> SecAggRound:
        """Return the state at the beginning of the round; raises `RoundAborted` if clients would refuse it."""
        graph = self.peer_graph(round_)
        state = SecAggRound(round_, graph, self.batch_policy(round_, graph))
        state.require_complete_batches(round_.trained, "trained")
        return state

    def peer_graph(self, round_: AggregationRound) -> PeerGraph:
        """Return the graph of the round; raises `RoundAborted` if clients would refuse it."""
        participants = len(round_.participants)
        t = self.parameters.threshold_for(participants)
        if participants < max(2, t):
            raise RoundAborted("below-threshold", f"{participants} of {max(2, t)} needed participants")
        if t < self.parameters.least_threshold(participants):
            above = "half" if self.parameters.consistency == "signed" else "two thirds"
            raise RoundAborted(
                "threshold-too-low", f"t = {t} of {participants} participants, which must exceed {above}"
            )
        return CompleteGraph(participants, t)

    def batch_policy(self, round_: AggregationRound, graph: PeerGraph) -> BatchPolicy:
        """Return the rule for clients that may be summed together."""
        return self.parameters.batch_policy(round_.batches)

    # -- round 0: AdvertiseKeys -----------------------------------------------------------------------------------

    async def advertise_keys(self, state: SecAggRound) -> None:
        """Collect the public keys of the clients that take part (U1; stage AdvertiseKeys)."""
        state.training = digest_of_training(self.parameters.model_binding, state.start)
        question = state.graph.announcement(state.start.number)
        replies = await state.start.network.ask(state.start.trained, question)
        state.adverts = self._staying(state, self.usable_adverts(state, replies.valid()), replies, "advertised keys")

    def usable_adverts(self, state: SecAggRound, adverts: dict[int, KeyAdvert]) -> dict[int, KeyAdvert]:
        """Leave out the adverts that peers would refuse, so that one client cannot end the round for all."""

        def content_of(client: int, advert: KeyAdvert) -> bytes:
            keys = advert.sealing_key, advert.mask_key
            content = state.graph.advert_content(state.start.number, client, *keys, state.training)
            return self.parameters.signed_with_keys(content)

        def keys_of(advert: KeyAdvert) -> tuple[bytes, ...]:
            return advert.sealing_key, advert.mask_key

        return usable_adverts(state.start, adverts, keys_of, KEYS_DOMAIN, content_of, "advertised keys")

    def _staying(self, state: SecAggRound, answers: dict[int, Any], replies: Replies, what: str) -> dict[int, Any]:
        """Return `answers` without clients with too few peers left; raises `RoundAborted` if they are too few."""
        staying = dict(answers)
        # A client that is left out takes a peer from others, so repeat.
        while isolated := state.graph.isolated(staying):
            for client in isolated:
                del staying[client]
                detail = f"{what}, but fewer than {state.graph.threshold} clients of its neighbourhood have"
                state.start.network.record_event(f"client:{client}", "isolated", detail)
        at_least(state.graph.min_survivors, len(staying), replies, what)
        state.require_complete_batches(ids(list(staying)), what)
        return staying

    # -- round 1: ShareKeys ---------------------------------------------------------------------------------------

    async def share_keys(self, state: SecAggRound) -> None:
        """Collect the shares that each client (U2) has sealed for each peer (stage ShareKeys)."""
        round_ = state.start
        state.digest = state.graph.common_digest(round_.number, state.training, listed(state.adverts))
        replies = await _ask(state, state.graph.key_lists(round_.number, state.adverts))
        state.sealed = self._staying(state, self.complete_shares(state, replies), replies, "shared their keys")

    def complete_shares(self, state: SecAggRound, replies: Replies) -> dict[int, dict[int, bytes]]:
        """Return, by client, the sealed shares of the clients that have shared with every peer."""
        sealed = {}
        size = self.noise.sealed_bytes(len(state.start.participants))
        for client, answer in replies.valid().items():
            bundle = {row.client: row.sealed for row in answer.shares if len(row.sealed) == size}
            if len(bundle) == len(answer.shares) and bundle.keys() == set(state.graph.peers(client, state.adverts)):
                sealed[client] = bundle
            else:
                state.misbehaved(client, "shared keys: does not have shares for every peer")
        return sealed

    # -- round 2: MaskedInputCollection ---------------------------------------------------------------------------

    async def collect_masked_inputs(self, state: SecAggRound) -> None:
        """Collect the masked inputs, and choose the survivors (U3; stage MaskedInputCollection)."""
        private = {
            client: SealedFromPeers([SharesFor(peer, state.sealed[peer][client]) for peer in peers])
            for client, peers in self.peers_that_shared(state).items()
        }
        meter("message", sum(len(part.shares) for part in private.values()))
        question = state.graph.input_question(state.start.number)
        state.answers = await state.start.network.ask(state.shared, question, private=private)
        idle = state.batches.non_contributing_holders(state.shared)
        state.arrived = self._arrived(state, idle)
        state.survivors = self.choose_survivors(state)
        there = np.union1d(state.arrived, np.intersect1d(state.answers.ids, idle))
        state.helpers = state.batches.helpers(there, state.survivors)

    def peers_that_shared(self, state: SecAggRound) -> dict[int, list[int]]:
        """Return, by client, its peers that have shared."""
        return {client: state.graph.peers(client, state.sealed) for client in state.sealed}

    def _arrived(self, state: SecAggRound, idle: Ids) -> Ids:
        """Return the clients with an input of the right shape, masked with all peers; `idle` clients send none."""
        round_, answers, none = state.start, state.answers.valid(), set(idle.tolist())
        inputs = {client: answer.input for client, answer in answers.items() if client not in none}
        length = None if round_.dimension is None else self.noise.length(round_.dimension)
        fitting = state.fitting(inputs, self.parameters.bits, length, "masked input")
        waiting = none & answers.keys()
        least = state.graph.min_survivors
        at_least(least, len(fitting) + len(waiting), state.answers, "sent their input")
        arrived = [
            client
            for client in fitting.tolist()
            if state.graph.is_masked_with_all(client, answers[client], state.sealed)
        ]
        for client in np.setdiff1d(fitting, arrived).tolist():
            state.misbehaved(client, "masked input: not masked with every neighbour")
        at_least(least, len(arrived) + len(waiting), state.answers, "sent their input")
        return ids(arrived)

    def choose_survivors(self, state: SecAggRound) -> Ids:
        """Return the clients in the sum, among the arrived ones; raises `RoundAborted` if they are too few."""
        survivors = state.require_complete_batches(state.arrived, "sent their input")
        state.graph.check_recoverable(state.shared, survivors)
        return survivors

    # -- round 3: ConsistencyCheck --------------------------------------------------------------------------------

    async def check_consistency(self, state: SecAggRound) -> None:
        """Collect the signatures on the survivors (U4; stage ConsistencyCheck); none with ``consistency: none``."""
        if self.parameters.consistency == "none":
            return
        round_, survivors = state.start, state.survivors.tolist()
        clients = np.union1d(state.survivors, state.helpers)
        replies = await round_.network.ask(clients, CheckSurvivors(round_.number, survivors))
        content = survivors_content(round_.number, survivors, state.digest)
        signed = valid_signatures(round_, replies, SURVIVORS_DOMAIN, content, "consistency check")
        at_least(state.graph.threshold, len(state.counting(signed)), replies, "signed the survivors")
        state.signed = signed

    # -- round 4: Unmasking ---------------------------------------------------------------------------------------

    async def unmask(self, state: SecAggRound) -> npt.NDArray[Any]:
        """Return the `(length,)` unmasked sum of the survivors' inputs, from the shares of U5 (stage Unmasking)."""
        await self.collect_shares(state)
        total = await state.answers.masked_total(state.survivors)
        return self._without_masks(state, total, await recovered_secrets(state)).materialised()

    async def collect_shares(self, state: SecAggRound) -> None:
        """Collect the shares that each client reveals, given the survivors."""
        if self.parameters.consistency == "none":
            everybody = np.union1d(state.survivors, state.helpers)
            question: Question = (everybody, UnmaskSurvivors(state.start.number, state.survivors.tolist()), None)
        else:
            kind = self.noise.unmask_kind(len(state.start.participants))
            question = state.graph.unmask_question(state, kind)
        replies = await _ask(state, question)
        state.revealed = {}
        for client, shares in replies.valid().items():
            state.revealed[client] = state.graph.held_by(client, shares)
            if state.revealed[client] != shares:
                state.misbehaved(client, "unmask: has shares of clients that are not its neighbours")
        at_least(state.graph.threshold, len(state.revealed), replies, "revealed their shares")

    def _without_masks(self, state: SecAggRound, total: Sum, secrets: Secrets) -> Sum:
        """Return `total` without the masks that have not cancelled."""
        parameters = self.parameters
        seeds: list[Seed] = list(secrets.self_masks.values())
        signs = [-1] * len(seeds)
        survivors = state.survivors.tolist()
        for client, key in secrets.mask_keys.items():
            for survivor in state.graph.peers(client, survivors):
                seeds.append(agreed_seed(key.public, state.adverts[survivor].mask_key, parameters.mask_purpose))
                # The opposite of the sign with which the survivor has added the mask.
                signs.append(-1 if client > survivor else 1)
        meter("x25519.agree", len(seeds) - len(survivors))
        meter(parameters.mask_operation, len(total) * len(seeds))
        return total.with_masks(Masks(seeds, signs, parameters.prg, secrets.mask_keys.values()))


async def _ask(state: SecAggRound, question: Question) -> Replies:
    clients, message, private = question
    return await state.start.network.ask(clients, message, private=private)
