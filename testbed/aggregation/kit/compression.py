"""Compression of updates: send some of their coordinates, or all of them with fewer bits.

Without ``aggregation.compression`` an update is sent as 32-bit floats. With it:

- ``top-k``: the largest coordinates with their positions (Aji and Heafield 2017, arXiv 1704.05021). The other
  coordinates are lost, so the mean is biased. There is no error feedback (Stich et al. 2018, arXiv 1809.07599).
- ``random-k``: coordinates that follow from the experiment and the round, the same for all clients, so that no
  positions are sent (Konecny et al. 2016, arXiv 1610.05492, section 2, random mask). The mean is scaled by d/k, so it
  is unbiased.
- ``quantise``: each coordinate as a whole number of steps of its bucket's norm, rounded up or down at random so that it
  is unbiased (QSGD: Alistarh et al. 2017, arXiv 1610.02132, section 3.1; numbers are packed, without Elias coding).

Secure aggregation shows only sums, and sums the same coordinates of all clients. So ``random-k`` works with it and
``top-k`` does not; it quantises in any case, so ``quantise`` would add nothing.
"""

import hashlib
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.aggregation.contract import AggregationRound
from testbed.arrays import Floats, Ids
from testbed.crypto.masks import STREAM_SLACK, key_stream
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.messages import Vector, signed_content
from testbed.parties.client import Role
from testbed.vectors.compressed import LEAST_BITS, LEVELS, MOST_BITS, SPARSE, LevelVector, SparseVector, largest_level
from testbed.vectors.dense import FLOAT32

_DOMAIN = b"testbed/compression/coordinates/v1"
_COIN_BYTES = 4
_CHUNK = 1 << 16  # elements with coins from one call of the key stream
_DEFAULT_BUCKET = 512


