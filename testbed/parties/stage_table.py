"""Tables of the questions that a client answers in each state of a protocol.

A `StageTable` lists the questions that a client answers in each state, and the state that follows. Two rules hold, as
in h11's `_state.py`. A question is answered only in the source states of its row. A client that has refused a question
answers no more in that round, unless the row names another state. A server that could ask twice, or continue after a
refusal, could collect answers that no honest run gives together. States are strings local to the table. An excerpt of
`secagg`:

    STAGES = StageTable(
        start="new",
        rows={
            AdvertiseKeys: Transition(
                sources={"new"}, target="advertised", refusal="secagg.out-of-order", starts_round=True
            ),
            ShareKeys: Transition(sources={"advertised"}, target="shared", refusal="secagg.out-of-order"),
        },
    )

    class SecAggClient(Role):
        def __init__(self, client: Client, parameters: SecAggParameters) -> None:
            super().__init__(client, parameters)
            self.progress = STAGES.progress()

        @handles(ShareKeys)
        def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
            with self.progress.answering(message, message.round):
                ...  # a `Refusal` in here is the client's last answer in this round

A protocol that builds on another one extends its table: ``STAGES.extended({...})``. If a client may hear of several
rounds, the table maps each state to the state in the new round: `StageTable.new_round`.
"""

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from testbed.errors import Refusal
from testbed.messages import Message

REFUSED = "refused"
"""The state after a refusal, unless the row names another one; no row of an honest client has it as a source."""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """The transition of a client's state by one question.

    Attributes:
        sources: the states in which the question is answered.
        target: the state after the answer; None: the question changes no state, answered or refused.
        refusal: refusal code in all other states.
        detail: text of the refusal; ``{round}`` is the round of the question.
        starts_round: whether the question starts the protocol's round; all other questions must be of that round.
        other_round: code and detail of the refusal of a question of another round; None: as in other states.
        target_on_refusal: the state after a failed check.
    """

    sources: Set[str]
    target: str | None
    refusal: str
    detail: str = "round {round}: unexpected question in this state"
    starts_round: bool = False
    other_round: tuple[str, str] | None = None
    target_on_refusal: str = REFUSED


@dataclass(frozen=True)
class StageTable:
    """The questions that a client of one protocol answers in each state.

    Attributes:
        start: the initial state.
        rows: transitions by type of question.
        new_round: the state in a new round by the state in the old round, if no row starts rounds.

    Example:
        >>> class Begin(Message, frozen=True):
        ...     round: int
        >>> begun = Transition(sources={"new"}, target="begun", refusal="mine.out-of-order", starts_round=True)
        >>> progress = StageTable(start="new", rows={Begin: begun}).progress()
        >>> with progress.answering(Begin(1), 1):
        ...     pass  # make the answer
        >>> progress.state
        'begun'
        >>> progress.check(Begin(1), 1)
        Traceback (most recent call last):
        testbed.errors.Refusal: mine.out-of-order: round 1: unexpected question in this state
    """

    start: str
    rows: Mapping[type[Message], Transition] = field(default_factory=dict)
    new_round: Mapping[str, str] = field(default_factory=dict)

    def extended(self, rows: Mapping[type[Message], Transition]) -> "StageTable":
        """Return the table with more rows, or with other rows for the same questions."""
        return replace(self, rows={**self.rows, **rows})

    def progress(self) -> "StageProgress":
        """Return the initial state of a client that has not been asked anything."""
        return StageProgress(self)


class StageProgress:
    """The state of one client in one round.

    Attributes:
        state: the state after its last answer.
        round: the round that has begun; None before.
    """

    def __init__(self, table: StageTable) -> None:
        self._table = table
        self.state = table.start
        self.round: int | None = None

    def begin(self, round_number: int) -> None:
        """Begin a round whose number the caller has checked."""
        self.state, self.round = self._table.new_round[self.state], round_number

    def check_round(self, message: Message, round_number: int) -> Transition:
        """Return the row of a question; raises `Refusal` unless it is of the current round. Nothing changes."""
        row = self._table.rows[type(message)]
        # Stops a server that puts a question of another round into this one, to combine the answers of two rounds.
        if not row.starts_round and round_number != self.round:
            check, detail = row.other_round or (row.refusal, row.detail)
            raise Refusal(check, detail.format(round=round_number))
        return row

    def check(self, message: Message, round_number: int) -> Transition:
        """Return the row of a question of this round; raises `Refusal` if no answer is allowed now. Nothing changes."""
        row = self.check_round(message, round_number)
        # Stops a server that asks twice, or goes on after a refusal, to get answers that no honest run gives together.
        if self.state not in row.sources:
            raise Refusal(row.refusal, row.detail.format(round=round_number))
        return row

    @contextmanager
    def answering(self, message: Message, round_number: int) -> Iterator[None]:
        """Answer a question: move to the row's target, or to its `target_on_refusal` if a check inside fails."""
        row = self.check(message, round_number)
        self.round = round_number
        # Before the handler runs: after any exception in it, the client counts as having refused.
        if row.target is not None:
            self.state = row.target_on_refusal
        yield
        # Reached only if the handler has raised nothing.
        if row.target is not None:
            self.state = row.target
