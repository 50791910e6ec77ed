"""Values drawn from distributions, truncated: conditioned on lying between two bounds, not clipped to them.

Each value takes one uniform random number through the inverse of the truncated distribution. Unlike drawing again
until a value lies within the bounds, that takes the same random numbers whatever the bounds are.
"""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.arrays import Floats

LEAST_SHARE = 1e-6
"""What bounds must leave of a distribution: far out in a tail, most digits of a value would be lost."""
_LEAST_UNIFORM = 2.0**-54  # random() gives multiples of 2^-53; 0 would be minus infinity as a normal number
_READS = {
    "uniform": ("minimum", "maximum"),
    "normal": ("mean", "sigma", "minimum", "maximum"),
    "log-normal": ("median", "sigma", "minimum", "maximum"),
}
_NEEDS = {
    "uniform": ("minimum", "maximum"),
    "normal": ("mean", "sigma", "minimum"),
    "log-normal": ("median", "sigma"),
}

_Positive = Annotated[float, Field(gt=0)]


class Drawn(BaseModel):
    """A value for each client, drawn once per experiment; in the unit of the key that it is the value of."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    distribution: Literal["uniform", "normal", "log-normal"] = Field(description="Shape")
    minimum: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Smallest value (uniform, normal; log-normal: 0 if not given)"
    )
    maximum: _Positive | None = Field(None, description="Largest value (uniform; the others: none if not given)")
    mean: float | None = Field(None, description="Mean before truncation (normal)")
    median: _Positive | None = Field(None, description="Median before truncation (log-normal)")
    sigma: _Positive | None = Field(
        None, description="Standard deviation before truncation (normal), or that of the natural logarithm (log-normal)"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        reads, needs = _READS[self.distribution], _NEEDS[self.distribution]
        values = dict(self)
        for key in ("minimum", "maximum", "mean", "median", "sigma"):
            given = values[key] is not None
            if given and key not in reads:
                raise ValueError(f"a {self.distribution} distribution has no `{key}`; it has {', '.join(reads)}")
            if not given and key in needs:
                raise ValueError(f"a {self.distribution} distribution needs `{key}`; it needs {', '.join(needs)}")
        if self.maximum is not None and self.maximum < (self.minimum or 0.0):
            raise ValueError(f"`maximum` ({self.maximum:g}) must be at least `minimum` ({self.minimum:g})")
        if self.distribution != "uniform":
            low, high = self._bounds()
            mean, sigma = self._mean_and_sigma()
            if share_between(np.array([mean]), np.array([sigma]), low, high)[0] < LEAST_SHARE:
                raise ValueError("`minimum` and `maximum` leave almost nothing of the distribution; move them")
        return self

    def draw(self, population: int, generator: np.random.Generator) -> Floats:
        """`(population,)` float64 values within the bounds; takes `population` uniform numbers."""
        low, high = self._bounds()
        if self.distribution == "uniform":
            return np.clip(low + (high - low) * generator.random(population), low, high)
        mean, sigma = (np.full(population, number) for number in self._mean_and_sigma())
        values = truncated_normal(mean, sigma, low, high, generator)
        if self.distribution == "log-normal":
            values = np.exp(values)
        return np.clip(values, self.minimum or 0.0, np.inf if self.maximum is None else self.maximum)

    def _bounds(self) -> tuple[float, float]:
        """Of the value, or of its logarithm if that is what is normal."""
        bounds = self.minimum or 0.0, np.inf if self.maximum is None else self.maximum
        if self.distribution != "log-normal":
            return bounds
        with np.errstate(divide="ignore"):
            low, high = np.log(bounds).tolist()
        return low, high

    def _mean_and_sigma(self) -> tuple[float, float]:
        assert self.sigma is not None
        if self.median is not None:
            return float(np.log(self.median)), self.sigma
        assert self.mean is not None
        return self.mean, self.sigma


def truncated_normal(mean: Floats, sigma: Floats, low: float, high: float, generator: np.random.Generator) -> Floats:
    """`(n,)` values, each of a normal distribution of its own conditioned on lying in [`low`, `high`].

    Args:
        mean, sigma: `(n,)`; where sigma is 0 the value is the mean, brought into the bounds.
        low, high: the bounds; may be infinite.
        generator: gives n uniform numbers.
    """
    from scipy.special import ndtr, ndtri  # slow to import

    uniform = np.maximum(generator.random(len(mean)), _LEAST_UNIFORM)
    moving = sigma > 0
    scale = np.where(moving, sigma, 1.0)
    sign, first, last = _lower_tail((low - mean) / scale, (high - mean) / scale)
    standard = sign * ndtri(ndtr(first) + (ndtr(last) - ndtr(first)) * uniform)
    return np.clip(np.where(moving, mean + scale * standard, mean), low, high)


def share_between(mean: Floats, sigma: Floats, low: float, high: float) -> Floats:
    """`(n,)` probabilities that normal values lie in [`low`, `high`]; for sigma 0, whether the mean does."""
    from scipy.special import ndtr  # slow to import

    with np.errstate(divide="ignore", invalid="ignore"):
        _, first, last = _lower_tail((low - mean) / sigma, (high - mean) / sigma)
    return np.where(sigma > 0, ndtr(last) - ndtr(first), (low <= mean) & (mean <= high)).astype(np.float64)


def _lower_tail(first: Floats, last: Floats) -> tuple[Floats, Floats, Floats]:
    """Standardised bounds, mirrored where both are above the mean: near 1, probabilities cannot be told apart."""
    mirrored = first > 0
    return np.where(mirrored, -1.0, 1.0), np.where(mirrored, -last, first), np.where(mirrored, -first, last)
