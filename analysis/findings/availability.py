"""Clients that are never available."""

import numpy as np

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, counted, value_of
from analysis.findings.finding import Finding
from testbed.records import RunRecords

LEAST_ROUNDS = 10
"""In which a client was asked before its absence says anything."""
LEAST_SHARE = 0.1
"""Of the population: fewer clients that never come do not change a result."""


def never_available_of(run: RunRecords) -> int:
    """How many clients were offline in every round in which they were asked for something, of at least 10 rounds."""
    population = int(value_of(run, "population", 0))
    asked, away = np.zeros(population, np.int64), np.zeros(population, np.int64)
    for rows in run.exchanges_in_stretches(["client", "outcome"], keep=False):
        first = rows.drop_duplicates(["round", "client"])
        first = first[first["client"] < population]
        asked += np.bincount(first["client"], minlength=population)
        away += np.bincount(first.loc[first["outcome"] == "offline", "client"], minlength=population)
    return int(np.count_nonzero((asked >= LEAST_ROUNDS) & (away == asked)))


def never_available(compared: ComparedRows) -> list[Finding]:
    """Rows in which at least a tenth of the population was never there."""
    rows, numbers, population = list[Row](), list[int](), 0
    model = "trace"
    for row in compared.rows:
        run = row.runs[0]
        if value_of(run, "availability.model", "always") == "always" or len(run.rounds) < LEAST_ROUNDS:
            continue
        clients = int(value_of(run, "population", 0))
        number = never_available_of(run)
        if clients and number >= LEAST_SHARE * clients:
            rows.append(row)
            numbers.append(number)
            population, model = clients, str(value_of(run, "availability.model"))
    if not rows:
        return []
    text = (
        f"{max(numbers):,} of {counted(population, 'client')} were offline whenever they were asked, in at least "
        f"{LEAST_ROUNDS} rounds each"
    )
    keys = ("availability.path", "time.between_rounds_s") if model in ("trace", "schedule") else ("availability",)
    return [Finding("never-available", text, compared.labels(rows), keys)]
