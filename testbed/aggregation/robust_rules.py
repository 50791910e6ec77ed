"""Rules that make a mean of updates some of which may be poisoned, in place of the weighted mean of `plain`.

- ``median``, ``trimmed-mean``: of each coordinate (Yin, Chen, Ramchandran, Bartlett, Byzantine-Robust Distributed
  Learning: Towards Optimal Statistical Rates, ICML 2018, arXiv 1803.01498, Definitions 1 and 2).
- ``krum``, ``multi-krum``: the updates that lie closest to others (Blanchard, El Mhamdi, Guerraoui, Stainer, Machine
  Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017, sections 4 and 5).
- ``geometric-median``: the point whose distances to all updates have the smallest sum (Pillutla, Kakade, Harchaoui,
  Robust Aggregation for Federated Learning, arXiv 1912.13445, Algorithm 2: the smoothed Weiszfeld algorithm).
- ``norm-bound``: the mean of updates, each scaled down to a norm if it is longer (Sun, Kairouz, Suresh, McMahan, Can
  You Really Backdoor Federated Learning?, arXiv 1911.07963, section 4).

A rule compares single updates, so the server has to see them: under secure aggregation, which shows it sums alone,
there is none. All updates count the same. A weight is what a client says of itself, and a dishonest one would say any.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from testbed.arrays import Floats, Ids
from testbed.emulation.compute.cost import meter
from testbed.errors import ExperimentError
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import PLUGIN_NAME, check_subclass, plugin_class

KEY = "aggregation.robust"
ELSEWHERE = (
    "compares single clients' updates, of which this protocol shows the server sums alone; set protocol: plain, or "
    "leave it out"
)
"""What is said of the section in protocols that have none."""
Updates = Sequence[npt.NDArray[np.float32]]
"""`(d,)` float32 each, finite, of participants in the order of their numbers."""

_CHUNK = 1 << 12  # coordinates of all updates that are looked at together: they stay in the second-level cache
_WEISZFELD_STEPS = 30
_WEISZFELD_TOLERANCE = 1e-6
_SMOOTHING = 1e-6  # nu of Pillutla et al.


class RobustSection(BaseModel):
    """Which rule, and what it is to withstand."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: str = Field(
        description="median or trimmed-mean of each coordinate, krum, multi-krum, geometric-median, norm-bound; or "
        "package.module:Name for a user-defined class, which is made as Name(section, **options)",
        json_schema_extra={
            "examples": ["median", "trimmed-mean", "krum", "multi-krum", "geometric-median", "norm-bound"]
        },
    )
    max_dishonest: int | None = Field(
        None,
        ge=0,
        description="trimmed-mean, krum, multi-krum: dishonest participants of a round that are withstood (f); "
        "trimmed-mean leaves out so many values at either end",
    )
    selected: int | None = Field(
        None,
        ge=1,
        exclude_if=lambda selected: selected is None,
        description="multi-krum: how many updates its mean is of (m); unset: all that arrived but max_dishonest",
    )
    bound: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        exclude_if=lambda bound: bound is None,
        description="norm-bound: the L2 norm to which longer updates are scaled down (M)",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=lambda options: not options,
        description="Keyword arguments for a user-defined class",
    )

    @property
    def is_built_in(self) -> bool:
        """Whether `rule` is one of those here rather than a user-defined class."""
        return self.rule in RULES

    @field_validator("rule")
    @classmethod
    def _is_known(cls, rule: str) -> str:
        if rule not in RULES and not re.fullmatch(PLUGIN_NAME, rule):
            raise ValueError(f"{rule!r} is unknown; allowed: {', '.join(RULES)}, package.module:Name")
        return rule

    @model_validator(mode="after")
    def _keys_are_read(self) -> Self:
        """A key that the chosen rule would ignore is an error, and so is one that it needs."""
        if self.is_built_in and self.options:
            raise ValueError(f"options: are for a user-defined class; {self.rule} takes none")
        required: tuple[str, ...] = RULES[self.rule].required if self.is_built_in else ()
        reads = (*required, *(RULES[self.rule].optional if self.is_built_in else ()))
        for key, example in (("max_dishonest", "2"), ("selected", "10"), ("bound", "1.0")):
            if dict(self)[key] is None:
                if key in required:
                    raise ValueError(f"{key}: is required for {self.rule}, e.g. {example}")
            elif not self.is_built_in:
                raise ValueError(f"{key}: is read by the built-in rules; give it to a user-defined class in options")
            elif key not in reads:
                raise ValueError(f"{key}: is not read by {self.rule}; leave it out")
        return self


RobustKey = Annotated[
    RobustSection | None,
    Field(
        exclude_if=lambda section: section is None,
        description="How updates become one where some may be poisoned, e.g. {rule: median}; none: their mean",
    ),
]


@dataclass(frozen=True)
class Combined:
    """What a rule makes of updates.

    Attributes:
        mean: `(d,)` float64.
        used: `(k,)` int64, ascending positions of the updates that are in it.
    """

    mean: Floats
    used: Ids


