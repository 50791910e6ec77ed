"""How good the model is to become: targets that are measured, and one that ends the run."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from testbed.errors import ExperimentError
from testbed.experiment.sections import Section
from testbed.workload.section import WorkloadSection
from testbed.workload.target import METRICS, Target


def _column(text: Any) -> str:
    try:
        return Target.parse(text).column
    except ExperimentError as error:
        raise ValueError(str(error)) from None


def _share(value: Any) -> Any:
    """An accuracy that is written in per cent."""
    if not isinstance(value, str):
        return value
    try:
        target = Target.parse(value)
    except ExperimentError as error:
        raise ValueError(str(error)) from None
    if target.metric != "accuracy":
        raise ValueError(f"should be an accuracy, e.g. 80%, not {value!r}; write stop_at.{target.metric} instead")
    return target.threshold


TargetText = Annotated[
    str, BeforeValidator(_column), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})
]
"""What `Target.parse` takes; kept as its column."""


class StopAt(Section):
    """A target that ends the run: one of the three."""

    accuracy: Annotated[float, BeforeValidator(_share)] | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="End the run after the first evaluation with this accuracy, a share or in per cent (80%)",
    )
    loss: float | None = Field(
        None, exclude_if=lambda value: value is None, description="The same for a loss that falls to this"
    )
    perplexity: float | None = Field(
        None, exclude_if=lambda value: value is None, description="The same for a perplexity, where words are learned"
    )

    @model_validator(mode="after")
    def _is_one(self) -> "StopAt":
        if len(self._given()) != 1:
            raise ValueError(f"one of {', '.join(METRICS)} ends a run, e.g. {{accuracy: 0.8}}")
        try:
            _ = self.target
        except ExperimentError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def target(self) -> Target:
        """The target itself."""
        [(metric, threshold)] = self._given()
        return Target(metric, threshold)

    def _given(self) -> list[tuple[Any, float]]:
        values = [(metric, getattr(self, metric)) for metric in METRICS]
        return [(metric, value) for metric, value in values if value is not None]


def check_goals(targets: tuple[str, ...], stop_at: StopAt | None, workload: WorkloadSection) -> None:
    """Raise `ValueError`, which begins with the key, for a target that is there twice or that nobody will measure."""
    named = [("targets", Target.parse(text)) for text in targets]
    named += [] if stop_at is None else [("stop_at", stop_at.target)]
    for key, target in named:
        if named.count((key, target)) > 1:
            raise ValueError(f"{key}: {target.column} is there twice")
        if workload.training == "simulated":
            raise ValueError(f"{key}: workload.training: simulated evaluates nothing; train for real, or leave it out")
        if workload.flower is not None and not workload.flower.evaluate_clients:
            raise ValueError(
                f"{key}: workload.flower.evaluate_clients: 0 evaluates nothing; raise it, or leave this out"
            )
        try:
            target.check_workload(workload.dataset)
        except ExperimentError as error:
            raise ValueError(f"{key}: {error}") from None
