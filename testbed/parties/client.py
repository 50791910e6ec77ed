"""A logical client: its keys, and the roles it plays in the protocols.

A `Role` is the client side of one protocol: a set of handlers, one per message type. Role state lives for one round.
A misbehaving client has some handlers overridden: a subclass of the role, given to chosen clients by `RoleSpec.only`.

The questions that a client answers in each state are rows of a `testbed.parties.stage_table.StageTable`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from testbed.batches import Batches
from testbed.crypto.memo import Memo
from testbed.emulation.compute.cost import ComputeModel, meter_pki
from testbed.messages import Message, encode
from testbed.parties.participation import OwnParticipation
from testbed.parties.pinned_batches import PinnedBatches
from testbed.parties.pki import Directory, Entries, Identity, Lookup
from testbed.parties.stage_table import REFUSED as REFUSED  # for classes that import them from here
from testbed.parties.stage_table import StageProgress as StageProgress
from testbed.parties.stage_table import StageTable as StageTable
from testbed.parties.stage_table import Transition as Transition
from testbed.randomness import Randomness
from testbed.workload.client_algorithm import STATELESS, ClientAlgorithm
from testbed.workload.client_states import ClientStates
from testbed.workload.contract import LocalUpdate, Workload

Method = TypeVar("Method", bound=Callable[..., Message | None])


@dataclass(kw_only=True)
class Environment:
    """The settings that all clients of a host share.

    Attributes:
        population: number of clients n.
        randomness: the experiment's randomness.
        compute: cost model that turns work into seconds.
        directory: the PKI's bulletin board.
        workload: the training task; None if the run needs no training.
        experiment_id: 16 bytes that identify the experiment in signatures and random draws.
        participants_are_agreed: clients must have verified the participant list (Lotto) before they aggregate.
        clients_decide: each client decides in selection whether it takes part; a client that does not never trains.
        rounds: the experiment's number of rounds. It limits round numbers, as a server could otherwise search for a
            number that favours its clients.
        minimum_participants: clients refuse to sum over fewer participants; an honest server has no such rounds.
        maximum_participants: clients refuse to sum over more participants; an honest server has no such rounds.
        batches: groups of clients with updates that may only be summed together, if selection uses batches and clients
            know them before the first round.
        client_rate: probability with which each available client takes part in a round, if clients are drawn
            independently.
        reports_training: whether clients report their mean loss and their number of samples.
        symbolic_masks: whether masks stay seeds until they are read (`testbed.network.masked_vectors`).
        derives_identities: whether clients' keys are derived from the seed (`testbed.parties.derived_keys`).
        results: memo of pure functions that several parties evaluate (`testbed.crypto.memo`); None: no memo.
        client_algorithm: local training algorithm, with the state that clients keep from round to round.
        client_states: the clients' states; None if clients keep none.
        participation: limits that clients put on their own participation; None: no limits.
        pinned_batches: the batches that clients keep from their first round on; None: clients pin no batches.
    """

    population: int
    randomness: Randomness
    compute: ComputeModel
    directory: Directory
    workload: Workload | None = None
    experiment_id: bytes = bytes(16)
    participants_are_agreed: bool = False
    clients_decide: bool = False
    minimum_participants: int = 2
    maximum_participants: int = 2**40
    rounds: int = 2**40
    batches: Batches | None = None
    client_rate: float | None = None
    reports_training: bool = True
    symbolic_masks: bool = False
    derives_identities: bool = False
    results: Memo | None = None
    client_algorithm: ClientAlgorithm = STATELESS
    client_states: ClientStates | None = None
    participation: OwnParticipation | None = None
    pinned_batches: PinnedBatches | None = None

    def look_up(self, clients: Iterable[int]) -> Directory:
        """Query the PKI for the keys of `clients`; the asking client is charged for the bytes."""
        numbers = list(clients)
        # Only the number of keys decides the size of the answer, so the keys themselves need not be encoded.
        meter_pki(bytes_up=len(encode(Lookup(numbers))), bytes_down=_entries_bytes(len(numbers)))
        return self.directory


@cache
def _entries_bytes(count: int) -> int:
    return len(encode(Entries([bytes(64)] * count)))


class Client:
    """One logical client.

    Attributes:
        number: 0..n-1.
        environment: the settings shared by all clients of the host.
        identity: its key pairs; None if no protocol of the run needs them.
        last_round: the highest round number for which it took part in selection; it refuses lower and equal numbers.
        last_announced: the last announced round that it has heard of, or knows to have missed.
        last_served: the highest round number in which it served on a committee; it refuses to serve in earlier rounds.
        local_update: its update of this round.
        agreed_participants: verified signing keys of this round's participants; None: nothing to verify.
        round_batches: the batches that the server has announced in this round; None: it has announced none.
        takes_part: its decision to take part in this round; None: it was not asked, or does not decide.
        attacks: actions of a malicious client since its last answer, one line each, for the records.
        prepared: data that `Role.prepare` has stored for it.
    """

    __slots__ = (
        "_roles",
        "agreed_participants",
        "attacks",
        "environment",
        "identity",
        "last_announced",
        "last_round",
        "last_served",
        "local_update",
        "number",
        "prepared",
        "round_batches",
        "takes_part",
    )

    def __init__(self, number: int, environment: Environment, last_round: int = 0) -> None:
        self.number = number
        self.environment = environment
        self.identity: Identity | None = None
        self.last_round = self.last_announced = self.last_served = last_round
        self._roles: dict[type[Role], Role] = {}
        self.forget_round()

    def forget_round(self) -> None:
        """Drop everything that belongs to one round."""
        # The `last_...` numbers stay: with them a client refuses a server that repeats or reopens an earlier round.
        self._roles.clear()
        self.local_update: LocalUpdate | None = None
        self.agreed_participants: dict[int, bytes] | None = None
        self.round_batches: Batches | None = None
        self.takes_part: bool | None = None
        self.attacks: list[str] = []
        self.prepared: object = None

    @property
    def batches(self) -> Batches | None:
        """The batches by which this client checks sums; None: any clients may be summed."""
        return self.environment.batches if self.round_batches is None else self.round_batches

    def role(self, kind: "type[Role]", parameters: Any) -> "Role":
        """Return this round's instance of a role."""
        role = self._roles.get(kind)
        if role is None:
            role = self._roles[kind] = kind(self, parameters)
        return role


