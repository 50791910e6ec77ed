"""From float updates to ring elements and back, with noise (`aggregation.noise`) or without.

Without: see `testbed.aggregation.quantisation`.

A `NoisePolicy` says how an update becomes ring elements and how the sum of such elements becomes a mean. `AddedNoise`
is the one with noise of the participants: each adds its share of the noise that is planned for so many as take part in
the round; who drops out takes its share along. With `ServerAddedNoise` they add none, and the server adds noise to the
sum. Server and clients have the same policy, made from the parameters.
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
    """How updates become ring elements, what noise is in them, and what their sum says."""

    @abstractmethod
    def length(self, dimension: int) -> int:
        """How many ring elements an update of so many parameters becomes; its weight is one of them."""

    @abstractmethod
    def encoded(
        self, role: "NoisyRole", update: LocalUpdate, participants: int, round_number: int
    ) -> npt.NDArray[Any] | Elements:
        """`(length,)` a client's update as ring elements, with its noise in them.

        Args:
            role: of the client; it may decide not to add noise (`NoisyRole.noise_to_add`).
            update: what it has learned.
            participants: of the round, as planned: so many share the noise.
            round_number: the round.
        """

    @abstractmethod
    def mean(
        self, total: npt.NDArray[Any], updates: int, round_: AggregationRound
    ) -> tuple[npt.NDArray[np.float64], int]:
        """`(d,)` mean of so many updates from the `(length,)` sum of their elements, and the sum of their weights.

        Raises `RoundAborted` for what cannot be such a sum.
        """

    def kept(self, survivors: int, participants: int) -> float:
        """Share of the planned noise variance in a sum over so many survivors; 1.0 where none is planned."""
        return 1.0

    def vectors(self, role: "NoisyRole", participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """The noise that this client is to add to its update."""
        return []

    def prepare(self, participants: int, dimension: int) -> None:  # noqa: B027  # there may be nothing to make
        """Make what clients need once in a process, before anybody's work is measured."""


class EncodedUpdates(NoisePolicy):
    """Updates are clipped, rotated and rounded (`testbed.privacy.encoding`), so that noise can hide what is left.

    Args:
        updates: the experiment's section, which says what to clip to.
        bits: of the ring.
    """

    def __init__(self, updates: ClippedUpdates, bits: int) -> None:
        self.updates = updates
        self.bits = bits

    def length(self, dimension: int) -> int:
        """Return a power of two, for the rotation, and the weight."""
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
        """Decode the sum; raises also where the server does not know the source of the rotation."""
        encoding, rotation = self.rotation(round_)
        return encoding.decode(total, updates, rotation)

    def rotation(self, round_: AggregationRound) -> tuple[Encoding, bytes]:
        """How the round's updates are encoded, and the seed of its signs; raises as `mean` does."""
        if round_.dimension is None or round_.experiment_id is None:
            raise RoundAborted("no-rotation", "it is derived from the experiment's id and the model's dimension")
        seed = rotation_seed(round_.experiment_id, round_.number)
        return self.updates.encoding(round_.dimension, self.bits), seed


