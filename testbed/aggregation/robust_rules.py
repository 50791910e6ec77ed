"""Rules that combine updates of which some may be poisoned, in place of the weighted mean of `plain`.

- ``median``, ``trimmed-mean``: of each coordinate (Yin, Chen, Ramchandran, Bartlett, Byzantine-Robust Distributed
  Learning: Towards Optimal Statistical Rates, ICML 2018, arXiv 1803.01498, Definitions 1 and 2).
- ``krum``, ``multi-krum``: the updates that lie closest to others (Blanchard, El Mhamdi, Guerraoui, Stainer, Machine
  Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017, sections 4 and 5).
- ``geometric-median``: the point whose distances to all updates have the smallest sum (Pillutla, Kakade, Harchaoui,
  Robust Aggregation for Federated Learning, arXiv 1912.13445, Algorithm 2: the smoothed Weiszfeld algorithm).
- ``norm-bound``: the mean of updates, each scaled down to a norm if it is longer (Sun, Kairouz, Suresh, McMahan, Can
  You Really Backdoor Federated Learning?, arXiv 1911.07963, section 4).

A rule compares single updates, so the server must see them; under secure aggregation it sees only sums. All updates
count the same: weights are reported by the clients, and a dishonest client could report any weight.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from testbed.aggregation.update_arithmetic import (
    Updates,
    distances_to,
    krum_scores,
    mean_of_middle,
    squared_distances,
    weighted_sum,
)
from testbed.arrays import Floats, Ids
from testbed.errors import ExperimentError
from testbed.plugins import options as plugin_options
from testbed.plugins.classes import PLUGIN_NAME, check_subclass, plugin_class

KEY = "aggregation.robust"
MISPLACED_KEY_HINT = (
    "compares single updates, but with this protocol the server only sees sums; set protocol: plain, or leave robust "
    "out"
)
"""Message about the section in protocols that do not support it."""
_WEISZFELD_STEPS = 30
_WEISZFELD_TOLERANCE = 1e-6
_SMOOTHING = 1e-6  # nu of Pillutla et al.


class RobustSection(BaseModel):
    """Robust rule and its parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: str = Field(
        description="median or trimmed-mean of each coordinate, krum, multi-krum, geometric-median, norm-bound; or "
        "package.module:Name for a user-defined class, which is called as Name(section, **options)",
        json_schema_extra={
            "examples": ["median", "trimmed-mean", "krum", "multi-krum", "geometric-median", "norm-bound"]
        },
    )
    max_dishonest: int | None = Field(
        None,
        ge=0,
        description="trimmed-mean, krum, multi-krum: tolerated dishonest participants of a round (f); trimmed-mean "
        "leaves out f values at either end",
    )
    selected: int | None = Field(
        None,
        ge=1,
        exclude_if=lambda selected: selected is None,
        description="multi-krum: number of updates in its mean (m); unset: all that arrived, less max_dishonest",
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
        """Whether `rule` is one of the rules here rather than a user-defined class."""
        return self.rule in RULES

    @field_validator("rule")
    @classmethod
    def _is_known(cls, rule: str) -> str:
        if rule not in RULES and not re.fullmatch(PLUGIN_NAME, rule):
            raise ValueError(f"{rule!r} is unknown; allowed: {', '.join(RULES)}, package.module:Name")
        return rule

    @model_validator(mode="after")
    def _keys_are_read(self) -> Self:
        """Refuse keys that the rule would ignore, and require the keys that it needs."""
        if self.is_built_in and self.options:
            raise ValueError(f"options: only for a user-defined class; {self.rule} takes none, leave options out")
        required: tuple[str, ...] = RULES[self.rule].required if self.is_built_in else ()
        reads = (*required, *(RULES[self.rule].optional if self.is_built_in else ()))
        for key, example in (("max_dishonest", "2"), ("selected", "10"), ("bound", "1.0")):
            if dict(self)[key] is None:
                if key in required:
                    raise ValueError(f"{key}: is required for {self.rule}, e.g. {example}")
            elif not self.is_built_in:
                raise ValueError(f"{key}: only for the built-in rules; pass it to a user-defined class in options")
            elif key not in reads:
                raise ValueError(f"{key}: is not read by {self.rule}; leave it out")
        return self


RobustKey = Annotated[
    RobustSection | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Rule that combines updates of which some may be poisoned, e.g. {rule: median}; none: their mean",
    ),
]