@runtime_checkable
class _Handler(Protocol):
    """A method that `handles` has marked."""

    _handles: tuple[type[Message], bool]


def handles(kind: type[Message], *, stateless: bool = False) -> Callable[[Method], Method]:
    """Mark a method of a `Role` as the handler of messages of type `kind`.

    The method gets `(self, message)`, or `(self, message, private)` if the message type has a private part. It
    returns the answer, or None to stay silent.

    Args:
        kind: type of the question.
        stateless: all clients answer the same and keep no state; the handler is then a static method of `(environment,
            message)`, called once for all clients of a host.

    Returns:
        The decorator.

    Example:
        >>> class AskScore(Message, frozen=True):
        ...     pass
        >>> class Score(Message, frozen=True):
        ...     samples: int
        >>> class Scoring(Role):
        ...     @handles(AskScore)
        ...     def on_ask_score(self, message):
        ...         return Score(120)
        >>> Scoring.questions == (AskScore,)
        True
    """

    def mark(method: Method) -> Method:
        method._handles = (kind, stateless)  # type: ignore[attr-defined]  # an attribute goes along where a class is pickled by value
        return method

    return mark


class Role:
    """The client side of one protocol, for one client and one round.

    A protocol that builds on another one declares the questions that its clients answer: ``class SecAggPlusClient(
    SecAggClient, answers=(...))``. Clients give the refusal ``message.unexpected-type`` to all other questions, even if
    a handler is inherited: it would find no state of its own protocol.

    Args:
        client: the client that plays the role.
        parameters: the protocol's parameter object from the experiment.

    Attributes:
        questions: the types of messages that are answered.

    Example:
        >>> class AskNumber(Message, frozen=True):
        ...     pass
        >>> class Number(Message, frozen=True):
        ...     number: int
        >>> class Numbered(Role):
        ...     @handles(AskNumber)
        ...     def on_ask_number(self, message):
        ...         return Number(self.client.number)
        >>> environment = Environment(
        ...     population=9, randomness=Randomness(7), compute=ComputeModel(False, {}), directory=Directory.empty(9)
        ... )
        >>> Client(4, environment).role(Numbered, None).on_ask_number(AskNumber())
        Number(number=4)
    """

    questions: ClassVar[tuple[type[Message], ...]] = ()
    _handlers: ClassVar[dict[type[Message], tuple[str, bool]]] = {}
    _declared: ClassVar[tuple[type[Message], ...] | None] = None

    def __init_subclass__(cls, answers: Iterable[type[Message]] | None = None, **more: Any) -> None:
        """Collect the handlers; raises `TypeError` if it is not clear which questions are answered."""
        super().__init_subclass__(**more)
        cls._declared = None if answers is None else tuple(answers)
        handlers: dict[type[Message], tuple[str, bool]] = {}
        # From the base down, so that the handler of a misbehaviour replaces the honest one.
        for ancestor in reversed(cls.__mro__):
            handlers |= _marked(ancestor)
        answered = _answered(cls)
        if without := [kind.__name__ for kind in answered or () if kind not in handlers]:
            raise TypeError(f"{cls.__name__}: answers: no handler of {', '.join(without)}")
        cls._handlers = {kind: how for kind, how in handlers.items() if answered is None or kind in answered}
        cls.questions = tuple(cls._handlers)
        added = [kind.__name__ for kind in _marked(cls) if not any(kind in base._handlers for base in _roles(cls)[1:])]
        # Either choice can be wrong here: the new questions extend the inherited protocol, or they replace it.
        if answers is None and added and any(base._handlers for base in _roles(cls)[1:]):
            raise TypeError(
                f"{cls.__name__}: handles {', '.join(added)} in addition to inherited questions; declare the questions "
                f"that it answers: class {cls.__name__}(..., answers=(...))"
            )

    def __init__(self, client: Client, parameters: Any) -> None:
        self.client = client
        self.parameters = parameters
        self.environment = client.environment

    @classmethod
    def shared_answer_predicate(
        cls, message: Message, parameters: Any, environment: Environment
    ) -> Callable[[bytes, bytes], bool] | None:
        """Return a predicate of clients in equal states; all clients for which it holds give the same answer.

        The host then computes the answer once for all of them. The answer depends on a number drawn with a client's
        key, so the predicate takes the client's VRF seed and public key.

        Args:
            message: the question.
            parameters: parameters of the role's instances.
            environment: settings shared by the clients.

        Returns:
            The predicate; None if answers cannot be predicted, as for classes that override a handler.
        """
        return None

    @classmethod
    def prepare(cls, environment: Environment, clients: Iterable[Client], question: Message) -> None:
        """Prepare work that is faster for all asked clients of a host together, before each of them answers.

        Results go into `Client.prepared`, and must not change any answer. No work is metered here: clients are charged
        for their own work when they answer.

        Args:
            environment: settings shared by the clients.
            clients: the clients that are asked; each is created when it is iterated over.
            question: the same object that the handlers get.
        """


