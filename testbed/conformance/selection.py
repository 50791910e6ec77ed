"""Properties of selection protocols."""

from collections.abc import Iterator

import numpy as np

from testbed.conformance.evidence import FIRST, SHARED_LAST, Evidence
from testbed.conformance.federations import Scenario
from testbed.conformance.results import NotApplicable, PropertyResult, Violation
from testbed.conformance.subjects import Subject
from testbed.engine.plan import RunPlan

_AWAY_RATE = 0.15


def selection_evidence(subject: Subject) -> Evidence:
    """Return the runs of a selection protocol."""
    return Evidence(subject, _scenarios)


def _scenarios(plan: RunPlan) -> Iterator[Scenario]:
    """Yield rounds with all clients, some offline, dropouts at each stage of selection, and no client."""
    population = plan.experiment.population
    generator = np.random.default_rng(population)

    def some() -> frozenset[int]:
        return frozenset(np.flatnonzero(generator.uniform(size=population) < _AWAY_RATE).tolist())

    yield Scenario()
    for _ in range(6):
        yield Scenario(away=some())
    yield Scenario()
    for stage in plan.selection.stages:
        yield Scenario(leaving={stage: some()})
    # Nobody: the round must be skipped with a reason, not crash.
    yield Scenario(away=frozenset(range(population)))
    yield Scenario()


def participants_are_some_of_those_there(evidence: Evidence) -> str:
    """Check the participants of every round."""
    plan, count = evidence.subject.plan, 0
    population, most = plan.experiment.population, plan.maximum_participants
    for facts, scenario in zip(evidence.rounds, evidence.scenarios, strict=True):
        participants, where = facts.outcome.participants, f"round {facts.number}"
        if not len(participants):
            continue
        if (np.diff(participants) <= 0).any():
            raise Violation(
                f"{where}: participants {participants.tolist()} are not sorted and distinct; return "
                "Selection(np.unique(chosen), ...)"
            )
        if participants[0] < 0 or participants[-1] >= population:
            raise Violation(
                f"{where}: participants {participants.tolist()}; return numbers of clients, 0 to {population - 1}"
            )
        if len(participants) > most:
            raise Violation(
                f"{where}: {len(participants)} participants, but maximum_participants is {most}; override that property"
            )
        if len(absent := np.intersect1d(participants, sorted(scenario.away))):
            raise Violation(
                f"{where}: client {absent[0]} is a participant but was offline; choose among the clients that answer, "
                "replies.valid()"
            )
        count += 1
    return f"{count} rounds of at most {most}"


def rounds_have_enough_participants(evidence: Evidence) -> str:
    """Check that no round continues with fewer participants than clients are promised."""
    least = evidence.subject.plan.minimum_participants
    for facts in evidence.rounds:
        if facts.outcome.state == "completed" and len(facts.outcome.participants) < least:
            raise Violation(
                f"round {facts.number}: {len(facts.outcome.participants)} participants, but minimum_participants is "
                f"{least}; raise RoundSkipped('too-few-available', detail)"
            )
    return f"at least {least}"


def participations_are_counted(evidence: Evidence) -> str:
    """Check that the participation counts match the participants."""
    counts = np.zeros(evidence.subject.experiment.population, np.int64)
    for facts in evidence.rounds:
        counts[facts.outcome.participants] += 1
    if not np.array_equal(counts, recorded := evidence.whole.federation.state.participations):
        client = int(np.flatnonzero(counts != recorded)[0])
        raise Violation(
            f"client {client} was a participant {counts[client]} times, but {recorded[client]} participations are "
            "counted; do not change round_.participations"
        )
    return f"{counts.sum()} participations"


def batches_are_whole(evidence: Evidence) -> str:
    """Check that participants are whole batches."""
    batches = evidence.subject.plan.selection.batches
    if batches is None:
        raise NotApplicable("it has no batches")
    for facts in evidence.rounds:
        participants = facts.outcome.participants
        if len(broken := batches.broken(participants.tolist())):
            raise Violation(
                f"round {facts.number}: only some members of batch {broken[0]} are participants; choose whole batches"
            )
    return f"{len(batches.sizes)} batches"


PROPERTIES: tuple[PropertyResult[Evidence], ...] = (
    FIRST,
    PropertyResult(
        "Participants are sorted, distinct, available and not too many", participants_are_some_of_those_there
    ),
    PropertyResult("Rounds have at least the participants that clients are promised", rounds_have_enough_participants),
    PropertyResult("Participations are counted", participations_are_counted),
    PropertyResult("Batches take part as a whole", batches_are_whole),
    *SHARED_LAST,
)
