"""Data with unscaled features, by what was recorded when the run was prepared."""

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, has_misbehaviour, value_of
from analysis.findings.finding import Finding


def unscaled(compared: ComparedRows) -> list[Finding]:
    """Rows whose data have a feature that is far larger than the others; runs of earlier versions do not say."""
    rows, worst, name = list[Row](), 0.0, ""
    for row in compared.rows:
        run = row.runs[0]
        feature = value_of(run, "provenance.data.unscaled_feature")
        if not isinstance(feature, dict) or has_misbehaviour(run):
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
