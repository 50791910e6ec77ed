"""Links between clients and server: bandwidth and latency per client, capacity of the server."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

BYTES_PER_MBIT = 1e6 / 8


def one_or_list(value: Any) -> str:
    """Which form a per-client setting has; an error is then about that form alone."""
    return "list" if isinstance(value, list | tuple) else "number"


NUMBER, LIST = Tag("number"), Tag("list")
EitherForm = Discriminator(one_or_list)
NotEmpty = Field(min_length=1)

Rate = Annotated[float, Field(gt=0)]
Delay = Annotated[float, Field(ge=0)]
Rates = Annotated[Annotated[Rate, NUMBER] | Annotated[list[Rate], NotEmpty, LIST], EitherForm]
Delays = Annotated[Annotated[Delay, NUMBER] | Annotated[list[Delay], NotEmpty, LIST], EitherForm]


class Links(BaseModel):
    """The experiment's `links` section. A list is given to the clients in turn (cycled)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    down_mbit_s: Rates = Field(
        44.0, description="Each client's downlink in Mbit/s (Lotto: 44), or a list to cycle through"
    )
    up_mbit_s: Rates = Field(44.0, description="Each client's uplink in Mbit/s, or a list to cycle through")
    latency_ms: Delays = Field(
        50.0, description="One-way delay between client and server in ms, or a list to cycle through"
    )
    server_down_mbit_s: Rate = Field(25_000.0, description="The server's downlink in Mbit/s, shared max-min fairly")
    server_up_mbit_s: Rate = Field(25_000.0, description="The server's uplink in Mbit/s, shared max-min fairly")


@dataclass(frozen=True)
class ClientLinks:
    """Links of a population as arrays.

    Attributes:
        down_bytes_s, up_bytes_s: `(n,)` bytes per second.
        latency_s: `(n,)` one-way seconds.
        server_down_bytes_s, server_up_bytes_s: bytes per second, shared among the clients.
    """

    down_bytes_s: npt.NDArray[np.float64]
    up_bytes_s: npt.NDArray[np.float64]
    latency_s: npt.NDArray[np.float64]
    server_down_bytes_s: float
    server_up_bytes_s: float

    @classmethod
    def of(cls, section: Links, population: int) -> "ClientLinks":
        """The links that `section` describes for `population` clients."""
        return cls(
            cycled(section.down_mbit_s, population) * BYTES_PER_MBIT,
            cycled(section.up_mbit_s, population) * BYTES_PER_MBIT,
            cycled(section.latency_ms, population) / 1000,
            section.server_down_mbit_s * BYTES_PER_MBIT,
            section.server_up_mbit_s * BYTES_PER_MBIT,
        )


def cycled(values: float | list[float], population: int) -> npt.NDArray[np.float64]:
    """`(population,)` float64: one value for everybody, or a list given out in turn."""
    return np.resize(np.atleast_1d(np.asarray(values, dtype=np.float64)), population)
