"""The ``workload.partition`` of an experiment: the spread of a data set over the clients."""

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
"""Schemes that support unequal client sizes (``sizes``)."""
_OWN = "package.module:Partitioner"
_SIZE_KEYS = ("sizes", "size_beta", "size_sigma")


class Partition(BaseModel):
    """Spread of one data set over the clients.

    Each sample goes to at most one client or, if shared, to all; with the scheme overlapping to any number of clients.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: str = Field(
        default="iid",
        description="iid (default): a random equal share for each client; dirichlet: each client's class mix is drawn "
        "from Dir(alpha * class frequencies) (Hsu et al. 2019, arXiv 1909.06335); label-shards: samples "
        "are sorted by label and cut into shards, and each client gets shards_per_client of them (McMahan et al. 2017, "
        "arXiv 1602.05629); by-column: each client gets the samples with one value of a column; overlapping: each "
        "client gets samples_per_client random samples out of all, so that clients have samples in common, for "
        "populations larger than the data allow otherwise; or a partitioner with the interface of flwr-datasets, e.g. "
        "flwr_datasets.partitioner:PathologicalPartitioner.",
        json_schema_extra={"examples": [*SCHEMES, _OWN]},
    )
    alpha: float = Field(
        default=0.5,
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="Concentration of the Dirichlet class mix (Hsu's alpha): small is skewed, large is iid. "
        "For the scheme dirichlet only.",
    )
    sizes: Literal["equal", "dirichlet", "log-normal"] = Field(
        default="equal",
        description="Number of samples per client. equal (default): the same number; dirichlet: shares of all samples "
        "drawn from Dir(size_beta) (quantity skew of NIID-Bench, Li et al. 2022, arXiv 2102.02079); log-normal: shares "
        "proportional to exp(size_sigma * N(0, 1)). With unequal sizes each client gets minimum_samples, and the "
        "shares divide the rest. For the schemes iid and dirichlet.",
    )
    size_beta: float = Field(
        default=0.5,
        ge=1e-3,
        le=1e6,
        allow_inf_nan=False,
        description="Concentration of the sizes (NIID-Bench's beta): small is skewed, large is nearly equal. "
        "For sizes: dirichlet only.",
    )
    size_sigma: float = Field(
        default=1.0,
        gt=0,
        le=10,
        allow_inf_nan=False,
        description="Standard deviation of the logarithm of the sizes: small is nearly equal, large is skewed. "
        "For sizes: log-normal only.",
    )
    shards_per_client: int = Field(
        default=2,
        ge=1,
        le=10_000,
        description="Shards per client, which is about its number of classes. For the scheme label-shards only.",
    )
    column: str | None = Field(
        default=None,
        min_length=1,
        exclude_if=lambda column: column is None,
        description="Name of the column for the scheme by-column. Each value is one client; with more values than "
        "clients, a client has several values. The column is not a feature.",
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
        description="Number of samples that every client holds besides its own, the same number of each label (the "
        "shared-data strategy of Zhao et al. 2018, arXiv 1806.00582). The scheme spreads the other samples. Default "
        "0: none.",
    )
    minimum_samples: int = Field(
        default=1,
        ge=0,
        le=10_000_000,
        description="Least number of training samples of a client, without shared samples; fewer are an error. 0 "
        "allows clients without data.",
    )

    @property
    def is_own(self) -> bool:
        """Whether the scheme is a user-defined class, not one of `SCHEMES`."""
        return self.scheme not in SCHEMES

    @field_validator("scheme")
    @classmethod
    def _scheme_is_known(cls, scheme: str) -> str:
        if scheme not in SCHEMES and not re.fullmatch(PLUGIN_NAME, scheme):
            raise ValueError(f"scheme {scheme!r} is unknown; allowed: {', '.join((*SCHEMES, _OWN))}")
        return scheme

    @model_serializer(mode="wrap")
    def _without_default_sizes(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys of the sizes if all have their defaults, as in experiments of earlier versions."""
        written: dict[str, Any] = serialize(self)
        defaults = type(self).model_fields
        if all(getattr(self, key) == defaults[key].default for key in _SIZE_KEYS):
            # Otherwise recorded experiments of earlier versions would differ from the same experiment today.
            return {key: value for key, value in written.items() if key not in _SIZE_KEYS}
        return written

    @model_validator(mode="after")
    def _keys_fit_together(self) -> Self:
        if self.scheme == "by-column" and self.column is None:
            raise ValueError("scheme by-column needs column; set it to the name of the column with the clients")
        if self.scheme != "by-column" and self.column is not None:
            raise ValueError(f"column: only the scheme by-column uses this key, not {self.scheme}; leave it out")
        if self.sizes != "equal" and self.scheme not in UNEQUAL_SCHEMES:
            raise ValueError(
                f"sizes: {self.sizes} is for the schemes {' and '.join(UNEQUAL_SCHEMES)}; {self.scheme} sets the "
                "number of samples of a client itself: leave sizes out"
            )
        if self.options and not self.is_own:
            raise ValueError(f"options are for a partitioner named as {_OWN}; {self.scheme} takes none, leave them out")
        return self
