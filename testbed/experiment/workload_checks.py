"""Which keys of the ``workload`` section go with which data set: a key that would be ignored is a wrong experiment."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.experiment.workload import WorkloadSection

GREY_MODELS = ("logistic", "mlp", "cnn", "femnist-cnn", "mnist-cnn", "emnist-cnn", "lenet")
CIFAR_MODELS = ("lenet", "vgg11")
LANGUAGE_MODELS = ("albert", "albert-small")

MODELS_OF = {
    "digits": ("logistic", "mlp", "cnn"),
    "mnist": GREY_MODELS,
    "emnist": GREY_MODELS,
    "cifar10": CIFAR_MODELS,
    "cifar100": CIFAR_MODELS,
    "synthetic-cifar10": CIFAR_MODELS,
    "synthetic-cifar100": CIFAR_MODELS,
    "femnist": GREY_MODELS,
    "synthetic-femnist": GREY_MODELS,
    "openimage": ("mobilenet-v2",),
    "synthetic-openimage": ("mobilenet-v2",),
    "reddit": LANGUAGE_MODELS,
    "synthetic-reddit": LANGUAGE_MODELS,
}
"""The models that each data set can be learned with."""

FILES_OF = {
    "mnist": "the folder with the idx files",
    "emnist": "the folder with the emnist-byclass idx files",
    "cifar10": "the folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin",
    "cifar100": "the folder with train.bin and test.bin",
    "femnist": "the folder with LEAF's json files or TensorFlow Federated's fed_emnist_train.h5",
    "openimage": "FedScale's folder with client_data_mapping, train and test",
    "reddit": "the folder with train and test, of LEAF's json files or of a text file for each user",
}
"""The data sets that are read from ``path``, and what it must be."""

_OF_PARTITIONED = ("digits", "mnist", "emnist", "cifar10", "cifar100", "synthetic-cifar10", "synthetic-cifar100")
_OF_COLOUR = ("openimage", "synthetic-openimage")
_OF_TEXT = ("reddit", "synthetic-reddit")


def check(section: "WorkloadSection") -> None:
    """Raise `ValueError` when the keys of a section that names built-in data do not fit the data or one another."""
    _check_milestones(section)
    _check_model(section)
    _check_keys(section)
    if section.samples_per_client is not None and section.samples_per_client < section.partition.minimum_samples:
        raise ValueError("samples_per_client is below partition.minimum_samples; raise it or lower the minimum")
    shared = section.partition.shared_samples
    if section.samples_per_client is not None and 0 < section.samples_per_client <= shared:
        raise ValueError(
            f"samples_per_client counts the {shared} of partition.shared_samples, too: {section.samples_per_client} "
            "leave a client none of its own; raise it"
        )


def check_own(section: "WorkloadSection") -> None:
    """The same for a class of the user's own, which reads what it likes."""
    _check_milestones(section)
    if section.training == "simulated":
        raise ValueError("training: simulated is for the built-in data sets; a class of your own does its own")


def _check_milestones(section: "WorkloadSection") -> None:
    milestones = section.learning_rate_milestones
    if not milestones:
        return
    if list(milestones) != sorted(set(milestones)):
        raise ValueError("learning_rate_milestones: rounds in ascending order, each once, are needed")
    if section.learning_rate_decay_every != 1:
        raise ValueError("learning_rate_milestones are instead of learning_rate_decay_every; leave out one of the two")
    if section.learning_rate_decay == 1:
        raise ValueError("learning_rate_milestones change nothing without learning_rate_decay, e.g. 0.4")


def _check_model(section: "WorkloadSection") -> None:
    every = tuple(dict.fromkeys(model for models in MODELS_OF.values() for model in models))
    if section.model not in ("auto", *every):
        raise ValueError(f"model {section.model!r} is unknown; allowed: auto, {', '.join(every)}")
    fitting = ("auto", *MODELS_OF[section.dataset])
    if section.model not in fitting:
        needs = section.model in GREY_MODELS and section.dataset == "digits"
        why = f" (8x8; {section.model} needs 28x28 images)" if needs else ""
        raise ValueError(
            f"model {section.model} does not take the data of {section.dataset}{why}; allowed: {', '.join(fitting)}"
        )


def _check_keys(section: "WorkloadSection") -> None:
    data = section.dataset
    if section.options:
        raise ValueError(f"options are for a class of your own; dataset {data} takes none")
    if data in FILES_OF and section.path is None:
        raise ValueError(f"dataset {data} needs path: {FILES_OF[data]} (nothing is downloaded)")
    if data not in FILES_OF and section.path is not None:
        raise ValueError(f"path is read for {', '.join(FILES_OF)} only; {data} needs no files")
    if data not in _OF_PARTITIONED and section.partition != type(section.partition)():
        raise ValueError(f"partition does not apply to {data}: each client is one {owner_of(data)}")
    if data not in _OF_COLOUR and section.image_size is not None:
        raise ValueError(
            f"image_size is read for {' and '.join(_OF_COLOUR)} only; {data} has images of one size or none"
        )
    for key in ("sequence_length", "vocabulary_size"):
        if data not in _OF_TEXT and getattr(section, key) is not None:
            raise ValueError(f"{key} is read for {' and '.join(_OF_TEXT)} only; {data} is no text")


def owner_of(dataset: str) -> str:
    """Whose samples one client holds, in data that come with their owners."""
    return {"femnist": "writer", "openimage": "photographer", "reddit": "user"}[dataset.removeprefix("synthetic-")]
