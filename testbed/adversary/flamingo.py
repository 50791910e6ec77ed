"""Misbehaviours in Flamingo, of the server, of committee members and of clients.

The server tells its committee contradictory labels, shows a client another committee key, or returns old shares. A
member decrypts wrongly. A client encrypts other seeds than those of its masks.

With x accomplices on a committee of L members with threshold t, contradictory labels need x >= 2t - L.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from testbed.adversary.misbehaviour import AggregationMisbehaviour, ClientMisbehaviour, MisbehaviourOptions
from testbed.adversary.victims import VICTIM_RECONSTRUCTED, VictimOptions, describe_recovery, draw_victim
from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.flamingo.client import FlamingoClient
from testbed.aggregation.flamingo.decryptor import Decryptor
from testbed.aggregation.flamingo.messages import (
    SEALED_SHARE_BYTES,
    SEEDS_DOMAIN,
    SERVICE_DOMAIN,
    Certificate,
    CheckLabels,
    CutEdge,
    EncryptedSeed,
    LabelsSignature,
    MaskedReport,
    Reconstruct,
    SealedMemberState,
    Service,
    SharesForMember,
    seed_associated,
    seed_content,
    service_content,
)
from testbed.aggregation.flamingo.round import FlamingoRound
from testbed.aggregation.flamingo.seeds import recovered_pair_seeds, recovered_self_masks
from testbed.aggregation.flamingo.server import Flamingo
from testbed.aggregation.flamingo.service import kept_service
from testbed.aggregation.flamingo.set_up_messages import KeptService, StateOf
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.crypto import edwards25519, feldman, prf, threshold_elgamal
from testbed.errors import RoundAborted
from testbed.memory import MessageName
from testbed.messages import ClientId, Key32, Message, RoundNumber, signed_content
from testbed.network import Replies
from testbed.network.contract import ids
from testbed.network.masked_vectors import Masks
from testbed.parties.client import Role, StageTable, Transition, handles

# Stages from which an accomplice answers: an honest member would refuse to sign or open twice.
_ALWAYS = {"idle", "ready", "labelled", "opened"}
_EARLIER = MessageName("adversary/flamingo service", KeptService)


class SignService(Message, frozen=True):
    """Ask an accomplice to sign a service that was never set up."""

    stage: ClassVar[str] = "adversary/sign-service"
    Answer: ClassVar[type[Message] | None] = LabelsSignature

    round: RoundNumber
    service: Service


class SignSeed(Message, frozen=True):
    """Ask an accomplice to sign a first half of a ciphertext as its own, for a neighbour."""

    stage: ClassVar[str] = "adversary/sign-seed"
    Answer: ClassVar[type[Message] | None] = LabelsSignature

    round: RoundNumber
    digest: Key32
    neighbour: ClientId
    point: Key32


class FlamingoAccomplice(Decryptor, answers=(*Decryptor.questions, SignService, SignSeed)):
    """A member that appears honest to others, but signs and opens as often as the server asks."""

    STAGES: ClassVar[StageTable] = Decryptor.STAGES.extended(
        {
            CheckLabels: Transition(
                sources=_ALWAYS, target="labelled", refusal="flamingo.out-of-order", starts_round=True
            ),
            Reconstruct: Transition(sources={"labelled", "opened"}, target="opened", refusal="flamingo.out-of-order"),
        }
    )

    @handles(SignService)
    def on_sign_service(self, message: SignService) -> LabelsSignature:
        """Sign any service."""
        return LabelsSignature(self.sign(SERVICE_DOMAIN, service_content(message.service.digest)))

    @handles(SignSeed)
    def on_sign_seed(self, message: SignSeed) -> LabelsSignature:
        """Sign any ciphertext as its own."""
        content = seed_content(message.digest, self.number, message.neighbour, message.point)
        return LabelsSignature(self.sign(SEEDS_DOMAIN, content))

    def own_share(self, service: bytes, sealed: bytes) -> bytes:
        """Return no share for a service that is not its own."""
        return b"" if not sealed else super().own_share(service, sealed)


class AgainstOneVictim(AggregationMisbehaviour, Flamingo):
    """Base class of the attacks on one client's update."""

    applies_to: ClassVar[tuple[str, ...]] = ("flamingo",)
    Options: ClassVar[type[MisbehaviourOptions]] = VictimOptions
    update_recovered = VICTIM_RECONSTRUCTED
    accomplice_roles: ClassVar[tuple[type[Role], ...]] = (FlamingoAccomplice,)

    def accomplices(self, state: FlamingoRound) -> list[int]:
        """Return the accomplices on the committee."""
        return [member for member in state.members if member in self.dishonest]

    async def recovery(
        self, reports: Replies, victim: int, own: bytes, common: Mapping[int, bytes], counted: str
    ) -> str:
        """Remove the masks from the victim's input, and describe the result in one line.

        Args:
            reports: of the round.
            victim: the client.
            own: seed of its self-mask.
            common: seeds of its pairwise masks, by peer.
            counted: the beginning of the line.
        """
        pairs = {(victim, peer): seed for peer, seed in common.items()}
        return await self.recovery_of_group(reports, [victim], {victim: own}, pairs, counted)

    async def recovery_of_group(
        self,
        reports: Replies,
        group: Sequence[int],
        own: Mapping[int, bytes],
        common: Mapping[tuple[int, int], bytes],
        counted: str,
    ) -> str:
        """Remove the masks from the sum of a group's inputs, and describe the result in one line.

        Args:
            reports: of the round.
            group: the clients.
            own: seeds of their self-masks, by client.
            common: seeds of their pairwise masks with clients outside the group, by client and peer.
            counted: the beginning of the line.
        """
        signs = [-1] * len(own) + [-1 if peer > client else 1 for client, peer in common]
        masked = await reports.masked_total(ids(sorted(group)))
        masks = Masks([*own.values(), *common.values()], signs, self.parameters.prg)
        total = masked.with_masks(masks).materialised()
        return describe_recovery(counted, total, total.tobytes(), self.parameters.quantisation, len(group))


