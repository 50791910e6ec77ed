"""How good the global model is to become: ``80%``, ``accuracy>=0.8``, ``loss<0.5``, ``perplexity<90``."""

import difflib
import math
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from testbed.errors import ExperimentError
from testbed.workload.specs import is_language

Metric = Literal["accuracy", "loss", "perplexity"]
METRICS: tuple[Metric, ...] = ("accuracy", "loss", "perplexity")

_HOW = "write e.g. 80%, accuracy>=0.8, loss<0.5 or perplexity<90"
_FORM = re.compile(
    r"(?:(?P<metric>[^\W\d]\w*)\s*(?P<sign>>=|<=|==|=|>|<|≥|≤)\s*)?(?P<number>[^\s%]+?)\s*(?P<percent>%?)"
)


@dataclass(frozen=True)
class Target:
    """A value of a metric that a run may reach; a value that equals the threshold reaches it.

    Attributes:
        metric: of the global model on held-out data.
        threshold: the least accuracy (a share, 0 to 1), the largest loss or perplexity.
    """

    metric: Metric
    threshold: float

    def __post_init__(self) -> None:
        """Raise `ExperimentError` for a threshold that the metric cannot have, or always has."""
        value, told = self.threshold, f"target {self.metric} {self.threshold:g}"
        if self.metric not in METRICS:
            raise ExperimentError(f"target: {_unknown(self.metric)}")
        if self.metric == "accuracy" and 1 < value <= 100:
            raise ExperimentError(f"{told}: an accuracy is a share of 1; did you mean {value:g}%?")
        if self.metric == "accuracy" and not 0 < value <= 1:
            raise ExperimentError(f"{told}: an accuracy is above 0 and at most 1, or at most 100%")
        if self.metric == "loss" and not 0 < value < math.inf:
            raise ExperimentError(f"{told}: a loss to fall to is a number above 0")
        if self.metric == "perplexity" and not 1 <= value < math.inf:
            raise ExperimentError(f"{told}: a perplexity is at least 1")

    @classmethod
    def parse(cls, text: Any) -> "Target":
        """The target that a text names, or a number alone (an accuracy); raises `ExperimentError` in one line."""
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise ExperimentError(f"target {text!r}: not a target; {_HOW}")
        found = _FORM.fullmatch(str(text).strip())
        if found is None:
            raise ExperimentError(f"target {text!r}: not a target; {_HOW}")
        metric, sign = found["metric"] or "accuracy", found["sign"] or ">="
        if metric not in METRICS:
            raise ExperimentError(f"target {text!r}: {_unknown(metric)}")
        known = cast(Metric, metric)
        try:
            number = float(found["number"])
        except ValueError:
            raise ExperimentError(f"target {text!r}: {found['number']!r} is not a number; {_HOW}") from None
        if sign in ("=", "==") or (sign in (">", ">=", "≥")) != (known == "accuracy"):
            way = "rises to it: write accuracy>=" if known == "accuracy" else f"falls to it: write {known}<="
            raise ExperimentError(f"target {text!r}: {known} {way}{found['number']}{found['percent']}")
        if found["percent"] and known != "accuracy":
            raise ExperimentError(f"target {text!r}: only an accuracy is in per cent; {_HOW}")
        if found["percent"] and not 0 < number <= 100:
            raise ExperimentError(f"target {text!r}: an accuracy is above 0 and at most 1, or at most 100%")
        return cls(known, round(number / 100, 12) if found["percent"] else number)

    @property
    def label(self) -> str:
        """For people: ``accuracy ≥ 80 %``, ``loss ≤ 0.5``."""
        if self.metric == "accuracy":
            return f"accuracy ≥ {100 * self.threshold:.6g} %"
        return f"{self.metric} ≤ {self.threshold:.6g}"

    @property
    def column(self) -> str:
        """For programs, and what `parse` takes: ``accuracy>=0.8``, ``loss<=0.5``."""
        return f"{self.metric}{'>=' if self.metric == 'accuracy' else '<='}{self.threshold!r}"

    def told(self, value: float) -> str:
        """A value of the metric, for people: ``81.3 %``, ``0.4873``."""
        return f"{100 * value:.4g} %" if self.metric == "accuracy" else f"{value:.4g}"

    def met(self, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Which of the values of the metric, of any shape, reach the target; NaN (not measured) does not."""
        measured = np.asarray(values, np.float64)
        return np.asarray(measured >= self.threshold if self.metric == "accuracy" else measured <= self.threshold)

    def check_workload(self, dataset: str) -> None:
        """Raise `ExperimentError` for the perplexity of a data set that is not of words."""
        if self.metric == "perplexity" and not is_language(dataset):
            raise ExperimentError(f"{self.label}: a perplexity is measured where words are learned, not on {dataset}")


def measured(metric: Metric, accuracy: float, loss: float) -> float:
    """The metric in an evaluation with this accuracy and mean loss; too large for a float: infinite."""
    if metric == "perplexity":
        return math.inf if loss > 700 else math.exp(loss)
    return accuracy if metric == "accuracy" else loss


def _unknown(metric: str) -> str:
    longer = [name for name in METRICS if metric and name.startswith(metric)]
    close = longer or difflib.get_close_matches(metric, METRICS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown metric {metric!r}; {hint}there are {', '.join(METRICS)}"
