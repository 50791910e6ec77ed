"""Parameters of `secagg`: the section `aggregation` of an experiment."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from testbed.aggregation.batch_policy import AtomicBatches, BatchPolicy
from testbed.aggregation.kit.compression import RandomK, check_summed
from testbed.aggregation.kit.parameters import MasksKey, PrgKey, check_two_participants, mask_operation
from testbed.aggregation.kit.ring_elements import NoisyParameters
from testbed.aggregation.quantisation import Quantisation
from testbed.aggregation.secagg.noise import (
    KeptNoise,
    NoiseAfterwards,
    RemovedNoise,
    SampledCoordinates,
    SecAggNoise,
    WithoutNoise,
)
from testbed.batches import Batches
from testbed.counts import rounded_up
from testbed.errors import excludes
from testbed.privacy.matrix.section import CorrelatedNoise
from testbed.privacy.noise import Enforcement


class SecAggParameters(NoisyParameters):
    """Sums that hide every single update."""

    removes_noise: ClassVar[bool] = True
    supports_symbolic_masks: ClassVar[bool] = True
    asynchronous_buffer: ClassVar[Literal["server", "clients"] | None] = "clients"
    stages: ClassVar[tuple[str, ...]] = (
        "secagg/advertise-keys",
        "secagg/share-keys",
        "secagg/masked-input",
        "secagg/consistency",
        "secagg/unmask",
    )
    further_stages: ClassVar[tuple[str, ...]] = ("secagg/unmask-survivors", "secagg/prove-share")
    occasional_stages: ClassVar[tuple[str, ...]] = ("secagg/prove-share",)
    protocol: Literal["secagg"] = "secagg"
    threshold: int | float = Field(
        0.7,
        gt=0,
        allow_inf_nan=False,
        description="Clients that must remain: a number t, or a fraction of the participants; above half (Lotto: 0.7)",
    )
    levels_bits: int = Field(
        16,
        ge=1,
        le=24,
        description="Bits per coordinate of an update before summing; with noise see noise.scale",
    )
    clip: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="Largest absolute value of a coordinate of an update; with noise, noise.clip limits the L2 norm",
    )
    consistency: Literal["signed", "none"] = Field(
        "signed",
        description="signed: t clients sign the survivors before any client unmasks; none: each client believes the "
        "list that it is shown (only for an honest-but-curious server, and with a threshold above two thirds)",
    )
    model_binding: Literal["signed", "none"] = Field(
        "signed",
        description="signed: clients sign the training task with their keys, so that a sum only has clients that were "
        "sent the same model; none: a malicious server can send each client another model and learn single updates "
        "(to demonstrate the attack)",
    )
    smallest_sum: int | None = Field(
        None,
        ge=2,
        description="With batches kept whole: fewest clients in a sum. Clients of batches that are left out then count "
        "towards t, and a malicious server can learn sums over single batches. None: t, all of them in the sum",
    )

    prg: PrgKey = "aes-256-ctr"
    masks: MasksKey = None

    @property
    def quantisation(self) -> Quantisation:
        """The mapping from updates to ring elements."""
        return Quantisation(self.clip, self.levels_bits, self.bits)

    @property
    def mask_operation(self) -> str:
        """Entry of the table of costs for one element of a mask."""
        return mask_operation(self.prg)

    @property
    def mask_purpose(self) -> bytes:
        """Purpose for which two clients agree on a mask's seed; another generator gives another seed."""
        other = b"" if self.prg == "aes-256-ctr" else b"/" + self.prg.encode()
        return b"testbed/secagg/mask/v1" + other

    def signed_with_keys(self, content: bytes) -> bytes:
        """Return the content that a client signs with its keys, so that peers with another generator refuse them."""
        return content if self.prg == "aes-256-ctr" else content + self.prg.encode()

    @model_validator(mode="after")
    def _noise_has_a_clip_and_steps_of_its_own(self) -> "SecAggParameters":
        check_summed(self.compression)
        for key, instead in (("clip", "noise.clip"), ("levels_bits", "noise.scale")):
            if self.noise is not None and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}: has no effect with noise; leave it out and set {instead}")
        if self._enforcement is not None and self.consistency != "signed":
            raise ValueError("noise.enforcement: needs consistency: signed, or the server could remove any noise")
        return self

    def noise_policy(self) -> SecAggNoise:
        """Return the policy for the noise of participants or server."""
        if self.noise is None:
            arguments = self.quantisation, self.weights == "samples"
            made = None if self.compression is None else self.compression.made()
            return SampledCoordinates(*arguments, made) if isinstance(made, RandomK) else WithoutNoise(*arguments)
        if isinstance(self.noise, CorrelatedNoise):
            return NoiseAfterwards(self.noise, self.bits)
        kind = KeptNoise if self.noise.enforcement is None else RemovedNoise
        return kind(self.noise, self.bits)

    @property
    def _enforcement(self) -> Enforcement | None:
        return None if self.shared_noise is None else self.shared_noise.enforcement

    def batch_policy(self, batches: Batches | None) -> BatchPolicy:
        """Return the rule for clients that may be summed together."""
        atomic = self.atomic_batches(batches)
        return BatchPolicy() if atomic is None else AtomicBatches(atomic, self.smallest_sum)

    def stages_of_round(self) -> tuple[str, ...]:
        """Return the stages; without a consistency check, survivors are unmasked without signatures."""
        return self.stages if self.consistency == "signed" else (*self.stages[:3], "secagg/unmask-survivors")

    def threshold_for(self, participants: int) -> int:
        """Return t for this many participants; a fraction is rounded up."""
        return rounded_up(self.threshold, participants)

    def least_threshold(self, participants: int) -> int:
        """Return the smallest allowed t: above s/2, or above 2s/3 if the survivors are not signed."""
        return participants // 2 + 1 if self.consistency == "signed" else 2 * participants // 3 + 1

    def fewest_survivors(self, participants: int) -> int:
        return self.threshold_for(participants)

    def check(self, participants: int) -> None:
        """Check that t is between `least_threshold` and s, and that the other keys fit it; raises `ValueError`."""
        t, least = self.threshold_for(participants), self.least_threshold(participants)
        check_two_participants(self, participants)
        if not least <= t <= participants:
            above = "0.5" if self.consistency == "signed" else "2/3, which consistency: none needs"
            raise ValueError(
                f"threshold: t = {t} of {participants} participants; allowed {least} to {participants}"
                f" (or a fraction above {above})"
            )
        if self.smallest_sum is not None and self.batches == "ignored":
            raise ValueError("smallest_sum: has no effect with batches: ignored; leave it out")
        if self.smallest_sum is not None and self.smallest_sum > participants:
            raise ValueError(
                f"smallest_sum: {self.smallest_sum} of {participants} participants; at most {participants}"
            )
        enforcement = self._enforcement
        if enforcement is not None and t == participants:
            raise ValueError(
                f"noise.enforcement: with t = {t} of {participants} participants no dropout is tolerated; lower "
                "threshold, or leave out enforcement"
            )
        if enforcement is not None and enforcement.tolerated_dropouts > participants - t:
            raise ValueError(
                f"noise.enforcement.tolerated_dropouts: {enforcement.tolerated_dropouts} of {participants}; "
                f"at most {participants - t}, since a round with fewer than t = {t} ends"
            )

    def check_asynchronous(self, concurrency: int, participants: int) -> None:
        """Check that clients keep their places while they wait, and that updates are not bound to one model."""
        if concurrency < participants:
            raise ValueError(
                f"asynchronous.concurrency: {concurrency}; must be at least selection.participants ({participants}), "
                "as under secure aggregation clients keep their places until the buffer is full"
            )
        if self.model_binding == "signed":
            raise excludes(
                "asynchronous",
                "aggregation.model_binding: signed",
                "clients of one buffer were sent different models",
                "set it to none; docs/how-to/asynchronous.md lists the attacks that this allows",
            )

    def for_asynchronous_rounds(self) -> Self:
        """Do not bind updates to one model unless the experiment says so."""
        if "model_binding" in self.model_fields_set:
            return self
        unbound = self.model_copy(update={"model_binding": "none"})
        unbound.model_fields_set.discard("model_binding")
        return unbound

    def asynchronous_notes(self) -> list[str]:
        """Say that updates are not bound to one model."""
        if "model_binding" in self.model_fields_set:
            return []
        return [
            "aggregation.model_binding is none in asynchronous rounds, as clients of one buffer were sent different "
            "models; docs/how-to/asynchronous.md lists the attacks that this allows"
        ]

    def check_weights(self, participants: int, maximum_weight: int) -> None:
        """Check that the weighted sum fits the ring; with noise, `check_dimension` checks it."""
        if self.noise is None:
            self.quantisation.check(participants, maximum_weight if self.weights == "samples" else 1)
