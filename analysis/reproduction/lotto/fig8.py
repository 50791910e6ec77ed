"""Lotto's Figure 8: how different the clients are in data and in speed (Jiang et al., arXiv 2401.02880, section 5.3).

Data quality is the first term of Oort's utility, |B_i| sqrt(mean Loss^2), as a client would report it for the global
model of that moment; speed is the factor by which a device takes longer than the fastest.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.plot_data import plot_data
from analysis.reproduction.contract import ReproductionContext, ReproductionResult
from analysis.reproduction.lotto import heterogeneous_clients as clients
from analysis.reproduction.lotto.published import Application
from analysis.reproduction.verdicts import PaperClaim, above, between, plus_minus
from analysis.statistics import mean_interval
from analysis.style import PAGE_INCHES, house_style, save
from testbed.arrays import Floats
from testbed.engine.plan import RunPlan
from testbed.errors import RunError
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords


class HeterogeneityScale(NamedTuple):
    """Number of snapshots and seeds."""

    snapshots: tuple[int, ...]  # rounds after which every client's data quality is measured, ascending
    seeds: int  # repetitions; the figure shows the first


SCALES: dict[Application, dict[str, HeterogeneityScale]] = {
    "FEMNIST": {"small": HeterogeneityScale((1, 10, 30), 8), "paper": HeterogeneityScale((1, 10, 50), 3)},
    "OpenImage": {"small": HeterogeneityScale((1, 5, 15), 4), "paper": HeterogeneityScale((1, 10, 50), 3)},
    "Reddit": {"small": HeterogeneityScale((1, 5, 15), 4), "paper": HeterogeneityScale((1, 10, 50), 3)},
}


def run_fig8(application: Application, context: ReproductionContext) -> ReproductionResult:
    """Train with random selection up to each snapshot, and measure every client's data quality there.

    Args:
        application: application of the panel.
        context: where and how to run.
    """
    scale, setting = SCALES[application][context.scale], clients.SETTINGS[application][context.scale]
    every = [_look(context, setting, scale, seed) for seed in range(1, scale.seeds + 1)]
    return ReproductionResult(
        _table(*every[0]),
        figures=draw(*every[0], context.out / clients.panel_name("fig8", application)),
        claims=claims(every),
        remarks=[
            *clients.remarks(setting),
            "The paper draws the distributions and states no numbers for them, other than that at most 5% of clients "
            "are among the worst 20% by both measures.",
            f"Table and figure show the first of {scale.seeds} seeds; claims are over all of them.",
        ],
    )


Heterogeneity = tuple[dict[int, Floats], Floats]
"""Traits of one seed's clients: `(n,)` data quality by snapshot, and `(n,)` compute times relative to the fastest."""


def _look(
    context: ReproductionContext, setting: clients.ClientSetting, scale: HeterogeneityScale, seed: int
) -> Heterogeneity:
    snapshots = scale.snapshots
    swept = clients.experiment(setting, "fig8", snapshots[-1], {"protocol": "random"}, {"rounds": snapshots})
    swept = swept.model_copy(update={"seed": seed})
    context.progress(f"seed {seed} of {scale.seeds}: data quality of {setting.population} clients")
    runs = context.run_experiment(swept, context.out / "runs" / f"fig8-seed-{seed}")
    quality = {rounds: qualities(run) for rounds, run in zip(snapshots, runs, strict=True)}
    return quality, RunPlan(_experiment(runs[-1]), 0).speed_factors()


def _experiment(run: RunRecords) -> Experiment:
    return Experiment.model_validate({key: run.experiment[key] for key in run.experiment if key != "provenance"})


def qualities(run: RunRecords) -> Floats:
    """Return |B_i| sqrt(mean Loss^2) of every client for the run's last model, as in its next report; `(n,)`."""
    import workloads

    done = _experiment(run)
    model = run.model
    if model is None:
        raise RunError(f"{run.path}: no round was finished; delete the directory and start again")
    workload = workloads.build(done.workload, done.population, done.seed or 0)
    quality = np.empty(done.population)
    for client in range(done.population):
        # Clients report losses of the training itself, so data quality is measured by one more round of it.
        update = workload.train(client, model, done.rounds + 1)
        squared = update.loss**2 if update.squared_loss is None else update.squared_loss
        quality[client] = update.samples * np.sqrt(squared)
    return quality


