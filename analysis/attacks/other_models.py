"""Information that a server gains by sending other models than the one to be trained, compared with the truth.

With `send-different-models` the server learns the victim's update, with `send-crafted-model` single training samples
(`testbed.adversary.crafted_models`). Both are computed from the sums that the run has recorded, as the server sees
them: quantised, with noise where there is some. The truth is each client's update, trained again, and its data.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.attacks.outcomes import attacks
from analysis.attacks.victims import Victims
from analysis.tables import Table, plain, require_format, to_json
from analysis.tables import render as render_table
from testbed.adversary.crafted_models import (
    ImprintOptions,
    SendCraftedModel,
    SendDifferentModels,
    imprint_of,
    inspectable,
)
from testbed.adversary.section import AdversarySection, name_of, options
from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.aggregation.lightsecagg.parameters import LightSecAggParameters
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from testbed.records.arrays import RoundAggregate

RECOVERED_DB = 30.0
"""A sample counts as recovered from this peak signal-to-noise ratio on, at which no difference is visible."""
_VICTIM = re.compile(rf"{SendDifferentModels.name}: client (\d+) was sent the model")
_QUANTISED = (SecAggParameters, LightSecAggParameters, FlamingoParameters, OneShotParameters)
_UNQUANTISED = 1e-6  # of the largest coordinate: differences that count as rounding where updates are not quantised


@dataclass(frozen=True)
class RecoveredUpdate:
    """The recovered update of the victim of `send-different-models` in one round.

    Attributes:
        round, victim: numbers.
        dimension: d.
        recovered: coordinates with an error that the rounding of the summands explains; None where updates have noise,
            as its steps are as long as many a coordinate.
        largest_error: largest error of a coordinate, in steps of the quantisation; None without quantisation.
        relative_error: |d - d^|^2 / |d|^2.
    """

    round: int
    victim: int
    dimension: int
    recovered: int | None
    largest_error: float | None
    relative_error: float


@dataclass(frozen=True)
class RecoveredSamples:
    """The samples recovered by `send-crafted-model` in one round.

    Attributes:
        round: its number.
        clients: number of clients in the sum.
        samples: number of samples of these clients.
        bins: number of bins that were not empty.
        recovered: samples that some bin shows with `RECOVERED_DB` or more.
        psnr: `(samples,)` dB, by the bin that shows each sample best.
    """

    round: int
    clients: int
    samples: int
    bins: int
    recovered: int
    psnr: Floats


def recovered_updates(run: RunRecords, victims: Victims) -> list[RecoveredUpdate]:
    """Recover the victims' updates in the completed rounds of `send-different-models`.

    Args:
        run: its records, with aggregates.
        victims: of the run.

    Raises:
        ExperimentError: if the run has not recorded an aggregate.
    """
    section, updates = victims.experiment.aggregation, []
    step = _step(section)
    dishonest = _dishonest(run)
    for number, detail, aggregate in _attacked(run, SendDifferentModels.name):
        match = _VICTIM.match(detail)
        if match is None:
            continue
        victim, weights = int(match[1]), victims.weights
        survivors = _survivors(run, number)
        if victim not in survivors:  # its update is in no sum
            continue
        total = aggregate.mean * aggregate.weight
        for client in sorted(dishonest[number] & survivors):  # colluding clients tell the server their updates
            total = total - weights[client] * _clipped(section, victims, client, aggregate, number)
        true = _clipped(section, victims, victim, aggregate, number)
        error = np.abs(total / weights[victim] - true)
        others = sum(weights[client] for client in survivors) / weights[victim]
        # Each summand is rounded by up to a step, and the sum is divided by the victim's weight.
        allowed = others * step if step else _UNQUANTISED * float(np.abs(true).max())
        updates.append(
            RecoveredUpdate(
                number,
                victim,
                len(true),
                None if noise_of(section) is not None else int((error <= allowed).sum()),
                float(error.max() / step) if step else None,
                float((error @ error) / max(float(true @ true), 1e-300)),
            )
        )
    return updates


def recovered_samples(run: RunRecords, victims: Victims) -> list[RecoveredSamples]:
    """Recover training samples in the completed rounds of `send-crafted-model`.

    Args:
        run: its records, with aggregates.
        victims: of the run.

    Raises:
        ExperimentError: if the run has not recorded an aggregate.
    """
    workload, rows = victims.workload, []
    for number, _, aggregate in _attacked(run, SendCraftedModel.name):
        survivors = sorted(_survivors(run, number))
        trained = run.exchanges.query("round == @number and stage == 'train'")["client"].to_numpy(np.int64)
        expected = int(victims.workload.sample_counts[trained].sum())
        made = imprint_of(inspectable(workload), expected, _gain(run), number)
        bins = made.samples_in(aggregate.mean * aggregate.weight)
        true = np.concatenate([victims.samples(client) for client in survivors]).reshape(-1, made.pixels)
        peak = float(np.ptp(inspectable(workload).known_samples()))
        best = np.full(len(true), -np.inf)
        for candidate in bins:
            error = np.square(true - candidate).mean(axis=1)
            # A copy without error counts as 120 dB, not as infinite.
            best = np.maximum(best, 10 * np.log10(peak**2 / np.maximum(error, 1e-12 * peak**2)))
        recovered = int((best >= RECOVERED_DB).sum())
        rows.append(RecoveredSamples(number, len(survivors), len(true), len(bins), recovered, best))
    return rows


def _attacked(run: RunRecords, name: str) -> list[tuple[int, str, RoundAggregate]]:
    """Return the completed rounds in which `name` was carried out: number, detail of the event, and aggregate.

    Raises:
        ExperimentError: if the run has not recorded an aggregate.
    """
    done = set(run.rounds.loc[run.rounds["outcome"] == "completed", "round"])
    events = attacks(run.events, name)
    attacked = []
    for number, detail in zip(events["round"].tolist(), events["detail"].tolist(), strict=True):
        if number not in done:
            continue
        aggregate = run.aggregate(number)
        if aggregate is None:
            raise ExperimentError(
                f"{run.path}: has no aggregate of round {number}; run it with records.aggregates: all"
            )
        attacked.append((number, detail, aggregate))
    return attacked


def _survivors(run: RunRecords, number: int) -> set[int]:
    rows = run.participation
    return set(rows.loc[rows["survived"] & (rows["round"] == number), "client"].tolist())


def _dishonest(run: RunRecords) -> dict[int, set[int]]:
    rows = run.participation
    rows = rows[rows["dishonest"]]
    by_round: dict[int, set[int]] = {number: set() for number in run.rounds["round"]}
    for number, client in zip(rows["round"].tolist(), rows["client"].tolist(), strict=True):
        by_round[number].add(client)
    return by_round


def _gain(run: RunRecords) -> float:
    section = AdversarySection.model_validate(run.experiment["adversary"])
    (entry,) = (entry for entry in section.server if name_of(entry) == SendCraftedModel.name)
    chosen = options(SendCraftedModel, entry)
    assert isinstance(chosen, ImprintOptions)
    return chosen.gain


def _step(section: AggregationParameters) -> float:
    """Return the distance of two values of a summed coordinate; 0 for floats, or where rotated updates are rounded."""
    if isinstance(section, PineParameters):
        return float(2.0**-section.fraction_bits)
    if noise_of(section) is not None or not isinstance(section, _QUANTISED):
        return 0.0
    return float(2 * section.quantisation.clip / section.quantisation.highest)


def _clipped(
    section: AggregationParameters, victims: Victims, client: int, aggregate: RoundAggregate, number: int
) -> Floats:
    """Return a client's update as clipped before summing: the server cannot recover more."""
    delta = victims.workload.train(client, aggregate.model, number).delta.astype(np.float64)
    clipped: Floats = delta
    if (noise := noise_of(section)) is not None:
        clipped = delta * min(1.0, noise.clip / max(float(np.linalg.norm(delta)), 1e-300))
    elif isinstance(section, PineParameters):
        clipped = section.encode(delta.astype(np.float32))[: len(delta)] / 2.0**section.fraction_bits
    elif isinstance(section, _QUANTISED):
        clipped = np.clip(delta, -section.quantisation.clip, section.quantisation.clip)
    return clipped