class AddedNoise(EncodedUpdates):
    """Each participant adds its share of the planned noise, and all of it stays.

    Args:
        noise: the experiment's section.
        bits: of the ring.
    """

    def __init__(self, noise: Noise, bits: int) -> None:
        super().__init__(noise, bits)
        self.noise = noise

    def kept(self, survivors: int, participants: int) -> float:
        return survivors / participants

    def vectors(self, role: "NoisyRole", participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """Return the share of one participant."""
        seed = _secret(role, round_number, "share")
        share = self.noise.share(participants, dimension, seed, role.environment.maximum_participants)
        if not share.can_be_drawn:
            raise Refusal("aggregation.noise-out-of-range", f"a share of variance {share.variance:g} cannot be drawn")
        return [share]

    def prepare(self, participants: int, dimension: int) -> None:
        """Make the table that a participant's share is drawn from."""
        self.noise.share(participants, dimension, bytes(32)).prepare()


class ServerAddedNoise(EncodedUpdates):
    """Participants add none; the server adds noise to their sum, and divides it by the participants planned.

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
        """Add the server's noise and decode; raises also where there is none for this round."""
        encoding, rotation = self.rotation(round_)
        encoding.check_count(total, updates)  # before a row of noise is used up that nothing is released with
        noised = self._server.noised(total, encoding, rotation, round_)
        mean, weight = encoding.decode(noised, updates, rotation)
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
"""Whose noise it is follows from the mechanism."""


class NoisyParameters(AggregationParameters):
    """What the protocols have that can sum noise along.

    Attributes:
        removes_noise: whether `Noise.enforcement` is possible.
    """

    removes_noise: ClassVar[bool] = False
    bits: int = Field(32, ge=8, le=64, description="Ring width: sums are taken modulo 2**bits")
    noise: NoiseSection | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Noise that the participants add, or (mechanism: correlated) the server, for differential privacy; "
        "none: sums without noise",
    )
    compression: CompressionKey = None

    @model_validator(mode="after")
    def _noise_goes_with_equal_weights(self) -> "NoisyParameters":
        if self.noise is not None and self.compression is not None:
            raise excludes("noise", "compression", "noise is planned for whole updates")
        if self.noise is not None and self.weights != "equal":
            raise ValueError("weights: noise hides updates that all count the same; set weights: equal")
        if self.shared_noise is not None and self.shared_noise.enforcement is not None and not self.removes_noise:
            raise ValueError("noise.enforcement: only protocol: secagg can take noise away; leave it out")
        return self

    @property
    def shared_noise(self) -> Noise | None:
        """The section where it is the participants who add noise."""
        return self.noise if isinstance(self.noise, Noise) else None

    def planned_for(self, rounds: int, delta: float) -> Self:
        """An epsilon is kept over all rounds, unless the experiment says otherwise."""
        return self if self.noise is None else self.model_copy(update={"noise": self.noise.planned_for(rounds, delta)})

    def planned_under(self, selection: Any, population: int, rounds: int) -> Self:
        """Correlated noise is planned for the rounds that a client may have."""
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
        """The sum and its noise must fit the ring, and the shares of noise must be such as can be drawn."""
        if self.noise is not None:
            self.noise.check(participants, dimension, self.bits)

    def check_before_data(self, participants: int) -> None:
        """With steps and deviation both given, so is the noise of a share."""
        noise = self.shared_noise
        if noise is not None and noise.scale is not None and noise.noise_multiplier is not None:
            noise.check_share(participants, 1)

    def noise_policy(self) -> NoisePolicy | None:
        """What is added; None: updates are summed as they are."""
        if isinstance(self.noise, CorrelatedNoise):
            return ServerAddedNoise(self.noise, self.bits)
        return None if self.noise is None else AddedNoise(self.noise, self.bits)


def noise_of(parameters: BaseModel) -> Noise | CorrelatedNoise | None:
    """The section; None also for parameters that have none: those of a user-defined protocol may not."""
    return parameters.noise if isinstance(parameters, NoisyParameters) else None


def compression_of(parameters: BaseModel) -> CompressionKey:
    """How updates are compressed; None: not at all, as by parameters that have no such section."""
    return parameters.compression if isinstance(parameters, NoisyParameters) else None


def noise_policy_of(parameters: AggregationParameters) -> NoisePolicy | None:
    """The policy; None as in `noise_of`."""
    return parameters.noise_policy() if isinstance(parameters, NoisyParameters) else None


class NoisyRole(Role):
    """The client side of a protocol whose updates may carry noise.

    Attributes:
        noise: what the experiment has the client add, where it does.
    """

    parameters: NoisyParameters
    noise: NoisePolicy

    def __init__(self, client: Client, parameters: Any) -> None:
        super().__init__(client, parameters)
        policy = noise_policy_of(parameters)
        if policy is not None:
            self.noise = policy

    def noise_to_add(self, participants: int, dimension: int, round_number: int) -> list[NoiseShare]:
        """What it does add: all that it should; a dishonest client may decide otherwise."""
        return self.noise.vectors(self, participants, dimension, round_number)


class NoisyProtocol(AggregationProtocol):
    """The server side of a protocol whose updates may carry noise."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.shares_noise = not isinstance(noise_of(parameters), CorrelatedNoise)

    def guarantees(self, participants: int) -> Guarantees:
        """Return none; the server's noise is in its sums whoever drops out."""
        return Guarantees.none(participants, None if self.shares_noise else 1.0)

    def prepare(self, participants: int, dimension: int) -> None:
        """Make the tables that participants' noise is drawn from."""
        if (policy := noise_policy_of(self.parameters)) is not None:
            policy.prepare(participants, dimension)

    def accountant(self, participants: int, dimension: int, client_rate: float = 1.0) -> Accountant | None:
        """Return the accountant of the section `noise`."""
        noise = noise_of(self.parameters)
        if isinstance(noise, CorrelatedNoise):
            return noise.accountant()
        return None if noise is None else noise.accountant(participants, dimension)
