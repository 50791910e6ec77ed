"""Targets of the model's quality: measured in the tables, or ending the run."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from testbed.errors import ExperimentError
from testbed.experiment.sections import Section
from testbed.records.targets import METRICS, Target
from testbed.workload.section import METRICS as MEASURED
from testbed.workload.section import WorkloadSection


def _target(text: Any) -> Target:
    try:
        return Target.parse(text)
    except ExperimentError as error:
        raise ValueError(str(error)) from None


def _column(text: Any) -> str:
    return _target(text).column


def _share(value: Any) -> Any:
    """Return an accuracy as a share, also if it is written in per cent."""
    if not isinstance(value, str):
        return value
    target = _target(value)
    if target.metric != "accuracy":
        raise ValueError(f"should be an accuracy, e.g. 80%, not {value!r}; write stop_at.{target.metric} instead")
    return target.threshold


_FORMS: list[Any] = [{"type": "string"}, {"type": "number"}, {"type": "object", "maxProperties": 1}]
TargetText = Annotated[str, BeforeValidator(_column), WithJsonSchema({"anyOf": _FORMS})]
"""A target in any form that `Target.parse` takes, as the name of its column."""


def listed(targets: Any) -> Any:
    """Return targets as a tuple, also for a single target or a mapping ``{accuracy: 0.8, loss: 0.5}``."""
    if isinstance(targets, dict):
        return tuple({metric: value} for metric, value in targets.items())
    if isinstance(targets, str | int | float) and not isinstance(targets, bool):
        return (targets,)
    return tuple(targets) if isinstance(targets, list) else targets  # strict validation takes no list for a tuple


class StopAt(Section):
    """Target that ends the run: exactly one key. Other metrics by name: ``{macro-f1: 0.6}``; or ``80%`` alone."""

    accuracy: Annotated[float, BeforeValidator(_share)] | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Least accuracy that ends the run, as a share or in per cent (80%)",
    )
    loss: float | None = Field(
        None, exclude_if=lambda value: value is None, description="Largest loss that ends the run"
    )
    perplexity: float | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Largest perplexity that ends the run, for next-word prediction",
    )

    metric: TargetText | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="Target of any metric of workload.metrics that ends the run, e.g. macro-f1>=0.6",
    )

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """Accept a single target as text or number, and the name of another metric as the key."""
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            value = _target(value)
            return {value.metric: value.threshold} if value.metric in METRICS else {"metric": value.column}
        if isinstance(value, dict) and len(value) == 1 and not value.keys() & cls.model_fields.keys():
            name = str(next(iter(value)))
            return {"metric": value} if ":" in name or name in MEASURED else value
        return value

    @model_validator(mode="after")
    def _is_one(self) -> "StopAt":
        if len(self._thresholds()) + (self.metric is not None) != 1:
            raise ValueError(f"needs exactly one of {', '.join(METRICS)} or a metric, e.g. {{accuracy: 0.8}}")
        try:
            _ = self.target
        except ExperimentError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def target(self) -> Target:
        """The target, parsed."""
        if self.metric is not None:
            return Target.parse(self.metric)
        [(metric, threshold)] = self._thresholds()
        return Target(metric, threshold)

    def _thresholds(self) -> list[tuple[Any, float]]:
        values = [(metric, getattr(self, metric)) for metric in METRICS]
        return [(metric, value) for metric, value in values if value is not None]


def check_goals(targets: tuple[str, ...], stop_at: StopAt | None, workload: WorkloadSection) -> None:
    """Raise `ValueError`, beginning with the key, for a target that is listed twice or never measured.

    Args:
        targets: ``targets``, each as a column.
        stop_at: ``stop_at``.
        workload: the experiment's workload.
    """
    named = [("targets", Target.parse(text)) for text in targets]
    named += [] if stop_at is None else [("stop_at", stop_at.target)]
    for key, target in named:
        if named.count((key, target)) > 1:
            raise ValueError(f"{key}: {target.column} is listed twice; remove one")
        if workload.training == "simulated":
            raise ValueError(
                f"{key}: workload.training: simulated evaluates no model; set training: real, or leave {key} out"
            )
        if workload.flower is not None and not workload.flower.evaluate_clients:
            raise ValueError(
                f"{key}: workload.flower.evaluate_clients: 0 evaluates no model; raise it, or leave {key} out"
            )
        try:
            target.check_workload(workload.dataset, workload.metrics)
        except ExperimentError as error:
            raise ValueError(f"{key}: {error}") from None
