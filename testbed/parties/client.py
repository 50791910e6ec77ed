"""A logical client: its keys, and the roles it plays in the protocols.

A `Role` is the client side of one protocol: a set of handlers, one per message type. Role state lives for one round.
A misbehaving client has some handlers overridden: a subclass of the role, given to chosen clients by `RoleSpec.only`.

Which question a client answers in which state, and what comes next, is a table: a `StageTable`. Two rules, as in h11's
`_state.py`: a question is answered in the states that its row names and in no other, and a client that has refused one
answers no more in that round, unless the row says what else. Whoever could ask again, or go on after a refusal, could
have answers that no honest run gives together. States are words that only the table knows. `secagg` has, in short:

    STAGES = StageTable(
        start="new",
        rows={
            AdvertiseKeys: Row(after={"new"}, target="advertised", refusal="secagg.out-of-order", starts_round=True),
            ShareKeys: Row(after={"advertised"}, target="shared", refusal="secagg.out-of-order"),
        },
    )

    class SecAggClient(Role):
        def __init__(self, client: Client, parameters: SecAggParameters) -> None:
            super().__init__(client, parameters)
            self.progress = STAGES.progress()

        @handles(ShareKeys)
        def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
            with self.progress.answering(message, message.round):
                ...  # a `Refusal` in here is the last thing that the client says in this round

A protocol that is built upon another one has the other's rows and some more: ``STAGES.extended({...})``. One in which a
client may hear of several rounds says what a new one makes of each state: `StageTable.new_round`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from testbed.batches import Batches
from testbed.crypto.memo import Memo
from testbed.emulation.compute.cost import ComputeModel, meter_pki
from testbed.errors import Refusal
from testbed.messages import Message, encode
from testbed.parties.participation import OwnParticipation
from testbed.parties.pki import Directory, Entries, Identity, Lookup
from testbed.randomness import Randomness
from testbed.workload.client_algorithm import STATELESS, ClientAlgorithm
from testbed.workload.client_states import ClientStates
from testbed.workload.contract import LocalUpdate, Workload

Method = TypeVar("Method", bound=Callable[..., Message | None])


@dataclass(kw_only=True)
class Environment:
    """What all clients of a host share.

    Attributes:
        population: number of clients n.
        randomness: the experiment's.
        compute: how work becomes seconds.
        directory: the PKI's bulletin board.
        workload: what clients train on; None when a run needs no training.
        experiment_id: 16 bytes that tell this experiment from others; in what is signed and drawn on.
        participants_are_agreed: clients must have verified the participant list (Lotto) before they aggregate.
        clients_decide: each client has decided in selection whether it takes part; one that does not never trains.
        rounds: the experiment's; a server that could name any later number could look for one that favours its clients.
        minimum_participants, maximum_participants: an honest server has no other rounds: clients refuse to sum.
        batches: groups of clients whose updates may only be summed together, where selection works with such.
        client_rate: probability with which each available client takes part in a round, where that is independent.
        reports_training: whether clients say what their mean loss was, and how many samples they have.
        symbolic_masks: whether masks stay seeds until somebody looks (`testbed.network.masked_vectors`).
        derives_identities: whether clients have keys that follow from the seed (`testbed.parties.derived_keys`).
        results: of pure functions that several parties here need (`testbed.crypto.memo`); None: not memo.
        client_algorithm: how clients train, and what they keep from round to round.
        client_states: the kept arrays; None where clients keep nothing.
        participation: what each insists on about its own rounds; None: it takes part whenever it is asked.
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

    def look_up(self, clients: Iterable[int]) -> Directory:
        """Query the PKI for the keys of `clients`; the asking client pays for the bytes."""
        asked = list(clients)
        meter_pki(bytes_up=len(encode(Lookup(asked))), bytes_down=_entries_bytes(len(asked)))
        return self.directory


@cache
def _entries_bytes(count: int) -> int:
    return len(encode(Entries([bytes(64)] * count)))