class Compression(BaseModel):
    """Kind and strength of the compression."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["top-k", "random-k", "quantise"] = Field(
        description="top-k: the largest coordinates of each update; random-k: coordinates that change with the round, "
        "the same for all clients; quantise: all of them, with few bits (QSGD)"
    )
    share: float | None = Field(
        None,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="top-k, random-k: the share of the coordinates that is sent (k/d, rounded up)",
    )
    bits: int | None = Field(
        None,
        ge=LEAST_BITS,
        le=MOST_BITS,
        description="quantise: bits of a coordinate, its sign among them: 2**(bits-1) - 1 levels on either side of 0",
    )
    bucket: int | None = Field(
        None,
        ge=1,
        le=2**31,
        exclude_if=lambda bucket: bucket is None,
        description=f"quantise: consecutive coordinates that share a norm of 4 bytes (unset: {_DEFAULT_BUCKET})",
    )

    @model_validator(mode="after")
    def _keys_are_read(self) -> Self:
        """Refuse keys that the chosen compression would ignore: an ignored key is a wrong experiment."""
        values, reads = dict(self), ("bits", "bucket") if self.name == "quantise" else ("share",)
        if values[reads[0]] is None:
            raise ValueError(f"{reads[0]}: is required for {self.name}, e.g. {'8' if 'bits' in reads else '0.1'}")
        for key in ("share", "bits", "bucket"):
            if values[key] is not None and key not in reads:
                raise ValueError(f"{key}: is not read for {self.name}; leave it out")
        return self

    def made(self) -> "Compressor":
        """Return the compressor of this section."""
        if self.name == "quantise":
            assert self.bits is not None
            return Levels(self.bits, self.bucket or _DEFAULT_BUCKET)
        assert self.share is not None
        return (TopK if self.name == "top-k" else RandomK)(self.share)


CompressionKey = Annotated[
    Compression | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Compression of the updates that clients send, e.g. {name: random-k, share: 0.1}; none: 32-bit "
        "floats",
    ),
]


class Compressor(ABC):
    """Mapping from an update to the vector that is sent, and from the mean of such vectors to a mean update.

    Attributes:
        form: `Vector.bits` of the vectors that are sent.
    """

    form: ClassVar[int]

    @abstractmethod
    def length(self, dimension: int) -> int:
        """Return the number of elements of a vector that stands for d coordinates."""

    @abstractmethod
    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> Vector:
        """Return the vector that a client sends for `(d,)` `delta`, which is finite."""

    def mean(self, mean: Floats, round_: AggregationRound) -> Floats:
        """Return the `(d,)` mean update, given the `(length,)` mean of the vectors that were sent."""
        return mean


class Uncompressed(Compressor):
    """Compressor that sends all coordinates."""

    form = FLOAT32

    def length(self, dimension: int) -> int:
        return dimension

    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> Vector:
        return Vector(delta, FLOAT32)


class TopK(Compressor):
    """Compressor that sends the largest coordinates; the first of equal ones.

    Args:
        share: k/d.
    """

    form = SPARSE

    def __init__(self, share: float) -> None:
        self._share = share

    def length(self, dimension: int) -> int:
        """Return d: zeros are not sent, but counted."""
        return dimension

    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> SparseVector:
        """Return the largest coordinates; the search costs as much as quantising."""
        meter("quantise.element", len(delta))
        places = largest(delta, count_of(self._share, len(delta)))
        return SparseVector(places, delta[places], len(delta))


class RandomK(Compressor):
    """Compressor that sends coordinates drawn anew in each round, the same for all clients.

    They follow from public values, so no party chooses them, not even the server.

    Args:
        share: k/d.
    """

    form = FLOAT32

    def __init__(self, share: float) -> None:
        self._share = share

    def length(self, dimension: int) -> int:
        """Return k."""
        return count_of(self._share, dimension)

    def sample(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> npt.NDArray[np.float32]:
        """Return the `(k,)` coordinates of the round from `(d,)` `delta`."""
        places = coordinates(role.environment.experiment_id, round_number, len(delta), self.length(len(delta)))
        sampled: npt.NDArray[np.float32] = delta[places]
        return sampled

    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> Vector:
        return Vector(self.sample(delta, role, round_number), FLOAT32)

    def mean(self, mean: Floats, round_: AggregationRound) -> Floats:
        """Scale the mean by d/k; coordinates that were not sent are zero.

        Raises:
            RoundAborted: the server does not know the experiment's id or the dimension.
        """
        if round_.dimension is None or round_.experiment_id is None:
            raise RoundAborted("no-coordinates", "random-k needs the experiment's id and the model's dimension")
        whole = np.zeros(round_.dimension, np.float64)
        places = coordinates(round_.experiment_id, round_.number, round_.dimension, len(mean))
        # Each coordinate is sent with probability k/d, so the factor d/k makes the mean unbiased.
        whole[places] = mean * (round_.dimension / len(mean))
        return whole


class Levels(Compressor):
    """Compressor that sends each coordinate as a whole number of steps: QSGD.

    Args:
        bits: of a number.
        bucket: number of coordinates that share a norm.
    """

    form = LEVELS

    def __init__(self, bits: int, bucket: int) -> None:
        self._bits = bits
        self._bucket = bucket

    def length(self, dimension: int) -> int:
        return dimension

    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> LevelVector:
        meter("quantise.element", len(delta))
        # Not a protocol secret: the rounding hides nothing.
        coins = role.environment.randomness.simulation_key(role.client.number, round_number, "stochastic rounding")
        return quantised(delta, self._bits, self._bucket, coins)


def count_of(share: float, dimension: int) -> int:
    """Return k: this share of d coordinates, rounded up.

    Args:
        share: k/d.
        dimension: d.

    Example:
        >>> count_of(0.1, 25)
        3
    """
    # As a decimal: in floats, 0.07 of 100 coordinates would be 8.
    return ceil(Fraction(str(share)) * dimension)


def largest(values: npt.NDArray[np.float32], count: int) -> Ids:
    """Return the positions of the `count` largest absolute values; the first of equal ones.

    Args:
        values: `(d,)` float32.
        count: at most d.

    Returns:
        `(count,)` int64, ascending.

    Example:
        >>> import numpy as np
        >>> largest(np.array([1, -3, 2], np.float32), 2).tolist()
        [1, 2]
    """
    sizes = np.abs(values)
    least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]  # the smallest that is among them
    above, equal = np.flatnonzero(sizes > least), np.flatnonzero(sizes == least)
    return np.sort(np.concatenate([above, equal[: count - len(above)]]))


@lru_cache(maxsize=2)
def coordinates(experiment_id: bytes, round_number: int, dimension: int, count: int) -> Ids:
    """Draw the coordinates of a round, each with the same probability.

    Args:
        experiment_id: 16 bytes.
        round_number: the round.
        dimension: d; coordinates are 0 to d - 1.
        count: k.

    Returns:
        `(count,)` int64, ascending, read-only.
    """
    digest = hashlib.sha256(_DOMAIN + signed_content(experiment_id, round_number)).digest()
    # Only public values seed the draw, so all parties draw the same coordinates.
    random = np.random.Generator(np.random.Philox(int.from_bytes(digest, "big")))
    places = np.sort(random.choice(dimension, count, replace=False, shuffle=False))
    places.setflags(write=False)
    return places


def quantised(values: npt.NDArray[np.float32], bits: int, bucket: int, coins: bytes) -> LevelVector:
    """Return finite `values` as whole numbers of steps, 1/s of their bucket's L2 norm; unbiased.

    A number is floor(|v| / norm * s + coin), with v's sign, where the coin is uniform in [0, 1).

    Args:
        values: `(d,)` float32.
        bits: of a number; s = 2**(bits - 1) - 1.
        bucket: number of consecutive values that share a norm.
        coins: 32 bytes, for these values alone, that decide the rounding.
    """
    count, most = len(values), largest_level(bits)
    starts = np.arange(0, count, bucket)
    squares = np.add.reduceat(np.square(values, dtype=np.float64), starts) if count else np.empty(0)
    with np.errstate(over="ignore"):
        norms = np.sqrt(squares).astype(np.float32)  # one that is infinite makes values that no sum takes
    scales = np.divide(most, norms, out=np.zeros(len(norms)), where=norms > 0, dtype=np.float64)
    levels = np.empty(count, np.uint8 if bits <= 8 else np.uint16)
    next_coins, stream = key_stream(coins), np.empty(_CHUNK * _COIN_BYTES + STREAM_SLACK, np.uint8)
    for begin in range(0, count, _CHUNK):
        part = values[begin : begin + _CHUNK]
        next_coins(stream, len(part) * _COIN_BYTES)
        exact = np.abs(part, dtype=np.float64)
        exact *= scales[np.arange(begin, begin + len(part)) // bucket]
        # A coin in [0, 1) before rounding down: up with the probability of the fraction.
        exact += stream[: len(part) * _COIN_BYTES].view("<u4") * 2.0 ** (-8 * _COIN_BYTES)
        rounded = np.minimum(np.floor(exact), most)  # a norm that was rounded down could make it one more
        levels[begin : begin + len(part)] = np.copysign(rounded, part) + most
    return LevelVector(levels, norms, bits, bucket)


def check_summed(section: Compression | None) -> None:
    """Raise `ValueError` for a compression that does not work with masked sums."""
    if section is None or section.name == "random-k":
        return
    if section.name == "top-k":
        raise ValueError(
            "compression: top-k: each client would send other coordinates, but masked sums need the same coordinates "
            "of all clients; set random-k, or protocol: plain"
        )
    raise ValueError(
        "compression: quantise: this protocol already quantises updates before masking; set levels_bits and bits"
    )
