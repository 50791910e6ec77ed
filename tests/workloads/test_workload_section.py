"""The ``workload`` section of an experiment: what it accepts and how it refuses."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from testbed.experiment.workload import Partition, Workload


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"dataset": "cifar"}, "digits, mnist, synthetic-femnist, package.module:ClassName"),
        ({"dataset": "mnist"}, "needs path"),
        ({"dataset": "digits", "path": "/data"}, "mnist only"),
        ({"model": "resnet"}, "logistic, mlp, cnn, femnist-cnn"),
        ({"model": "femnist-cnn"}, "28x28"),
        ({"options": {"depth": 3}}, "class of your own"),
        ({"dataset": "synthetic-femnist", "partition": {"scheme": "dirichlet"}}, "each client is one writer"),
        ({"partition": {"scheme": "pathological"}}, "'iid', 'dirichlet' or 'label-shards'"),
        ({"partition": {"alpha": 0}}, "greater than 0"),
        ({"partition": {"minimum_samples": 5}, "samples_per_client": 4}, "minimum_samples"),
        ({"epochs": 0}, "greater than or equal to 1"),
        ({"learning_rate": float("inf")}, "finite number"),
        ({"learning_rate": float("nan")}, "finite number"),
        ({"momentum": 1.0}, "less than 1"),
        ({"evaluate_each": 2}, "not permitted"),
    ],
)
def test_a_wrong_section_is_refused_with_what_is_allowed(keys: dict, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Workload(**keys)
    assert says in str(refused.value)


def test_every_field_is_described() -> None:
    for model in (Workload, Partition):
        assert all(field.description for field in model.model_fields.values())


def test_a_section_survives_being_written_and_read_again() -> None:
    for section in (
        Workload(),
        Workload(dataset="synthetic-femnist", samples_per_client=20, epochs=2),
        Workload(dataset="mnist", path="somewhere", partition={"scheme": "label-shards"}),
        Workload(dataset="their.module:Data", model="their-model", options={"depth": 3}),
    ):
        assert Workload.model_validate(section.model_dump(mode="json")) == section


def test_describing_a_workload_does_not_import_torch() -> None:
    code = "import sys, testbed.experiment.workload; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
