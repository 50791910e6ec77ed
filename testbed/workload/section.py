"""The ``workload`` section of an experiment: what the clients learn, from which data, and how they train.

This module only describes; `workloads.build` turns a section into data, a model and local training. Every check of the
section derives from what data sets and models say of themselves (`testbed.workload.specs`).
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
    """Of a section that has the optimizer: 0 as in McMahan et al. 2017, or AdamW's usual beta1."""
    return 0.9 if section.get("optimizer") == "adamw" else 0.0


def _default_learning_rate(section: Mapping[str, Any]) -> float:
    """Of a section that has the optimizer: that of plain SGD in McMahan et al. 2017, or AdamW's usual one."""
    return 0.001 if section.get("optimizer") == "adamw" else 0.1


def _list_datasets(schema: JsonDict) -> None:
    """Names and what they are, in the JSON schema; the same for the two below."""
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


def _known(name: str, built_in: tuple[str, ...], own: str) -> str:
    """`name`, if it is one of these or looks like one of the user's own; raises `ValueError`."""
    if name not in built_in and not re.fullmatch(PLUGIN_NAME, name):
        raise ValueError(f"{name!r} is unknown; allowed: {', '.join((*built_in, own))}")
    return name


class WorkloadSection(BaseModel):
    """What the clients learn.

    The symbols in the descriptions are those of McMahan et al. 2017 (FedAvg): E epochs, B batch size, eta
    learning rate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    former_defaults: ClassVar[Mapping[str, Any]] = {"momentum": 0.9, "batch_size": 20, "learning_rate": 0.05}
    """Defaults of earlier versions: experiment.yaml of their runs has them written out, and secrets leave them out."""

    dataset: str = Field(
        default="digits",
        description="package.module:name for data of your own: a function (or class) whose call gives them, as "
        "(x, y) arrays, a torch Dataset, a pandas frame or a Hugging Face dataset (see docs/how-to/own-data.md), or a "
        "workload class (see workloads/contract.py).",
        json_schema_extra=_list_datasets,
    )
    path: Path | None = Field(
        default=None,
        description="Files that the user has; nothing is downloaded (see docs/how-to/data-files.md).",
        json_schema_extra=_list_files,
    )
    model: str = Field(
        default="auto",
        min_length=1,
        description="or package.module:Name, a torch.nn.Module or a function that makes one. A workload class may give "
        "other meanings to it.",
        json_schema_extra=_list_models,
    )
    model_options: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=lambda options: not options,
        description="Keyword arguments for a model of your own (model: package.module:Name).",
    )
    label: str = Field(
        default="label",
        min_length=1,
        exclude_if=lambda label: label == "label",
        description="Of data with named columns: the one with the labels.",
    )
    features: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        exclude_if=lambda features: not features,
        description="Of data with named columns: those that the model takes (unset: all others).",
    )
    loss: str = Field(
        default="cross_entropy",
        exclude_if=lambda loss: loss == "cross_entropy",
        description="What training makes small: cross_entropy; bce (binary cross-entropy of logits); mse; l1; or "
        "package.module:name, called as name(outputs, labels): a function or module of torch or of your own that gives "
        "a loss for the batch or for each sample.",
        json_schema_extra={"examples": [*LOSSES, "torch.nn.functional:huber_loss"]},
    )
    metrics: tuple[str, ...] = Field(
        default=(),
        exclude_if=lambda metrics: not metrics,
        description="Recorded at each evaluation beside loss and accuracy: macro-f1, mae, r2, or package.module:name, "
        "called as name(labels, predictions), e.g. sklearn.metrics:balanced_accuracy_score.",
    )
    partition: Partition = Field(
        default=Partition(),
        description="How the data are spread over the clients; not of data that come with their owners, each of whom "
        "is one client.",
    )
    samples_per_client: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Generated data that have owners: training samples of every client (unset: varying, mean 225 for "
        "synthetic-femnist, 100 for the others). Others: a client's share, shared samples included, is cut to at most "
        "this many samples (unset: all data are spread). A Flower app: the most samples that a client announces, for "
        "all (unset: each is trained once before the first round, which tells); updates weigh what clients report.",
    )
    test_samples: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Held-out samples for evaluation (unset: the whole test part; generated data: 2000, of "
        "synthetic-openimage and synthetic-reddit 500).",
    )
    image_size: int | None = Field(
        default=None,
        ge=8,
        le=512,
        description="openimage, synthetic-openimage, celeba: images are this high and wide, in pixels (unset: 256, "
        "celeba 84).",
    )
    sequence_length: int | None = Field(
        default=None,
        ge=2,
        le=512,
        description="reddit, synthetic-reddit: words of one sample, each of which is predicted from those before it "
        "(unset: 64). sent140: words of a tweet that are read (unset: 25). shakespeare: characters of a window in the "
        "files (unset: 80).",
    )
    vocabulary_size: int | None = Field(
        default=None,
        ge=16,
        le=1_000_000,
        description="reddit, synthetic-reddit, sent140: rows of the model's embedding, words and special ones (unset: "
        "30,000, sent140 10,000).",
    )
    adapters: AdaptersKey = None
    transformers: TransformersKey = None
    training: Literal["real", "simulated"] = Field(
        default="real",
        description="simulated: no gradient steps; an update is seeded noise of the right size, charged for as real "
        "training with modelled compute, and nothing is evaluated. For the costs of large models on small machines.",
    )
    optimizer: str = Field(
        default="sgd",
        description="Local optimizer, with fresh state in every round: sgd, adamw (momentum is its "
        "beta1; beta2 0.999, epsilon 1e-8), or package.module:Class, e.g. torch.optim:RMSprop, made with the learning "
        "rate and optimizer_options alone.",
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
        description="Samples per local step (B); the last batch may be smaller.",
    )
    clients_at_once: int = Field(
        default=1,
        ge=1,
        le=4096,
        exclude_if=lambda number: number == 1,
        description="So many participants of a host are trained as one computation, which keeps a GPU busy with small "
        "models; updates differ from those of 1 by rounding alone, whatever the number of hosts. Not with batch "
        "normalisation, DP-SGD or measured compute (see docs/how-to/gpu.md).",
    )
    learning_rate: float = Field(
        default_factory=_default_learning_rate,
        gt=0,
        le=1000,
        allow_inf_nan=False,
        description="Local learning rate of round 1 (eta; unset: 0.1, of adamw 0.001).",
    )
    momentum: float = Field(
        default_factory=_default_momentum,
        ge=0,
        lt=1,
        description="Momentum of the local optimizer, started from zero in every round (unset: 0, of adamw 0.9).",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="sgd: L2 factor added to the gradient (times the weights); adamw: decoupled from it.",
    )
    proximal: Proximal = 0.0
    drift_correction: DriftCorrectionKey = None
    local_layers: LocalLayersKey = None
    learning_rate_decay: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Factor of the learning rate: round r trains with eta * decay**floor((r-1)/every), or with "
        "milestones eta * decay**(number of milestones below r).",
    )
    learning_rate_decay_every: int = Field(
        default=1, ge=1, le=1_000_000, description="Rounds after which the rate is multiplied with the factor again."
    )
    learning_rate_milestones: tuple[Annotated[int, Field(ge=1, le=10_000_000)], ...] = Field(
        default=(),
        description="The only rounds after which the rate is multiplied with the factor, e.g. [400, 800]; instead of "
        "learning_rate_decay_every.",
    )
    learning_rate_schedule: Schedule = None
    evaluate_every: int = Field(
        default=1, ge=1, le=1_000_000, description="Evaluate the global model after every so many rounds."
    )
    client_accuracy: ClientAccuracyKey = False
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments for data or a workload of your own (dataset: package.module:name).",
    )

    flower: FlowerSection | None = Field(
        default=None,
        exclude_if=lambda app: app is None,
        description="Instead of dataset and model: the clients of a Flower app, unchanged (its folder, or "
        "module:app; see docs/how-to/flower.md).",
    )

    def has_default(self, key: str) -> bool:
        """Whether a key has its default, or that of an earlier version: nobody need have written the value.

        A check that refuses a key which nothing reads asks this, so that experiment.yaml of old runs stays valid.
        """
        value = dict(self)[key]
        default = type(self).model_fields[key].get_default(call_default_factory=True, validated_data=dict(self))
        return bool(value == default) or (key in self.former_defaults and value == self.former_defaults[key])

    @property
    def is_built_in(self) -> bool:
        """Whether `dataset` is a built-in data set, rather than a user-defined class or a Flower app's."""
        return self.flower is None and self.dataset in datasets()

    @property
    def own_model(self) -> str:
        """The name of a model that is not built in, for messages; empty: it is built in."""
        name = self.model if ":" in self.model else ""
        return name if self.transformers is None else self.transformers.folder.name

    @property
    def own(self) -> list[tuple[str, str]]:
        """The key and the name, ``package.module:name``, of each thing that is not built in."""
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
        return _known(loss, LOSSES, "package.module:name")

    @field_validator("metrics")
    @classmethod
    def _metrics_are_known(cls, metrics: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(metrics)) < len(metrics):
            raise ValueError("each metric once")
        return tuple(_known(metric, METRICS, "package.module:name") for metric in metrics)

    @field_validator("optimizer")
    @classmethod
    def _optimizer_is_known(cls, optimizer: str) -> str:
        return _known(optimizer, OPTIMIZERS, "package.module:Class")

    @model_validator(mode="after")
    def _keys_fit_together(self) -> Self:
        """A key that the chosen data set would ignore is an error: an ignored key is a wrong experiment."""
        check_keys_fit(self)
        return self

    def learning_rate_in(self, round_number: int) -> float:
        """Local learning rate of a round; 1 is the first."""
        times = (round_number - 1) // self.learning_rate_decay_every
        if self.learning_rate_milestones:
            times = bisect_left(self.learning_rate_milestones, round_number)
        rate = self.learning_rate * self.learning_rate_decay**times
        schedule = self.learning_rate_schedule
        return rate if schedule is None else rate * schedule.factor(round_number)
