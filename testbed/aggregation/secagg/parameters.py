"""The experiment's section `aggregation` for `secagg`."""

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
        description="Do t clients sign the survivors before any client unmasks (signed), or does each believe the list "
        "that it alone is shown (none; only for servers that follow the protocol, and above two thirds)?",
    )
    model_binding: Literal["signed", "none"] = Field(
        "signed",
        description="Do clients sign what they were asked to train with their keys, so that only those go into one sum "
        "that were sent the same model (signed), or may a malicious server send each another one and see single "
        "updates (none; to show that attack)?",
    )
    smallest_sum: int | None = Field(
        None,
        ge=2,
        description="With batches kept whole: fewest clients in a sum; those whose batch is left out then count among "
        "the t, and a malicious server may have sums over single batches. None: t, of whom all are in the sum",
    )

    prg: PrgKey = "aes-256-ctr"
    masks: MasksKey = None

    @property
    def quantisation(self) -> Quantisation:
        """How updates become ring elements."""
        return Quantisation(self.clip, self.levels_bits, self.bits)

    @property
    def mask_operation(self) -> str:
        """What one element of a mask costs, in the table of costs."""
        return mask_operation(self.prg)

    @property
    def mask_purpose(self) -> bytes:
        """What two clients agree on a mask's seed for: who expands it otherwise has another seed."""
        other = b"" if self.prg == "aes-256-ctr" else b"/" + self.prg.encode()
        return b"testbed/secagg/mask/v1" + other

    def signed_with_keys(self, content: bytes) -> bytes:
        """What a client signs with its keys: peers that expand masks otherwise refuse them."""
        return content if self.prg == "aes-256-ctr" else content + self.prg.encode()

    @model_validator(mode="after")
    def _noise_has_a_clip_and_steps_of_its_own(self) -> "SecAggParameters":
        check_summed(self.compression)
        for key, instead in (("clip", "noise.clip"), ("levels_bits", "noise.scale")):
            if self.noise is not None and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}: has no effect with noise; leave it out and set {instead}")
        if self._enforcement is not None and self.consistency != "signed":
            raise ValueError("noise.enforcement: needs consistency: signed; else the server decides what is removed")
        return self

    def noise_policy(self) -> SecAggNoise:
        """What participants add to their updates."""
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
        """Who may be summed with whom."""
        atomic = self.atomic_batches(batches)
        return BatchPolicy() if atomic is None else AtomicBatches(atomic, self.smallest_sum)

    def stages_of_round(self) -> tuple[str, ...]:
        """Without a consistency check, survivors are unmasked on the server's word."""
        return self.stages if self.consistency == "signed" else (*self.stages[:3], "secagg/unmask-survivors")

    def threshold_for(self, participants: int) -> int:
        """t for so many participants; a fraction is rounded up."""
        return rounded_up(self.threshold, participants)

    def least_threshold(self, participants: int) -> int:
        """The smallest t allowed: above s/2, and above 2s/3 where nobody signs the survivors."""
        return participants // 2 + 1 if self.consistency == "signed" else 2 * participants // 3 + 1

    def fewest_survivors(self, participants: int) -> int:
        return self.threshold_for(participants)

    def check(self, participants: int) -> None:
        """t must be at least `least_threshold` and at most s."""
        t, least = self.threshold_for(participants), self.least_threshold(participants)
        check_two_participants(self, participants)
        if not least <= t <= participants:
            above = "0.5" if self.consistency == "signed" else "2/3, which consistency: none needs"
            raise ValueError(
                f"threshold: t = {t} of {participants} participants; allowed {least} to {participants}"
                f" (or a fraction above {above})"
            )
        if self.smallest_sum is not None and self.batches == "ignored":
            raise ValueError(
                "smallest_sum: says something of batches that are kept whole; leave it out with batches: ignored"
            )
        if self.smallest_sum is not None and self.smallest_sum > participants:
            raise ValueError(
                f"smallest_sum: {self.smallest_sum} of {participants} participants; at most {participants}"
            )
        enforcement = self._enforcement
        if enforcement is not None and t == participants:
            raise ValueError(
                f"noise.enforcement: no round with fewer than t = {t} of {participants} goes on; lower threshold, or "
                "leave out enforcement"
            )
        if enforcement is not None and enforcement.tolerated_dropouts > participants - t:
            raise ValueError(
                f"noise.enforcement.tolerated_dropouts: {enforcement.tolerated_dropouts} of {participants}; "
                f"at most {participants - t}, since a round with fewer than t = {t} ends"
            )

    def check_asynchronous(self, concurrency: int, participants: int) -> None:
        """Clients keep their places while they wait, and were sent different models."""
        if concurrency < participants:
            raise ValueError(
                f"asynchronous.concurrency: {concurrency}, and a buffer is of selection.participants: {participants}; "
                "under secure aggregation at least as many, as clients keep their places"
            )
        if self.model_binding == "signed":
            raise excludes(
                "asynchronous",
                "aggregation.model_binding: signed",
                "clients of one buffer were sent different models",
                "set it to none, and see docs/how-to/asynchronous.md for what that gives up",
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
            "asynchronous rounds go without aggregation.model_binding (none), as clients of one buffer were sent "
            "different models; docs/how-to/asynchronous.md says what that gives up"
        ]

    def check_weights(self, participants: int, maximum_weight: int) -> None:
        """The weighted sum must fit the ring; whether it does with noise is a question of the dimension."""
        if self.noise is None:
            self.quantisation.check(participants, maximum_weight if self.weights == "samples" else 1)
