"""Mapping from float updates to ring elements and back, with noise (`aggregation.noise`) or without.

For the mapping without noise see `testbed.aggregation.quantisation`.

A `NoisePolicy` defines how an update becomes ring elements and how the sum of such elements becomes a mean. With
`AddedNoise` each participant adds its share of the noise that is planned for the number of participants; a client that
drops out takes its share along. With `ServerAddedNoise` participants add none, and the server adds noise to the sum.
Server and clients have the same policy, made from the parameters.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from testbed.aggregation.contract import AggregationParameters, AggregationProtocol, AggregationRound
from testbed.aggregation.kit.compression import CompressionKey
from testbed.aggregation.kit.server_noise import ServerNoise
from testbed.errors import Refusal, RoundAborted, excludes
from testbed.network.masked_vectors import Elements
from testbed.network.sums import reduced
from testbed.parties.client import Client, Role
from testbed.privacy.encoding import Encoding, rotation_seed
from testbed.privacy.matrix.section import CorrelatedNoise
from testbed.privacy.noise import ClippedUpdates, Noise, NoiseShare
from testbed.privacy.noise_plan import Accountant, Guarantees
from testbed.workload.contract import LocalUpdate


class NoisePolicy(ABC):
    """Mapping from updates to ring elements, their noise, and the mapping from their sum to a mean."""

    @abstractmethod
    def length(self, dimension: int) -> int:
        """Return the number of ring elements of an update with this many parameters, including its weight."""

    @abstractmethod
    def encoded(
        self, role: "NoisyRole", update: LocalUpdate, participants: int, round_number: int
    ) -> npt.NDArray[Any] | Elements:
        """Return a client's update as `(length,)` ring elements, including its noise.

        Args:
            role: role of the client, which may decide not to add noise (`NoisyRole.noise_to_add`).
            update: the client's update.
            participants: planned number of participants, which share the noise.
            round_number: the round.
        """

    @abstractmethod
    def mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        """Return the `(d,)` mean of updates and the sum of their weights.

        Args:
            total: `(length,)` sum of the updates' elements.
            updates: number of updates in the sum.
            round_: the round.

        Raises:
            RoundAborted: `total` cannot be such a sum.
        """

    def remaining_share(self, survivors: int, participants: int) -> float:
        """Return the share of the planned noise variance in a sum over the survivors; 1.0 if none is planned."""
        return 1.0

    def vectors(self, role: "NoisyRole", participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """Return the noise that this client should add to its update."""
        return []

    def prepare(self, participants: int, dimension: int) -> None:  # noqa: B027  # there may be nothing to make
        """Compute tables that clients need once per process, before compute time is measured."""


class EncodedUpdates(NoisePolicy):
    """Policy that clips, rotates and rounds updates (`testbed.privacy.encoding`), so that noise can hide them.

    Args:
        updates: the experiment's section with the clip.
        bits: of the ring.
    """

    def __init__(self, updates: ClippedUpdates, bits: int) -> None:
        self.updates = updates
        self.bits = bits

    def length(self, dimension: int) -> int:
        """Return a power of two (for the rotation) plus one element for the weight."""
        return self.updates.encoding(dimension, self.bits).length + 1

    def encoded(self, role: "NoisyRole", update: LocalUpdate, participants: int, round_number: int) -> npt.NDArray[Any]:
        delta = np.asarray(update.delta, np.float32)
        rotation = rotation_seed(role.environment.experiment_id, round_number)
        elements = self.updates.encoding(len(delta), self.bits).encode(
            delta, rotation, _secret(role, round_number, "rounding")
        )
        for share in role.noise_to_add(participants, len(delta), round_number):
            share.add_to(elements)
        return reduced(elements, self.bits)

    def mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        """Decode the sum; raises `RoundAborted` also if the server does not know the source of the rotation."""
        encoding, rotation = self.rotation(round_)
        return encoding.decode(total, updates, rotation)

    def rotation(self, round_: AggregationRound) -> tuple[Encoding, bytes]:
        """Return the encoding of the round's updates and the seed of its signs; raises as `mean` does."""
        if round_.dimension is None or round_.experiment_id is None:
            raise RoundAborted("no-rotation", "the rotation needs the experiment's id and the model's dimension")
        seed = rotation_seed(round_.experiment_id, round_.number)
        return self.updates.encoding(round_.dimension, self.bits), seed


