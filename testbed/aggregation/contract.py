"""What an aggregation protocol is given, and what it returns."""

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
    """What every aggregation protocol has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stages: ClassVar[tuple[str, ...]] = ()
    """Of a round of the built-in protocol, in order; empty: a user-defined class says them."""
    further_stages: ClassVar[tuple[str, ...]] = ()
    """Stages outside `stages` that some settings bring (see `stages_of_round`) or that some rounds alone have."""
    occasional_stages: ClassVar[tuple[str, ...]] = ()
    """The stages, of `stages` and `further_stages`, that a round may lack or have with the same settings."""
    supports_symbolic_masks: ClassVar[bool] = False
    """Whether clients mask with `testbed.network.masked_vectors`, and `masks` says how that is emulated."""
    asynchronous_buffer: ClassVar[Literal["server", "clients"] | None] = None
    """Where updates of asynchronous rounds wait until the buffer is full; None: the protocol needs whole rounds."""
    protects_samples: ClassVar[bool] = False
    """Whether privacy is accounted for single training samples, not for clients' whole updates."""
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
            """The name that selects the protocol in an experiment."""

        @property
        def masks(self) -> Literal["symbolic", "materialised"] | None:
            """Of those with `supports_symbolic_masks`: how masks are emulated."""

    def stages_of_round(self) -> tuple[str, ...]:
        """The stages with these settings."""
        return self.stages

    @property
    def robust_rule(self) -> str:
        """The rule that combines single updates instead of their mean; empty: none does."""
        return ""

    def named_classes(self) -> list[tuple[str, str]]:
        """List the keys of this section that may name a class, with their values."""
        return [("server_optimizer.name", "" if self.server_optimizer is None else self.server_optimizer.name)]

    @property
    def needs_sample_counts(self) -> bool:
        """Whether clients announce to the PKI how many samples they have, since something is drawn in proportion."""
        return False

    def atomic_batches(self, batches: Batches | None) -> Batches | None:
        """The batches that this aggregation must not break up; None where it may sum anybody with anybody."""
        if self.batches == "ignored" or batches is None or batches.sizes.max(initial=1) == 1:
            return None
        return batches

    def batch_policy(self, batches: Batches | None) -> BatchPolicy:
        """Return which clients may be summed together: by default whole batches, where `batches` says so."""
        whole = self.atomic_batches(batches)
        return BatchPolicy() if whole is None else CompleteBatches(whole)

    @property
    def quantisation(self) -> Quantisation | None:
        """The mapping from updates to the elements that are summed; None: updates are not quantised."""
        return None

    def fewest_survivors(self, participants: int) -> int:
        """How many of so many participants must stay to the end of the round; 1: the parameters do not say."""
        return 1

    def check(self, participants: int) -> None:
        """Raise `ValueError` (one line: key, what is allowed) for parameters that do not fit so many participants."""

    def check_population(self, population: int) -> None:
        """Raise `ValueError` (as `check`) for parameters that do not fit so many clients."""

    def check_weights(self, participants: int, maximum_weight: int) -> None:
        """Raise `ExperimentError` when so many updates of up to this weight cannot be summed."""

    def check_experiment(self, selection: Any, workload: Any) -> None:
        """Raise `ValueError` (as `check`) when the experiment's selection or workload section does not fit."""

    def check_workload(self, workload: Workload) -> None:
        """Raise `ExperimentError` when the workload lacks what this aggregation asks of it."""

    def check_asynchronous(self, concurrency: int, participants: int) -> None:
        """Raise `ValueError` (one line that begins with a whole key) for settings that asynchronous rounds lack.

        Args:
            concurrency: clients that train or wait at a time.
            participants: updates that a buffer holds.
        """

    def for_asynchronous_rounds(self) -> Self:
        """Replace defaults that asynchronous rounds cannot have; keys that are set here still count as unwritten."""
        return self

    def asynchronous_notes(self) -> list[str]:
        """Describe the replaced defaults of `for_asynchronous_rounds`, a line each."""
        return []

    def planned_for(self, rounds: int, delta: float) -> Self:
        """The same, with what it leaves to the rest of the experiment filled in."""
        return self

    def planned_under(self, selection: Any, population: int, rounds: int) -> Self:
        """The same, with what follows from the `selection` section of an experiment of this size filled in.

        Raises `ValueError` (as `check`) where it does not fit.
        """
        return self

    def check_dimension(self, participants: int, dimension: int) -> None:
        """Raise `ExperimentError` when updates of so many parameters cannot be summed."""

    def check_before_data(self, participants: int) -> None:
        """The part of `check_dimension` that holds whatever the dimension is; it is asked where no data are read."""


