"""Runs that several properties evaluate, and the properties that both contracts share."""

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from testbed.conformance.federations import RoundFacts, Scenario, Trial, first_difference
from testbed.conformance.results import NotApplicable, PropertyResult, Violation
from testbed.conformance.subjects import Subject
from testbed.conformance.traffic import Traffic, refusals_of_old_questions
from testbed.engine.plan import RunPlan
from testbed.records import RunDirectory

ROUNDS_BEFORE_RESUMPTION = 2
ROUNDS_COMPARED = 6


class Evidence:
    """Runs of one protocol, each made when the first property needs it.

    Args:
        subject: the protocol and its experiment.
        scenarios_of: returns the absent clients of each round of a plan.
    """

    def __init__(self, subject: Subject, scenarios_of: Callable[[RunPlan], Iterable[Scenario]]) -> None:
        self.subject = subject
        self._scenarios_of = scenarios_of

    @cached_property
    def scenarios(self) -> list[Scenario]:
        """The absent clients of each round."""
        return list(self._scenarios_of(self.subject.plan))

    @cached_property
    def whole(self) -> Trial:
        """All rounds."""
        return Trial(self.subject.experiment, self.scenarios).run(len(self.scenarios))

    @cached_property
    def rounds(self) -> list[RoundFacts]:
        """The rounds of `whole`."""
        return self.whole.rounds

    @property
    def declared_stages(self) -> tuple[str, ...]:
        """The stages that the class declares."""
        plan = self.subject.plan
        return plan.selection.stages if self.subject.section == "selection" else plan.aggregation.stages

    @property
    def other_stages(self) -> tuple[str, ...]:
        """The stages that the rest of the round declares."""
        plan = self.subject.plan
        other = plan.aggregation.stages if self.subject.section == "selection" else plan.selection.stages
        return ("train", *other)

    @cached_property
    def traffic(self) -> Traffic:
        """The traffic of the first rounds, without shortcuts."""
        traffic = Traffic(Trial(self.subject.experiment, self.scenarios, shortcuts=False))

        async def listen() -> None:
            for _ in range(min(ROUNDS_COMPARED, len(self.scenarios))):
                await traffic.next_round()

        asyncio.run(listen())
        return traffic


def rounds_run(evidence: Evidence) -> str:
    """Check that rounds run, and that rounds without dropouts complete."""
    states = {facts.number: facts.outcome for facts in evidence.rounds}
    for number, scenario in enumerate(evidence.scenarios, 1):
        if scenario.is_complete and (outcome := states[number]).state != "completed":
            raise Violation(
                f"round {number} is {outcome.state} ({outcome.reason}) although no client drops out; complete every "
                "round without dropouts, or check with other keys (--set)"
            )
    completed = sum(outcome.state == "completed" for outcome in states.values())
    return f"{completed} of {len(states)} rounds completed"


def early_ends_have_reasons(evidence: Evidence) -> str:
    """Check that every round that did not complete has a reason."""
    reasons = set()
    for facts in evidence.rounds:
        if facts.outcome.state == "completed":
            continue
        name = facts.outcome.reason.partition(":")[0]
        if not name or any(not (letter.isalnum() or letter in "-.") for letter in name):
            raise Violation(
                f"round {facts.number} is {facts.outcome.state} with the reason {name!r}; use lower case and hyphens, "
                "as in RoundAborted('too-few-updates', detail)"
            )
        reasons.add(name)
    if not reasons:
        raise NotApplicable("no round ended early")
    return ", ".join(sorted(reasons))


def same_on_two_hosts(evidence: Evidence) -> str:
    """Check that neither another run nor another number of hosts changes a bit."""
    count = min(ROUNDS_COMPARED, len(evidence.scenarios))

    def difference(hosts: int) -> str:
        other = Trial(evidence.subject.experiment, evidence.scenarios, hosts=hosts).run(count)
        return first_difference(other.rounds, evidence.rounds)

    if on_two := difference(2):
        # A run on one host tells randomness without a seed apart from dependence on the process.
        if again := difference(1):
            raise Violation(
                f"{again} differ between two runs with one seed; draw only from round_.rng(purpose) and the client's "
                "environment.randomness, and store nothing in classes or modules"
            )
        raise Violation(
            f"{on_two} differ between one host and two; results must not depend on a client's process or on the order "
            "of answers"
        )
    return f"{count} rounds, again and on two hosts"


