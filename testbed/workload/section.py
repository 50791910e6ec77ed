"""The ``workload`` section of an experiment: data, model and local training of the clients.

This module only describes; `workloads.build` creates data, model and local training. The checks of the section follow
from the declarations of data sets and models (`testbed.workload.specs`).
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict

from testbed.plugins.classes import PLUGIN_NAME
from testbed.workload.adapters import AdaptersKey
from testbed.workload.client_accuracy import ClientAccuracyKey
from testbed.workload.drift_correction import DriftCorrectionKey
from testbed.workload.flower import FlowerSection
from testbed.workload.key_checks import check_keys_fit
from testbed.workload.local_layers import LocalLayersKey
from testbed.workload.local_steps import Proximal, Schedule
from testbed.workload.partition import Partition
from testbed.workload.specs import datasets, models
from testbed.workload.transformers import TransformersKey

LOSSES = ("cross_entropy", "bce", "mse", "l1")
METRICS = ("macro-f1", "mae", "r2")
OPTIMIZERS = ("sgd", "adamw")


def _default_momentum(section: Mapping[str, Any]) -> float:
    """Return the default for the section's optimizer: 0 for SGD (McMahan et al. 2017), the usual beta1 for AdamW."""
    return 0.9 if section.get("optimizer") == "adamw" else 0.0


def _default_learning_rate(section: Mapping[str, Any]) -> float:
    """Return the default for the section's optimizer: that of McMahan et al. 2017 for SGD, the usual one for AdamW."""
    return 0.001 if section.get("optimizer") == "adamw" else 0.1


def _list_datasets(schema: JsonDict) -> None:
    """Add the names and summaries of the built-in data sets to the JSON schema."""
    names = [f"{name} ({spec.summary})" for name, spec in datasets().items()]
    schema["description"] = f"{', '.join(names)}; or {schema['description']}"
    schema["examples"] = list(datasets())


def _list_files(schema: JsonDict) -> None:
    needed = [f"{name}: {spec.files}{spec.layouts}" for name, spec in datasets().items() if spec.files]
    schema["description"] = f"{schema['description']} {'; '.join(needed)}"


def _list_models(schema: JsonDict) -> None:
    defaults = ", ".join(f"{name}: {spec.default_model}" for name, spec in datasets().items())
    names = [f"{name} ({spec.summary})" if spec.summary else name for name, spec in models().items()]
    schema["description"] = f"auto ({defaults}), {', '.join(names)}; {schema['description']}"


def _checked_name(name: str, built_in: tuple[str, ...], own: str) -> str:
    """Return `name` if it is built in or looks like a user's own; else raise `ValueError`."""
    if name not in built_in and not re.fullmatch(PLUGIN_NAME, name):
        raise ValueError(f"{name!r} is unknown; allowed: {', '.join((*built_in, own))}")
    return name


