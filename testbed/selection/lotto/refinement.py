"""Population refinement: drop the clients that an informed selection would avoid, then select securely at random.

Jiang et al., Lotto, arXiv 2401.02880, section 3.5.

For each metric, the rule drops the worst fraction d of the measured clients. *Unmeasured clients are never dropped*:
with m of n clients measured, floor(d m) are dropped, so that the refined population shrinks from n in round 1 towards
its final size as more clients take part. (The paper does not say where the first measurements come from. Measuring all
clients before round 1 would cost as much as a round with all n clients, because only response times of training are
meaningful.)

A client that was asked to train and did not answer counts as measured, with a response time of at least the server's
waiting time. Otherwise the slowest clients would stay unmeasured and never be dropped. The server cannot tell slow from
unavailable clients. A client lost in a stage before training was not asked; its measurement stays.

A dropped client is not measured again while it is out. Response times hardly change. Data quality does: the losses of
participants shrink as the model improves while those of dropped clients stay, so that dropped clients return.
"""

from fractions import Fraction
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.arrays import Floats
from testbed.memory import ArrayName
from testbed.selection.contract import SelectionRound, TrainingReports
from testbed.selection.oort import fill_with_mean, utility

Mask = npt.NDArray[np.bool_]

_LATENCY_S, _QUALITY = ArrayName("latency_s"), ArrayName("quality")  # (n,) float64: see `measurements`


class Refinement(BaseModel):
    """The metrics that make a client bad, and the fraction of bad clients to drop."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    by: Annotated[list[Literal["latency", "loss"]], Field(min_length=1, max_length=2)] = Field(
        ["latency", "loss"],
        description="latency: response time in training, as the server measures it; loss: data quality "
        "|B| sqrt(mean loss^2), as clients report it",
    )
    combine: Literal["or", "and", "joint"] = Field(
        "or",
        description="With two metrics: drop clients among the worst by either (or), by both (and), or by their product "
        "in Oort's utility (joint)",
    )
    exclude: float = Field(
        0.2, ge=0, lt=1, description="d: the worst fraction of measured clients by each metric (joint: by the utility)"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "Refinement":
        if len(set(self.by)) != len(self.by):
            raise ValueError("by: a duplicate metric")
        if self.combine == "joint" and len(self.by) != 2:
            raise ValueError("combine: joint needs both metrics, by: [latency, loss]")
        return self

    def smallest(self, population: int) -> int:
        """Return the smallest refined population that the rule may leave."""
        dropped = fraction_of(population, self.exclude)
        return max(0, population - (2 * dropped if len(self.by) == 2 and self.combine == "or" else dropped))

    def largest(self, population: int, least: int) -> float:
        """Return the largest fraction d, in hundredths, that leaves at least `least` clients of the population."""
        hundredths = (number / 100 for number in range(99, 0, -1))
        fitting = (d for d in hundredths if self.model_copy(update={"exclude": d}).smallest(population) >= least)
        return next(fitting, 0.0)


def refined_population(rule: Refinement, latency_s: Floats, quality: Floats) -> Mask:
    """Return the refined population.

    Args:
        rule: the clients to drop.
        latency_s: `(n,)` last response time in training [s]; NaN: never measured.
        quality: `(n,)` last reported data quality; NaN: never reported. A client without a report is not dropped by
            loss; in the joint utility it has the mean of the others, as in Oort.

    Returns:
        `(n,)` bool; at least ``rule.smallest(n)`` are True.
    """
    if rule.combine == "joint":
        measured = ~np.isnan(latency_s)
        joint = np.full(len(latency_s), np.nan)
        joint[measured] = utility(fill_with_mean(quality)[measured], latency_s[measured])
        return ~worst_clients(-joint, rule.exclude)
    badness = {"latency": latency_s, "loss": -quality}
    masks = [worst_clients(badness[metric], rule.exclude) for metric in rule.by]
    return np.asarray(~(np.logical_and if rule.combine == "and" else np.logical_or).reduce(masks))


def worst_clients(badness: Floats, share: float) -> Mask:
    """Return the floor(share m) worst of the m clients with a value; ties go to the smaller client numbers.

    Args:
        badness: `(n,)` float64, higher is worse; NaN: not measured.
        share: fraction of the measured clients.

    Returns:
        `(n,)` bool.

    Example:
        >>> worst_clients(np.array([1.0, np.nan, 3.0]), 0.5).tolist()
        [False, False, True]
    """
    chosen = np.zeros(len(badness), np.bool_)
    have = np.flatnonzero(~np.isnan(badness))
    count = fraction_of(len(have), share)
    if count == 0:
        return chosen
    values = badness[have]
    last = np.partition(values, len(values) - count)[len(values) - count]
    above, equal = have[values > last], have[values == last]
    chosen[above] = True
    chosen[equal[: count - len(above)]] = True
    return chosen


def fraction_of(count: int, share: float) -> int:
    """Return floor(share * count), with the share as the decimal fraction written in the experiment.

    Args:
        count: number of items.
        share: from 0 to 1.

    Example:
        >>> fraction_of(10, 0.3)
        3
    """
    return int(Fraction(str(share)) * count)


def measurements(round_: SelectionRound) -> tuple[Floats, Floats]:
    """Return `(n,)` response times [s] and `(n,)` data qualities in the server's memory; NaN: unknown."""
    unknown = np.full(round_.population, np.nan)
    return round_.memory.setdefault(_LATENCY_S, unknown), round_.memory.setdefault(_QUALITY, unknown.copy())


def measured_clients(round_: SelectionRound) -> int:
    """Return the number of measured clients: asked to train, whether or not they answered."""
    return int(np.count_nonzero(~np.isnan(measurements(round_)[0])))


def store_measurements(round_: SelectionRound, reports: TrainingReports) -> None:
    """Store each client's last response time and data quality.

    A client that did not answer gets at least the server's waiting time or its last response time; its quality stays.

    Args:
        round_: the round with the memory.
        reports: training reports of the round.
    """
    latency_s, quality = measurements(round_)
    latency_s[reports.clients], quality[reports.clients] = reports.latency_s, reports.quality
    latency_s[reports.unheard] = np.fmax(latency_s[reports.unheard], reports.waited_s)
