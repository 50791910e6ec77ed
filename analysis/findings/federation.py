"""Properties of the federation that mislead: absent clients, unscaled features, single steps, other transports."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from analysis.comparison.labels import sweep_of
from analysis.comparison.rows import ComparisonRow
from analysis.findings.compared import ComparedRows, Finding, counted, span
from analysis.findings.learning import predicts_one_label
from testbed.records import RunRecords
from testbed.records.clients import take_single_steps
from testbed.records.point_names import leaves_of

ASKED_ROUNDS = 10
"""In which a client was asked before its absence says anything."""
ABSENT_SHARE = 0.1
"""Of the population: fewer clients that never come do not change a result."""


def never_available_of(run: RunRecords) -> int:
    """How many clients were offline in every round in which they were asked for something, of at least 10 rounds."""
    population = int(run.value("population", 0))
    asked, away = np.zeros(population, np.int64), np.zeros(population, np.int64)
    for rows in run.exchanges_in_stretches(["client", "outcome"], keep=False):
        first = rows.drop_duplicates(["round", "client"])
        first = first[first["client"] < population]
        asked += np.bincount(first["client"], minlength=population)
        away += np.bincount(first.loc[first["outcome"] == "offline", "client"], minlength=population)
    return int(np.count_nonzero((asked >= ASKED_ROUNDS) & (away == asked)))


def never_available(compared: ComparedRows) -> list[Finding]:
    """Rows in which at least a tenth of the population was never there."""
    rows, numbers, population = list[ComparisonRow](), list[int](), 0
    model = "trace"
    for row in compared.rows:
        run = row.runs[0]
        if run.value("availability.model", "always") == "always" or len(run.rounds) < ASKED_ROUNDS:
            continue
        clients = int(run.value("population", 0))
        number = never_available_of(run)
        if clients and number >= ABSENT_SHARE * clients:
            rows.append(row)
            numbers.append(number)
            population, model = clients, str(run.value("availability.model"))
    if not rows:
        return []
    text = (
        f"{max(numbers):,} of {counted(population, 'client')} were offline whenever they were asked, in at least "
        f"{ASKED_ROUNDS} rounds each"
    )
    keys = ("availability.path", "time.between_rounds_s") if model in ("trace", "schedule") else ("availability",)
    return [Finding("never-available", text, compared.labels(rows), keys)]


LEARNED_ACCURACY = 0.95
"""Accuracy of a model that has learned in spite of its features' scales."""


def unscaled(compared: ComparedRows) -> list[Finding]:
    """Rows whose data have a feature that is far larger than the others, unless all of their models have learned.

    Runs of earlier versions do not say.
    """
    rows, worst, name = list[ComparisonRow](), 0.0, ""
    for row in compared.rows:
        run = row.runs[0]
        feature = run.value("provenance.data.unscaled_feature")
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
    values = run.rounds["accuracy"].dropna()
    return len(values) > 0 and bool(values.iloc[-1] >= LEARNED_ACCURACY) and not predicts_one_label(run)


def trains_in_batches(run: RunRecords) -> bool:
    """Whether clients really train, in epochs and batches, as far as the records tell."""
    if run.value("workload.training", "real") != "real" or run.value("workload.flower") is not None:
        return False
    if run.value("records.aggregates", "none") != "none":  # kept for attacks: single steps are their subject
        return False
    if "sample_rate" in run.value("aggregation", {}):  # DP-SGD draws its own batches
        return False
    if ":" not in str(run.value("workload.dataset", "digits")):
        return True
    return bool(run.value("provenance.data.trained_in_batches", False))  # a class may train in its own way


def single_step(compared: ComparedRows) -> list[Finding]:
    """Rows in which (nearly) all clients have no more samples than a batch, and go through them once."""
    rows, medians, batches = list[ComparisonRow](), list[float](), list[float]()
    for row in compared.rows:
        run = row.runs[0]
        if not trains_in_batches(run) or not run.rounds["accuracy"].notna().any():
            continue
        epochs, batch = int(run.value("workload.epochs", 1)), int(run.value("workload.batch_size", 20))
        samples = run.clients["samples"].to_numpy()
        if take_single_steps(samples, epochs, batch):
            rows.append(row)
            medians.append(float(np.median(samples[samples > 0])))
            batches.append(float(batch))
    if not rows:
        return []
    text = (
        f"clients take one gradient step a round: the median client has {span(medians, '{:.0f}')} samples, a batch "
        f"{span(batches, '{:.0f}')}, with 1 epoch"
    )
    return [Finding("one-step", text, compared.labels(rows), ("workload.epochs", "workload.batch_size"))]


TRANSPORT = "links.transport"


def transport_of(run: RunRecords) -> str | None:
    """The transport of a run's messages, e.g. ``tcp``, with `auto` resolved; None: the records do not tell.

    `auto` is `tcp` where a client has a latency or loss above 0, or a buffer (`testbed.emulation.links`).
    """
    transport = run.value(TRANSPORT)
    if isinstance(transport, Mapping):
        numbers = ", ".join(f"{key}={value}" for key, value in sorted(transport.items()) if key != "preset")
        return f"{transport.get('preset', 'own')} ({numbers})" if numbers else str(transport.get("preset", "own"))
    if transport != "auto":
        return None if transport is None else str(transport)
    takes_time = any(not _is_zero(run.value(f"links.{key}")) for key in ("latency_ms", "loss", "buffer_ms"))
    return "tcp" if takes_time or run.value("links.model") is not None else "none"


def transport_differs(compared: ComparedRows) -> list[Finding]:
    """Rows with another transport than most rows, a finding for each of these transports.

    Rows that have swept the transport are left out: there the difference is the result.
    """
    found: list[tuple[ComparisonRow, str]] = []
    for row in compared.rows:
        transport = None if _has_swept(row.runs[0]) else transport_of(row.runs[0])
        if transport is not None:
            found.append((row, transport))
    (common, number), *others = Counter(transport for _, transport in found).most_common() or [("", 0)]
    return [
        Finding(
            "transport-differs",
            f"messages travel with the transport {other}, those of {counted(number, 'other row')} with {common}: "
            "times and overheads do not compare",
            compared.labels(row for row, transport in found if transport == other),
            (TRANSPORT,),
        )
        for other, _ in others
    ]


def _has_swept(run: RunRecords) -> bool:
    leaves = (leaf for key, value in sweep_of(run).items() for leaf in leaves_of(key, value))
    return any(leaf == TRANSPORT or leaf.startswith(f"{TRANSPORT}.") for leaf in leaves)


def _is_zero(setting: Any) -> bool:
    """Whether a setting of the links is nothing for all clients."""
    values = setting if isinstance(setting, list) else [setting]
    return all(value is None or value == 0 for value in values)