class AddedNoise(EncodedUpdates):
    """Policy with noise of the participants: each adds its share, and no noise is removed.

    Args:
        noise: the experiment's section.
        bits: of the ring.
    """

    def __init__(self, noise: Noise, bits: int) -> None:
        super().__init__(noise, bits)
        self.noise = noise

    def remaining_share(self, survivors: int, participants: int) -> float:
        return survivors / participants

    def vectors(self, role: "NoisyRole", participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """Return one participant's share of the noise."""
        seed = _secret(role, round_number, "share")
        share = self.noise.share(participants, dimension, seed, role.environment.maximum_participants)
        # Refuse rather than add less noise than the guarantee says.
        if not share.can_be_drawn:
            raise Refusal("aggregation.noise-out-of-range", f"a share of variance {share.variance:g} cannot be drawn")
        return [share]

    def prepare(self, participants: int, dimension: int) -> None:
        """Compute the table from which a participant's share is drawn."""
        self.noise.share(participants, dimension, bytes(32)).prepare()


class ServerAddedNoise(EncodedUpdates):
    """Policy with noise of the server: it adds noise to the sum and divides by the planned number of participants.

    Args:
        noise: the experiment's section, completed.
        bits: of the ring.
    """

    def __init__(self, noise: CorrelatedNoise, bits: int) -> None:
        super().__init__(noise, bits)
        self._server, self._planned = ServerNoise(noise), noise.participants or 1

    def mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        """Add the server's noise and decode; raises `RoundAborted` also if there is no noise for this round."""
        encoding, rotation = self.rotation(round_)
        encoding.check_count(total, updates)  # before a row of noise is used: without a sum it would be wasted
        noised = self._server.noised(total, encoding, rotation, round_)
        mean, weight = encoding.decode(noised, updates, rotation)
        # By the planned number also after dropouts: otherwise later noise would not cancel earlier noise.
        mean *= weight / self._planned
        return mean, weight


def _secret(role: "NoisyRole", round_number: int, purpose: str) -> bytes:
    return role.environment.randomness.secret(role.client.number, round_number, f"noise {purpose}")


def _who_adds(section: Any) -> str:
    mechanism = section.get("mechanism") if isinstance(section, dict) else getattr(section, "mechanism", None)
    return "server" if mechanism == "correlated" else "participants"


NoiseSection = Annotated[
    Annotated[Noise, Tag("participants")] | Annotated[CorrelatedNoise, Tag("server")], Discriminator(_who_adds)
]
"""Section of the participants' or the server's noise, depending on the key `mechanism`."""


class NoisyParameters(AggregationParameters):
    """Parameters of protocols with sums that may include noise.

    Attributes:
        bits: ring width; sums are taken modulo 2**bits.
        noise: noise of the participants or of the server; None: none.
        compression: compression of updates; None: none.
        removes_noise: whether `Noise.enforcement` is possible.

    Example:
        >>> section = NoisyParameters(weights="equal", noise={"noise_multiplier": 2.0, "clip": 1.0})
        >>> section.shared_noise.mechanism, section.bits
        ('skellam', 32)
        >>> NoisyParameters(weights="samples", noise={"noise_multiplier": 2.0})
        Traceback (most recent call last):
        pydantic_core._pydantic_core.ValidationError: ...weights: noise needs updates that all count the same...
    """

    removes_noise: ClassVar[bool] = False
    bits: int = Field(32, ge=8, le=64, description="Ring width: sums are taken modulo 2**bits")
    noise: NoiseSection | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Noise for differential privacy that the participants add, or the server (mechanism: correlated); "
        "none: sums without noise",
    )
    compression: CompressionKey = None

    @model_validator(mode="after")
    def _noise_goes_with_equal_weights(self) -> "NoisyParameters":
        if self.noise is not None and self.compression is not None:
            raise excludes("noise", "compression", "noise is planned for whole updates")
        if self.noise is not None and self.weights != "equal":
            raise ValueError("weights: noise needs updates that all count the same; set weights: equal")
        if self.shared_noise is not None and self.shared_noise.enforcement is not None and not self.removes_noise:
            raise ValueError("noise.enforcement: only protocol: secagg can remove noise; leave it out")
        return self

    @property
    def shared_noise(self) -> Noise | None:
        """The section `noise` if participants add the noise, else None."""
        return self.noise if isinstance(self.noise, Noise) else None

    def planned_for(self, rounds: int, delta: float) -> Self:
        """Return the parameters with the noise planned for all rounds, unless the experiment sets it otherwise."""
        return self if self.noise is None else self.model_copy(update={"noise": self.noise.planned_for(rounds, delta)})

    def planned_under(self, selection: Any, population: int, rounds: int) -> Self:
        """Plan correlated noise for the rounds in which a client may take part."""
        if not isinstance(self.noise, CorrelatedNoise):
            return self
        try:
            self.noise.check_rounds(rounds)
            pattern = selection.participation_pattern(self.noise.rounds or rounds)
            expected = max(1, round(selection.expected_participants(population)))
            return self.model_copy(update={"noise": self.noise.planned_under(expected, pattern)})
        except ValueError as error:
            raise ValueError(f"noise.{error}") from None

    def check_dimension(self, participants: int, dimension: int) -> None:
        """Check that the sum and its noise fit the ring, and that the shares of noise can be drawn."""
        if self.noise is not None:
            self.noise.check(participants, dimension, self.bits)

    def check_before_data(self, participants: int) -> None:
        """Check the share of the noise if both the steps and the deviation are set."""
        noise = self.shared_noise
        if noise is not None and noise.scale is not None and noise.noise_multiplier is not None:
            noise.check_share(participants, 1)

    def noise_policy(self) -> NoisePolicy | None:
        """Return the noise policy; None: updates are summed without noise."""
        if isinstance(self.noise, CorrelatedNoise):
            return ServerAddedNoise(self.noise, self.bits)
        return None if self.noise is None else AddedNoise(self.noise, self.bits)


