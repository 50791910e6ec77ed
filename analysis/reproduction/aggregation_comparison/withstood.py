"""Attacks that each protocol withstands: the threat model's survey of misbehaviours that concern an aggregation."""

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
"""Condition of the survey, set up for as many dropouts as a protocol takes: this gives a malicious server most freedom.
"""

_POISONS = (poisoned_updates.__name__, poisoned_samples.__name__)
_POISONING = {kind.name for kind in CLIENTS if kind.__module__ in _POISONS}
_OF_THE_MODEL = {"send-crafted-model", "inflate-utility", *_POISONING}
"""Misbehaviours with the same outcome under every aggregation. A crafted model for all is agreed by everybody, losses
are unverified claims, and no sum distinguishes a poisoned update from another (docs/explanation/poisoning.md)."""
_WITHIN_LEAST_SUM = {"drop-honest"}
"""Misbehaviours that the column `least sum` covers for all protocols. Every protocol that continues without some
clients lets the server claim that clients have dropped out, down to that sum. The misbehaviour is implemented for two
protocols only, and would count against these alone."""


def withstood(context: ReproductionContext, compared: ComparedProtocol) -> list[SurveyFinding]:
    """Run each misbehaviour that concerns a protocol, and return the outcomes; the participants are the population.

    Args:
        context: where and how to run.
        compared: the protocol.
    """
    honest = experiment(SURVEY, CONDITION, compared)
    data = honest.model_dump(mode="json", exclude_unset=True)
    # Accomplices without misbehaviour of their own: several attacks have nothing to gain without them.
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
    """Return the names of undetected misbehaviours without protection, for a cell, and mark recovered updates."""
    names_of = [
        f"{outcome.trial.name} (an update)" if outcome.recovered else outcome.trial.name
        for outcome in outcomes
        if outcome.verdict == "not protected"
    ]
    return ", ".join(names_of) or "–"


def in_words(compared: ComparedProtocol, outcomes: Sequence[SurveyFinding]) -> str:
    """Return all outcomes in one line, in the words of the threat model.

    Args:
        compared: the protocol.
        outcomes: outcomes of its misbehaviours.
    """
    texts = [f"{outcome.trial.name}: {outcome.outcome}" for outcome in outcomes if outcome.verdict != "did not arise"]
    return f"{compared.protocol}. {'; '.join(texts) or 'No misbehaviour concerns it'}."
