"""Keys of the ``workload`` section for local steps: FedProx's term and the schedule of the learning rate."""

from collections.abc import Sequence
from math import cos, pi
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Proximal = Annotated[
    float,
    Field(
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        exclude_if=lambda strength: strength == 0,
        description="mu of FedProx (Li et al. 2020, arXiv 1812.06127): each local gradient gets mu times the "
        "difference between the local model and the global model. Default 0: FedAvg.",
    ),
]


class LearningRateSchedule(BaseModel):
    """Schedule of the local learning rate over the rounds, as factors of ``learning_rate``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Literal["cosine", "linear", "constant"] = Field(
        "cosine",
        description="Decay after the warm-up: cosine (half a period, Loshchilov and Hutter 2017, arXiv 1608.03983, "
        "equation 5, without restarts), linear, or constant (only learning_rate_decay applies).",
    )
    rounds: int | None = Field(
        default=None,
        ge=2,
        le=10_000_000,
        description="Round that reaches the last factor, warm-up included; later rounds keep this factor. Required for "
        "cosine and linear: usually the experiment's number of rounds.",
    )
    last: float | None = Field(
        default=None, ge=0, lt=1, description="Factor of the last round (unset: 0.01). For cosine and linear."
    )
    warm_up_rounds: int = Field(
        default=0,
        ge=0,
        le=10_000_000,
        description="Number w of warm-up rounds: round r of the first w trains with r/w of the rate (Goyal et al. "
        "2017, arXiv 1706.02677, section 2.2). Default 0: no warm-up.",
    )

    @model_validator(mode="after")
    def _keys_fit_together(self) -> Self:
        if self.shape == "constant":
            for key in ("rounds", "last"):
                if dict(self)[key] is not None:
                    raise ValueError(f"{key}: only shapes cosine and linear use this key; leave it out")
            if not self.warm_up_rounds:
                raise ValueError("shape: constant has no effect without warm_up_rounds; set warm_up_rounds")
        elif self.rounds is None:
            raise ValueError(
                f"rounds: required for shape {self.shape}; set it, usually to the experiment's number of rounds"
            )
        elif self.warm_up_rounds >= self.rounds:
            raise ValueError(f"warm_up_rounds: {self.warm_up_rounds} must be less than rounds: {self.rounds}")
        return self

    def check(self, *, decays: bool) -> None:
        """Raise `ValueError` if ``learning_rate_decay`` describes a second decay."""
        if decays and self.shape != "constant":
            raise ValueError(
                f"learning_rate_schedule: {self.shape} replaces learning_rate_decay; leave out one of the two "
                "(shape: constant goes with learning_rate_decay)"
            )

    def factor(self, round_number: int) -> float:
        """Return the factor of the learning rate in a round; the first round is 1."""
        if round_number < self.warm_up_rounds:
            return round_number / self.warm_up_rounds
        if self.rounds is None:
            return 1.0
        first = max(1, self.warm_up_rounds)  # the round that trains with the full rate
        # Beyond 1 the cosine would rise again.
        gone = min(1.0, (round_number - first) / (self.rounds - first))
        last = 0.01 if self.last is None else self.last
        # Loshchilov and Hutter, equation 5, between the last factor and 1.
        left = (1 + cos(pi * gone)) / 2 if self.shape == "cosine" else 1 - gone
        return last + (1 - last) * left


Schedule = Annotated[
    LearningRateSchedule | None,
    Field(
        exclude_if=lambda schedule: schedule is None,
        description="Schedule of the learning rate over the rounds, e.g. {shape: cosine, rounds: 100, "
        "warm_up_rounds: 5}. Unset: the rate changes by learning_rate_decay alone.",
    ),
]


def check_milestones(milestones: Sequence[int], decay: float, decay_every: int) -> None:
    """Raise `ValueError` if the milestones of a learning rate do not ascend or have no effect.

    Args:
        milestones: ``learning_rate_milestones``.
        decay: ``learning_rate_decay``.
        decay_every: ``learning_rate_decay_every``.
    """
    if list(milestones) != sorted(set(milestones)):
        raise ValueError("learning_rate_milestones: must be different rounds in ascending order")
    if decay_every != 1:
        raise ValueError("learning_rate_milestones replace learning_rate_decay_every; leave out one of the two")
    if decay == 1:
        raise ValueError("learning_rate_milestones have no effect without learning_rate_decay; set it, e.g. to 0.4")
