"""Targets for the quality of the global model: ``80%``, ``loss<0.5``, ``{accuracy: 0.8}``, ``macro-f1>=0.6``.

Accuracy, loss and perplexity are always measured; other metrics if ``workload.metrics`` names them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.errors import ExperimentError
from testbed.spelling import question, similar
from testbed.workload.specs import is_language

Metric = str
"""``accuracy``, ``loss``, ``perplexity``, or a name from ``workload.metrics``."""
METRICS: tuple[Metric, ...] = ("accuracy", "loss", "perplexity")
_RISES = {"accuracy": True, "loss": False, "perplexity": False, "macro-f1": True, "r2": True, "mae": False}

_HOW = "write e.g. 80%, accuracy>=0.8, loss<0.5, perplexity<90 or macro-f1>=0.6"
_FORM = re.compile(
    r"(?:(?P<metric>[^\W\d][\w.:-]*)\s*(?P<sign>>=|<=|==|=|>|<|≥|≤)\s*)?(?P<number>[^\s%]+?)\s*(?P<percent>%?)"
)


@dataclass(frozen=True)
class Target:
    """A value of a metric that a run may reach; a value equal to the threshold reaches it.

    Attributes:
        metric: of the global model on held-out data.
        threshold: the least accuracy (a share, 0 to 1), the largest loss or perplexity.
        rises: whether the metric rises to the threshold; relevant only for user-defined metrics.
    """

    metric: Metric
    threshold: float
    rises: bool = True

    def __post_init__(self) -> None:
        """Raise `ExperimentError` for a threshold that the metric cannot reach or always reaches."""
        value, prefix = self.threshold, f"target {self.metric} {self.threshold:g}"
        if self.metric not in _RISES and ":" not in self.metric:
            raise ExperimentError(f"target: {_unknown(self.metric)}")
        object.__setattr__(self, "rises", _RISES.get(self.metric, self.rises))
        if not math.isfinite(value) and self.metric not in METRICS:
            raise ExperimentError(f"{prefix}: should be a finite number")
        if self.metric == "accuracy" and 1 < value <= 100:
            raise ExperimentError(f"{prefix}: an accuracy is a share, at most 1; did you mean {value:g}%?")
        if self.metric == "accuracy" and not 0 < value <= 1:
            raise ExperimentError(f"{prefix}: an accuracy should be above 0 and at most 1 (or 100%)")
        if self.metric == "loss" and not 0 < value < math.inf:
            raise ExperimentError(f"{prefix}: a target loss should be above 0")
        if self.metric == "perplexity" and not 1 <= value < math.inf:
            raise ExperimentError(f"{prefix}: a perplexity should be at least 1")

    @classmethod
    def parse(cls, text: Any) -> "Target":
        """Return the target in a text, a number (an accuracy) or a mapping.

        Args:
            text: e.g. ``"loss<0.5"``, ``0.8``, ``{METRIC: VALUE}``; for a user-defined metric with its sign:
                ``{my.module:auc: ">=0.7"}``.

        Raises:
            ExperimentError: not a target; the message is one line.

        Example:
            >>> Target.parse("80%").column, Target.parse({"loss": 0.5}).column
            ('accuracy>=0.8', 'loss<=0.5')
        """
        if isinstance(text, dict) and len(text) == 1:
            text = _as_text(next(iter(text.items())))
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise ExperimentError(f"target {text!r}: not a target; {_HOW}")
        parts = _FORM.fullmatch(str(text).strip())
        if parts is None:
            raise ExperimentError(f"target {text!r}: not a target; {_HOW}")
        metric, sign = parts["metric"] or "accuracy", parts["sign"] or ">="
        if metric not in _RISES and ":" not in metric:
            raise ExperimentError(f"target {text!r}: {_unknown(metric)}")
        rises = _RISES.get(metric, sign in (">", ">=", "≥"))
        try:
            number = float(parts["number"])
        except ValueError:
            raise ExperimentError(f"target {text!r}: {parts['number']!r} is not a number; {_HOW}") from None
        if sign in ("=", "==") or (sign in (">", ">=", "≥")) != rises:
            way = f"{'rises' if rises else 'falls'} to it: write {metric}{'>=' if rises else '<='}"
            if metric not in _RISES:
                way = f"may rise or fall: write {metric}>={parts['number']} or {metric}<="
            raise ExperimentError(f"target {text!r}: {metric} {way}{parts['number']}{parts['percent']}")
        if parts["percent"] and metric != "accuracy":
            raise ExperimentError(f"target {text!r}: only an accuracy can be in per cent; {_HOW}")
        if parts["percent"] and not 0 < number <= 100:
            raise ExperimentError(f"target {text!r}: an accuracy should be above 0 and at most 1 (or 100%)")
        # Rounded: 56.7 / 100 is 0.5670000000000001 as a float, which no accuracy of 0.567 would reach.
        return cls(metric, round(number / 100, 12) if parts["percent"] else number, rises)

    @property
    def label(self) -> str:
        """The target for people, e.g. ``accuracy ≥ 80 %``, ``loss ≤ 0.5``."""
        if self.metric == "accuracy":
            return f"accuracy ≥ {100 * self.threshold:.6g} %"
        return f"{self.metric} {'≥' if self.rises else '≤'} {self.threshold:.6g}"

    @property
    def column(self) -> str:
        """The target for programs, as `parse` takes it, e.g. ``accuracy>=0.8``, ``loss<=0.5``."""
        return f"{self.metric}{'>=' if self.rises else '<='}{self.threshold!r}"

    def format_value(self, value: float) -> str:
        """Return a value of the metric for people, e.g. ``81.3 %``, ``0.4873``."""
        return f"{100 * value:.4g} %" if self.metric == "accuracy" else f"{value:.4g}"

    def met(self, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which values of the metric, of any shape, reach the target; NaN (not measured) does not."""
        measured = np.asarray(values, np.float64)
        return np.asarray(measured >= self.threshold if self.rises else measured <= self.threshold)

    def check_workload(self, dataset: str, metrics: Sequence[str] = ()) -> None:
        """Check that a workload measures the metric.

        Args:
            dataset: of the workload; only language models have a perplexity.
            metrics: from ``workload.metrics``.

        Raises:
            ExperimentError: the metric is not measured.
        """
        if self.metric == "perplexity" and not is_language(dataset):
            raise ExperimentError(f"{self.label}: a perplexity is measured only for language models, not on {dataset}")
        if self.metric not in (*METRICS, *metrics):
            raise ExperimentError(f"{self.label}: {not_measured(self.metric, dataset, metrics)}")


