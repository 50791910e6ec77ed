"""The ``workload`` section of an experiment: what the clients learn, from which data, and how they train.

This module only describes; `workloads.build` turns a section into data, a model and local training. Every check of the
section derives from the specifications of data sets and models, which are declared beside what they describe, in
packages that stand above this one: a data set in its module of `workloads.data`, a model in
`workloads.models.registry`. These are therefore not imported here but asked by name, when the first section is checked;
they answer without torch.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict

from testbed.plugins.classes import PLUGIN_NAME
from testbed.workload.flower import FlowerSection
from testbed.workload.local_steps import Proximal, Schedule

_DATASETS, _MODELS = "workloads.data", "workloads.models.registry"
"""Modules with a function ``specs()``: the only names of a higher layer that this package knows."""


class Form(Enum):
    """What one sample is when it is given to a model."""

    GREY = "grey images"
    """(height, width) float32."""
    COLOUR = "colour images"
    """(height, width, 3) float32."""
    PHOTO = "photographs"
    """(3, height, width) uint8, which the model scales."""
    TEXT = "text"
    """(length,) int64 numbers of words, each to be predicted from those before it."""


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """What an experiment may say of a data set.

    Attributes:
        name: ``workload.dataset``.
        summary: a few words for the schema's description.
        form: of a sample.
        size: height and width of the images in pixels; None: the experiment or the data say.
        default_model: what ``workload.model: auto`` means.
        owner: whose samples one client holds, e.g. "writer", in data that come with their owners; None: the data are
            spread by ``workload.partition``.
        files: what ``workload.path`` must be; None: no files are read.
        layouts: which other forms of these files are read; for the schema's description.
        reads: keys of the section that are read by some data sets only, this one among them.
    """

    name: str
    summary: str
    form: Form
    size: int | None = None
    default_model: str
    owner: str | None = None
    files: str | None = None
    layouts: str = ""
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What an experiment may say of a model.

    Attributes:
        name: ``workload.model``.
        takes: the forms of samples that it is made for, and of images the height and width (None: any).
        summary: a few words for the schema's description, or none.
    """

    name: str
    takes: Mapping[Form, int | None]
    summary: str = ""

    def fits(self, data: DatasetSpec) -> bool:
        """Whether the model takes the samples of a data set."""
        return data.form in self.takes and self.takes[data.form] in (None, data.size)


_Spec = TypeVar("_Spec", DatasetSpec, ModelSpec)


@cache
def datasets() -> dict[str, DatasetSpec]:
    """The built-in data sets, by name."""
    return _by_name(import_module(_DATASETS).specs())


@cache
def models() -> dict[str, ModelSpec]:
    """The built-in models, by name."""
    return _by_name(import_module(_MODELS).specs())


def models_for(data: DatasetSpec) -> tuple[str, ...]:
    """The names of the models that a data set can be learned with."""
    return tuple(name for name, model in models().items() if model.fits(data))


def is_language(dataset: str) -> bool:
    """Whether the loss is that of the next word, so that exp(loss) is a perplexity; False for a user-defined class."""
    spec = datasets().get(dataset)
    return spec is not None and spec.form is Form.TEXT


def _by_name(specs: Iterable[_Spec]) -> dict[str, _Spec]:
    found: dict[str, _Spec] = {}
    for spec in specs:
        if spec.name in found:
            raise ValueError(f"{spec.name} is declared twice")
        found[spec.name] = spec
    return found


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


