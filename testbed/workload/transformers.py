"""The key ``workload.transformers``: a model of Hugging Face's from a folder of the user's."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from testbed.extras import first_missing, install_command
from testbed.workload.adapters import Adapters


class Transformers(BaseModel):
    """Which model, and what of it is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path = Field(
        description="As save_pretrained() writes it: config.json and model.safetensors; nothing is downloaded, and no "
        "code in it is run",
    )
    task: Literal["next-word", "labels"] = Field(
        "next-word",
        description="next-word: predicts each word from those before it (AutoModelForCausalLM); labels: one of them "
        "for each sample (AutoModelForSequenceClassification)",
    )
    lora: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments of peft.LoraConfig, e.g. {r: 8, lora_alpha: 16, target_modules: [q_proj, "
        "v_proj]}: only what peft trains is sent. Unset: workload.adapters, or the whole model",
    )

    @model_validator(mode="after")
    def _extra_is_installed(self) -> Self:
        for package in ("transformers", *(["peft"] if self.lora else [])):
            if first_missing(package):
                raise ValueError(f"needs {package}: {install_command('peft')}")
        return self

    def check(self, model: str, adapters: Adapters | None) -> None:
        """Raise `ValueError` for keys of the workload that this is instead of."""
        if model != "auto":
            raise ValueError("model: transformers names the model; leave out one of the two")
        if self.lora and adapters is not None:
            raise ValueError("adapters: transformers.lora is instead of them; leave out one of the two")


TransformersKey = Annotated[
    Transformers | None,
    Field(
        exclude_if=lambda section: section is None,
        description="Instead of model: a model of Hugging Face transformers from a local folder (extra peft); the data "
        "are numbers of words, (n, positions)",
    ),
]
