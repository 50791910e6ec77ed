"""The ``workload`` section of an experiment: what the clients learn, from which data, and how they train.

This module only describes; `workloads.build` turns a section into data, a model and local training.
"""

import re
from bisect import bisect_left
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from testbed.experiment.workload_checks import MODELS_OF, check, check_own

BUILT_IN_DATASETS = tuple(MODELS_OF)
"""The data sets that `workloads` carries; any other name must be ``package.module:ClassName``."""

BUILT_IN_MODELS = ("auto", *dict.fromkeys(model for models in MODELS_OF.values() for model in models))
"""The models of `workloads.models.classifiers`; a class of the user's own may give other meanings to ``model``."""

LANGUAGE_DATASETS = ("reddit", "synthetic-reddit")
"""Data sets whose loss is that of the next word, so that exp(loss) is a perplexity."""


class Partition(BaseModel):
    """How one data set is spread over the clients: every sample goes to at most one client, or to all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: Literal["iid", "dirichlet", "label-shards"] = Field(
        default="iid",
        description="iid: a random equal share for each client; dirichlet: each client's class mix is drawn "
        "from Dir(alpha * class frequencies) (Hsu et al. 2019, arXiv 1909.06335); label-shards: samples "
        "sorted by label, cut into shards, shards_per_client of them for each client (McMahan et al. 2017, "
        "arXiv 1602.05629).",
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
        examples=list(BUILT_IN_DATASETS),
        description="digits (the real UCI digits, 8x8, carried by scikit-learn); from files in path: mnist, emnist, "
        "cifar10, cifar100, femnist, openimage, reddit; generated with the shapes of these: synthetic-cifar10, "
        "synthetic-cifar100, synthetic-femnist, synthetic-openimage, synthetic-reddit; or package.module:ClassName for "
        "a class of your own (see workloads/contract.py).",
    )
    path: Path | None = Field(
        default=None,
        description="mnist: the folder with the idx files, plain or .gz, or torchvision's root (MNIST/raw); emnist: "
        "the same with the emnist-byclass files (EMNIST/raw, or gzip); cifar10, "
        "cifar100: the folder with the binary or the python version, a folder that holds such a folder or its .tar.gz, "
        "or the .tar.gz; femnist: LEAF's folder (train/ and test/, or one folder of json files) or that of "
        "fed_emnist_train.h5 and fed_emnist_test.h5; openimage: FedScale's folder; reddit: train/ and test/ with "
        "LEAF's json files or a text file for each user (see docs/workloads.md).",
    )
    model: str = Field(
        default="auto",
        min_length=1,
        description="auto (digits: mlp, mnist: cnn, emnist: emnist-cnn, cifar10: lenet, cifar100: vgg11, femnist: "
        "femnist-cnn, openimage: mobilenet-v2, reddit: albert), logistic, mlp, cnn (small), femnist-cnn (1,018,174 "
        "parameters at 62 classes, the FEMNIST model of the Lotto paper; 28x28 images only), mnist-cnn (McMahan et al. "
        "2017; 1,663,370 parameters at ten classes; 28x28), emnist-cnn (Hasircioglu and Gunduz 2022; 156,526 at 62 "
        "classes; 28x28), lenet (62,006 at ten classes in colour; 32x32 in colour or 28x28 in grey), "
        "vgg11 (9,271,780 at 100 classes; 32x32 in colour), mobilenet-v2 (width 0.25; a vector of 1,009,736 at 596 "
        "classes), albert (base configuration, causal; a vector of 15,091,680), or albert-small (the same, small).",
    )
    partition: Partition = Field(
        default=Partition(),
        description="How the data are spread over the clients; digits, mnist, emnist and CIFAR only: the others "
        "have owners.",
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
    evaluate_every: int = Field(
        default=1, ge=1, le=1_000_000, description="Evaluate the global model after every so many rounds."
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Keyword arguments for a class of your own (dataset: package.module:Class).",
    )

    @property
    def is_built_in(self) -> bool:
        """Whether `dataset` is one of `BUILT_IN_DATASETS` rather than a class of the user's own."""
        return self.dataset in BUILT_IN_DATASETS

    @field_validator("dataset")
    @classmethod
    def _dataset_is_known(cls, dataset: str) -> str:
        if dataset not in BUILT_IN_DATASETS and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", dataset):
            allowed = ", ".join((*BUILT_IN_DATASETS, "package.module:ClassName"))
            raise ValueError(f"dataset {dataset!r} is unknown; allowed: {allowed}")
        return dataset

    @model_validator(mode="after")
    def _keys_fit_the_dataset(self) -> Self:
        """A key that the chosen data set would ignore is an error: an ignored key is a wrong experiment."""
        (check if self.is_built_in else check_own)(self)
        return self

    def learning_rate_in(self, round_number: int) -> float:
        """Local learning rate of a round; 1 is the first."""
        if self.learning_rate_milestones:
            return self.learning_rate * self.learning_rate_decay ** bisect_left(
                self.learning_rate_milestones, round_number
            )
        return self.learning_rate * self.learning_rate_decay ** ((round_number - 1) // self.learning_rate_decay_every)