def noise_of(parameters: BaseModel) -> Noise | CorrelatedNoise | None:
    """Return the section `noise`; None if it is not set, or if user-defined parameters have no such section."""
    return parameters.noise if isinstance(parameters, NoisyParameters) else None


def compression_of(parameters: BaseModel) -> CompressionKey:
    """Return the section `compression`; None if it is not set, or if the parameters have no such section."""
    return parameters.compression if isinstance(parameters, NoisyParameters) else None


def noise_policy_of(parameters: AggregationParameters) -> NoisePolicy | None:
    """Return the noise policy; None as in `noise_of`."""
    return parameters.noise_policy() if isinstance(parameters, NoisyParameters) else None


class NoisyRole(Role):
    """Client side of a protocol with updates that may carry noise.

    Attributes:
        noise: policy of the experiment's noise; missing if there is none.

    Example:
        >>> class HalvedShare(NoisyRole):  # a dishonest client
        ...     def noise_to_add(self, participants, dimension, round_number):
        ...         return super().noise_to_add(2 * participants, dimension, round_number)
    """

    parameters: NoisyParameters
    noise: NoisePolicy

    def __init__(self, client: Client, parameters: Any) -> None:
        super().__init__(client, parameters)
        policy = noise_policy_of(parameters)
        if policy is not None:
            self.noise = policy

    def noise_to_add(self, participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """Return the noise that the client adds; a dishonest client may add less than it should."""
        return self.noise.vectors(self, participants, dimension, round_number)


class NoisyProtocol(AggregationProtocol):
    """Server side of a protocol with updates that may carry noise; its `accountant` follows the section `noise`.

    Args:
        parameters: the section of the experiment; a `NoisyParameters`.

    Example:
        >>> class Sums(NoisyProtocol):
        ...     roles = ()
        ...     async def aggregate(self, round_): ...
        >>> sums = Sums(NoisyParameters(weights="equal", noise={"noise_multiplier": 2.0, "clip": 1.0}))
        >>> round(sums.accountant(participants=10, dimension=100).epsilon({1.0: 4}, delta=1e-5), 2)
        4.78
    """

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.shares_noise = not isinstance(noise_of(parameters), CorrelatedNoise)

    def guarantees(self, participants: int) -> Guarantees:
        """Return no guarantees for sums; noise of the server is complete however clients drop out."""
        return Guarantees.none(participants, None if self.shares_noise else 1.0)

    def prepare(self, participants: int, dimension: int) -> None:
        """Compute the tables from which participants' noise is drawn."""
        if (policy := noise_policy_of(self.parameters)) is not None:
            policy.prepare(participants, dimension)

    def accountant(self, participants: int, dimension: int, client_rate: float = 1.0) -> Accountant | None:
        """Return the accountant of the section `noise`."""
        noise = noise_of(self.parameters)
        if isinstance(noise, CorrelatedNoise):
            return noise.accountant()
        return None if noise is None else noise.accountant(participants, dimension)
