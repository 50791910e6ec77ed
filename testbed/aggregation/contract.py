"""Input, result and contract of an aggregation protocol."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from testbed.aggregation.batch_policy import BatchPolicy, CompleteBatches
from testbed.aggregation.quantisation import Quantisation
from testbed.aggregation.server_optimizers import ServerOptimizerSection
from testbed.arrays import Ids
from testbed.batches import Batches
from testbed.memory import Memory
from testbed.messages import Message, Vector
from testbed.network import Network
from testbed.parties.client import RoleSpec
from testbed.parties.pki import Directory
from testbed.privacy.noise_plan import Accountant, Guarantees, NoisePlan, NoiseSource
from testbed.randomness import Randomness
from testbed.training import Train
from testbed.workload.contract import Workload


class AggregationParameters(BaseModel):
    """Parameters that every aggregation protocol has; base class of the keys of user-defined protocols.

    Attributes:
        weights: weight of a client's update: its number of training samples, or 1.
        batches: whether a batch that has lost a member is left out of the sum, where selection has batches.
        server_optimizer: the server's step; None: FedAvg.

    Example:
        >>> class MedianParameters(AggregationParameters):
        ...     fewest: int = Field(3, ge=1, description="Fewest updates that a median is taken of")
        ...     def fewest_survivors(self, participants):
        ...         return self.fewest
        >>> section = MedianParameters(weights="equal", fewest=5)
        >>> section.fewest_survivors(20), section.weights
        (5, 'equal')
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    stages: ClassVar[tuple[str, ...]] = ()
    """Stages of a round of the built-in protocol, in order. Empty: a user-defined class lists them."""
    further_stages: ClassVar[tuple[str, ...]] = ()
    """Stages outside `stages` that some settings add (see `stages_of_round`) or that only some rounds have."""
    occasional_stages: ClassVar[tuple[str, ...]] = ()
    """Stages, from `stages` and `further_stages`, that a round may skip under the same settings."""
    supports_symbolic_masks: ClassVar[bool] = False
    """Whether clients mask with `testbed.network.masked_vectors`; then `masks` says how masks are emulated."""
    asynchronous_buffer: ClassVar[Literal["server", "clients"] | None] = None
    """Where updates of asynchronous rounds wait until the buffer is full; None: the protocol needs whole rounds."""
    protects_samples: ClassVar[bool] = False
    """Whether privacy is accounted for single training samples, not for clients' whole updates."""
    outsiders_check_batches: ClassVar[bool] = False
    """Whether clients that need not be participants check which clients are summed, such as members of a committee."""
    reports_losses: ClassVar[bool] = True
    """Whether clients report their training loss to the server."""

    weights: Literal["samples", "equal"] = Field(
        "samples", description="Weight of a client's update: its number of training samples (FedAvg), or 1"
    )
    batches: Literal["whole", "ignored"] = Field(
        "whole",
        description="Where selection has batches: is a batch that has lost a member left out of the sum (whole), or "
        "are its other members summed, which ends multi-round privacy (ignored)?",
    )
    server_optimizer: ServerOptimizerSection | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="How the mean update becomes the next model, e.g. {name: adam}; none: it is added (FedAvg)",
    )

    if TYPE_CHECKING:  # a field of each subclass

        @property
        def protocol(self) -> str:
            """Name that selects the protocol in an experiment."""

        @property
        def masks(self) -> Literal["symbolic", "materialised"] | None:
            """How masks are emulated, in protocols with `supports_symbolic_masks`."""

    def stages_of_round(self) -> tuple[str, ...]:
        """Return the stages of a round with these settings, in order."""
        return self.stages

    @property
    def robust_rule(self) -> str:
        """Name of the rule that combines single updates in place of their mean; empty: there is none."""
        return ""

    def named_classes(self) -> list[tuple[str, str]]:
        """List the keys of this section that may name a class, with their values."""
        return [("server_optimizer.name", "" if self.server_optimizer is None else self.server_optimizer.name)]

    @property
    def needs_sample_counts(self) -> bool:
        """Whether clients announce their number of samples to the PKI, as something is drawn in proportion to it."""
        return False

    def atomic_batches(self, batches: Batches | None) -> Batches | None:
        """Return the batches that this aggregation must keep whole; None if any clients may be summed together."""
        if self.batches == "ignored" or batches is None or batches.sizes.max(initial=1) == 1:
            return None
        return batches

    def batch_policy(self, batches: Batches | None) -> BatchPolicy:
        """Return the rule for clients that may be summed together: whole batches, if the key says so."""
        whole = self.atomic_batches(batches)
        return BatchPolicy() if whole is None else CompleteBatches(whole)

    @property
    def quantisation(self) -> Quantisation | None:
        """The mapping from updates to the elements that are summed; None: updates are not quantised."""
        return None

    def fewest_survivors(self, participants: int) -> int:
        """Return the number of participants that must stay to the end of the round; 1: the parameters set no limit."""
        return 1

    def check(self, participants: int) -> None:
        """Check that the parameters fit this number of participants.

        Raises:
            ValueError: one line with the key and the allowed values.
        """

    def check_population(self, population: int) -> None:
        """Check that the parameters fit a population of this size; raises `ValueError` as `check` does."""

    def check_weights(self, participants: int, maximum_weight: int) -> None:
        """Raise `ExperimentError` if the sum of this many updates, each up to this weight, does not fit the ring."""

    def check_experiment(self, selection: Any, workload: Any) -> None:
        """Check the experiment's selection and workload sections; raises `ValueError` as `check` does."""

    def check_workload(self, workload: Workload) -> None:
        """Raise `ExperimentError` if the workload lacks something that this aggregation needs."""

    def check_asynchronous(self, concurrency: int, participants: int) -> None:
        """Check that the settings work with asynchronous rounds.

        Args:
            concurrency: clients that train or wait at a time.
            participants: updates that a buffer holds.

        Raises:
            ValueError: one line that begins with the full key.
        """

    def for_asynchronous_rounds(self) -> Self:
        """Replace defaults that asynchronous rounds cannot have; replaced keys still count as not set by the user."""
        return self

    def asynchronous_notes(self) -> list[str]:
        """Describe the defaults that `for_asynchronous_rounds` has replaced, one line each."""
        return []

    def planned_for(self, rounds: int, delta: float) -> Self:
        """Return the parameters with the values filled in that depend on the number of rounds and on delta."""
        return self

    def planned_under(self, selection: Any, population: int, rounds: int) -> Self:
        """Return the parameters with the values filled in that depend on the section `selection`.

        Args:
            selection: the section of the experiment.
            population: number of clients.
            rounds: rounds of the experiment.

        Raises:
            ValueError: the parameters do not fit the selection (message as in `check`).
        """
        return self

    def check_dimension(self, participants: int, dimension: int) -> None:
        """Raise `ExperimentError` if updates with this many parameters cannot be summed."""

    def check_before_data(self, participants: int) -> None:
        """Check the part of `check_dimension` that does not depend on the dimension, for commands that read no data."""


