"""The key ``workload.adapters``: fine-tuning of a small part of a model."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_Pattern = Annotated[str, Field(min_length=1)]


class Adapters(BaseModel):
    """Low-rank adapters (LoRA). The symbols in the descriptions are those of Hu et al. 2021, arXiv 2106.09685."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(
        ge=1, le=65_536, description="Rank r: an adapter of a layer from k to d values has r (k + d) parameters"
    )
    alpha: float | None = Field(
        None,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="Scale alpha: an adapter's output is multiplied by alpha / rank (unset: alpha = rank, factor 1)",
    )
    targets: tuple[_Pattern, ...] = Field(
        ("*",),
        min_length=1,
        description="Names of the torch.nn.Linear layers that get an adapter: as in named_modules(), or the last part "
        "of such a name, with the wildcards * and ?, e.g. [query, value]. Default: all linear layers",
    )
    trained: tuple[_Pattern, ...] = Field(
        (),
        exclude_if=lambda names: not names,
        description="Names of modules that are trained and sent as a whole, e.g. a new head; in the form of targets. "
        "Default: none",
    )
    base: Path | None = Field(
        None,
        exclude_if=lambda path: path is None,
        description="File of the frozen weights: checkpoint.npz of a run with the same model without adapters. Unset: "
        "the model's own initial values, which are random for a built-in model",
    )

    @property
    def scale(self) -> float:
        """alpha / r."""
        return 1.0 if self.alpha is None else self.alpha / self.rank


AdaptersKey = Annotated[
    Adapters | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Fine-tuning with LoRA: the frozen model is assumed to be on every client; only low-rank adapters "
        "of its linear layers are trained, sent and aggregated, e.g. {rank: 8, targets: [query, value]}. Unset: the "
        "whole model is trained",
    ),
]
