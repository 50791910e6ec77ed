"""Protocols that lack one property: the check of that property fails, with the remedy in its line."""

import re

import pytest

from testbed.conformance import traffic
from testbed.conformance.protocols import PROPERTIES, evidence_of
from testbed.conformance.subjects import subject
from testbed.messages import encode
from tests.conformance import broken

RUN = "Rounds run, and complete without dropouts"
RESULT = "With any dropouts, the result is that of the survivors"
LEFT_OUT = "Updates of clients that are left out have no effect"
SURVIVORS = "Survivors are sorted, distinct participants that trained"
REASONS = "Rounds that end early have a reason"
STAGES = "The declared stages are the stages that are asked"
HONEST = "Honest parties refuse nothing and are accused of nothing"
WHOLE_BATCHES = "Batches are summed as a whole or not at all"
OLD = "Old questions are refused by name and crash no client"
BYTES = "Recorded bytes are the lengths of the encodings"
SEED = "The same seed gives the same bits, on one host and on two"
RESUMED = "A resumed run equals an uninterrupted one"
PARTICIPANTS = "Participants are sorted, distinct, available and not too many"
ENOUGH = "Rounds have at least the participants that clients are promised"
COUNTED = "Participations are counted"
BATCHES = "Batches take part as a whole"


@pytest.mark.parametrize(
    ("kind", "claim", "detail"),
    [
        (broken.CountsDroppedClients, RESULT, "drop out at train: the result is off by"),
        (
            broken.CountsOneTooMany,
            RESULT,
            r"round 1, no dropouts: the result has the weight \d+; the weights",
        ),
        (
            broken.RaisesAtOnce,
            RUN,
            r"AtOnce crashed: ValueError: no such thing \(.*broken.py, line \d+, in __init",
        ),
        (broken.CrashingServer, RUN, r"round 1 crashed: ZeroDivisionError: .*, in aggregate\); --debug prints"),
        (broken.HidesSurvivor, LEFT_OUT, "the update of round"),
        (broken.ListsEverybody, SURVIVORS, "is a survivor but dropped out in training"),
        (broken.MomentumOfItsOwn, RESUMED, "update of round 3 differ after a resumption; store .* in round_.memory"),
        (broken.CountsRoundsOfAllRuns, SEED, "differ between two runs with one seed"),
        (broken.DeclaresTooMuch, STAGES, "mine/confirm is declared in `stages` but asked in none of"),
        (broken.NamelessAbort, REASONS, "with the reason 'Too few clients are left!'"),
        (broken.CrashesOnOldQuestions, OLD, r"crashes on .* \(KeyError.*broken.py:\d+\); raise testbed.Refusal"),
        (broken.NamelessRefusals, OLD, "refuses with the name 'I have trained nothing'; name refusals protocol.check"),
        (broken.RefusesHonestServer, HONEST, "client:3 at plain/update: refusal mine.busy, although all parties are"),
        (broken.BreaksBatches, WHOLE_BATCHES, r"the survivors \[0, 2, 3.* a part of the batch \[0, 1\]"),
        (broken.Unsorted, PARTICIPANTS, "are not sorted and distinct"),
        (broken.AnybodyAtAll, PARTICIPANTS, "was offline; choose among the clients that answer"),
        (broken.TooMany, PARTICIPANTS, "10 participants, but maximum_participants is 9"),
        (broken.TooFew, ENOUGH, "10 participants, but minimum_participants is 11"),
        (broken.TurnsOfItsOwn, RESUMED, "the participants of round 3 differ after a resumption"),
        (broken.LateTurns, RESUMED, "the participants of round 8 differ after a resumption"),
        (
            broken.NoSelection,
            RUN,
            r"the run ended: round 1: select of NoSelection returned nothing; return Selection\(",
        ),
        (broken.ListOfClients, RUN, "ListOfClients returned clients that are no array of whole numbers; return Sel"),
        (
            broken.TellsCandidatesAsBefore,
            RUN,
            r"field 'candidates' \(return Selection\(.*broken.py, line \d+, in select",
        ),
        (broken.ReplacesMemory, RUN, r"field 'memory' \(put arrays into round_.memory by their names instead\)"),
        (broken.NoAggregate, RUN, r"aggregate of NoAggregate returned no Aggregate but ndarray; return Aggregate\("),
        (broken.AsksUndeclared, STAGES, "check-in is asked but not declared"),
        (broken.CountsTwice, COUNTED, "do not change round_.participations"),
        (broken.HalfBatches, BATCHES, "only some members of batch . are participants"),
        (broken.Coin, SEED, r"the participants of round \d differ between two runs"),
    ],
)
def test_a_broken_class_is_caught(kind: type, claim: str, detail: str) -> None:
    checked = subject(f"{broken.__name__}:{kind.__name__}")
    (lacking,) = (one for one in PROPERTIES[checked.section] if one.claim == claim)
    result = lacking.result(evidence_of(checked))
    assert result.verdict == "failed"
    assert re.search(detail, result.detail), result.detail


def test_a_result_that_is_no_weighted_mean_is_not_compared_and_the_line_says_by_how_much() -> None:
    checked = subject(f"{broken.__name__}:{broken.Twice.__name__}")
    (applicable,) = (one for one in PROPERTIES["aggregation"] if one.claim == RESULT)
    result = applicable.result(evidence_of(checked))
    assert result.verdict == "not applicable"
    assert re.search(r"no weighted mean .* it is off by 0\.\d+ from the mean", result.detail)


def test_a_message_of_another_size_than_recorded_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "encode", lambda message: encode(message) + b"!")
    checked = subject("plain")
    (lacking,) = (one for one in PROPERTIES["aggregation"] if one.claim == BYTES)
    result = lacking.result(evidence_of(checked))
    assert result.verdict == "failed"
    assert re.search(r"round 1, stage check-in, client 0: the question has (\d+) bytes, but \d+ are", result.detail)