def same_without_shortcuts(evidence: Evidence) -> str:
    """Check that the shortcuts of one process change no bit."""
    rounds = evidence.traffic.trial.rounds
    if difference := first_difference(rounds, evidence.rounds):
        raise Violation(
            f"{difference} differ if every party does all work itself; change no array that a message or a memoised "
            "function has returned"
        )
    symbolic = "; masks as seeds equal expanded masks" if evidence.subject.plan.symbolic_masks else ""
    return f"{len(rounds)} rounds{symbolic}"


def bytes_are_those_of_encodings(evidence: Evidence) -> str:
    """Check that recorded bytes are the lengths of the encodings."""
    traffic = evidence.traffic
    if traffic.mismatch:
        raise Violation(traffic.mismatch)
    if not traffic.messages:
        raise NotApplicable("no client was asked anything")
    return f"{traffic.messages} messages"


def old_questions_are_refused_by_name(evidence: Evidence) -> str:
    """Check the reaction of clients to questions of an earlier round."""
    if not evidence.traffic.questions:
        raise NotApplicable("no round completed")
    return asyncio.run(refusals_of_old_questions(evidence.traffic))


def resumed_equals_uninterrupted(evidence: Evidence) -> str:
    """Check that a run that stops and resumes has the rounds of an uninterrupted run."""
    experiment = evidence.subject.experiment
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        records = RunDirectory.create(path, experiment.plain())
        Trial(experiment, evidence.scenarios, records=records).run(ROUNDS_BEFORE_RESUMPTION)
        resumed = Trial(experiment, evidence.scenarios, hosts=2, records=RunDirectory.reopen(path))
        # Run all remaining rounds: a protocol may explore for some rounds and use the results later.
        count = len(evidence.scenarios) - ROUNDS_BEFORE_RESUMPTION
        rounds = resumed.run(count).rounds
    if difference := first_difference(_without_resumption(rounds), _without_resumption(evidence.rounds)):
        raise Violation(
            f"{difference} differ after a resumption; store everything that later rounds need in round_.memory, which "
            "the checkpoint has"
        )
    return f"resumed after round {ROUNDS_BEFORE_RESUMPTION}, {count} more rounds on two hosts"


def _without_resumption(rounds: Sequence[RoundFacts]) -> list[RoundFacts]:
    """Return the facts without events, which include the resumption."""
    return [
        replace(facts, parts={name: part for name, part in facts.parts.items() if name != "the events"})
        for facts in rounds
    ]


def nobody_is_accused(evidence: Evidence) -> str:
    """Check that honest parties refuse nothing and report no misbehaviour, with any dropouts."""
    for facts in evidence.rounds:
        if facts.accusations:
            raise Violation(
                f"round {facts.number}: {facts.accusations[0]}, although all parties are honest; let checks allow for "
                "clients that drop out"
            )
    return f"{len(evidence.rounds)} rounds"


def stages_are_those_asked(evidence: Evidence) -> str:
    """Check that every declared stage is asked, and every stage that is asked is declared."""
    plan, declared = evidence.subject.plan, evidence.declared_stages
    asked_stages = dict.fromkeys(stage for facts in evidence.rounds for stage in facts.stages)
    occasional = () if evidence.subject.section == "selection" else plan.aggregation_parameters.occasional_stages
    # Occasional stages, such as the set-up of a committee, need not come in every run.
    allowed = {*declared, *evidence.other_stages, *occasional}
    for stage in declared:
        if stage not in asked_stages and stage not in occasional:
            raise Violation(
                f"{stage} is declared in `stages` but asked in none of {len(evidence.rounds)} rounds; remove it from "
                "`stages`, or ask it"
            )
    for stage in asked_stages:
        if stage not in allowed:
            raise Violation(f"{stage} is asked but not declared; add it to `stages`")
    return ", ".join(declared) or "none"


SHARED_LAST: tuple[PropertyResult[Evidence], ...] = (
    PropertyResult("Rounds that end early have a reason", early_ends_have_reasons),
    PropertyResult("Honest parties refuse nothing and are accused of nothing", nobody_is_accused),
    PropertyResult("The declared stages are the stages that are asked", stages_are_those_asked),
    PropertyResult("Old questions are refused by name and crash no client", old_questions_are_refused_by_name),
    PropertyResult("The same seed gives the same bits, on one host and on two", same_on_two_hosts),
    PropertyResult("The shortcuts of one process change no bit", same_without_shortcuts),
    PropertyResult("A resumed run equals an uninterrupted one", resumed_equals_uninterrupted),
    PropertyResult("Recorded bytes are the lengths of the encodings", bytes_are_those_of_encodings),
)
FIRST: PropertyResult[Evidence] = PropertyResult("Rounds run, and complete without dropouts", rounds_run)