@dataclass(frozen=True)
class Combined:
    """Result of a rule.

    Attributes:
        mean: `(d,)` float64.
        used: `(k,)` int64, ascending positions of the updates that are in the mean.

    Example:
        >>> result = Combined(mean=np.array([0.5, 0.1]), used=np.array([0, 2, 3]))
        >>> len(result.used)
        3
    """

    mean: Floats
    used: Ids


class RobustRule(ABC):
    """Rule that combines the updates of a round; base class of user-defined rules, too. It has no state.

    Attributes:
        required, optional: the keys of the section that it reads, besides `rule`.

    Args:
        section: the experiment's ``aggregation.robust``.

    Example:
        >>> class Shortest(RobustRule):
        ...     def __init__(self, section, count=2):
        ...         super().__init__(section)
        ...         self.count = count
        ...     def combine(self, updates):
        ...         by_norm = np.argsort([np.linalg.norm(update) for update in updates], kind="stable")
        ...         used = np.sort(by_norm[: self.count])
        ...         return Combined(np.mean([updates[position] for position in used], axis=0), used)
        >>> rule = Shortest(RobustSection(rule="mine:Shortest"))
        >>> rule.combine([np.ones(2), np.full(2, 90.0), np.zeros(2)])
        Combined(mean=array([0.5, 0.5]), used=array([0, 2]))
    """

    required: ClassVar[tuple[str, ...]] = ()
    optional: ClassVar[tuple[str, ...]] = ()

    def __init__(self, section: RobustSection) -> None:
        self.section = section

    def check(self, updates: int) -> None:  # noqa: B027  # any number may do
        """Raise `ValueError` (one line: key, allowed values) for fewer updates than the rule needs."""

    @abstractmethod
    def combine(self, updates: Updates) -> Combined:
        """Combine at least one update, as many as `check` allows, without changing them in place."""


class Median(RobustRule):
    """Median of each coordinate; of an even number, the mean of the middle two (Yin et al., Definition 1)."""

    def combine(self, updates: Updates) -> Combined:
        half = (len(updates) - 1) // 2
        return Combined(mean_of_middle(updates, half), _all(updates))


class TrimmedMean(RobustRule):
    """Mean of each coordinate without the f largest and f smallest values (Yin et al., Definition 2)."""

    required = ("max_dishonest",)

    def check(self, updates: int) -> None:
        """Check 2f < s."""
        f = self.section.max_dishonest or 0
        if 2 * f >= updates:
            most = (updates - 1) // 2
            raise ValueError(f"max_dishonest: {f} of {updates} updates at either end; allowed 0 to {most}")

    def combine(self, updates: Updates) -> Combined:
        return Combined(mean_of_middle(updates, self.section.max_dishonest or 0), _all(updates))


class MultiKrum(RobustRule):
    """Mean of the m updates with the best scores (Blanchard et al., sections 4 and 5).

    A score is the sum of the squared distances to the s - f - 2 closest other updates. The paper takes m = s - f in its
    experiments. Of equal scores, the score of the client with the smaller number is better.
    """

    required = ("max_dishonest",)
    optional: ClassVar[tuple[str, ...]] = ("selected",)

    def check(self, updates: int) -> None:
        """Check 2f + 2 < s, and m <= s - f."""
        f, m = self.section.max_dishonest or 0, self.section.selected
        if 2 * f + 3 > updates:
            raise ValueError(
                f"max_dishonest: {f} of {updates} updates; {self.section.rule} needs 2 f + 3 = {2 * f + 3} or more"
            )
        if m is not None and m > updates - f:
            most = updates - f
            raise ValueError(f"selected: {m} of {updates} updates, of which {f} may be poisoned; allowed 1 to {most}")

    def count(self, updates: int) -> int:
        """Return m for this many updates."""
        return self.section.selected or updates - (self.section.max_dishonest or 0)

    def combine(self, updates: Updates) -> Combined:
        scores = krum_scores(squared_distances(updates), self.section.max_dishonest or 0)
        # Stable: of equal scores, the client with the smaller number wins.
        used = np.sort(np.argsort(scores, kind="stable")[: self.count(len(updates))])
        weights = np.zeros(len(updates))
        weights[used] = 1 / len(used)
        return Combined(weighted_sum(updates, weights), used)


