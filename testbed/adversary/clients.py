"""Dishonest clients that act by themselves: roles with some handlers overridden."""

from typing import ClassVar, Literal

import msgspec
from pydantic import Field

from testbed.adversary.misbehaviour import ClientMisbehaviour, MisbehaviourOptions
from testbed.adversary.selection.lotto import ALL_LISTS, CLIENT_CENTRIC, VERIFIABLE_BATCHES
from testbed.aggregation.kit.ring_elements import NoisyRole, noise_of
from testbed.parties.client import Role, RoleSpec, handles
from testbed.privacy.noise import Noise, NoiseShare
from testbed.selection.lotto.client import LottoClient
from testbed.selection.lotto.messages import LIST_DOMAIN, Announce, Candidacy, ListSignature, ParticipantList
from testbed.selection.lotto.variants import ClientCentricClient
from testbed.selection.verifiable_batch_partition import Prove, VerifiableBatchClient
from testbed.training import Train, Trainer, TrainingReport


class InflateOptions(MisbehaviourOptions):
    """Options of `inflate-utility`."""

    factor: float = Field(100.0, gt=0, description="Factor by which the reported training loss exceeds the true loss")


class InflateUtility(ClientMisbehaviour, Trainer):
    """Reports a larger loss than the true one, to be preferred by a server that selects by utility (Oort)."""

    name: ClassVar[str] = "inflate-utility"
    applies_to: ClassVar[tuple[str, ...]] = ("train",)
    extends: ClassVar[type[Role]] = Trainer
    Options: ClassVar[type[MisbehaviourOptions]] = InflateOptions

    @handles(Train)
    def on_train(self, message: Train) -> TrainingReport:
        """Train honestly and report a larger loss."""
        trained = super().on_train(message)
        if not self.attacks(message.round):
            return trained
        factor = self.context.options_of(InflateUtility).factor
        lies = {"loss": trained.loss * factor}
        if trained.squared_loss is not None:
            # Both must fit: Oort's utility uses the mean of the squared loss.
            lies["squared_loss"] = trained.squared_loss * factor**2
        self.record_attack(InflateUtility, f"reported a loss of {lies['loss']:.4g} instead of {trained.loss:.4g}")
        return msgspec.structs.replace(trained, **lies)


class ClaimOptions(MisbehaviourOptions):
    """Options of `claim-candidacy`."""

    proof: Literal["genuine", "made-up"] = Field(
        "genuine",
        description="genuine: its own number above the threshold, with its valid proof; made-up: a forged number and "
        "proof",
    )


class ClaimCandidacy(ClientMisbehaviour, ClientCentricClient):
    """Claims to be a candidate when it is not."""

    name: ClassVar[str] = "claim-candidacy"
    applies_to: ClassVar[tuple[str, ...]] = (CLIENT_CENTRIC,)
    extends: ClassVar[type[Role]] = ClientCentricClient
    Options: ClassVar[type[MisbehaviourOptions]] = ClaimOptions

    @handles(Announce)
    def on_announce(self, message: Announce) -> Candidacy | None:
        """Answer with a number, also above the threshold."""
        answer = super().on_announce(message)
        if not self.attacks(message.round) or (answer is not None and answer.output is not None):
            return answer
        if self.context.options_of(ClaimCandidacy).proof == "made-up":
            self.record_attack(ClaimCandidacy, "a number and a proof that it has made up")
            self.claim = Candidacy(bytes(64), bytes([1]) * 80)
            return self.claim
        self.record_attack(ClaimCandidacy, "its own number, which is over the threshold")
        return self.prove(message.round)


class ClaimFalseNumber(ClientMisbehaviour, VerifiableBatchClient):
    """Sends a forged number to make its batch a candidate; it cannot prove that number."""

    name: ClassVar[str] = "claim-candidacy"
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)
    extends: ClassVar[type[Role]] = VerifiableBatchClient
    Options: ClassVar[type[MisbehaviourOptions]] = ClaimOptions

    @handles(Announce)
    def on_announce(self, message: Announce) -> Candidacy:
        """Answer with a forged number."""
        answer = super().on_announce(message)
        if not self.attacks(message.round):
            return answer
        self.record_attack(ClaimFalseNumber, "a number that it has made up")
        return Candidacy(output=bytes(64))

    @handles(Prove)
    def on_prove(self, message: Prove) -> Candidacy:
        """Answer with the valid proof of its own number, or with an invalid proof."""
        answer = super().on_prove(message)
        made_up = self.context.options_of(ClaimFalseNumber).proof == "made-up" and self.attacks(message.round)
        return Candidacy(proof=bytes([1]) * 80) if made_up else answer


class WithholdNumber(ClientMisbehaviour, VerifiableBatchClient):
    """Does not answer, so that its batch is no candidate: denies the round to the batch's honest members."""

    name: ClassVar[str] = "withhold-number"
    applies_to: ClassVar[tuple[str, ...]] = (VERIFIABLE_BATCHES,)
    extends: ClassVar[type[Role]] = VerifiableBatchClient

    @handles(Announce)
    def on_announce(self, message: Announce) -> Candidacy | None:  # type: ignore[override]  # honest clients answer
        """Do not answer."""
        answer = super().on_announce(message)
        if not self.attacks(message.round):
            return answer
        self.record_attack(WithholdNumber, "kept its number to itself")
        return None


class WrongSignature(ClientMisbehaviour, LottoClient):
    """Signs other content than the participant list; if all must sign, this ends the round."""

    name: ClassVar[str] = "wrong-signature"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS
    extends: ClassVar[type[Role]] = LottoClient

    @handles(ParticipantList)
    def on_list(self, message: ParticipantList) -> ListSignature:
        """Sign another list."""
        answer = super().on_list(message)
        if not self.attacks(message.round):
            return answer
        assert self.client.identity is not None
        self.record_attack(WrongSignature, "signed something else than the list")
        return ListSignature(self.client.identity.signing.sign(LIST_DOMAIN, b"another list"))


class SkipNoise(ClientMisbehaviour, NoisyRole):
    """Adds no noise: the sum protects other clients less, which the sum does not reveal (Lotto, section 2.3)."""

    name: ClassVar[str] = "skip-noise"
    applies_to: ClassVar[tuple[str, ...]] = ("secagg", "secagg-plus", "plain")
    extends: ClassVar[type[Role]] = NoisyRole

    @classmethod
    def concerns(cls, spec: RoleSpec) -> bool:
        """Return whether participants add noise in this role."""
        return super().concerns(spec) and isinstance(noise_of(spec.parameters), Noise)

    def noise_to_add(self, participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """Return no noise."""
        if not self.attacks(round_number):
            return super().noise_to_add(participants, dimension, round_number)
        self.record_attack(SkipNoise, "sent its update without its share of the noise")
        return []
