"""The ``workload`` section of an experiment: accepted keys and refusals."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from testbed.workload.partition import Partition
from testbed.workload.section import WorkloadSection


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"dataset": "cifar"}, "'cifar' is unknown; allowed: celeba, cifar10, cifar100, digits, emnist,"),
        ({"dataset": "mnist"}, "needs path"),
        ({"dataset": "femnist"}, "needs path: the folder with LEAF's json files, TensorFlow"),
        ({"dataset": "openimage"}, "needs path: FedScale's folder"),
        ({"dataset": "reddit"}, "needs path: the folder with train and test"),
        (
            {"dataset": "digits", "path": "/data"},
            "path: only celeba, cifar10, cifar100, emnist, femnist, mnist,",
        ),
        ({"dataset": "synthetic-reddit", "path": "/data"}, "not synthetic-reddit; leave it out"),
        ({"model": "mobilenet-v2"}, "does not take the data of digits"),
        ({"dataset": "synthetic-reddit", "model": "femnist-cnn"}, "allowed: auto, albert, albert-small"),
        ({"dataset": "synthetic-openimage", "model": "cnn"}, "allowed: auto, mobilenet-v2"),
        ({"image_size": 64}, "image_size: only celeba and openimage and synthetic-openimage"),
        (
            {"sequence_length": 64},
            "sequence_length: only reddit and sent140 and shakespeare and synthetic-reddit use this key",
        ),
        ({"vocabulary_size": 64}, "vocabulary_size: only reddit"),
        ({"dataset": "synthetic-openimage", "image_size": 7}, "greater than or equal to 8"),
        ({"dataset": "synthetic-openimage", "image_size": 32}, "image_size: mobilenet-v2 needs at least 33"),
        ({"dataset": "celeba", "path": "/data", "image_size": 15}, "image_size: celeba-cnn needs at least 16 pixels"),
        (
            {"dataset": "celeba", "path": "/data", "model": "mobilenet-v2", "image_size": 32},
            "mobilenet-v2 needs at least 33",
        ),
        ({"dataset": "shakespeare"}, "needs path: the folder with LEAF's json files of Shakespeare"),
        ({"dataset": "sent140", "path": "/data", "model": "albert"}, "allowed: auto, char-lstm, sent-lstm, word-bag"),
        ({"dataset": "synthetic-openimage", "partition": {"alpha": 1}}, "each client is one photographer"),
        ({"dataset": "synthetic-reddit", "partition": {"alpha": 1}}, "each client is one user"),
        ({"dataset": "mine:Data", "training": "simulated"}, "simulated needs a built-in data set"),
        ({"optimizer": "lion"}, "unknown; allowed: sgd, adamw, package.module:Class"),
        ({"model": "resnet"}, "logistic, mlp, cnn, femnist-cnn"),
        ({"model": "femnist-cnn"}, "28x28"),
        ({"model": "lenet"}, "lenet needs 28x28"),
        ({"dataset": "cifar10"}, "needs path: the folder with data_batch_1.bin"),
        ({"dataset": "cifar100"}, "needs path: the folder with train.bin"),
        ({"dataset": "synthetic-cifar10", "model": "cnn"}, "allowed: auto, lenet, cifar-cnn, vgg11"),
        ({"samples_per_client": 20, "partition": {"shared_samples": 20}}, "none of its own"),
        ({"options": {"depth": 3}}, "options are for a user-defined class"),
        ({"dataset": "synthetic-femnist", "partition": {"scheme": "dirichlet"}}, "each client is one writer"),
        (
            {"partition": {"scheme": "pathological"}},
            "allowed: iid, dirichlet, label-shards, by-column, ",
        ),
        ({"partition": {"alpha": 0}}, "greater than 0"),
        ({"partition": {"minimum_samples": 5}, "samples_per_client": 4}, "minimum_samples"),
        ({"epochs": 0}, "greater than or equal to 1"),
        ({"learning_rate": float("inf")}, "finite number"),
        ({"learning_rate": float("nan")}, "finite number"),
        ({"momentum": 1.0}, "less than 1"),
        ({"learning_rate_milestones": [400, 800]}, "have no effect without learning_rate_decay"),
        ({"learning_rate_milestones": [800, 400], "learning_rate_decay": 0.4}, "ascending order"),
        ({"learning_rate_milestones": [400, 400], "learning_rate_decay": 0.4}, "ascending order"),
        ({"learning_rate_milestones": [0], "learning_rate_decay": 0.4}, "greater than or equal to 1"),
        (
            {"learning_rate_milestones": [400], "learning_rate_decay": 0.4, "learning_rate_decay_every": 5},
            "leave out one of the two",
        ),
        ({"evaluate_each": 2}, "not permitted"),
    ],
)
def test_a_wrong_section_is_refused_with_what_is_allowed(keys: dict, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        WorkloadSection(**keys)
    assert says in str(refused.value)


def test_every_field_is_described() -> None:
    for model in (WorkloadSection, Partition):
        assert all(field.description for field in model.model_fields.values())


def test_a_section_survives_being_written_and_read_again() -> None:
    for section in (
        WorkloadSection(),
        WorkloadSection(dataset="synthetic-femnist", samples_per_client=20, epochs=2),
        WorkloadSection(dataset="mnist", path="somewhere", partition={"scheme": "label-shards"}),
        WorkloadSection(dataset="their.module:Data", model="their-model", options={"depth": 3}),
        WorkloadSection(learning_rate_milestones=[400, 800], learning_rate_decay=0.4),
        WorkloadSection(dataset="synthetic-reddit", training="simulated", optimizer="adamw", vocabulary_size=100),
    ):
        assert WorkloadSection.model_validate(section.model_dump(mode="json")) == section


def test_describing_a_workload_does_not_import_torch() -> None:
    code = "import sys, testbed.workload.section; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_learning_rate_falls_in_steps() -> None:
    section = WorkloadSection(learning_rate=0.05, learning_rate_decay=0.98, learning_rate_decay_every=10)
    rates = [section.learning_rate_in(number) for number in (1, 10, 11, 21)]
    assert rates == [0.05, 0.05, 0.05 * 0.98, 0.05 * 0.98**2]
    each = WorkloadSection(learning_rate=0.05, learning_rate_decay=0.9)
    assert [each.learning_rate_in(number) for number in (1, 2, 3)] == [0.05, 0.05 * 0.9, 0.05 * 0.9**2]
    # Multi-RoundSecAgg, Appendix F: 0.4 times eta after 400 rounds, and again after 800.
    twice = WorkloadSection(learning_rate=0.1, learning_rate_decay=0.4, learning_rate_milestones=[400, 800])
    rates = [twice.learning_rate_in(number) for number in (1, 400, 401, 800, 801, 1500)]
    assert rates == [0.1, 0.1, 0.1 * 0.4, 0.1 * 0.4, 0.1 * 0.4**2, 0.1 * 0.4**2]


def test_images_may_be_as_small_as_the_model_takes_them() -> None:
    for keys, least in (({}, 33), ({"model": "celeba-cnn"}, 16), ({"model": "mine:Net"}, 8)):
        assert WorkloadSection(dataset="synthetic-openimage", image_size=least, **keys).image_size == least
        with pytest.raises(ValidationError):
            WorkloadSection(dataset="synthetic-openimage", image_size=least - 1, **keys)
