"""Data with unscaled features, by what was recorded when the run was prepared."""

import pandas as pd

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, value_of
from analysis.findings.finding import Finding
from analysis.findings.learning import predicts_one_label
from testbed.records import RunRecords

LEARNED = 0.95
"""Accuracy of a model that has learned in spite of its features' scales."""


def unscaled(compared: ComparedRows) -> list[Finding]:
    """Rows whose data have a feature that is far larger than the others, unless all of their models have learned.

    Runs of earlier versions do not say.
    """
    rows, worst, name = list[Row](), 0.0, ""
    for row in compared.rows:
        run = row.runs[0]
        feature = value_of(run, "provenance.data.unscaled_feature")
        learned = [_has_learned(run) for run in row.runs]
        if not isinstance(feature, dict) or run.has_misbehaviour or all(learned):
            continue
        rows.append(row)
        if float(feature["ratio"]) > worst:
            worst, name = float(feature["ratio"]), str(feature["name"])
    if not rows:
        return []
    text = (
        f"the features are unscaled: {name} is {worst:,.0f} times as large as the median one; standardise them in the "
        "loader"
    )
    return [Finding("unscaled-features", text, compared.labels(rows), ("workload.dataset",))]


def _has_learned(run: RunRecords) -> bool:
    """Whether the last accuracy is high, and not just the share of the one label that the model predicts."""
    values = _accuracies(run)
    return len(values) > 0 and bool(values.iloc[-1] >= LEARNED) and not predicts_one_label(run)


def _accuracies(run: RunRecords) -> pd.Series:
    return run.rounds["accuracy"].dropna()
