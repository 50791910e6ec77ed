"""The ``workload`` section of an experiment: what the clients learn, from which data, and how they train.

This module only describes; `workloads.build` turns a section into data, a model and local training.
"""

import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

BUILT_IN_DATASETS = ("digits", "mnist", "synthetic-femnist")
"""The data sets that `workloads` carries; any other name must be ``package.module:ClassName``."""

BUILT_IN_MODELS = ("auto", "logistic", "mlp", "cnn", "femnist-cnn")
"""The models of `workloads.models`; a class of the user's own may give other meanings to ``model``."""


class Partition(BaseModel):
    """How one data set is spread over the clients: every sample goes to at most one client."""

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
    minimum_samples: int = Field(
        default=1,
        ge=0,
        le=10_000_000,
        description="Fewer training samples at any client are an error; 0 allows clients without data.",
    )


class Workload(BaseModel):
    """What the clients learn.

    The symbols in the descriptions are those of McMahan et al. 2017 (FedAvg): E epochs, B batch size, eta
    learning rate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(
        default="digits",
        examples=list(BUILT_IN_DATASETS),
        description="digits (the real UCI digits, 8x8, carried by scikit-learn), mnist (files in path), "
        "synthetic-femnist (generated, 28x28, 62 classes, one writer per client), or "
        "package.module:ClassName for a class of your own (see workloads/contract.py).",
    )
    path: Path | None = Field(
        default=None,
        description="mnist: the folder with the idx files, plain or .gz, or torchvision's root (MNIST/raw).",
    )
    model: str = Field(
        default="auto",
        min_length=1,
        description="auto (digits: mlp, mnist: cnn, synthetic-femnist: femnist-cnn), logistic, mlp, cnn "
        "(small), or femnist-cnn (1,018,174 parameters at 62 classes, the FEMNIST model of the Lotto paper; "
        "28x28 images only).",
    )
    partition: Partition = Field(
        default=Partition(),
        description="How the data are spread over the clients; not for synthetic-femnist.",
    )
    samples_per_client: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="synthetic-femnist: training samples of every client (unset: varying, mean 225). Others: "
        "a client's share is cut to at most this many samples (unset: all data are spread).",
    )
    test_samples: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="Held-out samples for evaluation (unset: the whole test part; synthetic-femnist: 2000).",
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
        default=0.9, ge=0, lt=1, description="Momentum of local SGD, started from zero in every round."
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="L2 factor added to the gradient (times the weights).",
    )
    learning_rate_decay: float = Field(
        default=1.0, gt=0, le=1, description="Factor per round: round r trains with eta * decay**(r-1)."
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
        if not self.is_built_in:
            return self
        if self.samples_per_client is not None and self.samples_per_client < self.partition.minimum_samples:
            raise ValueError("samples_per_client is below partition.minimum_samples; raise it or lower the minimum")
        if self.options:
            raise ValueError(f"options are for a class of your own; dataset {self.dataset} takes none")
        if self.model not in BUILT_IN_MODELS:
            raise ValueError(f"model {self.model!r} is unknown; allowed: {', '.join(BUILT_IN_MODELS)}")
        if self.model == "femnist-cnn" and self.dataset == "digits":
            raise ValueError("model femnist-cnn needs 28x28 images; for digits (8x8) use logistic, mlp or cnn")
        if self.dataset == "mnist" and self.path is None:
            raise ValueError("dataset mnist needs path: the folder with the idx files (nothing is downloaded)")
        if self.dataset != "mnist" and self.path is not None:
            raise ValueError(f"path is read for dataset mnist only; {self.dataset} needs no files")
        if self.dataset == "synthetic-femnist" and self.partition != Partition():
            raise ValueError("partition does not apply to synthetic-femnist: each client is one writer")
        return self
