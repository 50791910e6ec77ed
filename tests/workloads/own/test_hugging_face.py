"""Models of Hugging Face transformers from a local folder; a tiny one is made on the spot."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.experiment.inputs import digests
from testbed.experiment.schema import Experiment, validated
from testbed.extras import install_command
from testbed.workload.section import WorkloadSection
from workloads import build

needs_extra = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="needs the extra peft")
WORDS: dict[str, Any] = {
    "dataset": "synthetic-reddit", "vocabulary_size": 60, "sequence_length": 6, "samples_per_client": 8,
    "test_samples": 12, "batch_size": 4, "learning_rate": 0.1,
}  # fmt: skip
LORA = {"r": 2, "target_modules": ["q_proj", "v_proj"]}
OURS = {"rank": 2, "targets": ["q_proj", "v_proj"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers of 16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    made = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=60, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=32,
        )
    )  # fmt: skip
    path = tmp_path_factory.mktemp("models") / "tiny-llama"
    made.save_pretrained(path)
    return path


def made(folder: Path, seed: int = 1, adapters: Any = None, **keys: Any) -> Any:
    words = {key: keys.pop(key) for key in list(keys) if key in ("training", "dataset", "partition")}
    section = {"folder": folder} | keys
    return build(WorkloadSection(**(WORDS | words), transformers=section, adapters=adapters), 5, seed)


@needs_extra
def test_the_model_of_the_folder_is_the_first_one(folder: Path) -> None:
    import torch
    from transformers import LlamaForCausalLM

    workload, given = made(folder), LlamaForCausalLM.from_pretrained(folder, local_files_only=True)
    words = torch.arange(12).reshape(2, 6)
    with torch.inference_mode():
        workload._trainer._load(workload.initial_model())
        ours = workload._network.eval()(words)
        theirs = given.eval()(words).logits.transpose(1, 2)
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert workload.dimension == sum(one.numel() for one in given.parameters())
    assert workload.model_name == "tiny-llama"
    assert workload.notes == []


@needs_extra
@pytest.mark.parametrize("keys", [{"lora": LORA}, {"adapters": OURS}])
def test_adapters_alone_are_sent(folder: Path, keys: dict[str, Any]) -> None:
    whole, workload = made(folder), made(folder, **keys)
    assert workload.dimension == 2 * 2 * 2 * (16 + 16)  # layers, projections, rank
    assert workload.charged_parameters == workload.dimension + -(-2 * whole.dimension // 3)
    (note,) = workload.notes
    assert note.startswith("fine-tuning: 256 parameters are trained and sent")
    model = workload.initial_model()
    assert model.tobytes() == made(folder, **keys).initial_model().tobytes()
    assert model.tobytes() != made(folder, seed=2, **keys).initial_model().tobytes()
    before = workload.evaluate(model).loss
    assert before == pytest.approx(whole.evaluate(whole.initial_model()).loss, rel=1e-5)
    for number in range(1, 7):
        updates = [workload.train(client, model, number).delta for client in range(5)]
        assert all(update.any() for update in updates)
        model = model + np.mean(updates, axis=0)
    assert workload.evaluate(model).loss < before
    again = made(folder, **keys)
    assert again.train(3, model, 7).delta.tobytes() == workload.train(3, model, 7).delta.tobytes()
    assert made(folder, training="simulated", **keys).dimension == workload.dimension


@needs_extra
def test_peft_and_ours_train_alike(folder: Path) -> None:
    """From the same factors: peft has its own first ones."""
    ours, theirs = made(folder, adapters=OURS | {"alpha": 4}), made(folder, lora=LORA | {"lora_alpha": 4})
    model = ours.initial_model() + np.float32(0.01)
    one, other = ours.train(0, model, 1), theirs.train(0, model, 1)
    assert one.delta == pytest.approx(other.delta, abs=1e-5)
    assert np.abs(one.delta).max() > 1e-3


@needs_extra
def test_labels_are_learned_with_a_new_head(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = """
import numpy as np


def load():
    return np.arange(240).reshape(60, 4) % 60, np.arange(60) % 2
"""
    (tmp_path / "mine_of_words.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    section = WorkloadSection(
        dataset="mine_of_words:load", batch_size=4, transformers={"folder": folder, "task": "labels", "lora": LORA}
    )
    workload = build(section, 5, 1)
    assert workload.dimension == 256 + 2 * 16  # and the head
    assert workload.initial_model().tobytes() == build(section, 5, 1).initial_model().tobytes()
    update = workload.train(0, workload.initial_model(), 1)
    assert update.delta.any()


@needs_extra
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"lora": {"r": 2, "target_modules": ["nothing"]}}, "workload.transformers.lora: "),
        ({"lora": {"rank": 2}}, "workload.transformers.lora: "),
        (
            {"adapters": {"rank": 2, "targets": ["query"]}},
            "workload.adapters.targets: query is no torch.nn.Linear layer of tiny-llama; it has model.model.layers.0.",
        ),
    ],
)
def test_adapters_that_do_not_fit_are_one_line(folder: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as error:
        made(folder, **keys)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@needs_extra
def test_a_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match=r"^workload.transformers.folder: .*: no config.json"):
        made(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickled")
    with pytest.raises(ExperimentError, match=r"^workload.transformers.folder: .*") as error:
        made(tmp_path)
    assert "\n" not in str(error.value)


@needs_extra
def test_a_vocabulary_that_is_larger_is_one_line(folder: Path) -> None:
    section = WorkloadSection(**(WORDS | {"vocabulary_size": 500}), transformers={"folder": folder})
    with pytest.raises(ExperimentError, match=r"^workload.model: tiny-llama"):
        build(section, 5, 1)


@needs_extra
def test_the_folder_is_one_of_the_experiments_files(folder: Path) -> None:
    experiment = Experiment.model_validate({"workload": WORDS | {"transformers": {"folder": str(folder)}}})
    assert list(digests(experiment)) == [str(folder)]


@pytest.mark.parametrize(("lora", "package"), [({}, "transformers"), (LORA, "peft")])
def test_missing_packages_are_named(lora: dict[str, Any], package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    there = {"transformers"} - {package}

    def find(name: str, *more: Any) -> Any:
        return None if name == package else SimpleNamespace(origin="here") if name in there else found(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(ExperimentError) as error:
        validated({"workload": WORDS | {"transformers": {"folder": "models/tiny", "lora": lora}}}, "mine.yaml")
    assert str(error.value).startswith(f"mine.yaml: workload.transformers: needs the package {package};")
    assert str(error.value).endswith(install_command("peft"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model": "albert-small"}, "model: transformers names a model, too"),
        ({"adapters": OURS}, "adapters: transformers.lora replaces adapters"),
        ({"flower": "somewhere:app"}, "transformers has no effect on a Flower app"),
    ],
)
def test_keys_beside_a_user_defined_class_are_refused(
    keys: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin="here", loader=object()))
    own = {} if "flower" in keys else WORDS
    with pytest.raises(ValueError, match=message):
        WorkloadSection(**(own | keys), transformers={"folder": "models/tiny", "lora": LORA})
