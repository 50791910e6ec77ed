"""Attacks that each protocol withstands: the threat model's survey of misbehaviours that concern an aggregation."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.attacks.survey import SurveyFinding, SurveyTrial, findings, survey_of, trials
from analysis.reproduction.aggregation_comparison.completion import tolerated
from analysis.reproduction.aggregation_comparison.conditions import (
    CHANCE,
    CORRUPTION,
    USUAL_RATE,
    Condition,
    Size,
    planned,
)
from analysis.reproduction.aggregation_comparison.protocols import ComparedProtocol, ProtocolSetting
from analysis.reproduction.contract import ReproductionContext
from testbed.adversary import poisoned_samples, poisoned_updates
from testbed.adversary.catalogue import CLIENTS, OF_PARTY, names
from testbed.experiment.schema import validated

PARTICIPANTS, ROUNDS = 20, 3
SURVEY = Size(
    PARTICIPANTS, "logistic", (), (), (), (), (1,), (), 0,
    workload={"dataset": "digits", "batch_size": 20, "samples_per_client": 20},
)  # fmt: skip
RATES = (USUAL_RATE, 0.5)
"""Dropout rates for which the protocols are set up in the survey; a larger one gives a malicious server more freedom.
"""

_POISONS = (poisoned_updates.__name__, poisoned_samples.__name__)
_POISONING = {kind.name for kind in CLIENTS if kind.__module__ in _POISONS}
_OF_THE_MODEL = {"send-crafted-model", "inflate-utility", *_POISONING}
"""Misbehaviours with the same outcome under every aggregation. A crafted model for all is agreed by everybody, losses
are unverified claims, and no sum distinguishes a poisoned update from another
(docs/explanation/poisoning-secagg.md)."""
_WITHIN_LEAST_SUM = {"drop-honest"}
"""Misbehaviours that the column `least sum` covers for all protocols. Every protocol that continues without some
clients lets the server claim that clients have dropped out, down to that sum. The misbehaviour is implemented for two
protocols only, and would count against these alone."""


def rates_of(compared: ComparedProtocol) -> tuple[float, ...]:
    """Return the dropout rates for which a protocol is surveyed.

    With a server that follows the protocol nothing keeps a threshold above half, so that a protocol set up for more
    losses shows a malicious server more.
    """
    return RATES if compared.server == "follows the protocol" else RATES[:1]


def survey_condition(rate: float) -> Condition:
    """Return the condition of the survey, with protocols set up for a dropout rate; nobody drops out."""
    setting = ProtocolSetting(PARTICIPANTS, tolerated(PARTICIPANTS, rate, CHANCE), CORRUPTION)
    return Condition("threats", f"{rate:.0%}", setting, "logistic", rounds=ROUNDS)


def withstood(context: ReproductionContext, compared: ComparedProtocol, rate: float) -> list[SurveyFinding]:
    """Run each misbehaviour that concerns a protocol, and return the outcomes; the participants are the population.

    Args:
        context: where and how to run.
        compared: the protocol.
        rate: dropout rate for which the protocol is set up.
    """
    condition = survey_condition(rate)
    plan = planned(SURVEY, condition, compared)
    assert plan is not None  # nobody drops out
    data = plan.experiment.model_dump(mode="json", exclude_unset=True)
    data["seed"] = data.pop("sweep")["seed"][0]
    # Accomplices without misbehaviour of their own: several attacks have nothing to gain without them.
    data["adversary"] = {"dishonest": list(range(condition.setting.corrupted)), "server": []}
    attacked = validated(data, plan.experiment.name)
    ours = {
        SurveyTrial(party, name)
        for party in OF_PARTY
        for name in names(party, {compared.protocol, "train"})
        if name not in _OF_THE_MODEL | _WITHIN_LEAST_SUM
    }
    tried = [trial for trial in trials(attacked, [], attacked.name) if trial in ours]
    if not tried:
        return []
    swept = survey_of(attacked, tried, attacked.name)
    directory = context.out / "runs" / condition.directory / compared.directory
    runs = context.run_experiment(swept, directory)
    return findings(attacked, tried, runs)


def survey_rows(compared: ComparedProtocol, rate: float, outcomes: Sequence[SurveyFinding]) -> list[dict[str, Any]]:
    """Return the outcomes as rows of a table.

    Args:
        compared: the protocol.
        rate: dropout rate for which it is set up.
        outcomes: outcomes of its misbehaviours.
    """
    return [
        {
            "protocol": compared.name,
            "rate": rate,
            "party": outcome.trial.party,
            "misbehaviour": outcome.trial.name,
            "verdict": outcome.verdict,
            "outcome": outcome.outcome,
            "attacked": outcome.attacked,
            "refused": outcome.refused,
            "completed": outcome.completed,
            "recovered": outcome.recovered,
        }
        for outcome in outcomes
    ]


def not_protected(rows: pd.DataFrame) -> str:
    """Return the names of undetected misbehaviours without protection, for a cell, and mark recovered updates.

    Args:
        rows: `survey_rows` of one protocol and rate.
    """
    open_rows = rows[rows["verdict"] == "not protected"]
    return (
        ", ".join(
            f"{row.misbehaviour} (an update)" if row.recovered else str(row.misbehaviour)
            for row in open_rows.itertuples()
        )
        or "–"
    )


def in_words(name: str, rows: pd.DataFrame) -> str:
    """Return all outcomes of one protocol in one line, in the words of the threat model.

    Args:
        name: name of the row.
        rows: its `survey_rows` at one rate.
    """
    arisen = rows[rows["verdict"] != "did not arise"]
    texts = [f"{row.misbehaviour}: {row.outcome}" for row in arisen.itertuples()]
    return f"{name}. {'; '.join(texts) or 'No misbehaviour concerns it'}."
