"""Checks that the keys of the ``workload`` section fit together; a key without effect is an error."""

import re
from typing import Any

from testbed.plugins.classes import PLUGIN_NAME
from testbed.workload.local_steps import check_milestones
from testbed.workload.partition import Partition
from testbed.workload.specs import DatasetSpec, Form, datasets, models, models_for


def check_keys_fit(section: Any) -> None:
    """Raise `ValueError` for a key that has no effect with the rest of the section.

    A silently ignored key would make a wrong experiment.

    Args:
        section: a `testbed.workload.section.WorkloadSection`.
    """
    _check_milestones(section)
    # An app brings its own data and models: all other keys have no effect on it.
    if section.flower is not None:
        section.flower.check(section)
        return
    for key in ("clients_at_once", "proximal", "drift_correction", "local_layers", "client_accuracy"):
        if section.training == "simulated" and not section.has_default(key):
            raise ValueError(f"{key}: has no effect on simulated training; leave it out")
    if section.drift_correction is not None:
        section.drift_correction.check(section)
    _check_own(section)
    if section.is_built_in:
        spec = datasets()[section.dataset]
        _check_model(section, spec)
        _check_keys(section, spec)
        _check_sample_counts(section)
    elif (
        section.training == "simulated" and section.model == "auto" and not section.own_model
    ):  # a user-defined class may read any key
        raise ValueError(
            "training: simulated needs a built-in data set or a named model; a user-defined class trains itself, and "
            "for your own data set model"
        )


def _check_own(section: Any) -> None:
    """Check options without a class that takes them, and keys that a user-defined optimizer does not read."""
    if section.transformers is not None:
        section.transformers.check(section.model, section.adapters)
    if section.model_options and ":" not in section.model:
        raise ValueError(
            f"model_options are for your own model (package.module:Name); {section.model} takes none, leave them out"
        )
    if ":" not in section.optimizer:
        if section.optimizer_options:
            raise ValueError(
                f"optimizer_options are for an optimizer named as package.module:Class; {section.optimizer} takes "
                "none, leave them out"
            )
        return
    for key in ("momentum", "weight_decay"):
        if not section.has_default(key):
            raise ValueError(f"{key} has no effect on {section.optimizer}; set it in optimizer_options")
    # Only SGD and AdamW have a form for the parameters of several clients (`StackedOptimizer`).
    if section.clients_at_once > 1:
        raise ValueError(f"clients_at_once: {section.optimizer} trains one client at a time; leave the key out")


def _check_milestones(section: Any) -> None:
    if section.learning_rate_schedule is not None:
        section.learning_rate_schedule.check(decays=section.learning_rate_decay != 1)
    if section.learning_rate_milestones:
        check_milestones(
            section.learning_rate_milestones, section.learning_rate_decay, section.learning_rate_decay_every
        )


def _check_model(section: Any, spec: DatasetSpec) -> None:
    # A user-defined model is known only once it is imported; `check_fit` tries it later.
    if re.fullmatch(PLUGIN_NAME, section.model):
        return
    if section.model not in ("auto", *models()):
        raise ValueError(f"model {section.model!r} is unknown; allowed: auto, {', '.join(models())}")
    fitting = ("auto", *models_for(spec))
    if section.model not in fitting:
        needed = models()[section.model].takes.get(spec.form)
        why = f" ({spec.size}x{spec.size}; {section.model} needs {needed}x{needed} images)" if needed else ""
        raise ValueError(
            f"model {section.model} does not take the data of {spec.name}{why}; allowed: {', '.join(fitting)}"
        )
    model = models()[spec.default_model if section.model == "auto" else section.model]
    if section.image_size is not None and section.image_size < model.smallest:
        raise ValueError(
            f"image_size: {model.name} needs at least {model.smallest} pixels; raise it or choose another model"
        )


def _check_keys(section: Any, spec: DatasetSpec) -> None:
    every = datasets().values()
    if section.options:
        raise ValueError(f"options are for a user-defined class; dataset {spec.name} takes none, leave them out")
    if section.label != "label" or section.features:
        raise ValueError(
            f"label and features are for your own data; dataset {spec.name} has no columns, leave them out"
        )
    if spec.form is Form.TEXT and section.loss != "cross_entropy":
        raise ValueError(f"loss: next-word prediction on {spec.name} needs cross_entropy; leave the key out")
    if spec.files is not None and section.path is None:
        raise ValueError(f"dataset {spec.name} needs path: {spec.files} (nothing is downloaded)")
    if spec.files is None and section.path is not None:
        reading = ", ".join(other.name for other in every if other.files is not None)
        raise ValueError(f"path: only {reading} read files, not {spec.name}; leave it out")
    if spec.owner is not None and section.partition != Partition():
        raise ValueError(f"partition does not apply to {spec.name}: each client is one {spec.owner}")
    values = dict(section)
    # `dict.fromkeys` keeps the order of the data sets, so that the same key is reported first on every run.
    for key in dict.fromkeys(key for other in every for key in other.reads):
        if key not in spec.reads and values[key] is not None:
            reading = " and ".join(other.name for other in every if key in other.reads)
            raise ValueError(f"{key}: only {reading} use this key, not {spec.name}; leave it out")


def _check_sample_counts(section: Any) -> None:
    if section.samples_per_client is None:
        if section.partition.scheme == "overlapping":
            raise ValueError("partition.scheme: overlapping needs samples_per_client, the samples of each client")
        return
    if section.samples_per_client < section.partition.minimum_samples:
        raise ValueError("samples_per_client is below partition.minimum_samples; raise it or lower the minimum")
    shared = section.partition.shared_samples
    if 0 < section.samples_per_client <= shared:
        raise ValueError(
            f"samples_per_client: {section.samples_per_client} includes the {shared} samples of "
            "partition.shared_samples and leaves a client none of its own; raise it"
        )
