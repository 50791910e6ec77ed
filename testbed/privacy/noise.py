"""Noise that participants add to their updates: the experiment's section `aggregation.noise`.

The noise of a round is the sum of the participants' shares: each of them adds noise with the planned variance over the
number of planned participants. The share of a participant that drops out is missing.

Enforced noise (Jiang, Wang, Chen, Dordis: Efficient Federated Learning with Dropout-Resilient Differential Privacy,
EuroSys 2024, arXiv 2209.12528, XNoise) keeps the planned variance v of a sum over s participants when up to T of them
drop out: each adds components 0, 1, ..., T of independent Skellam noise. When s - j participants are left, the server
removes the components after the j-th of each of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from math import sqrt
from typing import Any, Literal

import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from testbed.crypto import prf
from testbed.errors import ExperimentError
from testbed.privacy.accounting import LEAST_DEVIATION, DiscreteGaussian, RoundedAccountant, Skellam
from testbed.privacy.encoding import CONDITIONAL_BIAS, Encoding, padded
from testbed.privacy.noise_plan import Accountant
from testbed.privacy.sampling import LARGEST_VARIANCE, SMALLEST_VARIANCE, Mechanism, add_noise, table_of

MOST_TOLERATED = 1000

ENFORCED_WITH: JsonDict = {"onlyWith": {"protocol": "secagg", "consistency": "signed", "noise.mechanism": "skellam"}}
"""JSON schema of keys that parameters of aggregation refuse with any other values of these keys."""

_SEED, _NEXT = b"testbed/xnoise/seed/v1", b"testbed/xnoise/next/v1"


class Enforcement(BaseModel):
    """Enforced noise (XNoise): the planned noise stays in the sum when participants drop out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tolerated_dropouts: int = Field(
        ...,
        ge=1,
        le=MOST_TOLERATED,
        description="T: participants that may drop out before their input arrives without any of the planned noise "
        "missing; each participant adds T more noise vectors",
        json_schema_extra=ENFORCED_WITH,
    )


@dataclass(frozen=True)
class RemovableNoise:
    """Division of one participant's noise into components, of which the server can remove some.

    Attributes:
        participants: s, the planned participants.
        tolerated: T, the tolerated dropouts; below s.
    """

    participants: int
    tolerated: int

    def __post_init__(self) -> None:
        if not 0 <= self.tolerated < self.participants:
            raise ValueError(
                f"tolerated_dropouts: {self.tolerated} of {self.participants} participants; must be at least 0 and "
                "below the number of participants"
            )

    def part(self, component: int) -> float:
        """Return a component's variance, as a fraction of the planned variance of the sum."""
        if component == 0:
            return 1 / self.participants
        # v / (s - k) - v / (s - k + 1): the first j + 1 components have v / (s - j) together, and v in the sum of s - j
        # participants, exactly, since Skellam noise adds up.
        before = self.participants - component + 1
        return 1 / (before * (before - 1))

    @property
    def added(self) -> float:
        """The variance of all components of one participant, as a fraction of that of the sum."""
        return 1 / (self.participants - self.tolerated)

    def first_removed(self, left: int) -> int | None:
        """Return the first component to remove when `left` participants survive; None if all stay."""
        first = self.participants - left + 1
        return first if first <= self.tolerated else None

    def remaining_share(self, left: int) -> float:
        """Return the variance in the sum of `left` survivors after the removal, over the planned one.

        Example:
            >>> RemovableNoise(participants=10, tolerated=2).remaining_share(left=8)
            1.0
        """
        dropouts = self.participants - left
        return 1.0 if dropouts <= self.tolerated else left * self.added


def chain(secret: bytes, length: int) -> list[bytes]:
    """Return a chain of secrets, each of which gives the following ones and nothing about those before it.

    Args:
        secret: 32 bytes, the first of the chain.
        length: number of secrets.
    """
    secrets = [secret]
    while len(secrets) < length:
        # One secret gives all later components, which are removed, and no earlier one, which stays.
        secrets.append(prf.evaluate(secrets[-1], _NEXT))
    return secrets[:length]


