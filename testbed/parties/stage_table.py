"""Where a client stands in a protocol, as a table: which question it answers in which state, and what comes next.

Two rules, as in h11's `_state.py`: a question is answered in the states that its row names and in no other, and a
client that has refused one answers no more in that round, unless the row says what else. Whoever could ask for a stage
again, or go on after a refusal, could have answers that no honest run gives together. The states are words that only
the table knows:

    STAGES = StageTable(
        start="new",
        rows={
            AdvertiseKeys: Row(after={"new"}, then="advertised", check="secagg.out-of-order", begins=True),
            ShareKeys: Row(after={"advertised"}, then="shared", check="secagg.out-of-order"),
            ProveShare: Row(after={"revealed"}, then=None, check="secagg.not-revealed"),
        },
    )

    class SecAggClient(Role):
        def __init__(self, client: Client, parameters: SecAggParameters) -> None:
            super().__init__(client, parameters)
            self._progress = STAGES.progress()

        @handles(ShareKeys)
        def on_share_keys(self, message: ShareKeys) -> SealedForPeers:
            with self._progress.answering(message, message.round):
                ...  # a `Refusal` in here is the last thing that the client says in this round

A protocol that is built upon another one has the other's rows and some more: ``STAGES.extended({...})``. One in which a
client may hear of several rounds says what a new one makes of each state: `StageTable.new_round`.
"""

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from testbed.errors import Refusal
from testbed.messages import Message

REFUSED = "refused"
"""Where a refusal leaves a client, if its row says nothing else: no honest client's row comes after it."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a client does with one question.

    Attributes:
        after: the states in which it is answered.
        then: the state in which the answer leaves the client; None: the question changes nothing, answered or refused.
        check: what the refusal is called in all other states.
        detail: what the refusal says; ``{round}`` is the round that was asked about.
        begins: whether it begins the protocol's round; all others must be of the round that was begun.
        other_round: check and detail of the refusal in another round than that; None: as in other states.
        on_refusal: the state in which a check that fails leaves the client.
    """

    after: Set[str]
    then: str | None
    check: str
    detail: str = "round {round}: not what comes next"
    begins: bool = False
    other_round: tuple[str, str] | None = None
    on_refusal: str = REFUSED


@dataclass(frozen=True)
class StageTable:
    """The rows of one protocol.

    Attributes:
        start: the state of a client that nobody has asked anything.
        rows: by type of question.
        new_round: by state, the one in which a new round finds the client, where it is no row that begins a round.
    """

    start: str
    rows: Mapping[type[Message], Row] = field(default_factory=dict)
    new_round: Mapping[str, str] = field(default_factory=dict)

    def extended(self, rows: Mapping[type[Message], Row]) -> "StageTable":
        """The table with more rows, or with others for the same questions."""
        return replace(self, rows={**self.rows, **rows})

    def progress(self) -> "Progress":
        """Where a client stands that nobody has asked anything."""
        return Progress(self)


class Progress:
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

    def check_round(self, message: Message, round_number: int) -> Row:
        """The row of a question; raises `Refusal` unless it is of the round that has begun. Nothing changes."""
        row = self._table.rows[type(message)]
        if not row.begins and round_number != self.round:
            check, detail = row.other_round or (row.check, row.detail)
            raise Refusal(check, detail.format(round=round_number))
        return row

    def check(self, message: Message, round_number: int) -> Row:
        """The row of a question of this round; raises `Refusal` where it is not to be answered now. Nothing changes."""
        row = self.check_round(message, round_number)
        if self.state not in row.after:
            raise Refusal(row.check, row.detail.format(round=round_number))
        return row

    @contextmanager
    def answering(self, message: Message, round_number: int) -> Iterator[None]:
        """Answer a question: then comes what its row says, or what it says of a refusal if a check fails inside."""
        row = self.check(message, round_number)
        self.round = round_number
        if row.then is not None:
            self.state = row.on_refusal
        yield
        if row.then is not None:
            self.state = row.then