def _marked(of: type) -> dict[type[Message], tuple[str, bool]]:
    """Return the handlers that a class defines itself: by message type, the name and whether it is stateless."""
    handlers = {}
    for name, member in vars(of).items():
        method = member.__func__ if isinstance(member, staticmethod) else member
        if isinstance(method, _Handler):
            kind, stateless = method._handles
            handlers[kind] = (name, stateless)
    return handlers


def _roles(of: type[Role]) -> list[type[Role]]:
    return [base for base in of.__mro__ if issubclass(base, Role)]


def _answered(of: type[Role]) -> set[type[Message]] | None:
    """Return the questions declared by the nearest class with a declaration, and those handled below it.

    None if no class has a declaration.
    """
    answered: set[type[Message]] = set()
    for base in _roles(of):
        if base._declared is not None and "_declared" in vars(base):
            return answered | set(base._declared)
        answered |= _marked(base).keys()
    return None


@dataclass(frozen=True)
class RoleSpec:
    """A role, and the clients that play it.

    Attributes:
        role: the class.
        parameters: parameters of its instances.
        only: the clients that play it, instead of an earlier role for the same messages; None: all clients.

    Example:
        >>> class Honest(Role): ...
        >>> class Dishonest(Honest): ...
        >>> specs = [RoleSpec(Honest, None), RoleSpec(Dishonest, None, only=frozenset({3}))]
        >>> [spec.role.__name__ for spec in specs if spec.only is None or 3 in spec.only]
        ['Honest', 'Dishonest']
    """

    role: type[Role]
    parameters: Any
    only: frozenset[int] | None = None