@dataclass
class AggregationRound:
    """State of the server when aggregation begins.

    Attributes:
        number: the round.
        network: the network through which the server asks clients.
        participants: sorted numbers of the selected clients.
        trained: the participants that have reported that they finished training.
        directory: the PKI's bulletin board.
        dimension: number of model parameters d; None: the length that most updates have.
        experiment_id: 16 bytes that are part of every signed content; None: the server does not check signatures, and a
            single client with a wrong signature makes the other clients abort the round.
        randomness: source of the server's own random bits; None: an honest server needs none.
        batches: groups of clients that may only be summed together; None: no such groups.
        client_rate: probability with which each available client was drawn independently; None: clients were not drawn
            so.
        available_samples: announced number of training samples of all available clients; None: unknown.
        memory: arrays by name, kept from round to round; the same mapping as `SelectionRound.memory`.
        training: the training task of the participants; None only if `experiment_id` is None.
        participants_agreed: whether every participant has verified the list of participants
            (`SelectionProtocol.participants_agree`).

    Example:
        >>> clients = np.array([1, 4, 6])
        >>> round_ = AggregationRound(3, None, clients, clients[:2], Directory.empty(8), dimension=10)
        >>> round_.trained.tolist(), round_.dimension, round_.memory
        ([1, 4], 10, {})
    """

    number: int
    network: Network
    participants: Ids
    trained: Ids
    directory: Directory
    dimension: int | None = None
    experiment_id: bytes | None = None
    randomness: Randomness | None = None
    batches: Batches | None = None
    client_rate: float | None = None
    available_samples: int | None = None
    memory: Memory = field(default_factory=dict)
    training: Train | None = None
    participants_agreed: bool = False


@dataclass(frozen=True)
class Aggregate:
    """Result of an aggregation.

    Attributes:
        mean: `(d,)` float64 weighted mean of the survivors' updates.
        weight: sum of the survivors' weights.
        survivors: sorted numbers of the clients in the mean.
        noise: share of the planned noise variance in the sum, if all survivors have added their part; 1.0 if no noise
            was planned.

    Example:
        >>> aggregate = Aggregate(mean=np.array([0.5, -1.0]), weight=30.0, survivors=np.array([2, 5]))
        >>> aggregate.survivors.tolist(), aggregate.noise
        ([2, 5], 1.0)
    """

    mean: npt.NDArray[np.float64]
    weight: float
    survivors: Ids
    noise: float = 1.0


def uses_symbolic_masks(parameters: BaseModel, work_is_modelled: bool) -> bool:
    """Return whether clients of an aggregation keep their masks as seeds (`testbed.network.masked_vectors`).

    Args:
        parameters: the section `aggregation`.
        work_is_modelled: whether compute time is modelled, so that expanding masks is neither measured nor waited for.

    Raises:
        ValueError: the experiment asks for an emulation of masks that its clock does not allow.
    """
    if not isinstance(parameters, AggregationParameters) or not parameters.supports_symbolic_masks:
        return False
    if parameters.masks == "materialised":
        return False
    if parameters.masks == "symbolic" and not work_is_modelled:
        raise ValueError(
            "masks: symbolic: masks that are not expanded take no time that could be measured or waited for; leave it "
            "out, or set time.compute: modelled and time.clock: virtual"
        )
    return work_is_modelled