class WorkloadSection(BaseModel):
    """Data, model and local training of the clients.

    The symbols in the descriptions are those of McMahan et al. 2017 (FedAvg): E epochs, B batch size, eta
    learning rate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    former_defaults: ClassVar[Mapping[str, Any]] = {"momentum": 0.9, "batch_size": 20, "learning_rate": 0.05}
    """Defaults of earlier versions: their experiment.yaml has them written out, and secrets leave them out."""

    dataset: str = Field(
        default="digits",
        description="package.module:name for your own data: a function (or class) that returns (x, y) arrays, a torch "
        "Dataset, a pandas frame or a Hugging Face dataset (see docs/how-to/own-data.md), or a workload class (see "
        "workloads/contract.py).",
        json_schema_extra=_list_datasets,
    )
    path: Path | None = Field(
        default=None,
        description="Files of the data set; nothing is downloaded (see docs/how-to/data-files.md).",
        json_schema_extra=_list_files,
    )
    model: str = Field(
        default="auto",
        min_length=1,
        description="or package.module:Name, a torch.nn.Module or a function that returns one. A workload class may "
        "interpret the key differently.",
        json_schema_extra=_list_models,
    )
    model_options: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=lambda options: not options,
        description="Keyword arguments for your own model (model: package.module:Name).",
    )
    label: str = Field(
        default="label",
        min_length=1,
        exclude_if=lambda label: label == "label",
        description="Column with the labels, for data with named columns.",
    )
    features: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        exclude_if=lambda features: not features,
        description="Columns that the model takes, for data with named columns (unset: all but label and the "
        "partition's column).",
    )
    loss: str = Field(
        default="cross_entropy",
        exclude_if=lambda loss: loss == "cross_entropy",
        description="Loss function: cross_entropy (default); bce (binary cross-entropy of logits); mse; l1; or "
        "package.module:name, called as name(outputs, labels): a function or module of torch or your own that returns "
        "a loss for the batch or for each sample.",
        json_schema_extra={"examples": [*LOSSES, "torch.nn.functional:huber_loss"]},
    )
    metrics: tuple[str, ...] = Field(
        default=(),
        exclude_if=lambda metrics: not metrics,
        description="Metrics recorded at each evaluation besides loss and accuracy: macro-f1, mae, r2, or "
        "package.module:name, called as name(labels, predictions), e.g. sklearn.metrics:balanced_accuracy_score.",
    )
    partition: Partition = Field(
        default=Partition(),
        description="Spread of the data over the clients. Data sets with owners (writers, users) ignore it: each "
        "owner is one client.",
    )
    samples_per_client: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Training samples per client. Generated data with owners: the exact number (unset: varying, mean "
        "225 for synthetic-femnist, 100 for the others). Other data sets: the largest number, shared samples included "
        "(unset: all data are spread). A Flower app: the largest number that a client announces (unset: each client "
        "is trained once before the first round to find it); updates are weighted by the reported numbers.",
    )
    test_samples: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Held-out samples for evaluation (unset: the whole test part; generated data: 2000, but 500 for "
        "synthetic-openimage and synthetic-reddit).",
    )
    image_size: int | None = Field(
        default=None,
        ge=8,
        le=512,
        description="Height and width of the images of openimage, synthetic-openimage and celeba, in pixels (unset: "
        "256, celeba 84).",
    )
    sequence_length: int | None = Field(
        default=None,
        ge=2,
        le=512,
        description="Length of one sample. reddit, synthetic-reddit: words, each predicted from the words before it "
        "(unset: 64). sent140: words read of a tweet (unset: 25). shakespeare: characters of a window in the files "
        "(unset: 80).",
    )
    vocabulary_size: int | None = Field(
        default=None,
        ge=16,
        le=1_000_000,
        description="Rows of the model's embedding, for words and special tokens of reddit, synthetic-reddit and "
        "sent140 (unset: 30,000, sent140 10,000).",
    )
    adapters: AdaptersKey = None
    transformers: TransformersKey = None
    training: Literal["real", "simulated"] = Field(
        default="real",
        description="real (default): gradient steps. simulated: an update is seeded noise of the right size, charged "
        "as real training by modelled compute, and nothing is evaluated; for the costs of large models on small "
        "machines.",
    )
    optimizer: str = Field(
        default="sgd",
        description="Local optimizer, with fresh state in every round: sgd (default), adamw (momentum is its "
        "beta1; beta2 0.999, epsilon 1e-8), or package.module:Class, e.g. torch.optim:RMSprop, created with the "
        "learning rate and optimizer_options alone.",
        json_schema_extra={"examples": [*OPTIMIZERS, "torch.optim:RMSprop"]},
    )
    optimizer_options: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=lambda options: not options,
        description="Keyword arguments for an optimizer named as package.module:Class.",
    )
    epochs: int = Field(default=1, ge=1, le=10_000, description="Local passes over a client's samples per round (E).")
    batch_size: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="Samples per local step (B); the last batch of an epoch may be smaller.",
    )
    clients_at_once: int = Field(
        default=1,
        ge=1,
        le=4096,
        exclude_if=lambda number: number == 1,
        description="Participants of a host that are trained as one computation, which keeps a GPU busy with small "
        "models. Updates differ from those with 1 (default) by rounding only, for any number of hosts. Not with batch "
        "normalisation, DP-SGD or measured compute (see docs/how-to/gpu.md).",
    )
    learning_rate: float = Field(
        default_factory=_default_learning_rate,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Local learning rate of round 1 (eta; unset: 0.1, for adamw 0.001).",
    )
    momentum: float = Field(
        default_factory=_default_momentum,
        ge=0,
        lt=1,
        description="Momentum of the local optimizer, reset to zero in every round (unset: 0, for adamw 0.9).",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="Weight decay. sgd: this factor times the weights is added to the gradient (L2); adamw: decoupled "
        "from the gradient. Default 0: none.",
    )
    proximal: Proximal = 0.0
    drift_correction: DriftCorrectionKey = None
    local_layers: LocalLayersKey = None
    learning_rate_decay: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Decay factor of the learning rate: round r trains with eta * decay**floor((r-1)/every), or with "
        "milestones eta * decay**(number of milestones below r). Default 1: constant.",
    )
    learning_rate_decay_every: int = Field(
        default=1, ge=1, le=1_000_000, description="Rounds between two multiplications by learning_rate_decay."
    )
    learning_rate_milestones: tuple[Annotated[int, Field(ge=1, le=10_000_000)], ...] = Field(
        default=(),
        description="Rounds after which the rate is multiplied by learning_rate_decay, e.g. [400, 800]; replaces "
        "learning_rate_decay_every.",
    )
    learning_rate_schedule: Schedule = None
    evaluate_every: int = Field(
        default=1, ge=1, le=1_000_000, description="Rounds between two evaluations of the global model."
    )
    client_accuracy: ClientAccuracyKey = False
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments for your own data or workload (dataset: package.module:name).",
    )

    flower: FlowerSection | None = Field(
        default=None,
        exclude_if=lambda app: app is None,
        description="Flower app, instead of dataset and model, with its clients unchanged: its folder, or module:app "
        "(see docs/how-to/flower.md).",
    )

    def has_default(self, key: str) -> bool:
        """Return whether a key has its default, or that of an earlier version.

        A check that refuses a key without effect uses this, so that experiment.yaml of old runs stays valid.
        """
        value = dict(self)[key]
        default = type(self).model_fields[key].get_default(call_default_factory=True, validated_data=dict(self))
        # Records of earlier versions have every default written out, also defaults that have changed since.
        return bool(value == default) or (key in self.former_defaults and value == self.former_defaults[key])

    @property
    def is_built_in(self) -> bool:
        """Whether `dataset` is a built-in data set, not a user-defined class or a Flower app."""
        return self.flower is None and self.dataset in datasets()

    @property
    def own_model(self) -> str:
        """Name of a model that is not built in, for messages; empty for a built-in model."""
        name = self.model if ":" in self.model else ""
        return name if self.transformers is None else self.transformers.folder.name

    @property
    def own(self) -> list[tuple[str, str]]:
        """Key and name, ``package.module:name``, of everything that is not built in."""
        named = [
            ("workload.dataset", self.dataset),
            ("workload.model", self.model),
            ("workload.partition.scheme", self.partition.scheme),
            ("workload.loss", self.loss),
            *(("workload.metrics", metric) for metric in self.metrics),
            ("workload.optimizer", self.optimizer),
        ]
        return [(key, name) for key, name in named if ":" in name]

    @field_validator("dataset")
    @classmethod
    def _dataset_is_known(cls, dataset: str) -> str:
        if dataset not in datasets() and not re.fullmatch(PLUGIN_NAME, dataset):
            allowed = ", ".join((*datasets(), "package.module:ClassName"))
            raise ValueError(f"dataset {dataset!r} is unknown; allowed: {allowed}")
        return dataset

    @field_validator("loss")
    @classmethod
    def _loss_is_known(cls, loss: str) -> str:
        return _checked_name(loss, LOSSES, "package.module:name")

    @field_validator("metrics")
    @classmethod
    def _metrics_are_known(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(metrics)) < len(metrics):
            raise ValueError("a metric is listed twice; list each metric once")
        return tuple(_checked_name(metric, METRICS, "package.module:name") for metric in metrics)

    @field_validator("optimizer")
    @classmethod
    def _optimizer_is_known(cls, optimizer: str) -> str:
        return _checked_name(optimizer, OPTIMIZERS, "package.module:Class")

    @model_validator(mode="after")
    def _keys_fit_together(self) -> Self:
        """Raise `ValueError` for a key that the chosen data set would ignore."""
        check_keys_fit(self)
        return self

    def learning_rate_in(self, round_number: int) -> float:
        """Return the local learning rate of a round; the first round is 1."""
        # Rounds begin with 1, and the first one has the full rate.
        times = (round_number - 1) // self.learning_rate_decay_every
        if self.learning_rate_milestones:
            times = bisect_left(self.learning_rate_milestones, round_number)
        rate = self.learning_rate * self.learning_rate_decay**times
        schedule = self.learning_rate_schedule
        return rate if schedule is None else rate * schedule.factor(round_number)
