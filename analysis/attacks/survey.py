"""Survey of all misbehaviours that apply to an experiment's protocols: their detection by honest parties, and limits.

The tables of docs/explanation/threat-*.md are surveys.

A survey is a sweep: the experiment once for each misbehaviour. The misbehaviours that the experiment names in
`adversary.server` and `adversary.clients` accompany each of them: without these companions some have nothing to gain
(a server that reconstructs updates first needs colluding clients among the participants).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from analysis.attacks.outcomes import attack_outcome
from analysis.tables import Table, require_format, to_json
from analysis.tables import render as render_table
from testbed.adversary.catalogue import OF_PARTY, names
from testbed.adversary.section import PARTIES, AdversarySection, name_of
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, points, validated
from testbed.records import RunRecords

Verdict = Literal["refused", "refused in part", "bounded", "not protected", "did not arise"]


@dataclass(frozen=True)
class SurveyTrial:
    """A misbehaviour to be tried, of the party ``server`` or ``clients``."""

    party: str
    name: str


@dataclass(frozen=True)
class SurveyFinding:
    """The outcome of one trial.

    Attributes:
        trial: misbehaviour and party.
        verdict: ``refused`` (an honest party saw it in every attacked round), ``refused in part`` (in some),
            ``bounded`` (nobody saw it; `limit` bounds it), ``not protected`` (nobody saw it, and no bound is known
            here) or ``did not arise`` (in no round it could be carried out).
        checks: checks that failed, with their stages, the most frequent first.
        limit: bound on its undetected gain; empty: none.
        attacked, refused, completed: rounds; as attacked, `detected` and completed of
            `analysis.attacks.outcomes.AttackOutcome`.
        recovered: rounds in which the adversary had a single client's update.
    """

    trial: SurveyTrial
    verdict: Verdict
    checks: tuple[str, ...]
    limit: str
    attacked: int
    refused: int
    completed: int
    recovered: int

    @property
    def outcome(self) -> str:
        """The outcome in a few words, for a cell of the threat model."""
        text: str = self.verdict
        if self.verdict.startswith("refused"):
            text += f": {', '.join(self.checks)}"
        if self.verdict == "bounded":
            text += f": {self.limit}"
        elif self.verdict == "refused in part" and self.limit:
            text += f"; undetected rounds bounded by: {self.limit}"
        return (
            f"{text}; single update recovered in {self.recovered} of {self.attacked} rounds" if self.recovered else text
        )


def trials(experiment: Experiment, only: Sequence[str], where: str) -> list[SurveyTrial]:
    """List the misbehaviours that apply to the experiment's protocols.

    Args:
        experiment: without a sweep.
        only: names to select; empty: all that arise.
        where: file or other origin of the experiment, for messages.

    Raises:
        ExperimentError: if one of `only` does not apply, or the experiment is a sweep already.
    """
    if experiment.sweep:
        raise ExperimentError(f"{where}: sweep: a survey sweeps over misbehaviours itself; remove the sweep")
    protocols = {experiment.selection.protocol, experiment.aggregation.protocol, "train"}
    applicable = [SurveyTrial(party, name) for party in OF_PARTY for name in names(party, protocols)]
    unknown = sorted(set(only) - {trial.name for trial in applicable})
    if unknown:
        allowed = ", ".join(trial.name for trial in applicable)
        raise ExperimentError(f"{where}: --only {unknown[0]}: does not apply to these protocols; allowed: {allowed}")
    return [trial for trial in applicable if trial.name in only or (not only and _arises(experiment, trial, where))]


def _arises(experiment: Experiment, trial: SurveyTrial, where: str) -> bool:
    """Return whether the misbehaviour has anything to do: noise to skip, a list to forge."""
    (point,) = points(survey_of(experiment, [trial], where), where)
    try:
        RunPlan(point.experiment, 0)
    except ExperimentError:
        return False
    return True


def survey_of(experiment: Experiment, tried: Sequence[SurveyTrial], where: str) -> Experiment:
    """Return the experiment as a sweep over misbehaviours.

    Args:
        experiment: without a sweep.
        tried: trials, in the order of the sweep.
        where: origin of the experiment, for messages.
    """
    section = experiment.adversary or AdversarySection()
    # Set keys alone, as a user writes them: validation adds the defaults again.
    data = experiment.model_dump(mode="json", exclude_unset=True)
    data["adversary"] = section.model_dump(mode="json", exclude_unset=True, exclude=set(OF_PARTY))
    data["sweep"] = {"adversary": [_adversary(section, trial) for trial in tried]}
    return validated(data, where)


def _adversary(section: AdversarySection, trial: SurveyTrial) -> dict[str, list[Any]]:
    """Return the section `adversary` of a trial: the misbehaviour outermost, then its companions."""
    parties: dict[str, list[Any]] = {}
    for party in PARTIES:
        listed = {name_of(entry): entry for entry in section.named(party)}
        # A misbehaviour that the experiment names keeps its options.
        tried = [listed.pop(trial.name, trial.name)] if party == trial.party else []
        parties[party] = [*tried, *listed.values()]
    return parties


def findings(experiment: Experiment, tried: Sequence[SurveyTrial], runs: Sequence[RunRecords]) -> list[SurveyFinding]:
    """Evaluate the runs of a survey.

    Args:
        experiment: without a sweep.
        tried: trials.
        runs: records of the survey, in the order of the trials.
    """
    return [_finding(trial, run, limit(trial.name, experiment)) for trial, run in zip(tried, runs, strict=True)]


def _finding(trial: SurveyTrial, run: RunRecords, bound: str) -> SurveyFinding:
    outcome = attack_outcome(run, trial.name)
    verdict: Verdict
    if not outcome.attacked:
        verdict = "did not arise"
    elif outcome.detected:
        verdict = "refused" if outcome.detected == outcome.attacked else "refused in part"
    else:
        verdict = "bounded" if bound else "not protected"
    checks = tuple(f"{check} at {stage}" for check, stage, _ in outcome.checks)
    return SurveyFinding(
        trial=trial,
        verdict=verdict,
        checks=checks,
        limit=bound,
        attacked=outcome.attacked,
        refused=outcome.detected,
        completed=outcome.completed,
        recovered=outcome.recovered,
    )


# -- printing -------------------------------------------------------------------------------------------------------


def render(results: Sequence[SurveyFinding], format: str = "text") -> str:
    """Render the findings.

    Args:
        results: one or more.
        format: ``text``, ``markdown`` or ``json``.

    Raises:
        ExperimentError: for another format.
    """
    require_format(format, "text", "markdown", "json")
    if format == "json":
        rows = [vars(finding) | {"trial": vars(finding.trial), "outcome": finding.outcome} for finding in results]
        return to_json({"rows": rows}, ascii=True)
    lines = []
    for finding in results:
        counts = [str(number) for number in (finding.attacked, finding.refused, finding.completed)]
        lines.append([finding.trial.name, finding.trial.party, *counts, finding.outcome])
    heads = ["Misbehaviour", "Party", "Attacked rounds", "Refused", "Undetected", "Result"]
    return render_table(Table(heads, lines, left=None if format == "text" else (0, 1, 5)), format)


# -- limits of misbehaviours that nobody sees -------------------------------------------------------------------------
# Nobody sees a server that only uses the choices that the protocol leaves to it. If a theorem limits its gain, the
# theorem is named here, with the command that computes it; if none does, the experiment is not protected.


_LOTTO = ("lotto-client-centric", "lotto-server-centric")
_BATCHES = "verifiable-batch-partition"
_CHOOSING = {
    "keep-dishonest-candidates",
    "omit-honest-candidates",
    "understate-population",
    "refine-out-honest",
    "tell-different-populations",
}
_RECONSTRUCTING = {"contradict-dropouts", "shrink-the-sum", "split-the-sharing"}
_OF_FLAMINGO = {
    "contradict-dropouts": "2t - L dishonest members are needed",
    "false-committee-key": "t dishonest members are needed",
    "send-different-models": "the masks do not cancel",
    "label-neighbours-offline": "such labels exist with probability at most 2^-security",
}


def limit(name: str, experiment: Experiment) -> str:
    """Return the bound on a misbehaviour under the experiment's protocols; empty if none is computed here.

    Args:
        name: of the misbehaviour.
        experiment: with the protocols.
    """
    selection = experiment.selection.protocol
    sums = experiment.aggregation
    if isinstance(sums, FlamingoParameters) and name in _OF_FLAMINGO:
        unbound = (name == "send-different-models" and sums.model_binding == "none") or (
            name == "label-neighbours-offline" and sums.labels == "random"
        )
        return "" if unbound else f"{_OF_FLAMINGO[name]} (docs/explanation/flamingo.md)"
    if isinstance(sums, OneShotParameters) and name == "contradict-dropouts":
        return "needs 2U - N dishonest members (docs/explanation/one-shot.md)"
    if name in _RECONSTRUCTING and not (isinstance(sums, SecAggParameters) and sums.consistency == "signed"):
        return ""  # two of them then need no colluding client (docs/explanation/reconstruction-unsigned.md)
    if name == "parallel-lists" and isinstance(sums, LightSecAggParameters):
        return ""  # every client on a list is shown parts of it
    if name == "rebatch" and selection != _BATCHES:
        # Clients that know the batches keep their inputs, as members of their batch may have dropped out.
        protected = experiment.selection.announced_membership is None and sums.batches == "whole"
        return "no sum results (docs/explanation/pinned-batches.md)" if protected else ""
    if selection in _LOTTO:
        if name in _CHOOSING:
            verified = " in rounds with an honest participant" if name == "tell-different-populations" else ""
            return f"Lotto, Theorem 2{verified} (testbed bound lotto)"
        if name == "reserve-most-selected":
            return "Lotto, Corollaries 2 and 3 (testbed bound lotto-dp)"
        if name in _RECONSTRUCTING:
            return "Lotto, Corollary 1 (testbed bound lotto)"
        if name == "parallel-lists" and selection == "lotto-client-centric":
            return "Lotto, Corollary 2 for several lists (testbed bound lotto-dp --parallel-lists)"
    if name in ("skip-rounds", "abort-unfavourable-rounds"):
        return "Lotto, Corollary 1 over all rounds (testbed bound lotto --rounds)"
    if selection == _BATCHES and name in {*_CHOOSING, *_RECONSTRUCTING, "reserve-most-selected"}:
        return "testbed bound verifiable-batch-partition"
    if name == "skip-noise":
        return "the ledger counts only the added noise (testbed privacy)"
    if name == "withhold-number":
        return "loses only its own batch"
    if name == "keep-dishonest-members":
        return "testbed bound committee"
    if name == "withhold-membership":
        return "loses only its own place"
    return ""