class Client:
    """One logical client.

    Attributes:
        number: 0..n-1.
        identity: its key pairs; None when no protocol of the run needs them.
        last_round: the highest round number it has taken part in selecting for; a lower or equal one is refused.
        last_announced: the last announced round that it has heard of, or knows that it has missed.
        last_served: the highest round number in which it has served others, on a committee: in no earlier one again.
        local_update: what it has learned this round.
        agreed_participants: this round's participants' signing keys as it has verified them; None: nothing to verify.
        takes_part: whether it has decided to, in this round; None: it was not asked, or is not the one to decide.
        attacks: what a dishonest client has done since its last answer, one line each, for the records.
        prepared: what `Role.prepare` has left for it.
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
        self._roles.clear()
        self.local_update: LocalUpdate | None = None
        self.agreed_participants: dict[int, bytes] | None = None
        self.takes_part: bool | None = None
        self.attacks: list[str] = []
        self.prepared: object = None

    def role(self, kind: "type[Role]", parameters: Any) -> "Role":
        """This round's instance of a role."""
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

    The method gets `(self, message)`, or `(self, message, private)` when the message type has a private part, and
    returns the answer, or None to stay silent. With `stateless`, all clients answer the same and have nothing to
    remember: a static method of `(environment, message)`, called once for all clients of a host.
    """

    def mark(method: Method) -> Method:
        method._handles = (kind, stateless)  # type: ignore[attr-defined]  # an attribute goes along where a class is pickled by value
        return method

    return mark


class Role:
    """The client side of one protocol, for one client and one round.

    A protocol that is built upon another one says which questions its clients answer: ``class SecAggPlusClient(
    SecAggClient, answers=(...))``. To all others they give the refusal ``message.other-protocol``, though they inherit
    handlers: a handler of another protocol would find no state of its own.

    Args:
        client: who plays it.
        parameters: the protocol's parameter object from the experiment.

    Attributes:
        questions: the types of messages that are answered.
    """

    questions: ClassVar[tuple[type[Message], ...]] = ()
    _handlers: ClassVar[dict[type[Message], tuple[str, bool]]] = {}
    _declared: ClassVar[tuple[type[Message], ...] | None] = None

    def __init_subclass__(cls, answers: Iterable[type[Message]] | None = None, **more: Any) -> None:
        """Collect the handlers; raises `TypeError` unless it is clear which questions are answered."""
        super().__init_subclass__(**more)
        cls._declared = None if answers is None else tuple(answers)
        found: dict[type[Message], tuple[str, bool]] = {}
        for ancestor in reversed(cls.__mro__):
            found |= _marked(ancestor)
        answered = _answered(cls)
        if without := [kind.__name__ for kind in answered or () if kind not in found]:
            raise TypeError(f"{cls.__name__}: answers: no handler of {', '.join(without)}")
        cls._handlers = {kind: how for kind, how in found.items() if answered is None or kind in answered}
        cls.questions = tuple(cls._handlers)
        added = [kind.__name__ for kind in _marked(cls) if not any(kind in base._handlers for base in _roles(cls)[1:])]
        if answers is None and added and any(base._handlers for base in _roles(cls)[1:]):
            raise TypeError(
                f"{cls.__name__}: handles {', '.join(added)} beside what it inherits; say which questions it answers: "
                f"class {cls.__name__}(..., answers=(...))"
            )

    def __init__(self, client: Client, parameters: Any) -> None:
        self.client = client
        self.parameters = parameters
        self.environment = client.environment

    @classmethod
    def shared_answer_predicate(
        cls, message: Message, parameters: Any, environment: Environment
    ) -> Callable[[bytes, bytes], bool] | None:
        """A test of clients that stand at the same place: for whom it is true, they all answer the same.

        The host then lets one of them answer for all. A number that is drawn with a key decides, so that is what the
        test is given: a client's VRF seed and public key.

        Args:
            message: the question.
            parameters: what an instance gets.
            environment: what the clients share.

        Returns:
            The test; None: of no client can it be said beforehand, as of those of a class that overrides anything.
        """
        return None

    @classmethod
    def prepare(cls, environment: Environment, clients: Iterable[Client], question: Message) -> None:
        """Before clients of a host answer a question, one after the other: what is better begun for all of them.
        It is left in `Client.prepared`, and changes no answer. No work is metered here: clients are charged for their
        own when they answer.

        Args:
            environment: what they share.
            clients: those that are asked; made when they are first looked at.
            question: the same object that the handlers get.
        """


def _marked(of: type) -> dict[type[Message], tuple[str, bool]]:
    """The handlers that a class itself has: the name of each, and whether it is stateless."""
    found = {}
    for name, member in vars(of).items():
        method = member.__func__ if isinstance(member, staticmethod) else member
        if isinstance(method, _Handler):
            kind, stateless = method._handles
            found[kind] = (name, stateless)
    return found


def _roles(of: type[Role]) -> list[type[Role]]:
    return [one for one in of.__mro__ if issubclass(one, Role)]


def _answered(of: type[Role]) -> set[type[Message]] | None:
    """What the nearest class says that says it, and what those handle that are derived from it; None: nobody says."""
    answered: set[type[Message]] = set()
    for one in _roles(of):
        if one._declared is not None and "_declared" in vars(one):
            return answered | set(one._declared)
        answered |= _marked(one).keys()
    return None


@dataclass(frozen=True)
class RoleSpec:
    """A role and who plays it.

    Attributes:
        role: the class.
        parameters: what its instances get.
        only: these clients alone (they play it instead of an earlier role for the same messages); None: all.
    """

    role: type[Role]
    parameters: Any
    only: frozenset[int] | None = None


# -- where a client stands in a protocol -------------------------------------------------------------------------------


REFUSED = "refused"
"""Where a refusal leaves a client, if its row says nothing else: no honest client's row comes after it."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """What a client does with one question.

    Attributes:
        sources: the states in which the question is answered.
        target: the state after the answer; None: the question changes no state, answered or refused.
        refusal: what the refusal is called in all other states.
        detail: what the refusal says; ``{round}`` is the round that was asked about.
        starts_round: whether it begins the protocol's round; all others must be of the round that was begun.
        other_round: check and detail of the refusal in another round than that; None: as in other states.
        target_on_refusal: the state in which a check that fails leaves the client.
    """

    sources: Set[str]
    target: str | None
    refusal: str
    detail: str = "round {round}: not what comes next"
    starts_round: bool = False
    other_round: tuple[str, str] | None = None
    target_on_refusal: str = REFUSED


@dataclass(frozen=True)
class StageTable:
    """The rows of one protocol.

    Attributes:
        start: the state of a client that nobody has asked anything.
        rows: by type of question.
        new_round: by state, the one in which a new round finds the client, where it is no row that begins a round.
    """

    start: str
    rows: Mapping[type[Message], Transition] = field(default_factory=dict)
    new_round: Mapping[str, str] = field(default_factory=dict)

    def extended(self, rows: Mapping[type[Message], Transition]) -> "StageTable":
        """The table with more rows, or with others for the same questions."""
        return replace(self, rows={**self.rows, **rows})

    def progress(self) -> "StageProgress":
        """Where a client stands that nobody has asked anything."""
        return StageProgress(self)


class StageProgress:
    """Where one client stands in one round.

    Attributes:
        state: what its last answer has left it in.
        round: the round that has begun; None before.
    """

    def __init__(self, table: StageTable) -> None:
        self._table = table
        self.state = table.start
        self.round: int | None = None

    def begin(self, round_number: int) -> None:
        """A round begins, whose number the caller has checked."""
        self.state, self.round = self._table.new_round[self.state], round_number

    def check_round(self, message: Message, round_number: int) -> Transition:
        """The row of a question; raises `Refusal` unless it is of the round that has begun. Nothing changes."""
        row = self._table.rows[type(message)]
        if not row.starts_round and round_number != self.round:
            check, detail = row.other_round or (row.refusal, row.detail)
            raise Refusal(check, detail.format(round=round_number))
        return row

    def check(self, message: Message, round_number: int) -> Transition:
        """The row of a question of this round; raises `Refusal` where it is not to be answered now. Nothing changes."""
        row = self.check_round(message, round_number)
        if self.state not in row.sources:
            raise Refusal(row.refusal, row.detail.format(round=round_number))
        return row

    @contextmanager
    def answering(self, message: Message, round_number: int) -> Iterator[None]:
        """Answer a question: then comes what its row says, or what it says of a refusal if a check fails inside."""
        row = self.check(message, round_number)
        self.round = round_number
        if row.target is not None:
            self.state = row.target_on_refusal
        yield
        if row.target is not None:
            self.state = row.target
