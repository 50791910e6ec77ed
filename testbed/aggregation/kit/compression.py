"""Updates that take fewer bytes on the wire: some of their coordinates, or all of them with fewer bits.

Without ``aggregation.compression`` an update is sent as 32-bit floats. With it:

- ``top-k``: the coordinates that are largest, with their places (Aji and Heafield 2017, arXiv 1704.05021). What is left
  out is lost: the mean is biased. Nothing is kept back for the next round (error feedback: Stich et al. 2018, arXiv
  1809.07599).
- ``random-k``: coordinates that the experiment and the round choose, the same of all clients, so that no place is sent
  (Konecny et al. 2016, arXiv 1610.05492, section 2, random mask); the mean is scaled by d/k, and so right on average.
- ``quantise``: each coordinate as a whole number of steps of a bucket's norm, rounded up or down at random so that it
  is right on average (QSGD: Alistarh et al. 2017, arXiv 1610.02132, section 3.1; numbers are packed, without Elias
  coding).

Under secure aggregation only sums are seen, and of the same coordinates of all clients. So ``random-k`` goes with it,
``top-k`` cannot, and ``quantise`` is what it does anyway.
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
_CHUNK = 1 << 16  # elements, for whose coins a key stream is asked at once
_DEFAULT_BUCKET = 512


class Compression(BaseModel):
    """Which compression, and how much of it."""

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
        description=f"quantise: so many coordinates in a row share a norm of 4 bytes (unset: {_DEFAULT_BUCKET})",
    )

    @model_validator(mode="after")
    def _keys_are_read(self) -> Self:
        """A key that the chosen one would ignore is an error: an ignored key is a wrong experiment."""
        values, reads = dict(self), ("bits", "bucket") if self.name == "quantise" else ("share",)
        if values[reads[0]] is None:
            raise ValueError(f"{reads[0]}: is required for {self.name}, e.g. {'8' if 'bits' in reads else '0.1'}")
        for key in ("share", "bits", "bucket"):
            if values[key] is not None and key not in reads:
                raise ValueError(f"{key}: is not read for {self.name}; leave it out")
        return self

    def made(self) -> "Compressor":
        """What does it."""
        if self.name == "quantise":
            assert self.bits is not None
            return Levels(self.bits, self.bucket or _DEFAULT_BUCKET)
        assert self.share is not None
        return (TopK if self.name == "top-k" else RandomK)(self.share)


CompressionKey = Annotated[
    Compression | None,
    Field(
        exclude_if=lambda section: section is None,
        description="What clients send of their updates, e.g. {name: random-k, share: 0.1}; none: all of it, as 32-bit "
        "floats",
    ),
]


class Compressor(ABC):
    """From an update to what is sent of it, and from the mean of what was sent to a mean update.

    Attributes:
        form: of the vectors that are sent (`Vector.bits`).
    """

    form: ClassVar[int]

    @abstractmethod
    def length(self, dimension: int) -> int:
        """How many elements the vectors have that stand for d coordinates."""

    @abstractmethod
    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> Vector:
        """What a client sends of `(d,)` `delta`, which is finite."""

    def mean(self, mean: Floats, round_: AggregationRound) -> Floats:
        """`(d,)` the mean update, from the `(length,)` mean of what was sent."""
        return mean


class Uncompressed(Compressor):
    """All of it."""

    form = FLOAT32

    def length(self, dimension: int) -> int:
        return dimension

    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> Vector:
        return Vector(delta, FLOAT32)


class TopK(Compressor):
    """The coordinates that are largest; of equal ones the first.

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
    """Coordinates that are drawn anew in each round, the same for all clients, from what everybody knows: nobody
    chooses them, not the server either.

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
        """`(k,)` the round's coordinates of `(d,)` `delta`."""
        places = coordinates(role.environment.experiment_id, round_number, len(delta), self.length(len(delta)))
        sampled: npt.NDArray[np.float32] = delta[places]
        return sampled

    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> Vector:
        return Vector(self.sample(delta, role, round_number), FLOAT32)

    def mean(self, mean: Floats, round_: AggregationRound) -> Floats:
        """Scale the mean by d/k; coordinates that nobody sent are zero.

        Raises `RoundAborted` where the server does not know what the coordinates are drawn from.
        """
        if round_.dimension is None or round_.experiment_id is None:
            raise RoundAborted("no-coordinates", "they follow from the experiment's id and the model's dimension")
        whole = np.zeros(round_.dimension, np.float64)
        places = coordinates(round_.experiment_id, round_.number, round_.dimension, len(mean))
        whole[places] = mean * (round_.dimension / len(mean))
        return whole


