"""Models of Hugging Face transformers from a local folder, optionally with adapters of peft.

Nothing is downloaded, and no code from the folder is run: weights are read only from safetensors. Attention is the
eager one, with a fixed order of sums; weights are float32.
"""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from testbed.errors import ExperimentError
from testbed.workload.transformers import Transformers

_KEY = "workload.transformers"
_NO_WORD = -1


class HuggingFaceModel(nn.Module):
    """Network from words (n, positions) int64 to logits: (n, vocabulary, positions) of the next word, or (n, labels).

    Args:
        model: a model of transformers, or of peft around one.
        by_position: whether its logits are per position.
    """

    def __init__(self, model: nn.Module, by_position: bool) -> None:
        super().__init__()
        self.model = model
        self._by_position = by_position

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=words, use_cache=False).logits
        return logits.transpose(1, 2) if self._by_position else logits


def loaded(section: Transformers) -> HuggingFaceModel:
    """Return the model of a folder; new parts, such as a head, are initialised by torch's generator.

    Raises:
        ExperimentError: a folder without a model, or adapters that do not fit it.
    """
    if not (section.folder / "config.json").is_file():
        raise ExperimentError(
            f"{_KEY}.folder: {section.folder}: no config.json; name a folder written by save_pretrained()"
        )
    transformers = import_module("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    is_next_word = section.task == "next-word"
    kind = transformers.AutoModelForCausalLM if is_next_word else transformers.AutoModelForSequenceClassification
    try:
        model = kind.from_pretrained(
            str(section.folder),
            local_files_only=True,
            trust_remote_code=False,
            # Other formats of weights are pickles, which run code when they are read.
            use_safetensors=True,
            # A fixed order of sums; the fused kernels differ in the last bits.
            attn_implementation="eager",
            dtype=torch.float32,
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise ExperimentError(f"{_KEY}.folder: {section.folder}: {_line(error)}") from error
    if model.config.pad_token_id is None:
        model.config.pad_token_id = _NO_WORD  # transformers finds the last position by it; no sample is padded here
    return HuggingFaceModel(_with_lora(model, section, is_next_word) if section.lora else model, is_next_word)


def _with_lora(model: nn.Module, section: Transformers, is_next_word: bool) -> Any:
    peft = import_module("peft")
    try:
        settings = {"task_type": "CAUSAL_LM" if is_next_word else "SEQ_CLS"} | section.lora
        return peft.get_peft_model(model, peft.LoraConfig(**settings))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ExperimentError(f"{_KEY}.lora: {_line(error)}") from error


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
