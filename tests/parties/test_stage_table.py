"""The table of a client's stages: each question in its states, in one round, and the state after a refusal."""

import pytest

from testbed.errors import Refusal
from testbed.messages import Message
from testbed.parties.client import StageProgress, StageTable, Transition
from tests.messages_named import naming


class Begin(Message, frozen=True):
    """The first question."""


class Continue(Message, frozen=True):
    """The one after it."""


class Repeat(Message, frozen=True):
    """May be asked again and again, once all is done."""


TABLE = StageTable(
    start="new",
    rows={
        Begin: Transition(sources={"new"}, target="begun", refusal="p.begun", starts_round=True),
        Continue: Transition(
            sources={"begun"}, target="done", refusal="p.out-of-order", detail="round {round} is not due"
        ),
    },
)


def begun() -> StageProgress:
    progress = TABLE.progress()
    with progress.answering(Begin(), 3):
        assert progress.round == 3
    return progress


def test_questions_come_once_and_in_order() -> None:
    progress = begun()
    with progress.answering(Continue(), 3):
        pass
    assert progress.state == "done"
    for question, check in ((Begin(), "p.begun"), (Continue(), "p.out-of-order")):
        with pytest.raises(Refusal) as refused:
            progress.check(question, 3)
        assert refused.value.check == check


def test_all_are_of_the_round_that_was_begun() -> None:
    with pytest.raises(Refusal, match=naming("round 4")):
        begun().check(Continue(), 4)
    with pytest.raises(Refusal, match=naming("round 3")):
        TABLE.progress().check(Continue(), 3)


def test_nothing_is_answered_after_a_refusal() -> None:
    progress = begun()
    with pytest.raises(Refusal, match="forged"), progress.answering(Continue(), 3):
        raise Refusal("p.forged", "forged")
    with pytest.raises(Refusal, match=naming("round 3")):
        progress.check(Continue(), 3)


def test_a_question_out_of_order_leaves_the_client_where_it_was() -> None:
    progress = TABLE.progress()
    with pytest.raises(Refusal), progress.answering(Continue(), 3):
        pass
    assert progress.state == "new"


def test_a_protocol_that_is_built_upon_another_has_more_rows() -> None:
    progress = TABLE.extended({Repeat: Transition(sources={"begun"}, target="begun", refusal="p.nothing")}).progress()
    with progress.answering(Begin(), 3):
        pass
    for _ in range(2):
        with progress.answering(Repeat(), 3):
            pass
    assert Repeat not in TABLE.rows


ROUNDS = StageTable(
    start="new",
    new_round={"new": "begun", "begun": "begun", "shown": "over", "over": "over"},
    rows={
        Continue: Transition(
            sources={"begun"},
            target="shown",
            target_on_refusal="over",
            refusal="p.again",
            detail="{round} again",
            other_round=("p.no-round", "{round} has not begun"),
        ),
        Repeat: Transition(sources={"begun", "shown"}, target=None, refusal="p.nothing"),
    },
)


def refused(progress: StageProgress, question: Message, round_number: int) -> str:
    with pytest.raises(Refusal) as refusal:
        progress.check(question, round_number)
    return f"{refusal.value.check}: {refusal.value.detail}"


def in_round(number: int) -> StageProgress:
    progress = ROUNDS.progress()
    progress.begin(number)
    return progress


def test_another_round_is_refused_by_its_own_name() -> None:
    assert refused(ROUNDS.progress(), Continue(), 1) == "p.no-round: 1 has not begun"
    progress = in_round(1)
    assert refused(progress, Continue(), 2) == "p.no-round: 2 has not begun"
    with progress.answering(Continue(), 1):
        pass
    assert refused(progress, Continue(), 1) == "p.again: 1 again"
    assert progress.check_round(Continue(), 1) is ROUNDS.rows[Continue]


def test_a_refusal_leaves_the_client_where_the_row_says() -> None:
    progress = in_round(1)
    with pytest.raises(Refusal, match="forged"), progress.answering(Continue(), 1):
        raise Refusal("p.forged", "forged")
    assert progress.state == "over"
    assert refused(progress, Repeat(), 1).startswith("p.nothing")


def test_a_question_that_changes_nothing_may_be_refused_and_asked_again() -> None:
    progress = in_round(1)
    with pytest.raises(Refusal, match="forged"), progress.answering(Repeat(), 1):
        raise Refusal("p.forged", "forged")
    for _ in range(2):
        with progress.answering(Repeat(), 1):
            pass
    assert progress.state == "begun"


def test_a_new_round_leaves_the_client_where_the_table_says() -> None:
    progress = in_round(1)
    progress.begin(2)
    with progress.answering(Continue(), 2):
        pass
    progress.begin(3)
    assert (progress.state, progress.round) == ("over", 3)
    assert refused(progress, Continue(), 3) == "p.again: 3 again"
