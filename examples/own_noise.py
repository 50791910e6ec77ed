"""An aggregation of your own that adds noise, so that the testbed keeps a privacy ledger: plain sums of clipped updates,
in which every participant adds its share of Gaussian noise.

Use it in an experiment file, with this folder on PYTHONPATH:

    selection: {participants: 10}
    aggregation: {protocol: "own_noise:GaussianSums", participants: 10, noise_multiplier: 4.0, clip: 1.0}

The noise is simulated, not drawn from a cryptographic generator: built-in aggregations do that (`aggregation.noise`).
What makes the ledger: `accountant` says what rounds cost, and `Aggregate.noise` how much of the planned noise a sum has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf, log, sqrt
from typing import Any, ClassVar, Literal

import numpy as np

from testbed.aggregation.combining import Aggregate, AggregationRound
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
        """See `testbed.privacy.accountant.Accountant`."""
        if 0.0 in rounds:
            return inf
        rho = sum(count / (2 * share * self.noise_multiplier**2) for share, count in rounds.items())
        return rho + 2 * sqrt(rho * log(1 / delta))


class GaussianClient(PlainClient):
    """Clips its update and adds its share of the noise."""

    parameters: Any

    @handles(SendUpdate)
    def on_send_update(self, message: SendUpdate) -> Update:
        """See `PlainClient`."""
        sent = super().on_send_update(message)
        update, clip = sent.delta.values, getattr(self.parameters, "clip", 1.0)
        clipped = update * min(1.0, clip / max(float(np.linalg.norm(update)), 1e-12))
        deviation = self.parameters.noise_multiplier * clip / sqrt(self.parameters.participants)
        generator = self.environment.randomness.generator(f"client:{self.client.number}", message.round, "noise")
        return Update(1, Vector((clipped + generator.normal(0, deviation, len(update))).astype(np.float32), 0))


class GaussianSums(Plain):
    """The server's side."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(PlainParameters(weights="equal"))
        self.own = parameters
        self.planned = parameters.participants

    @property
    def roles(self) -> list[RoleSpec]:
        """See `AggregationProtocol.roles`."""
        return [RoleSpec(GaussianClient, self.own)]

    def accountant(self, participants: int, dimension: int) -> GaussianAccountant:
        """What taking part costs, for so many planned participants and parameters."""
        return GaussianAccountant(self.own.noise_multiplier)

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """The mean of the updates that arrived; each brought its share of the noise."""
        made = await super().aggregate(round_)
        return replace(made, noise=min(1.0, len(made.survivors) / self.planned))
