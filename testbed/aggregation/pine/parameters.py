"""The experiment's section `aggregation` for `pine`."""

import math
from functools import lru_cache
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from testbed.aggregation.kit.parameters import MinSurvivorsParameters, check_two_participants
from testbed.crypto.field64 import PRIME
from testbed.crypto.pine import PineVdaf, largest_norm_bound
from testbed.emulation.compute.cost import meter
from testbed.errors import ExperimentError

_MOST_POINTS = 128
"""Of a wire of the norm's proof. More make a shorter proof, and a longer transform of each wire."""


class PineParameters(MinSurvivorsParameters):
    """Sums that hide every single update from two aggregators of which one is honest, of updates with bounded norm."""

    stages: ClassVar[tuple[str, ...]] = ("pine/verify-key", "pine/report", "pine/prepare", "pine/aggregate-share")
    protocol: Literal["pine"] = "pine"
    weights: Literal["samples", "equal"] = Field(
        "equal", description="equal: a weight would multiply what one client can change; `samples` is refused"
    )
    helper: int = Field(
        0,
        ge=0,
        description="Number of the client that is the second aggregator, which must not collude with the server; its "
        "link and device are a client's",
    )
    norm_bound: float = Field(
        1.0,
        gt=0,
        le=largest_norm_bound(),
        allow_inf_nan=False,
        description="Largest Euclidean norm of an update: longer ones are scaled down by honest clients, and reports "
        "of longer ones rejected",
    )
    fraction_bits: int = Field(20, ge=0, le=30, description="Bits behind the point of a coordinate")
    min_survivors: int | float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="Valid reports that a sum must have, or the helper refuses: a number, or a fraction of the "
        "participants",
    )
    model_binding: Literal["signed", "none"] = Field(
        "signed",
        description="Are reports bound to what the client was asked to train, so that only those go into one sum that "
        "were sent the same model (signed), or not (none; to show that attack)?",
    )

    @model_validator(mode="after")
    def _counts_are_equal(self) -> Self:
        if self.weights != "equal":
            raise ValueError("weights: the bound is on what each client adds to the sum; set weights: equal")
        if not 1 <= self.integer_bound <= largest_norm_bound():
            raise ValueError(
                f"norm_bound: {self.norm_bound:g} with {self.fraction_bits} bits behind the point is "
                f"{self.integer_bound}; allowed 1 to {largest_norm_bound()}: change fraction_bits"
            )
        return self

    @property
    def integer_bound(self) -> int:
        """B, the norm of a vector of integers at most."""
        return math.floor(self.norm_bound * (1 << self.fraction_bits))

    def vdaf(self, dimension: int) -> PineVdaf:
        """The function for updates of so many parameters."""
        return _function(dimension, self.integer_bound)

    def encode(self, delta: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """`(d,)` integers: the update, scaled down to the bound where it is longer, rounded to the nearest.

        What rounding may add to the norm is left room for.
        """
        exact = delta.astype(np.float64)
        meter("quantise.element", len(exact))
        room = (self.integer_bound - math.sqrt(len(exact)) / 2) * (1 - 2**-40)
        exact *= 2**self.fraction_bits
        norm = math.sqrt(float(np.square(exact).sum()))
        if norm > room:
            exact *= max(0.0, room) / norm
        return np.rint(exact).astype(np.int64)

    def check(self, participants: int) -> None:
        """The least sum."""
        check_two_participants(self, participants)
        self.check_min_survivors(participants)
        if 2 * participants * self.integer_bound >= PRIME:
            raise ValueError(f"fraction_bits: the sum of {participants} such updates exceeds the field; set fewer")

    def check_population(self, population: int) -> None:
        """The helper is one of the clients."""
        if self.helper >= population:
            raise ValueError(f"helper: client {self.helper} of a population of {population}, counted from 0")

    def check_dimension(self, participants: int, dimension: int) -> None:
        """What rounding adds to the norm must leave most of the bound."""
        rounding = math.sqrt(dimension) / 2
        if rounding > self.integer_bound / 8:
            needed = math.ceil(math.log2(8 * rounding / self.norm_bound))
            raise ExperimentError(
                f"aggregation.fraction_bits: {self.fraction_bits}, rounding {dimension} coordinates takes more than an "
                f"eighth of norm_bound {self.norm_bound:g}; set {needed} or more, or another norm_bound"
            )


@lru_cache(maxsize=8)
def _function(dimension: int, norm_bound: int) -> PineVdaf:
    points = min(_MOST_POINTS, 1 << (dimension.bit_length() + 1) // 2)
    norm_chunk = max(1, -(-dimension // (points - 1)))
    bits = PineVdaf(dimension, norm_bound, 1, norm_chunk).circuits[0].bits
    return PineVdaf(dimension, norm_bound, math.isqrt(bits), norm_chunk)