def clients_with_shape(vectors: Mapping[int, Vector], bits: int, length: int | None) -> Ids:
    """Return the sorted numbers of the clients with a vector of this shape.

    Vectors of another shape cannot be summed; their clients count as non-responsive.

    Args:
        vectors: by client.
        bits: required `Vector.bits`.
        length: required number of elements; None: the length that most vectors have.

    Returns:
        `(k,)` int64.

    Example:
        >>> vectors = {3: Vector(np.zeros(2, np.float32), 0), 1: Vector(np.zeros(2, np.float32), 0)}
        >>> clients_with_shape(vectors, bits=0, length=2).tolist()
        [1, 3]
    """
    lengths = Counter(len(vector) for vector in vectors.values() if vector.bits == bits)
    if length is None:
        # Ties go to the longer vectors, so that the result does not depend on the order of arrival.
        length = max(lengths, key=lambda candidate: (lengths[candidate], candidate), default=0)
    fitting = [client for client, vector in vectors.items() if (vector.bits, len(vector)) == (bits, length)]
    return np.sort(np.array(fitting, np.int64))


class AggregationProtocol(ABC):
    """Server side of an aggregation protocol; the base class of user-defined protocols, too.

    A subclass may have the attribute `Parameters`: a subclass of `AggregationParameters` with the keys of its section
    of the experiment. Properties of this class may be class attributes there.

    Args:
        parameters: the section of the experiment.

    Attributes:
        stages: stages of a round, in order.
        needs_registration: whether clients must be registered with the PKI.
        allows_empty_selection: whether a round without participants is run, not skipped.
        shares_noise: whether the noise of `accountant` is the sum of the participants' shares; if not, it does not
            depend on any participant.

    Example:
        >>> import asyncio
        >>> class NoStep(AggregationProtocol):  # leaves the model as it is, and asks no client
        ...     roles = ()
        ...     async def aggregate(self, round_):
        ...         return Aggregate(np.zeros(round_.dimension), len(round_.trained), round_.trained)
        >>> clients = np.array([1, 4, 6])
        >>> round_ = AggregationRound(1, None, clients, clients[:2], Directory.empty(8), dimension=3)
        >>> aggregate = asyncio.run(NoStep(AggregationParameters()).aggregate(round_))
        >>> aggregate.mean.tolist(), aggregate.survivors.tolist()
        ([0.0, 0.0, 0.0], [1, 4])
    """

    stages: tuple[str, ...] = ()
    needs_registration: bool = False
    allows_empty_selection: bool = False
    shares_noise: bool = True

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    @property
    @abstractmethod
    def roles(self) -> Sequence[RoleSpec]:
        """Roles of the client side, played by all clients."""

    @abstractmethod
    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Combine the updates of a round.

        Raises:
            RoundAborted: too few clients are left.
        """

    @property
    def broadcasts_to_all(self) -> bool:
        """Whether every available client gets the model and is a participant, regardless of the selection."""
        return False

    def upload_question(self, round_number: int) -> Message | None:
        """Return the question that fetches an update once its client has trained, in asynchronous rounds.

        None: clients hold their updates until the buffer is full, and `aggregate` collects them.
        """
        return None

    def prepare(self, participants: int, dimension: int) -> None:  # noqa: B027  # there may be nothing to make
        """Compute tables that clients need once per process, before compute time is measured."""

    def accountant(self, participants: int, dimension: int, client_rate: float = 1.0) -> Accountant | None:
        """Return the privacy accountant of a client's participation; None if there is no noise.

        Args:
            participants: largest planned number of participants of a round.
            dimension: number of model parameters.
            client_rate: probability with which each client is drawn. Only used if the protocol `broadcasts_to_all`: the
                server then does not learn which clients were drawn, so subsampling amplifies privacy.
        """
        return None

    def guarantees(self, participants: int) -> Guarantees:
        """Return the guarantees of sums over this many participants; raises `ValueError` if no such sum is possible."""
        return Guarantees.none(participants)

    def noise_plan(self, smallest: int, largest: int, dimension: int, client_rate: float | None) -> NoisePlan | None:
        """Return the noise plan for the accountant, the ledger and the bounds; None if there is no noise.

        Args:
            smallest: fewest participants of a round.
            largest: most participants of a round.
            dimension: number of model parameters.
            client_rate: see `AggregationRound`.
        """
        # Subsampling amplifies privacy only if the server does not learn the drawn clients.
        rate = client_rate if self.broadcasts_to_all and client_rate is not None else 1.0
        accountant = self.accountant(largest, dimension) if rate == 1.0 else self.accountant(largest, dimension, rate)
        if accountant is None:
            return None
        source: NoiseSource = "shares"
        if not self.shares_noise:
            source = "clients" if self.broadcasts_to_all else "server"
        return NoisePlan(accountant, self.guarantees, smallest, largest, source)
