"""Settings of a Flower app, run with its own clients (``workload.flower``)."""

from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

_TARGET = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"


class FlowerSection(BaseModel):
    """A Flower app: its folder, or ``module:app`` of its clients and server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    app: Path | None = Field(
        default=None, description="Folder of the app, with pyproject.toml ([tool.flwr.app.components] and config)."
    )
    client: str | None = Field(
        default=None,
        pattern=f"^{_TARGET}$",
        description="Instead of app: module:attribute of the ClientApp, in the working directory or installed.",
    )
    server: str | None = Field(
        default=None,
        pattern=f"^{_TARGET}$",
        description="With client: module:attribute of the ServerApp, which sends the first model and the "
        "configuration. Unset: the first model comes from the clients' get_parameters.",
    )
    python: str | None = Field(
        default=None,
        description="Python interpreter of the app's environment, where flwr is installed (unset: the testbed's own).",
    )
    run_config: dict[str, bool | int | FiniteFloat | str] = Field(
        default_factory=dict,
        description="Values that replace those of the app's configuration, as with flwr run --run-config.",
    )
    evaluate_clients: int = Field(
        default=10,
        ge=0,
        le=1_000_000,
        description="Number of clients that evaluate the model, spread evenly over the population; the result is "
        "their mean weighted by samples. 0: no evaluation.",
    )
    loss: str = Field(
        default="",
        exclude_if=lambda name: not name,
        description="Name of the evaluation's metric that is recorded as the loss (unset: eval_loss, eval-loss, loss "
        "or test_loss, else the only metric with loss in its name; without such a metric no loss is recorded).",
    )
    accuracy: str = Field(
        default="",
        description="Name of the evaluation's metric that is recorded as the accuracy (unset: accuracy, eval_acc, "
        "eval_accuracy, acc..., else the only metric with acc in its name; without such a metric no accuracy is "
        "recorded).",
    )
    train_loss: str = Field(
        default="",
        exclude_if=lambda name: not name,
        description="Name of the training's metric that is recorded as the loss (unset: train_loss, train-loss or "
        "loss, else the only metric with loss in its name; without such a metric no loss is recorded).",
    )

    discard_state: bool = Field(
        default=False,
        exclude_if=lambda discard: not discard,
        description="Whether to run an app that keeps data in context.state between rounds, with an empty state in "
        "each call. Default false: such an app is refused.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        """Expand the short forms ``flower: folder`` and ``flower: module:app``."""
        if isinstance(value, Path):
            return {"app": value}
        if isinstance(value, str):
            # An existing path wins: a folder's name may have a colon.
            return {"client": value} if ":" in value and not Path(value).exists() else {"app": value}
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.app is None) == (self.client is None):
            raise ValueError("flower needs app (the app's folder) or client (module:attribute of its ClientApp)")
        if self.app is not None and self.server is not None:
            raise ValueError("server goes with client; with app, pyproject.toml names the server: leave it out")
        return self

    @property
    def named(self) -> str:
        """The app, for messages."""
        return str(self.app or self.client)

    def check(self, workload: Any) -> None:
        """Raise `ValueError` (one line) for a key of the ``workload`` section that has no effect on a Flower app."""
        fields = type(workload).model_fields
        for key in sorted(set(fields) - {"flower", "epochs", "samples_per_client", "evaluate_every"}):
            if not workload.has_default(key):
                raise ValueError(f"{key} has no effect on a Flower app, which trains its clients itself; leave it out")
