"""Keys of the ``workload`` section that say more of local steps: the term of FedProx, and how the rate moves."""

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
        description="FedProx (Li et al. 2020, arXiv 1812.06127): mu times the distance to the model that was given is "
        "added to each local step's gradient; 0: FedAvg.",
    ),
]


class LearningRateSchedule(BaseModel):
    """How the local learning rate moves from round to round: factors of ``learning_rate``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Literal["cosine", "linear", "constant"] = Field(
        "cosine",
        description="How it falls after the warm-up: along half a cosine (Loshchilov and Hutter 2017, arXiv "
        "1608.03983, equation 5, without restarts), in a line, or not at all (constant: as learning_rate_decay says).",
    )
    rounds: int | None = Field(
        default=None,
        ge=2,
        le=10_000_000,
        description="The round that trains with the last factor, as all later ones do; warm-up is counted. Of cosine "
        "and linear, which need it: usually the experiment's number of rounds.",
    )
    last: float | None = Field(
        default=None, ge=0, lt=1, description="Factor of that round (unset: 0.01). Of cosine and linear."
    )
    warm_up_rounds: int = Field(
        default=0,
        ge=0,
        le=10_000_000,
        description="So many rounds rise to the full rate in a line: round r of the first w trains with r/w of it "
        "(Goyal et al. 2017, arXiv 1706.02677, section 2.2).",
    )

    @model_validator(mode="after")
    def _keys_fit_together(self) -> Self:
        if self.shape == "constant":
            for key in ("rounds", "last"):
                if dict(self)[key] is not None:
                    raise ValueError(f"{key}: is read for cosine and linear only; leave it out")
            if not self.warm_up_rounds:
                raise ValueError("shape: constant changes nothing without warm_up_rounds; set it")
        elif self.rounds is None:
            raise ValueError(f"rounds: is required for shape {self.shape}; usually the experiment's number of rounds")
        elif self.warm_up_rounds >= self.rounds:
            raise ValueError(f"warm_up_rounds: {self.warm_up_rounds} of rounds: {self.rounds}; must be fewer")
        return self

    def check(self, *, decays: bool) -> None:
        """Raise `ValueError` where ``learning_rate_decay`` says otherwise how the rate falls."""
        if decays and self.shape != "constant":
            raise ValueError(
                f"learning_rate_schedule: {self.shape} is instead of learning_rate_decay; leave out one of the two "
                "(shape: constant goes with it)"
            )

    def factor(self, round_number: int) -> float:
        """Of the learning rate in a round; 1 is the first."""
        if round_number < self.warm_up_rounds:
            return round_number / self.warm_up_rounds
        if self.rounds is None:
            return 1.0
        first = max(1, self.warm_up_rounds)  # the round that trains with the full rate
        gone = min(1.0, (round_number - first) / (self.rounds - first))
        last = 0.01 if self.last is None else self.last
        left = (1 + cos(pi * gone)) / 2 if self.shape == "cosine" else 1 - gone
        return last + (1 - last) * left


Schedule = Annotated[
    LearningRateSchedule | None,
    Field(
        exclude_if=lambda schedule: schedule is None,
        description="How the rate moves from round to round, e.g. {shape: cosine, rounds: 100, warm_up_rounds: 5}.",
    ),
]


def check_milestones(milestones: Sequence[int], decay: float, decay_every: int) -> None:
    """Raise `ValueError` (one line) for milestones of a learning rate that do not ascend, or change nothing."""
    if list(milestones) != sorted(set(milestones)):
        raise ValueError("learning_rate_milestones: rounds in ascending order, each once, are needed")
    if decay_every != 1:
        raise ValueError("learning_rate_milestones are instead of learning_rate_decay_every; leave out one of the two")
    if decay == 1:
        raise ValueError("learning_rate_milestones change nothing without learning_rate_decay, e.g. 0.4")
