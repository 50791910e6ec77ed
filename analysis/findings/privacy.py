"""Checks that compare the privacy that was planned with the privacy that was spent."""

from analysis.comparison.rows import ComparisonRow
from analysis.findings.compared import ComparedRows, Finding, span
from testbed.records import RunRecords

SPENT_BELOW = 0.75
"""Share of the planned epsilon. Below it, the run added more noise than it needed."""
SPENT_ABOVE = 1.1
"""Ratio to the epsilon with all of the planned noise. Above it, dropouts removed too much of the noise."""


def _largest(run: RunRecords) -> tuple[float, float] | None:
    """Return the largest epsilon of an honest client: spent, and with all planned noise; None without a ledger."""
    rows = run.ledger_of_honest_clients()
    if rows.empty:
        return None
    last = rows.groupby("client")[["epsilon", "planned_epsilon"]].last()
    return float(last["epsilon"].max()), float(last["planned_epsilon"].max())


def more_than_planned(compared: ComparedRows) -> list[Finding]:
    """Find rows with clients that spent more epsilon than they would have with all of the planned noise."""
    rows, spent, planned = list[ComparisonRow](), list[float](), list[float]()
    for row in compared.rows:
        largest = [pair for run in row.runs if (pair := _largest(run)) is not None]
        over = [(epsilon, plan) for epsilon, plan in largest if plan > 0 and epsilon > SPENT_ABOVE * plan]
        if over:
            rows.append(row)
            spent += [epsilon for epsilon, _ in over]
            planned += [plan for _, plan in over]
    if not rows:
        return []
    text = (
        f"noise is missing because of dropouts: the largest epsilon of a client is {span(spent, '{:.3g}')}, and "
        f"would be {span(planned, '{:.3g}')} with all of the planned noise"
    )
    keys = ("aggregation.noise.enforcement", "availability.dropout")
    return [Finding("epsilon-above-plan", text, compared.labels(rows), keys)]


def less_than_planned(compared: ComparedRows) -> list[Finding]:
    """Find finished rows in which every client spent less than three quarters of the planned epsilon."""
    rows, spent, planned, multipliers = list[ComparisonRow](), list[float](), list[float](), list[float]()
    for row in compared.rows:
        target = row.runs[0].value("aggregation.noise.epsilon")
        finished = all(len(run.rounds) >= int(run.value("rounds", 0)) for run in row.runs)
        largest = [pair[0] for run in row.runs if (pair := _largest(run)) is not None]
        if target is None or not finished or not largest or max(largest) >= SPENT_BELOW * float(target):
            continue
        rows.append(row)
        spent += largest
        planned.append(float(target))
        if (multiplier := row.runs[0].value("provenance.noise_multiplier")) is not None:
            multipliers.append(float(multiplier))
    if not rows:
        return []
    noise = f", noise multiplier {span(multipliers, '{:.3g}')}" if multipliers else ""
    text = (
        f"noise was planned for epsilon {span(planned, '{:g}')}{noise}, but no client spent more than "
        f"{max(spent):.3g}: less noise would have kept to the plan"
    )
    keys = ("aggregation.noise.noise_multiplier", "aggregation.noise.epsilon")
    return [Finding("epsilon-below-plan", text, compared.labels(rows), keys)]