# -- the table ------------------------------------------------------------------------------------------------------


def other_models(runs: Sequence[RunRecords]) -> pd.DataFrame:
    """Tabulate the information gained, one row per run that sends other models.

    Columns: label; selection, aggregation, binding; attack; rounds (attacked), completed; clients (in a sum, mean);
    refused_by (checks); for `send-different-models`: of (coordinates of an update), recovered (of them, mean),
    largest_error (steps), relative_error (mean); for `send-crafted-model`: of (samples in a sum, mean), recovered (of
    them, mean), psnr (median of the recovered ones, dB).

    Raises:
        ExperimentError: if no run sends other models, or one has not recorded an aggregate.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        section = run.experiment.get("adversary")
        names = [] if not section else [name_of(entry) for entry in AdversarySection.model_validate(section).server]
        for name in (SendDifferentModels.name, SendCraftedModel.name):
            if name in names:
                rows.append(_row(run, name))
    if not rows:
        raise ExperimentError(
            f"{runs[0].path if runs else 'no run'}: no run here has adversary.server: {SendDifferentModels.name} or "
            f"{SendCraftedModel.name}"
        )
    return pd.DataFrame(rows)


def _row(run: RunRecords, name: str) -> dict[str, Any]:
    events, aggregation = run.events, run.experiment["aggregation"]
    attacked = attacks(events, name)["round"]
    refused = events.loc[(events["kind"] == "refusal") & events["round"].isin(attacked), "detail"]
    row: dict[str, Any] = {
        "label": run.label,
        "selection": run.experiment["selection"]["protocol"],
        "aggregation": aggregation["protocol"],
        "binding": aggregation.get("model_binding", "none"),
        "attack": name,
        "rounds": len(attacked),
        # The detail of a refusal begins with the name of the check.
        "refused_by": sorted({detail.partition(":")[0] for detail in refused}),
    }
    victims = Victims(run)
    if name == SendDifferentModels.name:
        updates = recovered_updates(run, victims)
        return row | {
            "completed": len(updates),
            "of": victims.workload.dimension,
            "recovered": _mean([result.recovered for result in updates if result.recovered is not None]),
            "largest_error": max(
                (result.largest_error for result in updates if result.largest_error is not None), default=None
            ),
            "relative_error": _mean([result.relative_error for result in updates]),
        }
    samples = recovered_samples(run, victims)
    return row | {
        "completed": len(samples),
        "clients": _mean([result.clients for result in samples]),
        "of": _mean([result.samples for result in samples]),
        "recovered": _mean([result.recovered for result in samples]),
        "psnr": _mean(
            [float(np.median(result.psnr[result.psnr >= RECOVERED_DB])) for result in samples if result.recovered]
        ),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def render(frame: pd.DataFrame, format: str = "text") -> str:
    """Render the table of `other_models`, ending in a line feed.

    Args:
        frame: of `other_models`.
        format: ``text``, ``markdown`` or ``json``.
    """
    require_format(format, "text", "markdown", "json")
    if format == "json":
        rows = [{key: value for key, value in row.items() if value is not None} for row in plain(frame)]
        return to_json({"rows": rows})
    return render_table(_table(frame), format)


def _table(frame: pd.DataFrame) -> Table:
    heads = ["Run", "Attack", "Model binding", "Rounds", "Completed", "Recovered (mean)", "Error", "Failed check"]
    rows = []
    for row in plain(frame):
        updates = row["attack"] == SendDifferentModels.name
        recovered, error = "–", "–"
        if row["recovered"] is not None:
            counted = "coordinates" if updates else f"samples of {row['clients']:g} clients"
            recovered = f"{row['recovered']:.4g} of {row['of']:.4g} {counted}"
        if updates and row["completed"]:
            steps = row["largest_error"]
            error = f"{row['relative_error']:.2g} relative" + (
                "" if steps is None else f", max. {steps:.2g} quantisation steps"
            )
        elif row.get("psnr") is not None:
            error = f"{row['psnr']:.3g} dB PSNR"
        counts = [str(row["rounds"]), str(row["completed"])]
        refused = ", ".join(row["refused_by"]) or "nobody"
        rows.append([row["label"], row["attack"], row["binding"], *counts, recovered, error, refused])
    return Table(heads, rows, ruled=False)
