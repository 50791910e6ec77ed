"""The ``workload.partition`` of an experiment: which client holds which samples of one data set."""

import re
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from testbed.plugins.classes import PLUGIN_NAME

SCHEMES = ("iid", "dirichlet", "label-shards", "by-column", "overlapping")
UNEQUAL_SCHEMES = ("iid", "dirichlet")
"""Schemes whose clients may have unequal sizes by ``sizes``."""
_OWN = "package.module:Partitioner"
_SIZE_KEYS = ("sizes", "size_beta", "size_sigma")


class Partition(BaseModel):
    """How one data set is spread over the clients: a sample goes to one at most, or to all; with overlapping to any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: str = Field(
        default="iid",
        description="iid: a random equal share for each client; dirichlet: each client's class mix is drawn "
        "from Dir(alpha * class frequencies) (Hsu et al. 2019, arXiv 1909.06335); label-shards: samples "
        "sorted by label, cut into shards, shards_per_client of them for each client (McMahan et al. 2017, "
        "arXiv 1602.05629); by-column: samples with one value of the column are one client's; overlapping: "
        "samples_per_client random ones for each client, drawn anew from all, so that clients have samples in common, "
        "for more clients than the data suffice for; or a partitioner like those of flwr-datasets, e.g. "
        "flwr_datasets.partitioner:PathologicalPartitioner.",
        json_schema_extra={"examples": [*SCHEMES, _OWN]},
    )
    alpha: float = Field(
        default=0.5,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="Concentration of the Dirichlet class mix (Hsu's alpha): small is skewed, large is iid. "
        "Read by the scheme dirichlet only.",
    )
    sizes: Literal["equal", "dirichlet", "log-normal"] = Field(
        default="equal",
        description="How many samples each client holds. equal: the same number; dirichlet: shares of all samples "
        "drawn from Dir(size_beta) (quantity skew of NIID-Bench, Li et al. 2022, arXiv 2102.02079); log-normal: shares "
        "proportional to exp(size_sigma * N(0, 1)). With unequal sizes each client holds minimum_samples, and the "
        "shares divide the rest. For the schemes iid and dirichlet.",
    )
    size_beta: float = Field(
        default=0.5,
        ge=1e-3,
        le=1e6,
        allow_inf_nan=False,
        description="Concentration of the sizes (NIID-Bench's beta): small is skewed, large is nearly equal. "
        "Read with sizes: dirichlet only.",
    )
    size_sigma: float = Field(
        default=1.0,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="Standard deviation of the logarithm of the sizes: small is nearly equal, large is skewed. "
        "Read with sizes: log-normal only.",
    )
    shards_per_client: int = Field(
        default=2,
        ge=1,
        le=10_000,
        description="Shards for each client, about the number of classes that it holds. "
        "Read by the scheme label-shards only.",
    )
    column: str | None = Field(
        default=None,
        min_length=1,
        exclude_if=lambda column: column is None,
        description="by-column: its name; each value is one client, or, of more values than clients, several are. "
        "It is no feature.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=lambda options: not options,
        description="Keyword arguments for a partitioner named as package.module:Class.",
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

    @property
    def is_own(self) -> bool:
        """Whether the scheme is a class, not one of `SCHEMES`."""
        return self.scheme not in SCHEMES

    @field_validator("scheme")
    @classmethod
    def _scheme_is_known(cls, scheme: str) -> str:
        if scheme not in SCHEMES and not re.fullmatch(PLUGIN_NAME, scheme):
            raise ValueError(f"scheme {scheme!r} is unknown; allowed: {', '.join((*SCHEMES, _OWN))}")
        return scheme

    @model_serializer(mode="wrap")
    def _without_default_sizes(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys of the sizes where all have their defaults, as in experiments of earlier versions."""
        written: dict[str, Any] = serialize(self)
        defaults = type(self).model_fields
        if all(getattr(self, key) == defaults[key].default for key in _SIZE_KEYS):
            return {key: value for key, value in written.items() if key not in _SIZE_KEYS}
        return written

    @model_validator(mode="after")
    def _keys_fit_together(self) -> Self:
        if self.scheme == "by-column" and self.column is None:
            raise ValueError("scheme by-column needs column: the name of the column that says whose a sample is")
        if self.scheme != "by-column" and self.column is not None:
            raise ValueError(f"column is read by the scheme by-column only, not by {self.scheme}; leave it out")
        if self.sizes != "equal" and self.scheme not in UNEQUAL_SCHEMES:
            raise ValueError(
                f"sizes: {self.sizes} is for the schemes {' and '.join(UNEQUAL_SCHEMES)}; {self.scheme} decides itself "
                "how many samples a client holds: leave sizes out"
            )
        if self.options and not self.is_own:
            raise ValueError(f"options are for a partitioner named as {_OWN}; {self.scheme} takes none")
        return self