class Krum(MultiKrum):
    """The single update with the best score."""

    optional = ()

    def count(self, updates: int) -> int:
        """Return 1."""
        return 1


class GeometricMedian(RobustRule):
    """Geometric median argmin_v sum_i |v - x_i|, by the smoothed Weiszfeld algorithm (Pillutla et al., Algorithm 2).

    Each step takes the weights 1 / max(nu, |v - x_i|), normalised to sum 1; nu = 1e-6. The algorithm ends when no
    weight changes by more than a millionth, after at most 30 steps.
    """

    def combine(self, updates: Updates) -> Combined:
        # Deviation: from the mean, where the paper begins, each distant update takes many steps.
        point, weights = Median(self.section).combine(updates).mean, np.zeros(len(updates))
        for _ in range(_WEISZFELD_STEPS):
            distances, before = distances_to(updates, point), weights
            weights = 1 / np.maximum(distances, _SMOOTHING)
            here = distances <= _SMOOTHING
            # On updates, the algorithm would stay regardless of the other updates. Move on as in Vardi and Zhang (The
            # Multivariate L1-Median and Associated Data Depth, PNAS 97(4), 2000, equation 2.6), unless this is the
            # geometric median.
            if here.any() and not here.all():
                weights[here] = 0
                others = weighted_sum(updates, weights / weights.sum())
                count, pull = here.sum(), weights.sum() * np.sqrt(np.square(others - point).sum())
                if pull <= count:
                    break
                point = others + count / pull * (point - others)
                continue
            weights /= weights.sum()
            point = weighted_sum(updates, weights)
            if np.abs(weights - before).max() <= _WEISZFELD_TOLERANCE:
                break
        return Combined(point, _all(updates))


class NormBound(RobustRule):
    """The mean of x_i / max(1, |x_i| / M) (Sun et al., section 4, without the noise)."""

    required = ("bound",)

    def combine(self, updates: Updates) -> Combined:
        assert self.section.bound is not None
        # Rounded to float32, as the order of a sum only affects bits below its last one.
        norms = distances_to(updates, np.zeros(len(updates[0]))).astype(np.float32).astype(np.float64)
        weights = 1 / np.maximum(1, norms / self.section.bound) / len(updates)
        return Combined(weighted_sum(updates, weights), _all(updates))


RULES: dict[str, type[RobustRule]] = {
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "geometric-median": GeometricMedian,
    "norm-bound": NormBound,
}
"""Built-in rules by their name in an experiment."""


def robust_rule(section: RobustSection) -> RobustRule:
    """Return the rule of a section.

    Raises:
        ExperimentError: a user-defined class that does not exist, is not a `RobustRule`, or does not take these
            options.
    """
    if section.is_built_in:
        return RULES[section.rule](section)
    kind = plugin_class(section.rule, f"{KEY}.rule")
    check_subclass(kind, RobustRule, section.rule, f"{KEY}.rule")
    made: RobustRule = plugin_options.create_with_options(kind, section.rule, KEY, section)
    return made


def combined(rule: RobustRule, updates: Updates) -> Combined:
    """Apply the rule to updates, and check its result.

    Args:
        rule: built-in or user-defined.
        updates: `(d,)` float32 each; they become read-only.

    Raises:
        ExperimentError: a user-defined rule does not return a valid `Combined`.
    """
    shown = [update.view() for update in updates]
    for update in shown:
        update.flags.writeable = False  # the arrays may be shared
    returned: Any = rule.combine(shown)
    kind, d = type(rule), len(updates[0])
    try:
        mean, used = np.asarray(returned.mean, np.float64), np.asarray(returned.used)
        fits = mean.shape == (d,) and bool(np.isfinite(mean).all())
        fits = fits and used.ndim == 1 and used.dtype.kind in "iu" and 0 < len(used) == len(np.unique(used))
        fits = fits and used.min() >= 0 and used.max() < len(updates)
    except (AttributeError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ExperimentError(
            f"{KEY}.rule: {kind.__module__}:{kind.__name__}: combine must return Combined(mean, used): ({d},) finite "
            f"floats, and positions of some of the {len(updates)} updates"
        )
    return Combined(mean, np.sort(used).astype(np.int64))


def _all(updates: Updates) -> Ids:
    return np.arange(len(updates), dtype=np.int64)
