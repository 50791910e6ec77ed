"""The key ``workload.adapters``: a model of which a small part is trained and sent."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_Pattern = Annotated[str, Field(min_length=1)]


class Adapters(BaseModel):
    """Low-rank adapters (LoRA). The symbols in the descriptions are those of Hu et al. 2021, arXiv 2106.09685."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(
        ge=1, le=65_536, description="r: an adapter of a layer from k to d values has r (k + d) parameters"
    )
    alpha: float | None = Field(
        None,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="An adapter's output is multiplied by alpha / rank (unset: alpha is rank, the factor 1)",
    )
    targets: tuple[_Pattern, ...] = Field(
        ("*",),
        min_length=1,
        description="Which of the model's torch.nn.Linear layers get an adapter: names as named_modules() gives them, "
        "or the last part of one, with * and ? as in file names, e.g. [query, value]; default: all",
    )
    trained: tuple[_Pattern, ...] = Field(
        (),
        exclude_if=lambda names: not names,
        description="Modules that are trained and sent as a whole, e.g. a new head; named as in targets",
    )
    base: Path | None = Field(
        None,
        exclude_if=lambda path: path is None,
        description="The frozen weights: checkpoint.npz of a run with the same model without adapters. Unset: the "
        "model's own initial values, which are random for a built-in model",
    )

    @property
    def scale(self) -> float:
        """Alpha / r."""
        return 1.0 if self.alpha is None else self.alpha / self.rank


AdaptersKey = Annotated[
    Adapters | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Fine-tuning: the model is frozen and taken to be on every client; only low-rank adapters of its "
        "linear layers are trained, sent and aggregated, e.g. {rank: 8, targets: [query, value]}",
    ),
]
