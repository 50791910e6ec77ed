"""One whole stage against a server that lives through it event by event, in rational numbers.

The oracle knows the rules of docs/explanation/time.md and none of the code's ways: transfers move by textbook
water-filling from event to event; the server hears of answers and departures in the order in which they happen and
decides after each whether it goes on; then everything is played again, up to that moment.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from testbed.messages import RefusalNotice, encode
from tests.network import emulated
from tests.thoroughness import examples

NEVER = Fraction(10**12)
NEAR = Fraction(1, 10**7)  # seconds; decisions as close as that are rounding's
SMALL = Fraction(1, 1000)  # bytes
PIECE = 4096  # bytes per second: the unit of all rates


class Undecided(Exception):
    """Two moments are so close that rounding decides which is first."""


def decided(is_so: bool) -> None:
    if not is_so:
        raise Undecided


@dataclass(frozen=True)
class Client:
    """A client with times in 1/8 s and rates in units of `PIECE`; its action is a name."""

    down: int = 1
    up: int = 1
    latency: int = 0
    compute: int = 0
    private: int = 0  # bytes
    leaves: int | None = None
    does: str = "answers"  # or "refuses", "is silent", "drops", "is away"


@dataclass(frozen=True)
class Case:
    clients: tuple[Client, ...]
    server_up: int | None  # None: never a bottleneck
    server_down: int | None
    question: int
    answer: int
    deadline: int
    quorum: int | None = None
    visible: bool = False


def eighths(number: int | None) -> Fraction:
    return NEVER if number is None else Fraction(number, 8)


@dataclass
class Move:
    """A message on the server's link, at the server's time."""

    start: Fraction
    size: int
    cap: Fraction
    stop: Fraction


def carried(moves: list[Move], capacity: Fraction) -> list[tuple[Fraction | None, Fraction]]:
    """(when complete, bytes) of each, by water-filling from event to event."""
    left, now = [Fraction(move.size) for move in moves], Fraction(0)
    finish: list[Fraction | None] = [None] * len(moves)
    while True:
        active = [i for i, move in enumerate(moves) if move.start <= now < move.stop and left[i]]
        ahead = [moment for move in moves for moment in (move.start, move.stop) if now < moment < NEVER]
        spare, rate = capacity, {}
        for place, i in enumerate(sorted(active, key=lambda i: moves[i].cap)):
            rate[i] = min(moves[i].cap, spare / (len(active) - place))
            spare -= rate[i]
        ahead += [now + left[i] / rate[i] for i in active]
        if not ahead:
            return [(finish[i], moves[i].size - left[i]) for i in range(len(moves))]
        then = min(ahead)
        for i in active:
            left[i] -= rate[i] * (then - now)
            if not left[i]:
                finish[i] = then
        now = then


def played(case: Case, sizes_up: list[int], end: Fraction) -> tuple[list[Any], ...]:
    """When each client is ready, when its answer has arrived, and the bytes both ways, if everything stops at `end`."""
    people = case.clients
    speaking = [person.does in ("answers", "refuses") for person in people]

    def capacity(units: int | None) -> Fraction:
        return NEVER if units is None else Fraction(units * PIECE)

    down = carried(
        [
            Move(
                NEVER if person.does == "is away" else Fraction(0), case.question + person.private,
                Fraction(person.down * PIECE), min(end, eighths(person.leaves) - eighths(person.latency)),
            )
            for person in people
        ],
        capacity(case.server_up),
    )  # fmt: skip
    ready = [
        None if whole is None else whole + eighths(person.latency) + eighths(person.compute)
        for (whole, _), person in zip(down, people, strict=True)
    ]
    up = carried(
        [
            Move(
                NEVER if at is None or not speaks else at + eighths(person.latency), size,
                Fraction(person.up * PIECE), min(end, eighths(person.leaves) + eighths(person.latency)),
            )
            for person, at, speaks, size in zip(people, ready, speaking, sizes_up, strict=True)
        ],
        capacity(case.server_down),
    )  # fmt: skip
    return ready, [when for when, _ in up], [amount for _, amount in down], [amount for _, amount in up]


def expected(case: Case, sizes_up: list[int]) -> tuple[Fraction, list[str], list[Any], list[Any], list[Any]]:
    """(end, outcomes, arrivals, bytes down, bytes up) by the rules."""
    people, last = case.clients, eighths(case.deadline)
    ready, arrival, _, _ = played(case, sizes_up, last)
    for when, at, person in zip(arrival, ready, people, strict=True):
        for moment in (last, eighths(person.leaves), eighths(person.leaves) + eighths(person.latency)):
            decided(when is None or when == moment or abs(when - moment) > NEAR)
            decided(at is None or abs(at - moment) > NEAR)
    happenings = [(when, i, "heard") for i, when in enumerate(arrival) if when is not None]
    for i, person in enumerate(people):
        if arrival[i] is None and person.does not in ("is away", "drops") and eighths(person.leaves) <= last:
            happenings.append((eighths(person.leaves), i, "left"))
    waited_for = set(range(len(people)))
    if case.visible:
        waited_for -= {i for i, person in enumerate(people) if person.does in ("is away", "drops")}
    end, answers, ended_by = last if waited_for else Fraction(0), 0, None
    for when, i, what in sorted(happenings):
        if what == "heard" or case.visible:
            waited_for.discard(i)
        answers += what == "heard" and people[i].does == "answers"
        if not waited_for or (case.quorum is not None and answers >= case.quorum > 0):
            end, ended_by = when, i
            break
    for i, (when, at) in enumerate(zip(arrival, ready, strict=True)):
        decided(at is None or abs(at - end) > NEAR)
        if ended_by is not None and when is not None and abs(when - end) <= NEAR:
            decided(people[i] == people[ended_by])  # for different clients, rounding would decide the order
    outcomes = []
    for i, person in enumerate(people):
        gone = eighths(person.leaves) <= end
        if person.does == "is away":
            outcomes.append("offline")
        elif person.does == "drops":
            outcomes.append("dropped")
        elif person.does == "is silent":
            outcomes.append("dropped" if gone and (ready[i] is None or ready[i] > eighths(person.leaves)) else "silent")
        elif (when := arrival[i]) is not None and when <= end:
            outcomes.append("answered" if person.does == "answers" else "refused")
        else:
            outcomes.append("dropped" if gone and when is None else "late")
    _, _, down, up = played(case, sizes_up, end)
    heard = [
        when if outcome in ("answered", "refused") else None for when, outcome in zip(arrival, outcomes, strict=True)
    ]
    return end, outcomes, heard, down, up


def check(case: Case) -> list[str]:
    """Run the stage in the emulator, compare, and return the outcomes."""
    who = range(len(case.clients))

    def that(what: str) -> tuple[int, ...]:
        return tuple(i for i in who if case.clients[i].does == what)

    def rate(units: int | None) -> float:
        return np.inf if units is None else units * PIECE

    world = emulated.World(
        len(who),
        down=[person.down * PIECE for person in case.clients],
        up=[person.up * PIECE for person in case.clients],
        latency=[person.latency / 8 for person in case.clients],
        server_up=rate(case.server_up),
        server_down=rate(case.server_down),
        factors=[person.compute / 8 for person in case.clients],
        availability=emulated.Everybody(
            {1: set(that("is away"))}, {"question": set(that("drops"))},
            {i: person.leaves / 8 for i, person in enumerate(case.clients) if person.leaves is not None},
            comes_back=True,
        ),
        deadline_s=case.deadline / 8,
        disconnects_visible=case.visible,
    )  # fmt: skip
    question = emulated.question_of_size(
        case.question, seconds=1.0, silent=that("is silent"), refusing=that("refuses"), answer_size=case.answer
    )
    parts = {i: emulated.Secret(bytes(case.clients[i].private)) for i in who}
    (replies,) = world.round(question, private=parts, quorum=case.quorum)
    clients = tuple(replace(person, private=len(encode(parts[i]))) for i, person in enumerate(case.clients))
    refusal = len(encode(RefusalNotice("test.refused", "as asked")))
    sizes_up = [refusal if person.does == "refuses" else case.answer for person in clients]
    end, outcomes, arrivals, down, up = expected(replace(case, clients=clients), sizes_up)
    stage = world.network.exchanges[0]
    assert world.outcomes() == outcomes
    assert replies.ids.tolist() == [i for i in who if outcomes[i] == "answered"]
    assert world.now_s == pytest.approx(float(end), rel=1e-9)
    arrivals_s = [np.nan if when is None else float(when) for when in arrivals]
    np.testing.assert_allclose(stage.received_s, arrivals_s, rtol=1e-9)
    for found, exact in ((stage.bytes_down, down), (stage.bytes_up, up)):
        for got, amount in zip(found.tolist(), exact, strict=True):
            assert amount - 1 - SMALL <= got <= amount + SMALL
    for i in replies.ids.tolist():
        assert (stage.bytes_down[i], stage.bytes_up[i]) == (case.question + clients[i].private, case.answer)
    return outcomes


WHOLE = 8 * PIECE - 3  # a question that is, with an empty private part, exactly a second's bytes of the fastest link
few = st.integers(0, 5)
people = st.builds(
    Client,
    down=st.sampled_from([1, 2, 3, 8]),
    up=st.sampled_from([1, 2, 3, 8]),
    latency=st.sampled_from([0, 0, 1, 3]),
    compute=few,
    private=st.sampled_from([0, 1000, 4000]),
    leaves=st.one_of(st.none(), st.none(), st.integers(1, 40)),
    does=st.sampled_from(["answers"] * 5 + ["refuses", "is silent", "drops", "is away"]),
)
stages = st.builds(
    Case,
    clients=st.lists(people, min_size=1, max_size=6).map(tuple),
    server_up=st.sampled_from([None, 1, 2, 4, 8]),
    server_down=st.sampled_from([None, 1, 2, 4, 8]),
    question=st.integers(300, 8192),
    answer=st.integers(300, 8192),
    deadline=st.one_of(st.just(800), st.integers(1, 50)),
    quorum=st.one_of(st.none(), st.integers(1, 4)),
    visible=st.booleans(),
)


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=stages)
def test_a_stage_follows_the_rules(case: Case) -> None:
    try:
        check(case)
    except Undecided:
        reject()


@pytest.mark.parametrize(
    ("case", "outcomes"),
    [
        # Exactly on time: ready at 1/8 + 1 s, sent in 1 s, arrived 1/8 later; and an eighth too late.
        (Case((Client(8, 1, 1, 8),), None, None, WHOLE, 4096, 26), ["answered"]),
        (Case((Client(8, 1, 1, 8),), None, None, WHOLE, 4096, 25), ["late"]),
        # The last byte is sent just when the client leaves, and counts although it arrives later.
        (Case((Client(8, 1, 1, 8, leaves=25),), None, None, WHOLE, 4096, 40), ["answered"]),
        (Case((Client(8, 1, 1, 8, leaves=24),), None, None, WHOLE, 4096, 40), ["dropped"]),
    ],
)
def test_on_the_dot(case: Case, outcomes: list[str]) -> None:
    assert check(case) == outcomes