class Levels(Compressor):
    """All coordinates, each as a whole number of steps: QSGD.

    Args:
        bits: of a number.
        bucket: so many share a norm.
    """

    form = LEVELS

    def __init__(self, bits: int, bucket: int) -> None:
        self._bits = bits
        self._bucket = bucket

    def length(self, dimension: int) -> int:
        return dimension

    def compressed(self, delta: npt.NDArray[np.float32], role: Role, round_number: int) -> LevelVector:
        meter("quantise.element", len(delta))
        coins = role.environment.randomness.simulation_key(role.client.number, round_number, "stochastic rounding")
        return quantised(delta, self._bits, self._bucket, coins)


def count_of(share: float, dimension: int) -> int:
    """k: this share of d coordinates, rounded up."""
    return ceil(Fraction(str(share)) * dimension)


def largest(values: npt.NDArray[np.float32], count: int) -> Ids:
    """`(count,)` int64, ascending: where `(d,)` `values` are largest, whatever their sign; of equal ones the first."""
    sizes = np.abs(values)
    least = np.partition(sizes, len(sizes) - count)[len(sizes) - count]  # the smallest that is among them
    above, equal = np.flatnonzero(sizes > least), np.flatnonzero(sizes == least)
    return np.sort(np.concatenate([above, equal[: count - len(above)]]))


@lru_cache(maxsize=2)
def coordinates(experiment_id: bytes, round_number: int, dimension: int, count: int) -> Ids:
    """`(count,)` int64, ascending, read-only: coordinates 0 to `dimension` - 1, each with the same probability."""
    digest = hashlib.sha256(_DOMAIN + signed_content(experiment_id, round_number)).digest()
    random = np.random.Generator(np.random.Philox(int.from_bytes(digest, "big")))
    places = np.sort(random.choice(dimension, count, replace=False, shuffle=False))
    places.setflags(write=False)
    return places


def quantised(values: npt.NDArray[np.float32], bits: int, bucket: int, coins: bytes) -> LevelVector:
    """`(d,)` finite `values` as whole numbers of s-ths of their bucket's L2 norm, right on average.

    A number is floor(|v| / norm * s + coin), with v's sign, where the coin is uniform in [0, 1).

    Args:
        values: what to round.
        bits: of a number; s = 2**(bits - 1) - 1.
        bucket: so many values in a row share a norm.
        coins: 32 bytes, for these values alone, that decide how they are rounded.
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
        exact += stream[: len(part) * _COIN_BYTES].view("<u4") * 2.0 ** (-8 * _COIN_BYTES)
        rounded = np.minimum(np.floor(exact), most)  # a norm that was rounded down could make it one more
        levels[begin : begin + len(part)] = np.copysign(rounded, part) + most
    return LevelVector(levels, norms, bits, bucket)


def check_summed(section: Compression | None) -> None:
    """Raise `ValueError` for a compression whose updates cannot be summed under masks."""
    if section is None or section.name == "random-k":
        return
    if section.name == "top-k":
        raise ValueError(
            "compression: top-k: each client would send other coordinates, and masked sums need the same of all (which "
            "ones are largest would tell of its data, too); take random-k, or protocol: plain"
        )
    raise ValueError(
        "compression: quantise: is what levels_bits and bits do here, before updates are masked; set these instead"
    )