def seed_of(secret: bytes) -> bytes:
    """Return the seed of the component that belongs to a secret of the chain."""
    return prf.evaluate(secret, _SEED)


_LEAST, _MOST = 2.0**-10, 2.0**20  # less noise hides nothing; with more there is no signal
_TOLERANCE = 1e-6


def noise_multiplier_for(accountant: Callable[[float], Accountant], epsilon: float, delta: float, rounds: int) -> float:
    """Find the least noise multiplier that keeps a client's epsilon.

    Args:
        accountant: builds the accountant of a noise multiplier; its epsilon falls as the multiplier grows.
        epsilon: not to be exceeded.
        delta: in (0, 1).
        rounds: number of rounds that the client takes part in, with all of the planned noise.

    Returns:
        The multiplier, to a relative 1e-6 and never too small; at least 2**-10.

    Raises:
        ValueError: if an argument is out of range, or no noise of up to 2**20 times the clip attains epsilon.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon: {epsilon}; must be above 0")
    if rounds < 1:
        raise ValueError(f"rounds: {rounds}; must be at least 1")

    def cost(multiplier: float) -> float:
        return accountant(multiplier).epsilon({1.0: rounds}, delta)

    low = high = 1.0
    while cost(high) > epsilon:
        if high >= _MOST:
            raise ValueError(
                f"epsilon: {epsilon:g} cannot be kept over {rounds} rounds at delta {delta:g}: noise of {_MOST:g} "
                f"times the clip still costs {cost(_MOST):.3g}; allow more, or take finer steps (scale)"
            )
        low, high = high, 2 * high
    while low == high or cost(low) <= epsilon:
        if low <= _LEAST:
            return low
        low, high = low / 2, low
    while high / low - 1 > _TOLERANCE:
        # The geometric mean: multipliers span orders of magnitude.
        middle = sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= epsilon else (middle, high)
    return high


_FINEST = 2**14
_LARGEST_RING = 64  # bits


@dataclass(frozen=True)
class NoiseShare:
    """Parameters of one noise vector: the same share gives the same vector, so it can be removed again.

    Attributes:
        mechanism: distribution of the noise.
        variance: variance of each coordinate, in squared steps.
        seed: 32 secret bytes, for this vector alone.
    """

    mechanism: Mechanism
    variance: float
    seed: bytes

    @property
    def can_be_drawn(self) -> bool:
        """Whether the variance is in the range of the sampling tables."""
        return SMALLEST_VARIANCE <= self.variance <= LARGEST_VARIANCE

    def prepare(self) -> None:
        """Compute the sampling table of the distribution, once in a process."""
        if self.can_be_drawn:
            table_of(self.mechanism, self.variance)

    def add_to(self, vector: npt.NDArray[Any], sign: int = 1) -> None:
        """Add the noise to an encoded vector in place, modulo its word size.

        Args:
            vector: `(D+1,)` ring elements; the last one, the count, gets no noise.
            sign: 1, or -1 to remove the noise.
        """
        add_noise(vector[:-1], self.mechanism, self.variance, self.seed, sign)


class ClippedUpdates(BaseModel):
    """Updates of bounded L2 norm, encoded in a ring: the part of noise sections that does not depend on its source."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clip: float = Field(1.0, gt=0, description="Largest L2 norm of an update; a longer one is shortened to it")
    scale: float | None = Field(
        None,
        ge=1,
        le=2**30,
        description="The clip in integer steps; none: 8 sqrt(d), where rounding hardly matters, rounded up to a power "
        "of two and at most 16384",
    )
    bias: float = Field(
        CONDITIONAL_BIAS,
        ge=0,
        lt=1,
        description="Conditional rounding repeats at most this share of roundings, to keep updates short (the paper's "
        "beta); 0: never",
    )

    def steps(self, dimension: int) -> float:
        """Return the clip in integer steps, for a model of `dimension` parameters."""
        if self.scale is not None:
            return self.scale
        return float(min(_FINEST, 8 << -(-(padded(dimension).bit_length() - 1) // 2)))

    def encoding(self, dimension: int, bits: int) -> Encoding:
        """Return the encoding of updates of d parameters in a ring of `bits` bits."""
        return Encoding(dimension, self.clip, self.steps(dimension), bits, self.bias)

    def check_ring(self, participants: int, dimension: int, bits: int, noise_multiplier: float) -> None:
        """Check that the sum of the updates and their noise fits the ring.

        Args:
            participants: number of summed updates.
            dimension: number of model parameters d.
            bits: ring width.
            noise_multiplier: standard deviation of the noise in the sum over the clip; 0: none.

        Raises:
            ExperimentError: (one line) if the ring is too small.
        """
        steps = self.steps(dimension)
        needed = self.encoding(dimension, bits).bits_needed(participants, noise_multiplier)
        if needed > bits:
            noise = " and their noise" if noise_multiplier else ""
            raise ExperimentError(
                f"aggregation.bits: {participants} updates of {steps:g} steps to the clip{noise} need {needed} bits, "
                f"the ring has {bits}; "
                + (f"set aggregation.bits to {needed}, or lower " if needed <= _LARGEST_RING else "lower ")
                + "aggregation.noise.scale"
            )


class Noise(ClippedUpdates):
    """Noise that the participants add, for differential privacy of the sums."""

    mechanism: Literal["skellam", "discrete-gaussian"] = Field(
        "skellam", description="Distribution of each participant's share of the noise"
    )
    noise_multiplier: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Standard deviation of the noise in the sum over the clip, when all planned participants add some",
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        description="Instead of noise_multiplier: the epsilon of a client that is in every round; the least noise that "
        "keeps it is computed",
    )
    delta: float | None = Field(None, gt=0, lt=1, description="The delta of epsilon; none: the ledger's")
    rounds: int | None = Field(
        None, gt=0, description="The rounds over which epsilon is kept; none: all of the experiment"
    )
    enforcement: Enforcement | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Noise beyond the planned variance, the surplus of which the server removes (XNoise); none: a "
        "participant that drops out takes its share of the noise along",
        json_schema_extra=ENFORCED_WITH,
    )

    @model_validator(mode="after")
    def _only_noise_that_adds_up_is_removed(self) -> "Noise":
        if self.enforcement is not None and self.mechanism != "skellam":
            raise ValueError(
                "enforcement: needs mechanism: skellam, as only its parts add up to the planned noise exactly"
            )
        return self

    @model_validator(mode="after")
    def _as_noise_or_as_epsilon(self) -> "Noise":
        if (self.noise_multiplier is None) == (self.epsilon is None):
            then = "" if self.epsilon is None else "; set the other to null"
            raise ValueError(f"noise_multiplier: set either this or epsilon, not both{then}")
        if self.epsilon is None and not (self.delta is None and self.rounds is None):
            raise ValueError("delta and rounds: allowed only with epsilon; the ledger's delta is privacy.delta")
        return self

    def planned_for(self, rounds: int, delta: float) -> "Noise":
        """Return the section with `rounds` and `delta` filled in where an epsilon is given without them."""
        if self.epsilon is None:
            return self
        completed = {"rounds": self.rounds or rounds, "delta": self.delta or delta}
        return self.model_copy(update=completed)

    def multiplier(self, participants: int, dimension: int) -> float:
        """Return the noise multiplier, as given or computed for the given epsilon.

        Raises:
            ExperimentError: (one line) if no noise keeps the epsilon.
        """
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        return _multiplier(self, participants, dimension)

    def accountant(self, participants: int, dimension: int) -> Accountant:
        """Return the accountant of `participants` clients that share the noise, for d model parameters."""
        return self._accountant(self.multiplier(participants, dimension), participants, dimension)

    def _accountant(self, multiplier: float, participants: int, dimension: int) -> Accountant:
        of_round = multiplier, padded(dimension), self.steps(dimension), self.bias
        mechanism = Skellam(*of_round) if self.mechanism == "skellam" else DiscreteGaussian(*of_round, participants)
        return RoundedAccountant(mechanism)

    def share(self, participants: int, dimension: int, seed: bytes, most: int | None = None) -> NoiseShare:
        """Return the noise that one of the planned participants adds.

        Args:
            participants: number of participants of this round, which share the noise.
            dimension: number of model parameters d.
            seed: 32 secret bytes, for this vector alone.
            most: largest number of participants of any round; None: that of this round.
        """
        # For an epsilon, all rounds have the multiplier of the largest round. It is more than enough for smaller
        # rounds: fewer discrete Gaussians, each of a larger variance, are nearer to a discrete Gaussian.
        whole = (self.multiplier(most or participants, dimension) * self.steps(dimension)) ** 2
        return NoiseShare(self.mechanism, whole / participants, seed)

    def removable(self, participants: int) -> RemovableNoise | None:
        """Return the components of enforced noise for `participants` planned participants; None without enforcement."""
        if self.enforcement is None:
            return None
        return RemovableNoise(participants, min(self.enforcement.tolerated_dropouts, participants - 1))

    def component(self, plan: RemovableNoise, dimension: int, number: int, seed: bytes) -> NoiseShare:
        """Return one of the noise vectors that a participant adds; number 0 is that of `share`."""
        share = self.share(plan.participants, dimension, seed)
        return replace(share, variance=share.variance * plan.participants * plan.part(number))

    def check(self, participants: int, dimension: int, bits: int) -> None:
        """Raise `ExperimentError` (one line) if the sum does not fit the ring, or shares cannot be drawn."""
        self.check_share(participants, dimension)
        self.check_ring(participants, dimension, bits, self.multiplier(participants, dimension))

    def check_share(self, participants: int, dimension: int) -> None:
        """Raise `ExperimentError` (one line) if a participant's share of the noise cannot be drawn or accounted."""
        steps = self.steps(dimension)
        deviation = self.share(participants, dimension, bytes(32)).variance ** 0.5
        least = LEAST_DEVIATION if self.mechanism == "discrete-gaussian" and participants > 1 else 2**-16
        if not least <= deviation <= 2**16:
            why = (
                f"more than {2**16}, the most that can be drawn; lower it"
                if deviation > 2**16
                else f"less than {least:g}, the least that can be accounted or drawn; raise it"
            )
            raise ExperimentError(
                f"aggregation.noise.scale: at {steps:g} steps to the clip, each of {participants} participants adds "
                f"noise of {deviation:.4g} steps, {why}"
            )


@lru_cache(maxsize=1024)
def _multiplier(noise: Noise, participants: int, dimension: int) -> float:
    if noise.epsilon is None or noise.rounds is None or noise.delta is None:
        raise ExperimentError("aggregation.noise.epsilon: needs delta and rounds, which an experiment fills in")
    return planned_multiplier(
        lambda multiplier: noise._accountant(multiplier, participants, dimension),
        noise.epsilon,
        noise.delta,
        noise.rounds,
    )


def planned_multiplier(accountant: Callable[[float], Accountant], epsilon: float, delta: float, rounds: int) -> float:
    """Compute the noise multiplier of a section that gives an epsilon, rounded up to four digits.

    Args:
        accountant, epsilon, delta, rounds: see `noise_multiplier_for`.

    Raises:
        ExperimentError: (one line) where `noise_multiplier_for` raises `ValueError`.
    """
    try:
        digits = Decimal(noise_multiplier_for(accountant, epsilon, delta, rounds))
    except ValueError as error:
        raise ExperimentError(f"aggregation.noise.{error}") from None
    # Four digits: the last bits of a search differ between machines.
    return float(digits.quantize(Decimal((0, (1,), digits.adjusted() - 3)), ROUND_CEILING))
