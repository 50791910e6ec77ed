"""Population refinement: Jiang et al., Lotto, arXiv 2401.02880, section 3.5. An informed selection is approximated by
dropping the clients that it would avoid, and selecting securely and at random among the others.

The rule drops, for each metric, the worst fraction d of the clients that have been measured. *Clients of which nothing
is known yet are never dropped*: with m of n clients measured, floor(d m) are the worst, so that the refined population
shrinks from n in round 1 towards its final size as more clients take part. (The paper does not say where the first
measurements come from.) There is no measuring of everybody before round 1: a response time that is worth anything is
that of training, so a probe would cost what a round with all n clients costs.

Who was asked to train and not heard of is measured, too: it takes longer than the server has waited. Were it left
unknown, the slowest would be those that are never dropped. Whether it was slow or away the server cannot tell. Who was
lost in a stage before training was not asked, and stays as it was.

A dropped client is not measured again while it is out. Response times hardly change. Data quality does: the losses of
those who take part shrink as the model improves, the stale ones of those who are out do not, and so these come back.
"""

from fractions import Fraction
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.arrays import Floats
from testbed.memory import ArrayName
from testbed.selection.contract import SelectionRound, TrainingReports
from testbed.selection.oort import or_mean, utility

Mask = npt.NDArray[np.bool_]

_LATENCY_S, _QUALITY = ArrayName("latency_s"), ArrayName("quality")  # (n,) float64: see `measurements`


class Refinement(BaseModel):
    """What makes a client bad, and how many of the bad ones are dropped."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    by: Annotated[list[Literal["latency", "loss"]], Field(min_length=1, max_length=2)] = Field(
        ["latency", "loss"],
        description="latency: response time in training, as the server measures it; loss: data quality "
        "|B| sqrt(mean loss^2), as clients report it",
    )
    combine: Literal["or", "and", "joint"] = Field(
        "or",
        description="Of two metrics: drop who is among the worst by one (or), by both (and), or by their product in "
        "Oort's utility (joint)",
    )
    exclude: float = Field(
        0.2, ge=0, lt=1, description="d: the worst fraction by each metric (joint: by the utility), of those measured"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "Refinement":
        if len(set(self.by)) != len(self.by):
            raise ValueError("by: a duplicate metric")
        if self.combine == "joint" and len(self.by) != 2:
            raise ValueError("combine: joint needs both metrics, by: [latency, loss]")
        return self

    def smallest(self, population: int) -> int:
        """The smallest refined population that the rule may leave of `population` clients."""
        dropped = fraction_of(population, self.exclude)
        return max(0, population - (2 * dropped if len(self.by) == 2 and self.combine == "or" else dropped))

    def largest(self, population: int, least: int) -> float:
        """The largest fraction d, in hundredths, that leaves at least so many of `population` clients."""
        hundredths = (number / 100 for number in range(99, 0, -1))
        fitting = (d for d in hundredths if self.model_copy(update={"exclude": d}).smallest(population) >= least)
        return next(fitting, 0.0)


def refined(rule: Refinement, latency_s: Floats, quality: Floats) -> Mask:
    """Who is in the refined population.

    Args:
        rule: what to drop.
        latency_s: `(n,)` last response time in training, seconds; NaN: never measured.
        quality: `(n,)` last reported data quality; NaN: never reported. The loss of such a client is no reason to drop
            it; in the joint utility it counts with the mean of what is known, as in Oort.

    Returns:
        `(n,)` bool; at least ``rule.smallest(n)`` are True.
    """
    if rule.combine == "joint":
        measured = ~np.isnan(latency_s)
        joint = np.full(len(latency_s), np.nan)
        joint[measured] = utility(or_mean(quality)[measured], latency_s[measured])
        return ~worst(-joint, rule.exclude)
    badness = {"latency": latency_s, "loss": -quality}
    masks = [worst(badness[metric], rule.exclude) for metric in rule.by]
    return np.asarray(~(np.logical_and if rule.combine == "and" else np.logical_or).reduce(masks))


def worst(badness: Floats, share: float) -> Mask:
    """`(n,)` bool: the floor(share m) of the m clients whose `(n,)` badness is known (not NaN) that have the most.

    Of equals those with the smaller numbers.
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
    """floor(share * count), with the share as the decimal fraction that the experiment says."""
    return int(Fraction(str(share)) * count)


def measurements(round_: SelectionRound) -> tuple[Floats, Floats]:
    """`(n,)` response times in seconds and `(n,)` data qualities as the server remembers them; NaN: unknown."""
    unknown = np.full(round_.population, np.nan)
    return round_.memory.setdefault(_LATENCY_S, unknown), round_.memory.setdefault(_QUALITY, unknown.copy())


def measured_clients(round_: SelectionRound) -> int:
    """How many clients have been measured: asked to train, and answered or not."""
    return int(np.count_nonzero(~np.isnan(measurements(round_)[0])))


def remember(round_: SelectionRound, reports: TrainingReports) -> None:
    """Keep each client's last response time and data quality.

    Who was asked and not heard of takes at least as long as the server has waited, or as was known of it; its quality
    stays as it was.
    """
    latency_s, quality = measurements(round_)
    latency_s[reports.clients], quality[reports.clients] = reports.latency_s, reports.quality
    latency_s[reports.unheard] = np.fmax(latency_s[reports.unheard], reports.waited_s)
