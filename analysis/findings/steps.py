"""Clients that take a single gradient step in a round."""

import numpy as np

from analysis.comparison.rows import Row
from analysis.findings.compared import ComparedRows, span, value_of
from analysis.findings.finding import Finding
from testbed.records import RunRecords
from testbed.records.clients import take_single_steps


def trains_in_batches(run: RunRecords) -> bool:
    """Whether clients really train, in epochs and batches, as far as the records tell."""
    if value_of(run, "workload.training", "real") != "real" or value_of(run, "workload.flower") is not None:
        return False
    if value_of(run, "records.aggregates", "none") != "none":  # kept for attacks: single steps are their subject
        return False
    if "sample_rate" in (value_of(run, "aggregation") or {}):  # DP-SGD draws its own batches
        return False
    if ":" not in str(value_of(run, "workload.dataset", "digits")):
        return True
    return bool(value_of(run, "provenance.data.trained_in_batches", False))  # a class may train in its own way


def single_step(compared: ComparedRows) -> list[Finding]:
    """Rows in which (nearly) all clients have no more samples than a batch, and go through them once."""
    rows, medians, batches = list[Row](), list[float](), list[float]()
    for row in compared.rows:
        run = row.runs[0]
        if not trains_in_batches(run) or not run.rounds["accuracy"].notna().any():
            continue
        epochs, batch = int(value_of(run, "workload.epochs", 1)), int(value_of(run, "workload.batch_size", 20))
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
