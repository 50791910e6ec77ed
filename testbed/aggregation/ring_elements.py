"""From float updates to ring elements and back, with noise (`aggregation.noise`) or without.

Without: an update's coordinate is clipped to [-clip, clip] and rounded, up or down at random so that it is right on
average, to one of 2**levels_bits levels; the client multiplies by its weight and appends the weight itself as one more
element. The server therefore learns the sum of weights and nothing else about them. The coins are 16 bits for each
coordinate of an AES-256-CTR key stream, in a tenth of the time of a double of numpy's Philox. Coordinates count to the
nearest 65,536th of a level, so on average they are right to half of that.

A sum from which not every mask was removed is uniform noise, and nothing signed tells it from a sum. But no honest
sum has a coordinate above the sum of weights times the highest level: `decode` refuses what has.

A `NoisePolicy` says how an update becomes ring elements and how the sum of such elements becomes a mean. `AddedNoise`
is the one with noise: each participant adds its share of the noise that is planned for so many as take part in the
round; who drops out takes its share along. Server and clients have the same policy, made from the parameters.
"""

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, model_validator

from testbed.aggregation.compression import CompressionKey, uncompressed_only
from testbed.aggregation.contract import AggregationParameters, AggregationProtocol, AggregationRound
from testbed.crypto.masks import STREAM_SLACK, key_stream, word_dtype
from testbed.emulation.compute.cost import meter
from testbed.errors import ExperimentError, Refusal, RoundAborted
from testbed.network.masked_vectors import Elements
from testbed.network.sums import reduced
from testbed.parties.client import Client, Role
from testbed.privacy.encoding import rotation_seed
from testbed.privacy.noise import Noise, NoiseShare
from testbed.privacy.noise_plan import Accountant
from testbed.workload.contract import LocalUpdate

LARGEST_RING = 64  # bits
_COIN_BITS = 16
_CHUNK = 1 << 17  # elements, for whose coins a key stream is asked at once; with fewer threads wait for each other


