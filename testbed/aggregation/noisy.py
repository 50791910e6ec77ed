"""Sums with noise in them: what the protocols have in common whose participants add noise (`aggregation.noise`).

Updates then become ring elements as `testbed.privacy.mechanisms.encoding` says, on both sides of the protocol. Each
participant adds its share of the noise that is planned for so many as take part in the round; who drops out takes its
share along.
"""

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from testbed.aggregation.contract import AggregationParameters, AggregationRound
from testbed.errors import Refusal, RoundAborted
from testbed.parties.client import Role
from testbed.parties.sums import reduced
from testbed.privacy.accounting.accountant import Accountant
from testbed.privacy.mechanisms.noise import Noise, NoiseShare
from testbed.privacy.mechanisms.rotation import rotation_seed


class NoisyParameters(AggregationParameters):
    """What the protocols have that can sum noise along.

    Attributes:
        removes_noise: whether `Noise.enforcement` is possible.
    """

    removes_noise: ClassVar[bool] = False
    bits: int = Field(32, ge=8, le=64, description="Ring width: sums are taken modulo 2**bits")
    noise: Noise | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Noise that the participants add, for differential privacy; none: sums without noise",
    )

    @model_validator(mode="after")
    def _noise_goes_with_equal_weights(self) -> "NoisyParameters":
        if self.noise is not None and self.weights != "equal":
            raise ValueError("weights: noise hides updates that all count the same; set weights: equal")
        if self.noise is not None and self.noise.enforcement is not None and not self.removes_noise:
            raise ValueError("noise.enforcement: only protocol: secagg can take noise away; leave it out")
        return self

    def planned_for(self, rounds: int, delta: float) -> Self:
        """An epsilon is kept over all rounds, unless the experiment says otherwise."""
        return self if self.noise is None else self.model_copy(update={"noise": self.noise.planned_for(rounds, delta)})

    def check_dimension(self, participants: int, dimension: int) -> None:
        """The sum and its noise must fit the ring, and the shares of noise must be such as can be drawn."""
        if self.noise is not None:
            self.noise.check(participants, dimension, self.bits)

    def check_before_data(self, participants: int) -> None:
        """With steps and deviation both given, so is the noise of a share."""
        if self.noise is not None and self.noise.scale is not None and self.noise.noise_multiplier is not None:
            self.noise.check_share(participants, 1)

    def prepare(self, participants: int, dimension: int) -> None:
        """Make the table that a participant's share of the noise is drawn from."""
        if self.noise is None:
            return
        self.noise.share(participants, dimension, bytes(32)).prepare()
        if (plan := self.noise.removable(participants)) is not None:
            for number in range(1, plan.tolerated + 1):
                self.noise.component(plan, dimension, number, bytes(32)).prepare()

    def accountant(self, participants: int, dimension: int) -> Accountant | None:
        """See `AggregationParameters.accountant`."""
        return None if self.noise is None else self.noise.accountant(participants, dimension)

    def elements(self, dimension: int) -> int:
        """How many ring elements an update of so many parameters becomes; the weight is summed, too."""
        return dimension + 1 if self.noise is None else self.noise.encoding(dimension, self.bits).length + 1

    def noise_in(self, survivors: int, participants: int) -> float:
        """The share of the planned variance that is in a sum over so many survivors (`Aggregate.noise`)."""
        plan = None if self.noise is None else self.noise.removable(participants)
        if plan is not None:
            return plan.kept(survivors)
        return 1.0 if self.noise is None else survivors / participants

    def noisy_mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        """`(d,)` mean of `updates` updates from their `(D+1,)` noisy sum, and their number.

        Raises `RoundAborted` where the sum is none, or the server does not know what the rotation is derived from.
        """
        assert self.noise is not None
        if round_.dimension is None or round_.experiment_id is None:
            raise RoundAborted("no-rotation", "it is derived from the experiment's id and the model's dimension")
        encoding = self.noise.encoding(round_.dimension, self.bits)
        return encoding.decode(total, updates, rotation_seed(round_.experiment_id, round_.number))


def noise_of(parameters: AggregationParameters) -> Noise | None:
    """The section, where the parameters have one: a protocol of one's own that derives from a built-in one may not."""
    noise = getattr(parameters, "noise", None)
    return noise if isinstance(noise, Noise) else None


class NoisyClient(Role):
    """Client side of what sums noise along."""

    parameters: NoisyParameters

    def noisy(self, delta: npt.NDArray[np.float32], participants: int, round_number: int) -> npt.NDArray[Any]:
        """`(D+1,)` the update `(d,)` as ring elements with this client's noise in them.

        Args:
            delta: the update.
            participants: of the round, as planned: so many share the noise.
            round_number: the round.
        """
        noise, environment = self.parameters.noise, self.environment
        assert noise is not None
        encoding = noise.encoding(len(delta), self.parameters.bits)
        rotation = rotation_seed(environment.experiment_id, round_number)
        encoded = encoding.encode(delta, rotation, self._noise_secret(round_number, "rounding"))
        for share in self.noise_shares(participants, len(delta), round_number):
            share.add_to(encoded)
        return reduced(encoded, self.parameters.bits)

    def noise_shares(self, participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """What this client adds to its update."""
        noise, most = self.parameters.noise, self.environment.maximum_participants
        assert noise is not None
        share = noise.share(participants, dimension, self._noise_secret(round_number, "share"), most)
        if not share.can_be_drawn:
            raise Refusal("aggregation.noise-out-of-range", f"a share of variance {share.variance:g} cannot be drawn")
        return [share]

    def _noise_secret(self, round_number: int, purpose: str) -> bytes:
        return self.environment.randomness.secret(self.client.number, round_number, f"noise {purpose}")