class ContradictLabels(AgainstOneVictim):
    """Tells some members that the victim is online, the others that it is offline; completes the round."""

    name: ClassVar[str] = "contradict-dropouts"
    _victim: int | None = None

    async def cross_check(self, state: FlamingoRound) -> None:
        """Label the victim online to only as many members as the threshold needs."""
        self._victim = draw_victim(self, ContradictLabels, state.online, state.start)
        if self._victim is None:
            await super().cross_check(state)
            return
        accomplices, first_group, _ = self._groups(state)
        states = {row.member: SealedMemberState(row.sealed) for row in state.stored_service.states}
        questions = {member: states[member] for member in [*first_group, *accomplices]}
        _, state.signed = await self.signed_labels(state, questions, state.online)
        if len(state.signed) < self.threshold(state):
            counted = f"victim {self._victim}: {len(state.signed)} of {self.threshold(state)} needed signatures with it"
            self.record_attack(ContradictLabels, f"{counted}; failed: too few members")
            raise RoundAborted("below-threshold", counted)

    async def unmasked_sum(self, state: FlamingoRound) -> npt.NDArray[Any]:
        """Return the honest sum; also recover the victim's update if the contradictory labels are accepted."""
        total = await super().unmasked_sum(state)
        if self._victim is not None:
            self.record_attack(ContradictLabels, await self._second_story(state, self._victim))
        return total

    async def _second_story(self, state: FlamingoRound, victim: int) -> str:
        """Show the second set of labels, and describe the result in one line."""
        accomplices, _, others = self._groups(state)
        states = {row.member: SealedMemberState(row.sealed) for row in state.stored_service.states}
        online, needed = state.online[state.online != victim], self.threshold(state)
        questions = {member: states[member] for member in [*others, *accomplices]}
        _, signed = await self.signed_labels(state, questions, online)
        counted = f"victim {victim}: {len(state.signed)} and {len(signed)} of {needed} needed signatures with it and"
        counted += " without it"
        if len(signed) < needed:
            return f"{counted}; failed: too few signatures"
        edges = self.cut_edges(state, online)
        _, opened = await self.opened(state, signed, online, edges)
        if len(opened) < needed:
            return f"{counted}; failed: too few members have opened"
        second = replace(state, online=online, edges=edges, opened=opened)
        second.reports = state.reports
        return await self._update(state, second, victim, counted)

    async def _update(self, state: FlamingoRound, second: FlamingoRound, victim: int, counted: str) -> str:
        """Remove the victim's masks: its self-mask from the first labels, pairwise masks from both."""
        needed = self.threshold(state)
        own = recovered_self_masks(state, needed)[victim]
        common = {edge[1]: seed for edge, seed in recovered_pair_seeds(state, needed).items() if edge[0] == victim}
        # The first labels reveal the seeds that the victim shares with offline peers, the second all others.
        common |= {edge[0]: seed for edge, seed in recovered_pair_seeds(second, needed).items() if edge[1] == victim}
        return await self.recovery(state.reports, victim, own, common, counted)

    def _groups(self, state: FlamingoRound) -> tuple[list[int], list[int], list[int]]:
        """Return accomplices on the committee, honest members for the first labels, and for the second labels."""
        members = [row.member for row in state.stored_service.states]
        accomplices = [member for member in members if member in self.dishonest]
        honest = [member for member in members if member not in self.dishonest]
        # t - x: accomplices sign and open both sets of labels, an honest member only one. So 2 (t - x) must answer.
        first = max(0, self.threshold(state) - len(accomplices))
        return accomplices, honest[:first], honest[first:]


