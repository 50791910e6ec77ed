"""The key ``workload.transformers``: a Hugging Face model from a local folder."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.extras import first_missing, install_command
from testbed.workload.adapters import Adapters


class Transformers(BaseModel):
    """The model, its task, and the part of it that is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path = Field(
        description="Folder written by save_pretrained(): config.json and model.safetensors. Nothing is downloaded, "
        "and no code in the folder is run",
    )
    task: Literal["next-word", "labels"] = Field(
        "next-word",
        description="next-word (default): predict each word from the words before it (AutoModelForCausalLM); labels: "
        "predict one label for each sample (AutoModelForSequenceClassification)",
    )
    lora: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments of peft.LoraConfig, e.g. {r: 8, lora_alpha: 16, target_modules: [q_proj, "
        "v_proj]}; only the parameters that peft trains are sent. Unset: workload.adapters, or the whole model",
    )

    @model_validator(mode="after")
    def _extra_is_installed(self) -> Self:
        for package in ("transformers", *(["peft"] if self.lora else [])):
            if first_missing(package):
                raise ValueError(f"needs the package {package}; install it: {install_command('peft')}")
        return self

    def check(self, model: str, adapters: Adapters | None) -> None:
        """Raise `ValueError` for other keys of the workload that name a model or adapters."""
        if model != "auto":
            raise ValueError("model: transformers names a model, too; leave out one of the two")
        if self.lora and adapters is not None:
            raise ValueError("adapters: transformers.lora replaces adapters; leave out one of the two")


TransformersKey = Annotated[
    Transformers | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Instead of model: a model of Hugging Face transformers from a local folder (extra peft), for data "
        "of token numbers, (n, positions)",
    ),
]