class Partition(BaseModel):
    """How one data set is spread over the clients: a sample goes to one at most, or to all; with overlapping to any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: Literal["iid", "dirichlet", "label-shards", "overlapping"] = Field(
        default="iid",
        description="iid: a random equal share for each client; dirichlet: each client's class mix is drawn "
        "from Dir(alpha * class frequencies) (Hsu et al. 2019, arXiv 1909.06335); label-shards: samples "
        "sorted by label, cut into shards, shards_per_client of them for each client (McMahan et al. 2017, "
        "arXiv 1602.05629); overlapping: samples_per_client random ones for each client, drawn anew from all, so that "
        "clients have samples in common: for more clients than the data suffice for.",
    )
    alpha: float = Field(
        default=0.5,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="Concentration of the Dirichlet class mix (Hsu's alpha): small is skewed, large is iid. "
        "Read by the scheme dirichlet only.",
    )
    shards_per_client: int = Field(
        default=2,
        ge=1,
        le=10_000,
        description="Shards for each client, about the number of classes that it holds. "
        "Read by the scheme label-shards only.",
    )
    shared_samples: int = Field(
        default=0,
        ge=0,
        le=10_000_000,
        description="Samples, the same number of each label, that every client holds besides its own; the others are "
        "spread by the scheme (the shared-data strategy of Zhao et al. 2018, arXiv 1806.00582).",
    )
    minimum_samples: int = Field(
        default=1,
        ge=0,
        le=10_000_000,
        description="Fewer training samples at any client, shared ones aside, are an error; 0 allows clients without "
        "data.",
    )


class WorkloadSection(BaseModel):
    """What the clients learn.

    The symbols in the descriptions are those of McMahan et al. 2017 (FedAvg): E epochs, B batch size, eta
    learning rate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(
        default="digits",
        description="package.module:ClassName for a user-defined class (see workloads/contract.py).",
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
        description="a user-defined class may give other meanings to it.",
        json_schema_extra=_list_models,
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
        "this many samples (unset: all data are spread).",
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
        ge=64,
        le=512,
        description="openimage, synthetic-openimage: images are this high and wide, in pixels (unset: 256).",
    )
    sequence_length: int | None = Field(
        default=None,
        ge=2,
        le=512,
        description="reddit, synthetic-reddit: words of one sample, each of which is predicted from those before it "
        "(unset: 64).",
    )
    vocabulary_size: int | None = Field(
        default=None,
        ge=16,
        le=1_000_000,
        description="reddit, synthetic-reddit: rows of the model's embedding, words and special ones (unset: 30,000).",
    )
    training: Literal["real", "simulated"] = Field(
        default="real",
        description="simulated: no gradient steps; an update is seeded noise of the right size, charged for as real "
        "training with modelled compute, and nothing is evaluated. For the costs of large models on small machines.",
    )
    optimizer: Literal["sgd", "adamw"] = Field(
        default="sgd",
        description="Local optimizer, with fresh state in every round: sgd with momentum, or adamw (momentum is its "
        "beta1; beta2 0.999, epsilon 1e-8).",
    )
    epochs: int = Field(default=1, ge=1, le=10_000, description="Local passes over a client's samples per round (E).")
    batch_size: int = Field(
        default=20,
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
        default=0.05, gt=0, le=1000, allow_inf_nan=False, description="Local learning rate of round 1 (eta)."
    )
    momentum: float = Field(
        default=0.9, ge=0, lt=1, description="Momentum of the local optimizer, started from zero in every round."
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="sgd: L2 factor added to the gradient (times the weights); adamw: decoupled from it.",
    )
    proximal: Proximal = 0.0
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
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments for a user-defined class (dataset: package.module:Class).",
    )

    flower: FlowerSection | None = Field(
        default=None,
        exclude_if=lambda app: app is None,
        description="Instead of dataset and model: the clients of a Flower app, unchanged (its folder, or "
        "module:app; see docs/how-to/flower.md).",
    )

    @property
    def is_built_in(self) -> bool:
        """Whether `dataset` is a built-in data set, rather than a user-defined class or a Flower app's."""
        return self.flower is None and self.dataset in datasets()

    @field_validator("dataset")
    @classmethod
    def _dataset_is_known(cls, dataset: str) -> str:
        if dataset not in datasets() and not re.fullmatch(PLUGIN_NAME, dataset):
            allowed = ", ".join((*datasets(), "package.module:ClassName"))
            raise ValueError(f"dataset {dataset!r} is unknown; allowed: {allowed}")
        return dataset

    @model_validator(mode="after")
    def _keys_fit_together(self) -> Self:
        """A key that the chosen data set would ignore is an error: an ignored key is a wrong experiment."""
        self._check_milestones()
        if self.flower is not None:
            self._check_flower()
            return self
        for key, default in (("clients_at_once", 1), ("proximal", 0.0)):
            if self.training == "simulated" and dict(self)[key] != default:
                raise ValueError(f"{key}: simulated training computes nothing; leave it out")
        if self.is_built_in:
            spec = datasets()[self.dataset]
            self._check_model(spec)
            self._check_keys(spec)
            self._check_sample_counts()
        elif self.training == "simulated":  # a user-defined class reads what it likes
            raise ValueError("training: simulated is for the built-in data sets; a user-defined class trains itself")
        return self

    def _check_flower(self) -> None:
        fields, values = type(self).model_fields, dict(self)
        for key in sorted(set(fields) - {"flower", "epochs", "samples_per_client", "evaluate_every"}):
            if values[key] != fields[key].get_default(call_default_factory=True):
                raise ValueError(f"{key} has no effect on a Flower app, which trains its clients itself; leave it out")

    def _check_milestones(self) -> None:
        if self.learning_rate_schedule is not None:
            self.learning_rate_schedule.check(decays=self.learning_rate_decay != 1)
        milestones = self.learning_rate_milestones
        if not milestones:
            return
        if list(milestones) != sorted(set(milestones)):
            raise ValueError("learning_rate_milestones: rounds in ascending order, each once, are needed")
        if self.learning_rate_decay_every != 1:
            raise ValueError(
                "learning_rate_milestones are instead of learning_rate_decay_every; leave out one of the two"
            )
        if self.learning_rate_decay == 1:
            raise ValueError("learning_rate_milestones change nothing without learning_rate_decay, e.g. 0.4")

    def _check_model(self, spec: DatasetSpec) -> None:
        if self.model not in ("auto", *models()):
            raise ValueError(f"model {self.model!r} is unknown; allowed: auto, {', '.join(models())}")
        fitting = ("auto", *models_for(spec))
        if self.model not in fitting:
            needed = models()[self.model].takes.get(spec.form)
            why = f" ({spec.size}x{spec.size}; {self.model} needs {needed}x{needed} images)" if needed else ""
            raise ValueError(
                f"model {self.model} does not take the data of {spec.name}{why}; allowed: {', '.join(fitting)}"
            )

    def _check_keys(self, spec: DatasetSpec) -> None:
        every = datasets().values()
        if self.options:
            raise ValueError(f"options are for a user-defined class; dataset {spec.name} takes none")
        if spec.files is not None and self.path is None:
            raise ValueError(f"dataset {spec.name} needs path: {spec.files} (nothing is downloaded)")
        if spec.files is None and self.path is not None:
            reading = ", ".join(other.name for other in every if other.files is not None)
            raise ValueError(f"path is read for {reading} only; {spec.name} needs no files")
        if spec.owner is not None and self.partition != Partition():
            raise ValueError(f"partition does not apply to {spec.name}: each client is one {spec.owner}")
        values = dict(self)
        for key in dict.fromkeys(key for other in every for key in other.reads):
            if key not in spec.reads and values[key] is not None:
                reading = " and ".join(other.name for other in every if key in other.reads)
                raise ValueError(f"{key} is read for {reading} only; {spec.name} has no use for it")

    def _check_sample_counts(self) -> None:
        if self.samples_per_client is None:
            if self.partition.scheme == "overlapping":
                raise ValueError("partition.scheme: overlapping needs samples_per_client, how many each client draws")
            return
        if self.samples_per_client < self.partition.minimum_samples:
            raise ValueError("samples_per_client is below partition.minimum_samples; raise it or lower the minimum")
        shared = self.partition.shared_samples
        if 0 < self.samples_per_client <= shared:
            raise ValueError(
                f"samples_per_client counts the {shared} of partition.shared_samples, too: {self.samples_per_client} "
                "leave a client none of its own; raise it"
            )

    def learning_rate_in(self, round_number: int) -> float:
        """Local learning rate of a round; 1 is the first."""
        times = (round_number - 1) // self.learning_rate_decay_every
        if self.learning_rate_milestones:
            times = bisect_left(self.learning_rate_milestones, round_number)
        rate = self.learning_rate * self.learning_rate_decay**times
        schedule = self.learning_rate_schedule
        return rate if schedule is None else rate * schedule.factor(round_number)