class FalseKey(AgainstOneVictim):
    """Shows one client a committee key of the server, signed by accomplices."""

    name: ClassVar[str] = "false-committee-key"
    added_stages: ClassVar[tuple[str, ...]] = (SignService.stage,)

    async def report(self, state: FlamingoRound) -> None:
        """Ask the victim first with the false key, then the others without the victim."""
        victim = draw_victim(self, FalseKey, state.start.trained, state.start)
        if victim is None:
            await super().report(state)
            return
        self.record_attack(FalseKey, await self._attempt(state, victim))
        state.start = replace(state.start, trained=ids(np.setdiff1d(state.start.trained, [victim])))
        await super().report(state)

    async def _attempt(self, state: FlamingoRound, victim: int) -> str:
        """Attack the victim, and describe the result in one line."""
        start, needed, accomplices = state.start, self.threshold(state), self.accomplices(state)
        secret = feldman.random_scalar(hashlib.sha256(signed_content("false key", start.number)).digest())
        honest = state.stored_service.certificate.service
        service = Service(honest.committee, start.number, edwards25519.multiply_base(secret), bytes(32))
        # A key needs t signatures, so x >= t; with as many accomplices the server has the committee's own key, too.
        replies = await start.network.ask(ids(accomplices), SignService(start.number, service))
        signed = [SignatureOf(member, answer.signature) for member, answer in replies.valid().items()][:needed]
        certificate = Certificate(service, signed)
        reports = await start.network.ask(ids([victim]), MaskedReport(start.number, state.graph.listed, certificate))
        counted = f"victim {victim}: {len(signed)} of {needed} needed signatures on a key of the server's"
        if victim not in reports:
            checks = ", ".join(refusal.check for refusal in reports.missing.refusals)
            return f"{counted}; failed: {checks or 'no answer'}"
        own_service = KeptService(certificate, [service.public_key], [StateOf(member, b"") for member in accomplices])
        false = replace(state, stored_service=own_service, online=ids([victim]))
        false.reports = reports
        own = await self._own_mask(false, needed)
        common = {}
        for row in reports[victim].seeds:
            associated = signed_content(false.digest, victim, row.neighbour)
            # The server knows the whole secret of its own key: one "member" decrypts alone.
            partial = {1: threshold_elgamal.partial_decryption(secret, row.point)}
            common[row.neighbour] = threshold_elgamal.decrypt(row.point, row.sealed, associated, partial)
        return await self.recovery(reports, victim, own, common, counted)

    async def _own_mask(self, false: FlamingoRound, needed: int) -> bytes:
        """Return the seed of the victim's self-mask from the accomplices' shares; no client counts as offline."""
        (victim,), listed = false.online.tolist(), false.graph.listed
        questions = {row.member: SealedMemberState(row.sealed) for row in false.stored_service.states}
        _, signed = await self.signed_labels(false, questions, ids(listed))
        shown = [SignatureOf(*row) for row in signed.items()][:needed]
        # Members expect a share for each listed client; only the victim's is needed.
        nothing, dealt = bytes(SEALED_SHARE_BYTES), false.reports[victim].shares
        private = {
            member: SharesForMember([dealt[false.members[member] - 1] if c == victim else nothing for c in listed])
            for member in signed
        }
        question = Reconstruct(false.start.number, shown, [])
        replies = await false.start.network.ask(ids(list(signed)), question, private=private)
        false.opened = replies.valid()
        return recovered_self_masks(false, needed)[victim]


