"""Links between clients and server: bandwidth and latency per client, capacity of the server."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

BYTES_PER_MBIT = 1e6 / 8

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Links(BaseModel):
    """The experiment's `links` section. A list is given to the clients in turn (cycled)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    down_mbit_s: Rate | list[Rate] = Field(
        44.0, description="Each client's downlink in Mbit/s (Lotto: 44), or a list to cycle through"
    )
    up_mbit_s: Rate | list[Rate] = Field(44.0, description="Each client's uplink in Mbit/s, or a list to cycle through")
    latency_ms: float | list[float] = Field(
        50.0, ge=0, description="One-way delay between client and server in ms, or a list to cycle through"
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
