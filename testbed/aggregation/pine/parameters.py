"""Parameters of `pine`: the section `aggregation` of an experiment."""

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
"""Most points of a wire of the norm's proof. More make a shorter proof, and a longer transform of each wire."""


class PineParameters(MinSurvivorsParameters):
    """Sums of updates with bounded norm that hide every single update if one of two aggregators is honest."""

    stages: ClassVar[tuple[str, ...]] = ("pine/verify-key", "pine/report", "pine/prepare", "pine/aggregate-share")
    outsiders_check_batches: ClassVar[bool] = True
    protocol: Literal["pine"] = "pine"
    weights: Literal["samples", "equal"] = Field(
        "equal", description="equal; `samples` is refused, as a weight would multiply the influence of one client"
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
        description="signed: reports are bound to the client's training task, so that a sum only has clients that were "
        "sent the same model; none: they are not (to demonstrate the attack)",
    )

    @model_validator(mode="after")
    def _counts_are_equal(self) -> Self:
        if self.weights != "equal":
            raise ValueError("weights: the norm bound is on each client's part of the sum; set weights: equal")
        if not 1 <= self.integer_bound <= largest_norm_bound():
            raise ValueError(
                f"norm_bound: {self.norm_bound:g} with {self.fraction_bits} bits behind the point is "
                f"{self.integer_bound}; allowed 1 to {largest_norm_bound()}: change fraction_bits"
            )
        return self

    @property
    def integer_bound(self) -> int:
        """B, the largest norm of a vector of integers."""
        return math.floor(self.norm_bound * (1 << self.fraction_bits))

    def vdaf(self, dimension: int) -> PineVdaf:
        """Return the function for updates with this many parameters."""
        return _function(dimension, self.integer_bound)

    def encode(self, delta: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Return `(d,)` integers: the update, scaled down to the bound if it is longer, rounded to the nearest."""
        exact = delta.astype(np.float64)
        meter("quantise.element", len(exact))
        # Rounding adds at most sqrt(d) / 2 to the norm; the last factor covers the float arithmetic below.
        room = (self.integer_bound - math.sqrt(len(exact)) / 2) * (1 - 2**-40)
        exact *= 2**self.fraction_bits
        norm = math.sqrt(float(np.square(exact).sum()))
        if norm > room:
            exact *= max(0.0, room) / norm
        return np.rint(exact).astype(np.int64)

    def check(self, participants: int) -> None:
        """Check the smallest sum, and that the sum fits the field; raises `ValueError`."""
        check_two_participants(self, participants)
        self.check_min_survivors(participants)
        if 2 * participants * self.integer_bound >= PRIME:
            raise ValueError(f"fraction_bits: the sum of {participants} updates exceeds the field; lower fraction_bits")

    def check_population(self, population: int) -> None:
        """Check that the helper is one of the clients; raises `ValueError`."""
        if self.helper >= population:
            raise ValueError(f"helper: client {self.helper}; the population has clients 0 to {population - 1}")

    def check_dimension(self, participants: int, dimension: int) -> None:
        """Check that rounding takes at most an eighth of the norm bound; raises `ExperimentError`."""
        rounding = math.sqrt(dimension) / 2
        if rounding > self.integer_bound / 8:
            needed = math.ceil(math.log2(8 * rounding / self.norm_bound))
            raise ExperimentError(
                f"aggregation.fraction_bits: {self.fraction_bits}; rounding {dimension} coordinates takes more than an "
                f"eighth of norm_bound {self.norm_bound:g}; set {needed} or more, or another norm_bound"
            )


@lru_cache(maxsize=8)
def _function(dimension: int, norm_bound: int) -> PineVdaf:
    points = min(_MOST_POINTS, 1 << (dimension.bit_length() + 1) // 2)
    # One point of each wire has the random value of the proof, so points - 1 calls remain.
    norm_chunk = max(1, -(-dimension // (points - 1)))
    bits = PineVdaf(dimension, norm_bound, 1, norm_chunk).circuits[0].bits
    # About the square root of the bits: chunks and calls contribute equally to the length of a proof.
    return PineVdaf(dimension, norm_bound, math.isqrt(bits), norm_chunk)