class CopyCiphertext(AgainstOneVictim):
    """Has a victim's seed decrypted as if it belonged to a colluding client.

    The colluding client signs, as its own for an offline neighbour, the first half of the victim's ciphertext for an
    online neighbour. Decryption would give the seed of a mask that must stay secret.
    """

    name: ClassVar[str] = "copy-ciphertext"
    added_stages: ClassVar[tuple[str, ...]] = (SignSeed.stage,)

    async def reconstruct(self, state: FlamingoRound) -> None:
        """Ask for decryption of the copied ciphertext; act honestly if no colluding client has an offline neighbour."""
        edges = self.cut_edges(state, state.online)
        at = next((at for at, edge in enumerate(edges) if edge.online in self.dishonest), None)
        victim = draw_victim(self, CopyCiphertext, state.online, state.start)
        online = set(state.online.tolist())
        peer = next((other for client, other in state.seeds if client == victim and other in online), None)
        if at is None or victim is None or peer is None:
            await super().reconstruct(state)
            return
        theirs, own = state.seeds[victim, peer], edges[at]
        question = SignSeed(state.start.number, state.digest, own.offline, theirs.point)
        signed = (await state.start.network.ask(ids([own.online]), question)).valid()
        if own.online in signed:
            signature = signed[own.online].signature
            edges[at] = CutEdge(own.online, own.offline, theirs.point, signature, theirs.proof_of_knowledge)
        state.edges = edges
        replies, state.opened = await self.opened(state, state.signed, state.online, edges)
        counted = f"victim {victim}: its ciphertext for client {peer}, signed by client {own.online}"
        if len(state.opened) < self.threshold(state):
            checks = sorted({refusal.check for refusal in replies.missing.refusals})
            self.record_attack(CopyCiphertext, f"{counted}; failed: {', '.join(checks) or 'too few members'}")
            raise RoundAborted("below-threshold", counted)
        points = sorted(state.members[member] for member in state.opened)[: self.threshold(state)]
        members = {point: member for member, point in state.members.items()}
        partial = {point: state.opened[members[point]].points[at] for point in points}
        associated = seed_associated(state.digest, victim, peer)
        seed = threshold_elgamal.decrypt(theirs.point, theirs.sealed, associated, partial)
        digest = hashlib.sha256(seed).hexdigest()
        self.record_attack(CopyCiphertext, f"{counted}; decrypted, the seed's sha256 {digest}")
        raise RoundAborted("below-threshold", f"{counted}: the seed of its own client is not to be had")


class ReplayStates(AggregationMisbehaviour, Flamingo):
    """Returns to members of an earlier committee their old sealed shares instead of the latest.

    Shares of two polynomials would be mixed. Members refuse, and each of them is missing.
    """

    name: ClassVar[str] = "replay-committee-state"
    applies_to: ClassVar[tuple[str, ...]] = ("flamingo",)

    async def begin(self, round_: AggregationRound) -> FlamingoRound:
        """Keep the first service that ended, and return its shares in later services."""
        before = kept_service(round_)
        state = await super().begin(round_)
        stored = _EARLIER.load(round_.memory)
        if before is not None and before.certificate != state.stored_service.certificate and stored is None:
            _EARLIER.store(round_.memory, before)
            stored = before
        if not self.attacking or stored is None:
            return state
        earlier = {row.member: row for row in stored.states}
        states = [earlier.get(row.member, row) for row in state.stored_service.states]
        again = [row.member for row in states if row.member in earlier]
        self.record_attack(ReplayStates, f"{len(again)} of {len(states)} members are handed back an old share")
        return replace(
            state,
            stored_service=KeptService(state.stored_service.certificate, state.stored_service.commitments, states),
        )


# -- members and clients -----------------------------------------------------------------------------------------------


class WrongDecryption(ClientMisbehaviour, Decryptor):
    """Answers with points that are not its partial decryptions; the server detects and leaves out this member."""

    name: ClassVar[str] = "decrypt-wrongly"
    applies_to: ClassVar[tuple[str, ...]] = ("flamingo",)
    extends: ClassVar[type[Role]] = Decryptor

    def partial_decryptions(self, edges: Sequence[CutEdge]) -> list[bytes]:
        """Return valid points that are no partial decryptions."""
        right = super().partial_decryptions(edges)
        if not self.attacks(self.round) or not right:
            return right
        self.record_attack(WrongDecryption, f"{len(right)} points that decrypt nothing")
        scalar = edwards25519.reduce_scalar(2 * prf.evaluate(self.digest, b"wrong point"))
        return [edwards25519.multiply_base(scalar) for _ in right]


class WrongSeeds(ClientMisbehaviour, FlamingoClient):
    """Encrypts other seeds than those of its masks: if a neighbour drops out, the round is lost."""

    name: ClassVar[str] = "encrypt-wrong-seeds"
    applies_to: ClassVar[tuple[str, ...]] = ("flamingo",)
    extends: ClassVar[type[Role]] = FlamingoClient

    def encrypted(self, public_key: bytes, neighbour: int, seed: bytes) -> EncryptedSeed:
        """Encrypt a seed that belongs to no mask."""
        if not self.attacks(self.round):
            return super().encrypted(public_key, neighbour, seed)
        self.record_attack(WrongSeeds, f"a seed for client {neighbour} with which it has not masked")
        return super().encrypted(public_key, neighbour, bytes(32))