class _Buffers(threading.local):
    """Each thread's place for one chunk: memory that is asked for anew for each would cost more than the arithmetic."""

    def __init__(self) -> None:
        self.values = np.empty(_CHUNK, np.float64)
        self.coins = np.empty(_CHUNK * _COIN_BITS // 8 + STREAM_SLACK, np.uint8)
        self.levels = np.empty(_CHUNK, np.uint64)


_buffers = _Buffers()


@dataclass(frozen=True)
class Quantisation:
    """The mapping, the same for all clients of an experiment.

    Attributes:
        clip: largest absolute value of a coordinate.
        levels_bits: bits per coordinate before summing.
        bits: ring width; sums are taken modulo 2**bits.
    """

    clip: float
    levels_bits: int
    bits: int

    @property
    def highest(self) -> int:
        """The highest level."""
        return (1 << self.levels_bits) - 1

    @property
    def modulus(self) -> int:
        """Of the sums."""
        return 1 << self.bits

    def check(self, participants: int, maximum_weight: int) -> None:
        """Raise `ExperimentError` when the sum of so many weighted updates could exceed the ring."""
        largest = participants * maximum_weight * self.highest
        if largest >= self.modulus:
            raise ExperimentError(
                f"aggregation.bits: {participants} participants with weights up to {maximum_weight} at "
                f"{self.levels_bits} bits need {largest.bit_length()} bits, the ring has {self.bits}; "
                f"{self._advice(participants, maximum_weight)}"
            )

    def _advice(self, participants: int, maximum_weight: int) -> str:
        """What makes the sum fit: each of these by itself."""
        weighted, ring = participants * maximum_weight, 1 << self.bits
        found = []
        if (needed := (weighted * self.highest).bit_length()) <= LARGEST_RING:
            found.append(f"aggregation.bits to {needed}")
        # The most levels whose sum stays below the ring: (2**levels - 1) * weighted < 2**bits.
        if (levels := ((ring - 1) // weighted + 1).bit_length() - 1) >= 1:
            found.append(f"aggregation.levels_bits to {levels}")
        if maximum_weight > 1 and participants * self.highest < ring:
            found.append("aggregation.weights to equal")
        return f"set {', or '.join(found)}" if found else "lower selection.participants"

    def encode(self, delta: npt.NDArray[np.float32], weight: int, coins: bytes) -> npt.NDArray[Any]:
        """`(d+1,)` ring elements: the weighted levels of `delta` `(d,)`, and the weight.

        Args:
            delta: finite.
            weight: how often the update counts.
            coins: 32 bytes, for this update alone, that decide how it is rounded.

        Raises:
            Refusal: the weight is below 1, or so large that this update alone exceeds the ring.
        """
        elements: npt.NDArray[Any] = np.asarray(self.quantised(delta, weight, coins))
        return elements

    def quantised(self, delta: npt.NDArray[np.float32], weight: int, coins: bytes) -> "Quantised":
        """What `encode` returns, made when it is needed; `delta` must not change until then."""
        self.check_weight(weight)
        meter("quantise.element", len(delta))
        return Quantised(self, delta, weight, coins)

    def check_weight(self, weight: int) -> None:
        """Raise `Refusal` for a weight below 1, or so large that a single update exceeds the ring."""
        if weight < 1:
            raise Refusal("aggregation.no-weight", f"a weight of {weight} cannot be summed")
        if weight * self.highest >= self.modulus:
            raise Refusal("aggregation.weight-too-large", f"a weight of {weight} exceeds the ring of {self.bits} bits")

    def decode(self, total: npt.NDArray[Any], updates: int) -> tuple[npt.NDArray[np.float64], int]:
        """`(d,)` weighted mean and sum of weights from `total`, the `(d+1,)` sum of `updates` encoded updates.

        Raises `RoundAborted` for what no such sum can be. Noise passes with a probability of at most
        1 in 2**levels_bits - 1, and less the longer the update.
        """
        weight = int(total[-1])
        highest_sum = weight * self.highest
        if weight < updates or highest_sum >= self.modulus or int(total[:-1].max(initial=0)) > highest_sum:
            raise RoundAborted("implausible-sum", "a mask was not removed, or an input was no encoded update")
        mean = total[:-1] / weight
        mean *= 2 * self.clip / self.highest
        mean -= self.clip
        return mean, weight


@dataclass(frozen=True, eq=False)
class Quantised:
    """An update's `(d+1,)` ring elements, made when they are needed (`testbed.network.masked_vectors.Elements`).

    Attributes:
        quantisation: the mapping.
        delta: `(d,)` the update, finite.
        weight: how often it counts.
        coins: 32 bytes that decide how it is rounded.
    """

    quantisation: Quantisation
    delta: npt.NDArray[np.float32]
    weight: int
    coins: bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The words of the ring."""
        return np.dtype(word_dtype(self.quantisation.bits))

    def __len__(self) -> int:
        return len(self.delta) + 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """`(d+1,)` all of them, in memory of their own."""
        elements = np.full(len(self), 0, self.dtype)  # np.zeros: each page then stops the other cores when written to
        self.add_to(elements)
        return elements if dtype is None else elements.astype(dtype, copy=False)

    def add_to(self, total: npt.NDArray[Any]) -> None:
        """Add them to `(d+1,)` `total`, in place, modulo the range of its words.

        A level is floor(exact + coin), where the coin is uniform in [0, 1): it is computed in units of a coin's last
        bit, in which the exact value is rounded to the nearest integer and nothing else is.
        """
        given = self.quantisation
        unit = float(1 << _COIN_BITS)
        scale, middle, top = (
            given.highest / (2 * given.clip) * unit,
            given.highest / 2 * unit + 0.5,
            given.highest * unit + 0.5,
        )
        work = _buffers.levels if given.levels_bits + _COIN_BITS > 32 else _buffers.levels.view(np.uint32)
        next_coins, factor = key_stream(self.coins), total.dtype.type(self.weight)
        for begin in range(0, len(self.delta), _CHUNK):
            part = self.delta[begin : begin + _CHUNK]
            exact, levels = _buffers.values[: len(part)], work[: len(part)]
            next_coins(_buffers.coins, len(part) * _COIN_BITS // 8)
            np.multiply(part, scale, out=exact, dtype=np.float64)
            exact += middle
            np.clip(exact, 0, top, out=exact)
            levels[:] = exact  # cuts off what is behind the point
            levels += _buffers.coins[: 2 * len(part)].view("<u2")
            levels >>= _COIN_BITS
            target = total[begin : begin + len(part)]
            elements = levels if levels.dtype == total.dtype else levels.astype(total.dtype)
            elements *= factor  # in integers: the product may have more than the 53 bits of a double
            target += elements
        total[len(self.delta)] += factor


class NoisePolicy(ABC):
    """How updates become ring elements, what noise is in them, and what their sum says."""

    @abstractmethod
    def length(self, dimension: int) -> int:
        """How many ring elements an update of so many parameters becomes; its weight is one of them."""

    @abstractmethod
    def encoded(
        self, role: "NoisyRole", update: LocalUpdate, participants: int, round_number: int
    ) -> npt.NDArray[Any] | Elements:
        """`(length,)` a client's update as ring elements, with its noise in them.

        Args:
            role: of the client; it may decide not to add noise (`NoisyRole.noise_to_add`).
            update: what it has learned.
            participants: of the round, as planned: so many share the noise.
            round_number: the round.
        """

    @abstractmethod
    def mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        """`(d,)` mean of so many updates from the `(length,)` sum of their elements, and the sum of their weights.

        Raises `RoundAborted` for what cannot be such a sum.
        """

    def kept(self, survivors: int, participants: int) -> float:
        """Share of the planned noise variance in a sum over so many survivors; 1.0 where none is planned."""
        return 1.0

    def vectors(self, role: "NoisyRole", participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """The noise that this client is to add to its update."""
        return []

    def prepare(self, participants: int, dimension: int) -> None:  # noqa: B027  # there may be nothing to make
        """Make what clients need once in a process, before anybody's work is measured."""


class AddedNoise(NoisePolicy):
    """Each participant adds its share of the planned noise, and all of it stays.

    Args:
        noise: the experiment's section.
        bits: of the ring.
    """

    def __init__(self, noise: Noise, bits: int) -> None:
        self.noise = noise
        self.bits = bits

    def length(self, dimension: int) -> int:
        """See `NoisePolicy.length`; updates are rotated, which takes a power of two."""
        return self.noise.encoding(dimension, self.bits).length + 1

    def encoded(self, role: "NoisyRole", update: LocalUpdate, participants: int, round_number: int) -> npt.NDArray[Any]:
        """See `NoisePolicy.encoded`."""
        delta = np.asarray(update.delta, np.float32)
        rotation = rotation_seed(role.environment.experiment_id, round_number)
        elements = self.noise.encoding(len(delta), self.bits).encode(
            delta, rotation, _secret(role, round_number, "rounding")
        )
        for share in role.noise_to_add(participants, len(delta), round_number):
            share.add_to(elements)
        return reduced(elements, self.bits)

    def mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        """See `NoisePolicy.mean`; raises also where the server does not know what the rotation is derived from."""
        if round_.dimension is None or round_.experiment_id is None:
            raise RoundAborted("no-rotation", "it is derived from the experiment's id and the model's dimension")
        encoding = self.noise.encoding(round_.dimension, self.bits)
        return encoding.decode(total, updates, rotation_seed(round_.experiment_id, round_.number))

    def kept(self, survivors: int, participants: int) -> float:
        """See `NoisePolicy.kept`."""
        return survivors / participants

    def vectors(self, role: "NoisyRole", participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """See `NoisePolicy.vectors`: one, the share of a participant."""
        seed = _secret(role, round_number, "share")
        share = self.noise.share(participants, dimension, seed, role.environment.maximum_participants)
        if not share.can_be_drawn:
            raise Refusal("aggregation.noise-out-of-range", f"a share of variance {share.variance:g} cannot be drawn")
        return [share]

    def prepare(self, participants: int, dimension: int) -> None:
        """Make the table that a participant's share is drawn from."""
        self.noise.share(participants, dimension, bytes(32)).prepare()


def _secret(role: "NoisyRole", round_number: int, purpose: str) -> bytes:
    return role.environment.randomness.secret(role.client.number, round_number, f"noise {purpose}")


class NoisyParameters(AggregationParameters):
    """What the protocols have that can sum noise along.

    Attributes:
        removes_noise: whether `Noise.enforcement` is possible.
    """

    removes_noise: ClassVar[bool] = False
    bits: int = Field(32, ge=8, le=64, description="Ring width: sums are taken modulo 2**bits")
    noise: Noise | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Noise that the participants add, for differential privacy; none: sums without noise",
    )
    compression: CompressionKey = None

    @model_validator(mode="after")
    def _noise_goes_with_equal_weights(self) -> "NoisyParameters":
        if self.noise is not None:
            uncompressed_only(self.compression, "noise, which is planned for updates that are whole")
        if self.noise is not None and self.weights != "equal":
            raise ValueError("weights: noise hides updates that all count the same; set weights: equal")
        if self.noise is not None and self.noise.enforcement is not None and not self.removes_noise:
            raise ValueError("noise.enforcement: only protocol: secagg can take noise away; leave it out")
        return self

    def planned_for(self, rounds: int, delta: float) -> Self:
        """An epsilon is kept over all rounds, unless the experiment says otherwise."""
        return self if self.noise is None else self.model_copy(update={"noise": self.noise.planned_for(rounds, delta)})

    def check_dimension(self, participants: int, dimension: int) -> None:
        """The sum and its noise must fit the ring, and the shares of noise must be such as can be drawn."""
        if self.noise is not None:
            self.noise.check(participants, dimension, self.bits)

    def check_before_data(self, participants: int) -> None:
        """With steps and deviation both given, so is the noise of a share."""
        if self.noise is not None and self.noise.scale is not None and self.noise.noise_multiplier is not None:
            self.noise.check_share(participants, 1)

    def noise_policy(self) -> NoisePolicy | None:
        """What participants add; None: their updates are summed as they are."""
        return None if self.noise is None else AddedNoise(self.noise, self.bits)


def noise_of(parameters: BaseModel) -> Noise | None:
    """The section; None also for parameters that have none: those of a user-defined protocol may not."""
    return parameters.noise if isinstance(parameters, NoisyParameters) else None


def compression_of(parameters: BaseModel) -> CompressionKey:
    """How updates are compressed; None: not at all, as by parameters that have no such section."""
    return parameters.compression if isinstance(parameters, NoisyParameters) else None


def noise_policy_of(parameters: AggregationParameters) -> NoisePolicy | None:
    """The policy; None as in `noise_of`."""
    return parameters.noise_policy() if isinstance(parameters, NoisyParameters) else None


class NoisyRole(Role):
    """The client side of a protocol whose updates may carry noise.

    Attributes:
        noise: what the experiment has the client add, where it does.
    """

    parameters: NoisyParameters
    noise: NoisePolicy

    def __init__(self, client: Client, parameters: Any) -> None:
        super().__init__(client, parameters)
        policy = noise_policy_of(parameters)
        if policy is not None:
            self.noise = policy

    def noise_to_add(self, participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """What it does add: all that it should; a dishonest client may decide otherwise."""
        return self.noise.vectors(self, participants, dimension, round_number)


class NoisyProtocol(AggregationProtocol):
    """The server side of a protocol whose updates may carry noise."""

    def prepare(self, participants: int, dimension: int) -> None:
        """Make the tables that participants' noise is drawn from."""
        if (policy := noise_policy_of(self.parameters)) is not None:
            policy.prepare(participants, dimension)

    def accountant(self, participants: int, dimension: int, client_rate: float = 1.0) -> Accountant | None:
        """See `AggregationProtocol.accountant`: what the section `noise` costs."""
        noise = noise_of(self.parameters)
        return None if noise is None else noise.accountant(participants, dimension)