class RobustRule(ABC):
    """From the updates of a round to one, by a function of its arguments alone. User-defined ones inherit from it, too.

    Attributes:
        required, optional: the keys of the section that it reads, besides `rule`.

    Args:
        section: the experiment's ``aggregation.robust``.
    """

    required: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()

    def __init__(self, section: RobustSection) -> None:
        self.section = section

    def check(self, updates: int) -> None:  # noqa: B027  # any number may do
        """Raise `ValueError` (one line: key, what is allowed) for fewer updates than the rule needs."""

    @abstractmethod
    def combine(self, updates: Updates) -> Combined:
        """One update of at least one, as many as `check` allows; they may not be changed in place."""


class Median(RobustRule):
    """Of each coordinate; of an even number of values the mean of the two in the middle (Yin et al., Definition 1)."""

    def combine(self, updates: Updates) -> Combined:
        """See `RobustRule.combine`."""
        half = (len(updates) - 1) // 2
        return Combined(_mean_of_middle(updates, half), _all(updates))


class TrimmedMean(RobustRule):
    """Of each coordinate the mean without the f largest and the f smallest (Yin et al., Definition 2: beta = f/s)."""

    required = ("max_dishonest",)

    def check(self, updates: int) -> None:
        """2f < s."""
        f = self.section.max_dishonest or 0
        if 2 * f >= updates:
            raise ValueError(f"max_dishonest: {f} of {updates} updates at either end; at most {(updates - 1) // 2}")

    def combine(self, updates: Updates) -> Combined:
        """See `RobustRule.combine`."""
        return Combined(_mean_of_middle(updates, self.section.max_dishonest or 0), _all(updates))


class MultiKrum(RobustRule):
    """The mean of the m updates with the best scores; a score is the sum of the squared distances to the s - f - 2
    closest others (Blanchard et al., sections 4 and 5).

    The paper takes m = s - f in its experiments. Of equal scores that of the client with the smaller number is better.
    """

    required = ("max_dishonest",)
    optional: ClassVar[tuple[str, ...]] = ("selected",)

    def check(self, updates: int) -> None:
        """2f + 2 < s, and m <= s - f."""
        f, m = self.section.max_dishonest or 0, self.section.selected
        if 2 * f + 3 > updates:
            raise ValueError(
                f"max_dishonest: {f} of {updates} updates; {self.section.rule} needs 2 f + 3 = {2 * f + 3} of them"
            )
        if m is not None and m > updates - f:
            raise ValueError(f"selected: {m} of {updates} updates, of which {f} may be poisoned; at most {updates - f}")

    def count(self, updates: int) -> int:
        """m."""
        return self.section.selected or updates - (self.section.max_dishonest or 0)

    def combine(self, updates: Updates) -> Combined:
        """See `RobustRule.combine`."""
        scores = krum_scores(squared_distances(updates), self.section.max_dishonest or 0)
        used = np.sort(np.argsort(scores, kind="stable")[: self.count(len(updates))])
        weights = np.zeros(len(updates))
        weights[used] = 1 / len(used)
        return Combined(_weighted_sum(updates, weights), used)


class Krum(MultiKrum):
    """The one update with the best score."""

    optional = ()

    def count(self, updates: int) -> int:
        """1."""
        return 1


class GeometricMedian(RobustRule):
    """argmin_v sum_i |v - x_i|, by the smoothed Weiszfeld algorithm (Pillutla et al., Algorithm 2).

    Each step has weights 1 / max(nu, |v - x_i|), made to sum to 1, for v; nu = 1e-6. It begins with the median of each
    coordinate: from the mean, where the paper begins, each far update takes many steps. It ends when no weight changes
    by more than a millionth, after 30 steps at most.
    """

    def combine(self, updates: Updates) -> Combined:
        """See `RobustRule.combine`."""
        point, weights = Median(self.section).combine(updates).mean, np.zeros(len(updates))
        for _ in range(_WEISZFELD_STEPS):
            before, weights = weights, 1 / np.maximum(_distances(updates, point), _SMOOTHING)
            weights /= weights.sum()
            point = _weighted_sum(updates, weights)
            if np.abs(weights - before).max() <= _WEISZFELD_TOLERANCE:
                break
        return Combined(point, _all(updates))


class NormBound(RobustRule):
    """The mean of x_i / max(1, |x_i| / M) (Sun et al., section 4, without the noise)."""

    required = ("bound",)

    def combine(self, updates: Updates) -> Combined:
        """See `RobustRule.combine`."""
        assert self.section.bound is not None
        # As float32: what the order of a sum decides lies below its last bit.
        norms = _distances(updates, np.zeros(len(updates[0]))).astype(np.float32).astype(np.float64)
        weights = 1 / np.maximum(1, norms / self.section.bound) / len(updates)
        return Combined(_weighted_sum(updates, weights), _all(updates))


RULES: dict[str, type[RobustRule]] = {
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "geometric-median": GeometricMedian,
    "norm-bound": NormBound,
}
"""By the name in an experiment."""


