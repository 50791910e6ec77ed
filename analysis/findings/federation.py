"""Checks for misleading federations: absent clients, unscaled features, single gradient steps, unlike transports."""

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
"""Number of rounds in which a client must have been asked before its absence counts."""
ABSENT_SHARE = 0.1
"""Share of the population. Fewer clients that are always absent do not change a result."""


def never_available_of(run: RunRecords) -> int:
    """Return how many clients were offline in every round that asked them, among those asked in at least 10 rounds."""
    population = int(run.value("population", 0))
    asked_rounds, offline_rounds = np.zeros(population, np.int64), np.zeros(population, np.int64)
    for rows in run.exchanges_in_stretches(["client", "outcome"], keep=False):
        first = rows.drop_duplicates(["round", "client"])  # the first question shows whether it was there
        first = first[first["client"] < population]
        asked_rounds += np.bincount(first["client"], minlength=population)
        offline_rounds += np.bincount(first.loc[first["outcome"] == "offline", "client"], minlength=population)
    return int(np.count_nonzero((asked_rounds >= ASKED_ROUNDS) & (offline_rounds == asked_rounds)))


def never_available(compared: ComparedRows) -> list[Finding]:
    """Find rows in which at least a tenth of the population was offline throughout."""
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
"""Accuracy from which a model counts as trained despite unscaled features."""


def unscaled(compared: ComparedRows) -> list[Finding]:
    """Find rows with data in which one feature is far larger than the others, unless all models have a high accuracy.

    Runs of earlier versions do not record the scale of features and are never reported.
    """
    rows, worst, name = list[ComparisonRow](), 0.0, ""
    for row in compared.rows:
        run = row.runs[0]
        feature = run.value("provenance.data.unscaled_feature")
        have_learned = [_has_learned(run) for run in row.runs]
        if not isinstance(feature, dict) or run.has_misbehaviour or all(have_learned):
            continue
        rows.append(row)
        if float(feature["ratio"]) > worst:
            worst, name = float(feature["ratio"]), str(feature["name"])
    if not rows:
        return []
    text = (
        f"the features are unscaled: {name} is {worst:,.0f} times as large as the median feature; standardise the "
        "features in the loader of the data"
    )
    return [Finding("unscaled-features", text, compared.labels(rows), ("workload.dataset",))]


def _has_learned(run: RunRecords) -> bool:
    """Return whether the last accuracy is high, and is not merely the share of the only label that is predicted."""
    values = run.rounds["accuracy"].dropna()
    return len(values) > 0 and bool(values.iloc[-1] >= LEARNED_ACCURACY) and not predicts_one_label(run)


def trains_in_batches(run: RunRecords) -> bool:
    """Return whether clients train in epochs and batches, as far as the records show."""
    if run.value("workload.training", "real") != "real" or run.value("workload.flower") is not None:
        return False
    if run.value("records.aggregates", "none") != "none":  # recorded for attacks, which study single gradient steps
        return False
    if "sample_rate" in run.value("aggregation", {}):  # DP-SGD draws its own batches
        return False
    if ":" not in str(run.value("workload.dataset", "digits")):
        return True
    return bool(run.value("provenance.data.trained_in_batches", False))  # a user's class may train in another way


def single_step(compared: ComparedRows) -> list[Finding]:
    """Find rows in which almost all clients have at most one batch of samples and one epoch, thus one step a round."""
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
        f"clients take one gradient step per round: the median client has {span(medians, '{:.0f}')} samples, a "
        f"batch has {span(batches, '{:.0f}')}, and there is 1 epoch"
    )
    return [Finding("one-step", text, compared.labels(rows), ("workload.epochs", "workload.batch_size"))]


TRANSPORT = "links.transport"


def transport_of(run: RunRecords) -> str | None:
    """Return the transport of a run's messages, e.g. ``tcp``; None if the records do not have it.

    `auto` is resolved: to `tcp` if a client has a latency or loss above 0, or a buffer (`testbed.emulation.links`).
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
    """Find rows with another transport than most rows; one finding for each such transport.

    Rows of a sweep over the transport are left out: there the difference is the result.
    """
    transports: list[tuple[ComparisonRow, str]] = []
    for row in compared.rows:
        transport = None if _has_swept(row.runs[0]) else transport_of(row.runs[0])
        if transport is not None:
            transports.append((row, transport))
    (common, number), *others = Counter(transport for _, transport in transports).most_common() or [("", 0)]
    return [
        Finding(
            "transport-differs",
            f"messages travel over the transport {other}, but over {common} in {counted(number, 'other row')}: "
            "times and overheads are not comparable",
            compared.labels(row for row, transport in transports if transport == other),
            (TRANSPORT,),
        )
        for other, _ in others
    ]


def _has_swept(run: RunRecords) -> bool:
    leaves = (leaf for key, value in sweep_of(run).items() for leaf in leaves_of(key, value))
    return any(leaf == TRANSPORT or leaf.startswith(f"{TRANSPORT}.") for leaf in leaves)


def _is_zero(setting: Any) -> bool:
    """Return whether a setting of the links is zero or absent for all clients."""
    values = setting if isinstance(setting, list) else [setting]
    return all(value is None or value == 0 for value in values)
