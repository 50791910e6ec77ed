"""Remark 3 of Multi-RoundSecAgg, measured: how well least squares recovers updates that move, beside the theorem.

So et al., Securing Secure Aggregation, arXiv 2106.03328, Remark 3: "When the models change over rounds, the multi-round
privacy guarantee becomes even stronger as the number of unknowns increases." The runs train on digits with several
learning rates. In a window of rounds the participants are trained again on each round's model, so that all changes are
known; the reference of a client is its mean update over its own rounds of the window. The theorem is that of
`analysis.bounds.moving_updates`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.attacks.reconstruction import View, view
from analysis.attacks.victims import Victims
from analysis.bounds.moving_updates import independent_error, least_amplification, recoveries
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import PaperClaim, above, between, equal
from analysis.statistics import mean_interval
from testbed.arrays import Floats
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

POPULATION, PARTICIPANTS = 40, 8
"""Those of Figure 10."""

RATES = (0.1, 0.01, 0.001)
BATCH_SIZES = {"whole data": 100, "mini-batches of 10": 10}
"""Samples of a gradient step; no client has 100 samples, so that a step on the whole data is not random."""

BEFORE = 100
"""Rounds before the window."""

WINDOWS = (60, 120)
TOLERANCE = 1e-6
"""Relative rounding error of sums and linear programs."""

NEAR = 4.0
"""Factor by which the measured error may differ from that of independent changes."""


@dataclass(frozen=True)
class WindowScale:
    """Number of runs of each kind."""

    seeds: int


SCALES = {"small": WindowScale(3), "paper": WindowScale(10)}


def experiment(rate: float, batch_size: int, seeds: int) -> Experiment:
    """Return the runs of one learning rate, with records of the sums of the longest window.

    Args:
        rate: learning rate.
        batch_size: samples of a gradient step.
        seeds: number of runs.
    """
    last = BEFORE + WINDOWS[-1]
    return declared(
        f"moving updates, rate {rate:g}, batch {batch_size}",
        "{aggregation: {protocol: plain, weights: equal}, cluster: {network: in-process}}",
        {
            "rounds": last,
            "population": POPULATION,
            "workload": {
                "dataset": "digits",
                "model": "mlp",
                "batch_size": batch_size,
                "learning_rate": rate,
                "momentum": 0.0,
                "evaluate_every": last,
                "partition": {"scheme": "label-shards", "shards_per_client": 1},
            },
            "selection": {"protocol": "random", "participants": PARTICIPANTS},
            "records.aggregates": [BEFORE + 1, last],
            "sweep": {"seed": list(range(1, seeds + 1))},
        },
    )


def measure_moving_updates(context: ReproductionContext) -> Measurements:
    """Train, train the participants of the windows again, and attack the sums."""
    seeds = SCALES[context.scale].seeds
    rows = []
    for rate in RATES:
        for name, batch_size in BATCH_SIZES.items():
            context.progress(f"rate {rate:g}, {name}: {seeds} runs of {BEFORE + WINDOWS[-1]} rounds")
            folder = context.out / f"runs-{rate:g}-{batch_size}"
            for run in context.run_experiment(experiment(rate, batch_size, seeds), folder):
                rows += [{"rate": rate, "steps": name, **row} for row in window_rows(run)]
    sizes = {"population": POPULATION, "participants": PARTICIPANTS, "rounds before": BEFORE}
    setting = Setting("stand-in", "UCI digits, 1,437 samples", list(range(1, seeds + 1)), sizes)
    return Measurements(setting, {"windows": pd.DataFrame(rows)})


def window_rows(run: RunRecords) -> list[dict[str, Any]]:
    """Return one row for each window of a run."""
    sums_view = view(run, BEFORE + 1, BEFORE + WINDOWS[-1])
    victims = Victims(run)
    every = np.zeros((*sums_view.participation.shape, len(sums_view.model)))
    for row, number in enumerate(sums_view.rounds.tolist()):
        aggregate = run.aggregate(number)
        assert aggregate is not None, "`view` has read the same rounds"
        for client in np.flatnonzero(sums_view.participation[row]).tolist():
            every[row, client] = victims.workload.train(client, aggregate.model, number).delta
    return [{"seed": run.experiment["seed"], **window_row(sums_view, every, rounds)} for rounds in WINDOWS]


def window_row(sums_view: View, every: Floats, rounds: int) -> dict[str, Any]:
    """Return changes and errors of the first rounds of a window, relative to the median norm of the references.

    Args:
        sums_view: the server's view.
        every: `(r, n, d)` each participant's update; 0 for other clients.
        rounds: number of rounds.
    """
    matrix, updates, sums = sums_view.participation[:rounds].astype(np.float64), every[:rounds], sums_view.sums[:rounds]
    references = updates.sum(axis=0) / np.maximum(matrix.sum(axis=0), 1)[:, None]
    distances = np.linalg.norm(updates - references, axis=2)[matrix > 0]
    norm = float(np.median(np.linalg.norm(references, axis=1)))
    change, largest = float(np.sqrt((distances**2).mean())), float(distances.max())
    best = recoveries(matrix, np.eye(matrix.shape[1]))
    estimates = np.array([guess.coefficients @ sums for guess in best if guess.coefficients is not None])
    # Clients that the sums do not determine have no guarantee, and are left out of all errors.
    amplification = np.array([guess.amplification for guess in best])
    determined = np.isfinite(amplification)
    amplification, references = amplification[determined], references[determined]
    guaranteed = np.linalg.norm(estimates - references, axis=1)
    squares = np.linalg.norm((np.linalg.pinv(matrix) @ sums)[determined] - references, axis=1)
    together = updates.sum(axis=1)
    return {
        "rounds": rounds,
        "determined": int(determined.sum()),
        "change": change / norm,
        "largest change": largest / norm,
        "least A": float(amplification.min()),
        "largest A": float(amplification.max()),
        "guarantee": float(np.median(amplification)) * largest / norm,
        "largest error over guarantee": float((guaranteed / (amplification * largest)).max()),
        "error of least squares": float(np.sqrt((squares**2).mean())) / norm,
        "error if independent": change * float(np.sqrt((independent_error(matrix)[determined] ** 2).mean())) / norm,
        "sums differ": float(np.abs(together - sums).max() / np.abs(sums).max()),
    }


def conclude_moving_updates(measurements: Measurements) -> ReproductionResult:
    """Compare the errors with the theorem, with each other and with Remark 3."""
    rows = measurements.tables["windows"]
    seeds = rows["seed"].nunique()
    worst, floor = float(rows["largest error over guarantee"].max()), least_amplification(PARTICIPANTS)
    ratio = rows["error of least squares"] / rows["error if independent"]
    correlations = {
        rounds: mean_interval([_rank_correlation(rows, rounds, seed) for seed in sorted(set(rows["seed"]))])
        for rounds in WINDOWS
    }
    short, long = WINDOWS
    paired = rows.pivot(index=["rate", "steps", "seed"], columns="rounds", values="error of least squares")
    logarithms = pd.Series(np.log(paired[long] / paired[short]), index=paired.index)
    longer = mean_interval(logarithms.groupby(level="seed").mean())
    hidden = rows[rows["error of least squares"] >= 1]
    return ReproductionResult(
        table=table(rows),
        claims=[
            PaperClaim(
                "No estimate by the coefficients of A is further off than delta A (theorem), and A is at least 2K - 1",
                f"largest error over delta A of any client: {worst:.3f}; A from {rows['least A'].min():.1f} to "
                f"{rows['largest A'].max():.1f}",
                [
                    between("largest error over delta A", worst, 0.0, 1.0 + TOLERANCE),
                    between("least A", float(rows["least A"].min()), floor * (1 - TOLERANCE)),
                    equal("windows whose sums differ from the clients' updates", float(_different(rows)), 0.0),
                ],
                seeds=seeds,
            ),
            PaperClaim(
                "The more the updates change, the larger the error of the reconstruction (Remark 3)",
                "rank correlation of change and error over rates and steps: "
                + "; ".join(f"{rounds} rounds {interval.mean:.2f}" for rounds, interval in correlations.items()),
                [above("rank correlation", interval) for interval in correlations.values()],
                seeds=seeds,
            ),
            PaperClaim(
                "The error is that of independent changes, within a factor of four",
                f"measured over computed error: {ratio.min():.2f} to {ratio.max():.2f}",
                [
                    between("least ratio", float(ratio.min()), 1 / NEAR, NEAR),
                    between("largest ratio", float(ratio.max()), 1 / NEAR, NEAR),
                ],
                seeds=seeds,
            ),
            PaperClaim(
                "Changes delay the reconstruction: twice the rounds lower the error",
                f"log of the error with {long} rounds over that with {short}: {longer.mean:.2f}",
                [between("log of the ratio", longer, most=0.0)],
                seeds=seeds,
            ),
        ],
        remarks=[
            "Changes and errors are in median norms of the references. change: root mean square over clients and "
            "rounds; delta: the largest. The guarantee is delta times the median A.",
            f"In {len(hidden)} of {len(rows)} windows the error of least squares is the norm of an update or more.",
            f"N = {POPULATION}, K = {PARTICIPANTS}, random selection, one label a client, everybody available, windows "
            f"from round {BEFORE + 1} on. Participants are trained again on each round's model.",
        ],
    )


def _different(rows: pd.DataFrame) -> int:
    return int((rows["sums differ"] > 1e-3).sum())


def _rank_correlation(rows: pd.DataFrame, rounds: int, seed: int) -> float:
    """Return Spearman's rank correlation of change and error over learning rates and steps."""
    of_seed = rows[(rows["rounds"] == rounds) & (rows["seed"] == seed)]
    return float(of_seed["change"].corr(of_seed["error of least squares"], method="spearman"))


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means over the seeds, by rate, steps and window."""
    columns = [
        "change",
        "largest change",
        "error of least squares",
        "error if independent",
        "guarantee",
        "largest error over guarantee",
    ]
    means = rows.groupby(["rate", "steps", "rounds"], sort=False)[columns].mean().reset_index()
    return means.rename(columns={"largest change": "delta", "rate": "learning rate"})


REPRODUCTIONS = (
    Reproduction(
        "batches-moving-updates",
        "Recovery of updates that change from round to round, beside the exact bound",
        "So et al., Multi-RoundSecAgg, arXiv 2106.03328, Remark 3",
        measure=measure_moving_updates,
        conclude=conclude_moving_updates,
        built_in_data="stand-in",
    ),
)