def _table(quality: Mapping[int, Floats], factors: Floats) -> pd.DataFrame:
    measured = {f"data quality, round {rounds}": values for rounds, values in quality.items()}
    measured["compute time, fastest = 1"] = factors
    rows = []
    for name, values in measured.items():
        low, median, high = np.quantile(values, [0.1, 0.5, 0.9])
        spread = float(np.std(values) / np.mean(values))
        rows.append(
            {
                "of clients": name,
                "10%": low,
                "median": median,
                "90%": high,
                "largest": values.max(),
                "std / mean": spread,
            }
        )
    return pd.DataFrame.from_records(rows)


def worst_by_both(quality: Floats, factors: Floats) -> float:
    """Return the share of clients that are among the worst 20% by data quality and by speed.

    Unrelated measures have a share of 0.04.

    Args:
        quality: `(n,)` data quality.
        factors: `(n,)` compute times.
    """
    count = int(clients.EXCLUDE * len(quality))
    poor, slow = np.argsort(quality, kind="stable")[:count], np.argsort(-factors, kind="stable")[:count]
    return len(np.intersect1d(poor, slow)) / len(quality)


MOST_BY_BOTH = 5.0
"""Percent of the clients: "observed to be at most 5%" in the paper; unrelated measures have 4% in common."""

DIFFERENT = 1.5
"""Ratio of the 90% quantile to the 10% quantile above which clients' data count as different; the paper states no
number."""


def claims(every: Sequence[Heterogeneity]) -> list[PaperClaim]:
    """Return the claims of section 5.3 about the figure.

    Args:
        every: data qualities and compute times of each seed.
    """
    snapshots = list(every[0][0])
    shares = {
        at: mean_interval([100 * worst_by_both(quality[at], factors) for quality, factors in every]) for at in snapshots
    }
    spreads = {
        at: mean_interval([float(np.divide(*np.quantile(quality[at], [0.9, 0.1]))) for quality, _ in every])
        for at in snapshots
    }
    return [
        PaperClaim(
            "at most 5% of clients are among the worst 20% by speed and by data quality",
            "; ".join(f"round {at}: {plus_minus(share, '.1f')}%" for at, share in shares.items()),
            [between(f"% of clients, round {at}", share, most=MOST_BY_BOTH) for at, share in shares.items()],
            seeds=len(every),
        ),
        PaperClaim(
            "clients' data differ in quality in every snapshot",
            "90% quantile over 10% quantile: "
            + "; ".join(f"round {at}: {plus_minus(ratio, '.1f')}" for at, ratio in spreads.items()),
            [above(f"ratio of quantiles, round {at}", ratio, DIFFERENT) for at, ratio in spreads.items()],
            seeds=len(every),
        ),
    ]


def draw(quality: Mapping[int, Floats], factors: Floats, path: Path) -> list[Path]:
    """Draw cumulative distributions: data quality by snapshot, and the speed of devices.

    Args:
        quality: `(n,)` data quality by snapshot.
        factors: `(n,)` compute times.
        path: path of the files, without extension.
    """
    with house_style():
        figure = Figure(figsize=(PAGE_INCHES, 2.0), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for (rounds, values), shade in zip(quality.items(), np.linspace(0.75, 0.1, len(quality)), strict=True):
            _cumulative(left, values, label=f"round {rounds}", color=colormaps["viridis"](shade))
        left.set(xlabel="data quality", ylabel="share of clients")
        left.legend(loc="lower right")
        _cumulative(right, factors, label="", color="#000000")
        right.set(xlabel="compute time (fastest: 1)", xscale="log")
        for axes in (left, right):
            axes.grid(visible=True)
        return save(figure, path, plot_data(figure))


def _cumulative(axes: Axes, values: Floats, *, label: str, color: object) -> None:
    axes.step(np.sort(values), np.arange(1, len(values) + 1) / len(values), where="post", label=label, color=color)


REPRODUCTIONS = clients.panels(
    8,
    "Heterogeneity: clients' data quality over the rounds, and the speed of their devices",
    " and (d)",
    run_fig8,
)
