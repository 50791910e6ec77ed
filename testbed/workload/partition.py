"""The ``workload.partition`` of an experiment: which client holds which samples of one data set."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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
