"""A user-defined workload class: the documented example works, and misfits are refused by name."""

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.errors import ExperimentError
from testbed.workload.section import WorkloadSection
from workloads import Workload, build, contract
from workloads.training.classification import ImageClassification

OWN_IMAGES = '''
import numpy as np
from workloads import ImageClassification, LabelledImages, PartitionedDataset, Scaling


class Stripes(ImageClassification):
    """Horizontal against vertical stripes."""

    def __init__(self, section, population, seed, size=12):
        labels = np.arange(400) % 2
        rows = np.arange(size) % 2 * 200
        images = np.where(labels[:, None, None] == 0, rows[:, None], rows[None, :])
        noise = np.random.default_rng(seed).integers(0, 50, (400, size, size))
        samples = LabelledImages((images + noise).astype(np.uint8), labels)
        data = PartitionedDataset(
            samples.take(np.arange(300)), samples.take(np.arange(300, 400)), classes=2,
            scaling=Scaling(100.0, 100.0), description="stripes",
            section=section, population=population, seed=seed,
        )
        super().__init__("stripes", data, "logistic", section, seed)


class Nothing:
    def __init__(self, section, population, seed):
        self.name = "nothing"


class Anything(Nothing):
    def __init__(self, section, population, seed, **whatever):
        """A misspelt option would pass."""


class WrongSize(Stripes):
    def __init__(self, section, population, seed):
        super().__init__(section, population + 1, seed)


number = 3
'''


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = contract.__doc__[contract.__doc__.index("    class MeanEstimation") :]
    header = "import numpy as np\nfrom workloads import Evaluation, LocalUpdate\n\n"
    (tmp_path / "documented_example.py").write_text(header + textwrap.dedent(example))
    (tmp_path / "own_images.py").write_text(OWN_IMAGES)
    (tmp_path / "broken_inside.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("own_modules")
def test_the_documented_example_trains() -> None:
    section = WorkloadSection(dataset="documented_example:MeanEstimation", epochs=5, options={"spread": 0.5})
    workload = build(section, population=4, seed=1)
    assert isinstance(workload, Workload)
    model = workload.initial_model()
    for round_number in range(1, 21):
        updates = [workload.train(client, model, round_number) for client in range(4)]
        assert all(update.delta.dtype == np.float32 for update in updates)
        model = model + np.mean([update.delta for update in updates], axis=0)
    assert workload.evaluate(model).accuracy == 1.0
    assert updates[0].examples_processed == 150


@pytest.mark.usefixtures("own_modules")
def test_own_images_with_the_built_in_training() -> None:
    steps: dict[str, Any] = {"batch_size": 20, "learning_rate": 0.05, "momentum": 0.9}
    section = WorkloadSection(dataset="own_images:Stripes", options={"size": 10}, **steps)
    workload = build(section, population=6, seed=1)
    assert isinstance(workload, ImageClassification)
    assert (workload.name, workload.model_name, workload.dimension) == ("stripes", "logistic", 202)
    model = workload.initial_model()
    model = model + workload.train(0, model, 1).delta
    assert workload.evaluate(model).accuracy > 0.95


@pytest.mark.usefixtures("own_modules")
@pytest.mark.parametrize(
    ("dataset", "options", "says"),
    [
        ("no_such_module:Thing", {}, "no module 'no_such_module'"),
        ("own_images.inner:Thing", {}, "no module 'own_images.inner'"),
        ("own_images:Absent", {}, "has no class Absent"),
        ("own_images:number", {}, "has no class number"),
        ("own_images:Stripes", {"siz": 3}, "workload.options.siz: unknown option; did you mean 'size'? allowed: size"),
        ("own_images:Nothing", {"size": 3}, "allowed: none; own_images:Nothing declares no options"),
        ("own_images:Anything", {"size": 3}, "allowed: none; own_images:Anything declares no options"),
        ("own_images:Nothing", {}, "lacks dimension, sample_counts, initial_model, train, evaluate"),
        ("own_images:WrongSize", {}, "must have sample_counts of shape (6,) and dtype int64, not (7,)"),
    ],
)
def test_misfits_are_refused_in_one_line(dataset: str, options: dict, says: str) -> None:
    with pytest.raises(ExperimentError) as refused:
        build(WorkloadSection(dataset=dataset, options=options), population=6, seed=1)
    assert says in str(refused.value)
    assert dataset in str(refused.value) or "own_images" not in says
    assert "\n" not in str(refused.value)


@pytest.mark.usefixtures("own_modules")
def test_what_the_users_module_itself_lacks_is_not_hidden() -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        build(WorkloadSection(dataset="broken_inside:Thing"), population=6, seed=1)
