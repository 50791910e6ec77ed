"""An aggregation of your own that adds noise, for which the testbed keeps a privacy ledger: plain sums of clipped
updates, in which every participant adds its share of Gaussian noise.

Use it in an experiment file, with this folder on PYTHONPATH:

    selection: {participants: 10}
    aggregation: {protocol: "own_noise:GaussianSums", participants: 10, noise_multiplier: 4.0, clip: 1.0}

The noise is simulated, not drawn from a cryptographic generator: built-in aggregations do that (`aggregation.noise`).
What makes the ledger: `accountant` says what rounds cost, `Aggregate.noise` how much of the planned noise a sum has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from testbed.aggregation.contract import Aggregate, AggregationRound
from testbed.aggregation.plain import Plain, PlainClient, PlainParameters, SendUpdate, Update
from testbed.messages import Vector
from testbed.parties.client import RoleSpec, handles


@dataclass(frozen=True)
class GaussianAccountant:
    """Zero-concentrated differential privacy (Bun and Steinke 2016, arXiv 1605.02065): rho adds up over rounds.

    Attributes:
        noise_multiplier: standard deviation of the whole noise, over the largest norm of an update.
    """

    noise_multiplier: float
    unit: ClassVar[Literal["client", "sample"]] = "client"
    mechanism: ClassVar[str] = "gaussian"

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """See `testbed.privacy.noise_plan.Accountant`."""
        if 0.0 in rounds:
            return inf
        rho = sum(count / (2 * share * self.noise_multiplier**2) for share, count in rounds.items())
        return rho + 2 * sqrt(rho * log(1 / delta))


class GaussianParameters(PlainParameters):
    """The keys of the protocol in an experiment; others are refused."""

    weights: Literal["equal"] = "equal"  # type: ignore[assignment]  # the noise is for updates that count the same
    participants: int = Field(gt=0)
    noise_multiplier: float = Field(gt=0)
    clip: float = Field(1.0, gt=0)


class GaussianClient(PlainClient):
    """Clips its update and adds its share of the noise."""

    parameters: GaussianParameters

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        """See `PlainClient`."""
        update, given = super().on_send_update(message).delta.values, self.parameters
        clipped = update * min(1.0, given.clip / max(float(np.linalg.norm(update)), 1e-12))
        deviation = given.noise_multiplier * given.clip / sqrt(given.participants)
        generator = self.environment.randomness.generator(self.client.number, message.round, "own noise")
        return Update(1, Vector((clipped + generator.normal(0, deviation, len(update))).astype(np.float32), 0))


class GaussianSums(Plain):
    """The server's side."""

    Parameters: ClassVar[type[PlainParameters]] = GaussianParameters
    parameters: GaussianParameters

    @property
    def roles(self) -> list[RoleSpec]:
        """See `AggregationProtocol.roles`."""
        return [RoleSpec(GaussianClient, self.parameters)]

    def accountant(self, participants: int, dimension: int, client_rate: float = 1.0) -> GaussianAccountant:
        """Return the accountant of the privacy cost of one participation."""
        return GaussianAccountant(self.parameters.noise_multiplier)

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """The mean of the updates that arrived; each brought its share of the noise."""
        made = await super().aggregate(round_)
        return replace(made, noise=min(1.0, len(made.survivors) / self.parameters.participants))
