"""What an experiment says of a Flower app whose clients it runs (``workload.flower``)."""

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

_TARGET = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"


class FlowerSection(BaseModel):
    """A Flower app: its folder, or ``module:app`` of its clients and server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    app: Path | None = Field(
        default=None, description="The app's folder, with its pyproject.toml ([tool.flwr.app.components] and config)."
    )
    client: str | None = Field(
        default=None,
        pattern=f"^{_TARGET}$",
        description="Instead of app: module:attribute of the ClientApp, found from the working directory or installed.",
    )
    server: str | None = Field(
        default=None,
        pattern=f"^{_TARGET}$",
        description="With client: module:attribute of the ServerApp, which sends the first model and the "
        "configuration; unset: the clients' get_parameters gives the first model.",
    )
    python: str | None = Field(
        default=None,
        description="The interpreter of the app's environment, where flwr is installed (unset: the testbed's own).",
    )
    run_config: dict[str, bool | int | FiniteFloat | str] = Field(
        default_factory=dict, description="Replaces values of the app's own configuration (flwr run --run-config)."
    )
    evaluate_clients: int = Field(
        default=10,
        ge=0,
        le=1_000_000,
        description="So many clients evaluate the model, spread evenly over all; their mean by samples counts. 0: the "
        "model is not evaluated.",
    )
    loss: str = Field(
        default="",
        exclude_if=lambda name: not name,
        description="The metric of an evaluation that is its loss (unset: eval_loss, eval-loss, loss or test_loss, or "
        "else the only metric whose name contains loss; an app without one has none recorded).",
    )
    accuracy: str = Field(
        default="",
        description="The metric of an evaluation that is its accuracy (unset: accuracy, eval_acc, eval_accuracy, "
        "acc..., or else the only metric whose name contains acc; an app without one has none recorded).",
    )
    train_loss: str = Field(
        default="",
        exclude_if=lambda name: not name,
        description="The metric of a training that is its loss (unset: train_loss, train-loss or loss, or else the "
        "only metric whose name contains loss; an app without one has none recorded).",
    )

    discard_state: bool = Field(
        default=False,
        exclude_if=lambda discard: not discard,
        description="Run an app whose clients keep something in context.state for later rounds: each call begins with "
        "an empty state, as a client's first one does (unset: such an app is refused).",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        """``flower: folder`` and ``flower: module:app``, for short."""
        if isinstance(value, Path):
            return {"app": value}
        if isinstance(value, str):
            return {"client": value} if ":" in value and not Path(value).exists() else {"app": value}
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.app is None) == (self.client is None):
            raise ValueError("flower needs app (the app's folder) or client (module:attribute of its ClientApp)")
        if self.app is not None and self.server is not None:
            raise ValueError("server goes with client; the app's folder names its own")
        return self

    @property
    def named(self) -> str:
        """The app, for messages."""
        return str(self.app or self.client)

    def check(self, workload: Any) -> None:
        """Raise `ValueError` (one line) for a key of the ``workload`` section that a Flower app does not read."""
        fields = type(workload).model_fields
        for key in sorted(set(fields) - {"flower", "epochs", "samples_per_client", "evaluate_every"}):
            if not workload.has_default(key):
                raise ValueError(f"{key} has no effect on a Flower app, which trains its clients itself; leave it out")