def robust_rule(section: RobustSection) -> RobustRule:
    """The rule of a section.

    Raises:
        ExperimentError: a user-defined class that is not there, does not keep the contract, or has no such options.
    """
    if section.is_built_in:
        return RULES[section.rule](section)
    kind = plugin_class(section.rule, f"{KEY}.rule")
    check_subclass(kind, RobustRule, section.rule, f"{KEY}.rule")
    made: RobustRule = plugin_options.made(kind, section.rule, KEY, section)
    return made


def combined(rule: RobustRule, updates: Updates) -> Combined:
    """What the rule makes of updates; raises `ExperimentError` where a user-defined one returns no such thing."""
    returned: Any = rule.combine(updates)
    kind, d = type(rule), len(updates[0])
    try:
        mean, used = np.asarray(returned.mean, np.float64), np.asarray(returned.used)
        fits = mean.shape == (d,) and used.dtype.kind in "iu" and 0 < len(used) == len(np.unique(used))
        fits = fits and used.min() >= 0 and used.max() < len(updates)
    except (AttributeError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ExperimentError(
            f"{KEY}.rule: {kind.__module__}:{kind.__name__}: combine must return Combined(mean, used): ({d},) floats, "
            f"and positions of some of the {len(updates)} updates"
        )
    return Combined(mean, np.sort(used).astype(np.int64))


# -- what rules are made of --------------------------------------------------------------------------------------------


def sorted_columns(updates: Updates, begin: int) -> npt.NDArray[np.float32]:
    """`(c, s)` float32, the values of each coordinate from `begin` on in ascending order; c is a chunk's or what is
    left. Charged by the value.
    """
    length = len(updates[0][begin : begin + _CHUNK])
    columns = np.empty((length, len(updates)), np.float32)
    for column, update in enumerate(updates):
        columns[:, column] = update[begin : begin + _CHUNK]
    columns.sort(axis=1)
    meter("sort.element", columns.size)
    return columns


def squared_distances(updates: Updates) -> Floats:
    """`(s, s)` float64, rounded to float32: squared distances between any two, from |x|^2 + |y|^2 - 2 x.y.

    Products are summed in float64, in an order that BLAS chooses; what it decides lies below the last bit of a float32,
    so the same updates have the same distances, but for one in millions.
    """
    s = len(updates)
    products = np.zeros((s, s))
    meter("float.multiply", s * s * len(updates[0]))
    for part in _chunks(updates):
        products += part @ part.T
    squares = np.diag(products)
    found = np.maximum(squares[:, None] + squares - products - products.T, 0)
    np.fill_diagonal(found, 0)
    with np.errstate(over="ignore"):  # as infinitely far
        return np.minimum(found.astype(np.float32), np.finfo(np.float32).max).astype(np.float64)


def krum_scores(squared: Floats, dishonest: int) -> Floats:
    """`(s,)` of each update the sum of its `(s, s)` squared distances to the s - f - 2 closest others."""
    others = np.sort(squared + np.diag(np.full(len(squared), np.inf)), axis=1)
    scores: Floats = others[:, : len(squared) - dishonest - 2].sum(axis=1)
    return scores


def _mean_of_middle(updates: Updates, left_out: int) -> Floats:
    """`(d,)` of each coordinate the mean without so many values at either end."""
    mean = np.empty(len(updates[0]))
    for begin in range(0, len(mean), _CHUNK):
        middle = sorted_columns(updates, begin)[:, left_out : len(updates) - left_out]
        mean[begin : begin + len(middle)] = _row_means(middle)
    return mean


def _row_means(values: npt.NDArray[np.float32]) -> Floats:
    """`(c,)` float64; columns are added one after the other, so that the order does not depend on the machine."""
    total = np.zeros(len(values))
    for column in values.T:
        total += column
    total /= values.shape[1]
    return total


def _weighted_sum(updates: Updates, weights: Floats) -> Floats:
    """`(d,)` float64, one update after the other."""
    meter("float.add.element", int(np.count_nonzero(weights)) * len(updates[0]))
    total = np.zeros(len(updates[0]))
    for begin in range(0, len(total), _CHUNK):
        part = total[begin : begin + _CHUNK]
        for update, weight in zip(updates, weights.tolist(), strict=True):
            if weight:
                part += weight * update[begin : begin + _CHUNK].astype(np.float64)
    return total


def _distances(updates: Updates, point: Floats) -> Floats:
    """`(s,)` float64, the L2 distance of each update to `(d,)` `point`."""
    meter("float.add.element", len(updates) * len(point))
    squared = np.zeros(len(updates))
    for begin, part in zip(range(0, len(point), _CHUNK), _chunks(updates), strict=True):
        part -= point[begin : begin + _CHUNK]
        squared += np.square(part, out=part).sum(axis=1)
    found: Floats = np.sqrt(squared)
    return found


def _chunks(updates: Updates) -> Iterator[Floats]:
    """`(s, c)` float64 each, in memory of its own."""
    for begin in range(0, len(updates[0]), _CHUNK):
        yield np.stack([update[begin : begin + _CHUNK] for update in updates], dtype=np.float64)


def _all(updates: Updates) -> Ids:
    return np.arange(len(updates), dtype=np.int64)