@dataclass
class AggregationRound:
    """What the server knows when aggregation begins.

    Attributes:
        number: the round.
        network: how to reach the clients.
        participants: sorted client numbers that were selected.
        trained: those among them that have reported their training as done.
        directory: the PKI's bulletin board.
        dimension: number of model parameters d; None: what most updates have.
        experiment_id: what clients sign with; None: the server leaves signatures for the clients to check, and one
            client that signs wrongly makes the others end the round.
        randomness: for the server's own coins; None: an honest server needs none.
        batches: groups of clients whose updates may only be summed together; None: anybody's may.
        client_rate: probability with which each available client was drawn, independently; None: not so drawn.
        available_samples: training samples of all clients that were available, by what they announced; None: unknown.
        memory: arrays by name that are kept from round to round, as in `SelectionRound.memory` and in the same place.
        training: what the participants were asked to train; None goes with `experiment_id` None.
        participants_agreed: whether each of them has verified the list of all (`SelectionProtocol.participants_agree`).
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
    """The outcome.

    Attributes:
        mean: `(d,)` float64 weighted mean of the survivors' updates.
        weight: sum of the survivors' weights.
        survivors: sorted client numbers whose update is in the mean.
        noise: share of the planned noise variance that is in the sum if all survivors have added theirs; 1.0 where
            none was planned.
    """

    mean: npt.NDArray[np.float64]
    weight: float
    survivors: Ids
    noise: float = 1.0


def uses_symbolic_masks(parameters: BaseModel, work_is_modelled: bool) -> bool:
    """Return whether clients of an aggregation keep their masks as seeds (`testbed.network.masked_vectors`).

    Args:
        parameters: the section `aggregation`.
        work_is_modelled: nobody measures how long it takes to expand masks, or waits for it.

    Raises:
        ValueError: if the experiment asks for emulation that its clock does not allow.
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
    """Sorted numbers of the clients whose vector has `bits` and `length` elements (None: what most have).

    The others cannot be summed: their clients count as non-responsive.
    """
    lengths = Counter(len(vector) for vector in vectors.values() if vector.bits == bits)
    if length is None:
        length = max(lengths, key=lambda candidate: (lengths[candidate], candidate), default=0)
    fitting = [client for client, vector in vectors.items() if (vector.bits, len(vector)) == (bits, length)]
    return np.sort(np.array(fitting, np.int64))


class AggregationProtocol(ABC):
    """Server side of an aggregation protocol. User-defined ones inherit from it, too, and say what differs from the
    defaults.

    A class may have one attribute more, `Parameters`: a subclass of `AggregationParameters` that says which keys its
    section of the experiment has. What is a property here may be a class attribute there.

    Args:
        parameters: the section of the experiment.

    Attributes:
        stages: its stages, in order.
        needs_registration: whether clients must be registered with the PKI.
        allows_empty_selection: whether a round in which nobody was drawn is run all the same, not skipped.
        shares_noise: whether the noise of `accountant` is a sum of the participants' shares; else it depends on
            nobody's share.
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
        """The client side, for all clients."""

    @abstractmethod
    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Combine the updates; raises `RoundAborted` when too few are left."""

    @property
    def broadcasts_to_all(self) -> bool:
        """Whether every available client gets the model and is a participant, whomever selection has drawn."""
        return False

    def upload_question(self, round_number: int) -> Message | None:
        """Return the question that fetches an update as soon as its client has trained, in asynchronous rounds.

        None: clients hold their updates until the buffer is full, and `aggregate` collects them.
        """
        return None

    def prepare(self, participants: int, dimension: int) -> None:  # noqa: B027  # there may be nothing to make
        """Make what clients need once in a process, before anybody's work is measured."""

    def accountant(self, participants: int, dimension: int, client_rate: float = 1.0) -> Accountant | None:
        """What taking part costs in privacy, for so many planned participants and parameters; None: no noise.

        Args:
            participants: the most that a round may have.
            dimension: number of model parameters.
            client_rate: probability with which each is drawn; given where it `broadcasts_to_all`, so that nobody can
                tell who was: then it is the rate that counts.
        """
        return None

    def guarantees(self, participants: int) -> Guarantees:
        """What holds of sums among so many participants; raises `ValueError` where there is no sum of so many."""
        return Guarantees.none(participants)

    def noise_plan(self, smallest: int, largest: int, dimension: int, client_rate: float | None) -> NoisePlan | None:
        """What the accountant, the ledger and the bounds take; None where there is no noise.

        Args:
            smallest, largest: participants that a round may have.
            dimension: number of model parameters.
            client_rate: see `AggregationRound`.
        """
        rate = client_rate if self.broadcasts_to_all and client_rate is not None else 1.0
        accountant = self.accountant(largest, dimension) if rate == 1.0 else self.accountant(largest, dimension, rate)
        if accountant is None:
            return None
        source: NoiseSource = "shares"
        if not self.shares_noise:
            source = "clients" if self.broadcasts_to_all else "server"
        return NoisePlan(accountant, self.guarantees, smallest, largest, source)