def measured(metric: Metric, accuracy: float, loss: float, others: Mapping[str, float] | None = None) -> float:
    """Return the metric in an evaluation; infinite if too large for a float; NaN if not measured.

    Args:
        metric: its name.
        accuracy, loss: of the evaluation.
        others: the values of ``workload.metrics`` by name.
    """
    if metric == "perplexity":
        return math.inf if loss > 700 else math.exp(loss)
    if metric in METRICS:
        return accuracy if metric == "accuracy" else loss
    return (others or {}).get(metric, math.nan)


def not_measured(metric: Metric, dataset: str, metrics: Sequence[str]) -> str:
    """Return the end of an error message: a metric is not measured, which metrics are, and how to add it.

    Args:
        metric: its name.
        dataset: of the workload.
        metrics: from ``workload.metrics``.
    """
    available = [name for name in METRICS if name != "perplexity" or is_language(dataset)]
    return (
        f"{metric} is not measured; measured are {', '.join((*available, *metrics))}; "
        f"workload.metrics: [{metric}] adds it to a run"
    )


def _as_text(item: tuple[Any, Any]) -> Any:
    """Return the text of a target that is written as a mapping."""
    metric, value = item
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not isinstance(metric, str):
        return {metric: value}
    if isinstance(value, str) and value.strip()[:1] in "<>=≥≤":
        return f"{metric}{value}"
    return f"{metric}{'=' if metric not in _RISES else '>=' if _RISES[metric] else '<='}{value}"


def _unknown(metric: str) -> str:
    longer = [name for name in _RISES if metric and name.startswith(metric)]
    hint = question((longer or similar(metric, _RISES))[:1])
    return f"unknown metric {metric!r}; {hint}there are {', '.join(_RISES)}, or package.module:name of workload.metrics"
