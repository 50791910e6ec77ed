"""What each protocol withstands: the survey of the threat model, of the misbehaviours that concern an aggregation."""

from collections.abc import Sequence

from analysis.attacks.survey import SurveyFinding, SurveyTrial, findings, survey_of, trials
from analysis.reproduction.aggregation_comparison.conditions import CORRUPTION, Condition, Size, experiment
from analysis.reproduction.aggregation_comparison.protocols import ComparedProtocol, ProtocolSetting
from analysis.reproduction.contract import ReproductionContext
from testbed.adversary import poisoned_samples, poisoned_updates
from testbed.adversary.catalogue import CLIENTS, OF_PARTY, names
from testbed.experiment.schema import validated

PARTICIPANTS, ROUNDS = 20, 3
SURVEY = Size(PARTICIPANTS, "logistic", (), (), (), (), ROUNDS, workload={"dataset": "digits", "batch_size": 20})
CONDITION = Condition("threats", "", ProtocolSetting(PARTICIPANTS, 0.5, CORRUPTION), {"model": "logistic"})
"""Set up for as many drop-outs as a protocol takes: that leaves a malicious server the most."""

_POISONS = (poisoned_updates.__name__, poisoned_samples.__name__)
_POISONING = {kind.name for kind in CLIENTS if kind.__module__ in _POISONS}
_OF_THE_MODEL = {"send-crafted-model", "inflate-utility", *_POISONING}
"""They are the same under every aggregation: one model for all is what everybody agrees on, losses are claims, and no
sum tells a poisoned update from another (docs/explanation/poisoning.md).
"""
_WITHIN_LEAST_SUM = {"drop-honest"}
"""Every protocol that goes on without clients lets the server claim that some have gone: the column `least sum` says
how far, for all of them. The misbehaviour itself is written for two of them, and would count against these alone.
"""


def withstood(context: ReproductionContext, compared: ComparedProtocol) -> list[SurveyFinding]:
    """What came of each misbehaviour that concerns the protocol; the participants are the population."""
    honest = experiment(SURVEY, CONDITION, compared)
    data = honest.model_dump(mode="json", exclude_unset=True)
    data["adversary"] = {"dishonest": list(range(CONDITION.setting.corrupted)), "server": []}
    attacked = validated(data, honest.name)
    ours = {
        SurveyTrial(party, name)
        for party in OF_PARTY
        for name in names(party, {compared.protocol, "train"})
        if name not in _OF_THE_MODEL | _WITHIN_LEAST_SUM
    }
    tried = [trial for trial in trials(attacked, [], honest.name) if trial in ours]
    if not tried:
        return []
    swept = survey_of(attacked, tried, honest.name)
    runs = context.run_experiment(swept, context.out / "runs" / "threats" / compared.protocol)
    return findings(attacked, tried, runs)


def not_protected(outcomes: Sequence[SurveyFinding]) -> str:
    """The names of those that nobody sees and nothing bounds, for a cell; one that gave a single update says so."""
    names_of = [
        f"{outcome.trial.name} (an update)" if outcome.recovered else outcome.trial.name
        for outcome in outcomes
        if outcome.verdict == "not protected"
    ]
    return ", ".join(names_of) or "–"


def in_words(compared: ComparedProtocol, outcomes: Sequence[SurveyFinding]) -> str:
    """All of them in a line, as the threat model says it."""
    texts = [f"{outcome.trial.name}: {outcome.outcome}" for outcome in outcomes if outcome.verdict != "did not arise"]
    return f"{compared.protocol}. {'; '.join(texts) or 'No misbehaviour concerns it'}."
