"""Lotto's Figure 8: how different the clients are in data and in speed (Jiang et al., arXiv 2401.02880, section 5.3).

Data quality is the first term of Oort's utility, |B_i| sqrt(mean Loss^2), as a client would report it for the global
model of that moment; speed is the factor by which a device takes longer than the fastest.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import zeta

from analysis.plot_data import plot_data
from analysis.reproduction.contract import Measurements, ReproductionContext, ReproductionResult
from analysis.reproduction.lotto import heterogeneous_clients as clients
from analysis.reproduction.lotto.published import ROUNDS, Application
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


def measure_fig8(application: Application, context: ReproductionContext) -> Measurements:
    """Train with random selection up to each snapshot, and measure every client's data quality there.

    Args:
        application: application of the panel.
        context: where and how to run.
    """
    scale, setting = SCALES[application][context.scale], clients.setting_of(application, context)
    seeds = range(1, scale.seeds + 1)
    table = pd.concat([_clients(context, setting, scale, seed) for seed in seeds], ignore_index=True)
    last = scale.snapshots[-1]
    shown = ", ".join(map(str, scale.snapshots))
    differs = [f"rounds: snapshots after rounds {shown}; the paper trains for {ROUNDS[application]}"]
    return Measurements(
        clients.measured_setting(setting, last, seeds, differs, {"snapshots": list(scale.snapshots)}),
        {"clients": table},
        figures=draw(table, scale.snapshots, context.out / clients.panel_name("fig8", application)),
    )


def conclude_fig8(application: Application, measurements: Measurements) -> ReproductionResult:
    """Compare the clients' differences with section 5.3.

    Args:
        application: application of the panel.
        measurements: from `measure_fig8`.
    """
    setting, table = measurements.setting, measurements.tables["clients"]
    snapshots = [int(rounds) for rounds in setting.choices["snapshots"]]
    return ReproductionResult(
        _table(table[table["seed"] == setting.seeds[0]], snapshots),
        claims=claims(table, snapshots),
        remarks=[
            *clients.remarks(application, setting),
            "The paper draws the distributions and states no numbers for them, other than that at most 5% of clients "
            "are among the worst 20% by both measures.",
            f"Table and figure show the first of {len(setting.seeds)} seeds; claims are over all of them.",
        ],
    )


QUALITY, TIME = "data quality, round {}", "compute time"
"""Columns of the measurements: by snapshot, |B_i| sqrt(mean Loss^2); and compute time relative to the fastest."""


def _clients(
    context: ReproductionContext, setting: clients.ClientSetting, scale: HeterogeneityScale, seed: int
) -> pd.DataFrame:
    """Return one row for each client of one seed."""
    snapshots = scale.snapshots
    swept = clients.experiment(setting, "fig8", snapshots[-1], {"protocol": "random"}, {"rounds": snapshots})
    evaluations = {"evaluate_every": snapshots[-1]}  # no accuracy is used
    swept = swept.model_copy(update={"seed": seed, "workload": swept.workload.model_copy(update=evaluations)})
    context.progress(f"seed {seed} of {scale.seeds}: data quality of {setting.population} clients")
    runs = context.run_experiment(swept, context.out / "runs" / f"fig8-seed-{seed}")
    quality = {QUALITY.format(rounds): qualities(run) for rounds, run in zip(snapshots, runs, strict=True)}
    factors = RunPlan(_experiment(runs[-1]), 0).speed_factors()
    return pd.DataFrame({"seed": seed, "client": np.arange(len(factors)), **quality, TIME: factors})


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


def _table(of_seed: pd.DataFrame, snapshots: Sequence[int]) -> pd.DataFrame:
    named = [QUALITY.format(rounds) for rounds in snapshots]
    measured = {name: of_seed[name].to_numpy(np.float64) for name in named}
    measured["compute time, fastest = 1"] = of_seed[TIME].to_numpy(np.float64)
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


def claims(table: pd.DataFrame, snapshots: Sequence[int]) -> list[PaperClaim]:
    """Return the claims of section 5.3 about the figure.

    Args:
        table: columns seed, `TIME`, and `QUALITY` of each snapshot; one row for each seed and client.
        snapshots: rounds after which data quality was measured.
    """
    every = [of_it for _, of_it in table.groupby("seed")]
    shares, spreads = {}, {}
    for at in snapshots:
        quality = [of_it[QUALITY.format(at)].to_numpy(np.float64) for of_it in every]
        both = [
            100 * worst_by_both(values, of_it[TIME].to_numpy(np.float64))
            for values, of_it in zip(quality, every, strict=True)
        ]
        shares[at] = mean_interval(both)
        spreads[at] = mean_interval([float(np.divide(*np.quantile(values, [0.9, 0.1]))) for values in quality])
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
        _skew(every[0][TIME].to_numpy(np.float64)),
    ]


def _skew(factors: Floats) -> PaperClaim:
    """Claim the skew of response latencies; the paper states neither a number nor the reading of its law.

    Args:
        factors: `(n,)` compute times.
    """
    a, count = clients.ZIPF, len(factors)
    spread = float(factors.max() / factors.min())
    # Of a draw k with P(k) proportional to k^-a, P(X > k) is zeta(a, k + 1) / zeta(a).
    numbers = np.arange(1, 10_000)
    median = int(numbers[np.searchsorted(1 - zeta(a, numbers + 1) / zeta(a), 0.5)])
    # For large k it is k^(1-a) / ((a - 1) zeta(a)).
    exceeded = 1 - 0.5 ** (1 / count)
    largest = -math.log10(exceeded * (a - 1) * zeta(a)) / (a - 1)
    return PaperClaim(
        "response latencies follow Zipf's law with a = 1.2, moderately skewed",
        f"by rank, i^-a as in section 3.5: the slowest of {count} devices takes {spread:.0f} times as long as the "
        f"fastest and {float(factors.max() / np.median(factors)):.0f} times the median ({700**a:.0f} and "
        f"{350**a:.0f} times for 700 devices). As independent draws from P(k) proportional to k^-a (NumPy's zipf): "
        f"half of the devices take at most {median} times the least, the slowest of {count} about 10^{largest:.0f} "
        "times, so that no round would end",
        undetermined="which reading is meant (rank or draw), its unit and range; and a number for 'moderately skewed'",
        uses_data=False,
    )


def draw(table: pd.DataFrame, snapshots: Sequence[int], path: Path) -> list[Path]:
    """Draw cumulative distributions of the first seed: data quality by snapshot, and the speed of devices.

    Args:
        table: as in `claims`.
        snapshots: rounds after which data quality was measured.
        path: path of the files, without extension.
    """
    first = table[table["seed"] == table["seed"].min()]
    quality = {rounds: first[QUALITY.format(rounds)].to_numpy(np.float64) for rounds in snapshots}
    factors = first[TIME].to_numpy(np.float64)
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
    measure_fig8,
    conclude_fig8,
)
