"""A data set is one file: all checks of the section derive from the declarations of its module."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

import workloads.data
from testbed.experiment.schema import Experiment
from testbed.workload import specs
from testbed.workload.section import WorkloadSection
from testbed.workload.specs import DatasetSpec, Form, ModelSpec, datasets, is_language, models, models_for
from tests.messages_named import naming
from workloads import ImageClassification

NEW = '''
import numpy as np

from testbed.workload.specs import Form
from workloads.data.clients.contract import Dataset
from workloads.data.clients.images import LabelledImages, PartitionedDataset, Scaling


def load(section, population, seed):
    """Left half bright, or right half."""
    labels = np.arange(200) % 2
    images = np.zeros((200, 6, 6), np.uint8)
    images[labels == 0, :, :3] = images[labels == 1, :, 3:] = 200
    samples = LabelledImages(images, labels)
    return PartitionedDataset(
        samples.take(np.arange(150)), samples.take(np.arange(150, 200)), classes=2, scaling=Scaling(100.0, 100.0),
        description="halves", section=section, population=population, seed=seed,
    )


SPECS = (
    Dataset(
        name="halves", summary="halves", form=Form.GREY, size=6, default_model="logistic", files="the folder of halves",
        reads=("image_size",), load=load,
    ),
    Dataset(
        name="owned-halves", summary="the same", form=Form.TEXT, default_model="albert", owner="painter", load=load,
    ),
)
'''
UNSUITED = {"image_size": 64, "sequence_length": 8, "vocabulary_size": 50}


def forget() -> None:
    specs.datasets.cache_clear()
    workloads.data.specs.cache_clear()


@pytest.fixture
def new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file beside the other data sets', and nothing else."""
    (tmp_path / "halves.py").write_text(NEW)
    monkeypatch.setattr(workloads.data, "__path__", [*workloads.data.__path__, str(tmp_path)])
    forget()
    yield
    forget()
    sys.modules.pop("workloads.data.halves", None)


def refused(**keys: object) -> str:
    with pytest.raises(ValidationError) as error:
        WorkloadSection(**keys)
    return str(error.value)


@pytest.mark.usefixtures("new_file")
def test_one_new_file_is_learned_and_gets_every_check() -> None:
    section = WorkloadSection(dataset="halves", path="/halves", image_size=64)
    assert section.is_built_in
    made = workloads.build(section, population=10, seed=1)
    assert isinstance(made, ImageClassification)
    assert (made.model_name, made.dimension) == ("logistic", 74)
    model = made.initial_model()
    model = model + np.mean([made.train(client, model, 1).delta for client in range(10)], axis=0)
    assert made.evaluate(model).accuracy == 1.0
    assert "dataset halves needs path: the folder of halves (nothing is downloaded)" in refused(dataset="halves")
    only = refused(dataset="halves", path="/halves", model="femnist-cnn")
    assert "does not take the data of halves (6x6; femnist-cnn needs 28x28 images); allowed: auto, logistic" in only
    assert "image_size: only celeba and halves and openimage and synthetic-openimage" in refused(image_size=64)
    assert "partition does not apply to owned-halves: each client is one painter" in refused(
        dataset="owned-halves", partition={"alpha": 1}
    )
    assert "allowed: auto, albert, albert-small" in refused(dataset="owned-halves", model="cnn")
    assert "sequence_length: only reddit" in refused(dataset="owned-halves", sequence_length=8)
    assert "read files, not owned-halves" in refused(dataset="owned-halves", path="/halves")
    assert "halves," in refused(dataset="elsewhere")
    assert "options are for a user-defined class" in refused(dataset="owned-halves", options={"size": 3})
    fields = Experiment.model_json_schema()["$defs"]["WorkloadSection"]["properties"]
    assert "halves" in fields["dataset"]["examples"]
    assert "halves: the folder of halves" in fields["path"]["description"]
    assert "halves: logistic" in fields["model"]["description"]
    assert (is_language("owned-halves"), is_language("halves"), is_language("mine:Data")) == (True, False, False)


@pytest.mark.parametrize("name", list(datasets()))
def test_every_declared_data_set_is_checked(name: str) -> None:
    spec = datasets()[name]
    keys: dict[str, object] = {"dataset": name, **({"path": "/data"} if spec.files else {})}
    assert spec.summary
    assert spec.default_model in models_for(spec)
    assert set(spec.reads) <= set(WorkloadSection.model_fields)
    for model in models():
        if model in models_for(spec):
            assert WorkloadSection(**keys, model=model).model == model
        else:
            assert f"model {model} does not take the data of {name}" in refused(**keys, model=model)
    for key, value in UNSUITED.items():
        if key in spec.reads:
            assert getattr(WorkloadSection(**keys, **{key: value}), key) == value
        else:
            assert f"{key}: only " in refused(**keys, **{key: value})
    if spec.files:
        assert f"dataset {name} needs path: {spec.files}" in refused(dataset=name)
    else:
        assert f"read files, not {name}" in refused(**keys, path="/data")
    if spec.owner:
        assert f"each client is one {spec.owner}" in refused(**keys, partition={"alpha": 1})
    else:
        assert WorkloadSection(**keys, partition={"alpha": 1}).partition.alpha == 1


def test_the_models_of_the_data_sets() -> None:
    """The models of these data sets; further ones need no change here."""
    grey = ("logistic", "mlp", "cnn", "femnist-cnn", "mnist-cnn", "emnist-cnn", "lenet")
    colour = ("lenet", "cifar-cnn", "vgg11")
    photo, text = ("mobilenet-v2",), ("albert", "albert-small")
    expected = {
        "digits": ("logistic", "mlp", "cnn"),
        **dict.fromkeys(("mnist", "emnist", "femnist", "synthetic-femnist"), grey),
        **dict.fromkeys(("cifar10", "cifar100", "synthetic-cifar10", "synthetic-cifar100"), colour),
        **dict.fromkeys(("openimage", "synthetic-openimage"), photo),
        **dict.fromkeys(("reddit", "synthetic-reddit"), text),
    }
    known = {*grey, *colour, *photo, *text}
    for name, fitting in expected.items():
        assert tuple(model for model in models_for(datasets()[name]) if model in known) == fitting


def test_two_of_one_name_are_an_error() -> None:
    spec = DatasetSpec(name="twice", summary="", form=Form.TEXT, default_model="albert")
    with pytest.raises(ValueError, match=naming("twice", "declared")):
        specs._by_name([spec, spec])
    assert not ModelSpec(name="small", takes={Form.GREY: 8}).fits(spec)


WITHOUT = """
    import sys

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in {"torch", "torchvision", "sklearn", "PIL", "h5py", "ray"}:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Absent())
    import workloads
    from testbed.experiment import Experiment
    from testbed.workload.section import WorkloadSection
    from testbed.workload.specs import datasets, models

    assert workloads.Workload and workloads.PartitionedDataset
    assert len(datasets()) >= 13 and len(models()) >= 11
    WorkloadSection(dataset="cifar10", path="/data", model="lenet")
    Experiment.model_json_schema()
    try:
        workloads.build(WorkloadSection(), 5, 1)
    except ModuleNotFoundError as error:
        print(error.name)
"""


def test_data_sets_are_described_and_checked_without_torch() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT)], capture_output=True, text=True, check=False, cwd=root
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["torch"]
