"""Lotto's Figure 9: time to accuracy, or perplexity, of informed selection.

Jiang et al., arXiv 2401.02880, section 5.3.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.comparison.targets import model_changed
from analysis.plot_data import plot_data
from analysis.reproduction.contract import Measurements, ReproductionContext, ReproductionResult
from analysis.reproduction.lotto import heterogeneous_clients as clients
from analysis.reproduction.lotto.published import ROUNDS, Application
from analysis.reproduction.verdicts import Check, PaperClaim
from analysis.statistics import Interval, mean_interval
from analysis.style import one_panel, save
from testbed.arrays import Floats


class TimeToAccuracyScale(NamedTuple):
    """Number of rounds and seeds, and the target."""

    rounds: int  # of each run
    seeds: int  # repetitions
    target: float  # accuracy to reach on generated data; of words, the perplexity


SCALES: dict[Application, dict[str, TimeToAccuracyScale]] = {
    "FEMNIST": {"small": TimeToAccuracyScale(30, 8, 0.7), "paper": TimeToAccuracyScale(50, 3, 0.85)},
    "OpenImage": {"small": TimeToAccuracyScale(30, 3, 0.2), "paper": TimeToAccuracyScale(100, 3, 0.276)},
    "Reddit": {"small": TimeToAccuracyScale(20, 6, 22.0), "paper": TimeToAccuracyScale(50, 3, 1010.0)},
}
"""Scales by application. At scale small, every strategy reaches the target on the generated task well before the last
round."""


def _lotto(combine: str) -> dict[str, Any]:
    refine = {"by": ["latency", "loss"], "combine": combine, "exclude": clients.EXCLUDE}
    return {"protocol": "lotto-client-centric", "refine": refine}


STRATEGIES: dict[str, dict[str, Any]] = {
    "Rand": {"protocol": "random"},
    "Oort": {"protocol": "oort"},
    "Lotto, or": _lotto("or"),
    "Lotto, and": _lotto("and"),
    "Lotto, joint": _lotto("joint"),
}
_COLOURS = {
    "Rand": "#000000",
    "Oort": "#E69F00",
    "Lotto, or": "#D55E00",
    "Lotto, and": "#56B4E9",
    "Lotto, joint": "#009E73",
}
SPREAD = 1.2
"""Factor to either side of a published speed-up that counts as the same: the paper's own ratio of Lotto (or) to Oort is
1.1 on two data sets and "nearly identical" on the third, and our data are generated."""

OVER_RAND: dict[Application, float] = {"FEMNIST": 2.1, "OpenImage": 3.0, "Reddit": 1.6}
"""Speed-up of Lotto (or) over Rand in time to the target (section 5.3)."""
OVER_OORT: dict[Application, float] = {"FEMNIST": 1.1, "OpenImage": 1.0, "Reddit": 1.1}
"""Speed-up of Lotto (or) over Oort; for OpenImage the text says "nearly identical"."""
TARGETS: dict[Application, float] = {"FEMNIST": 0.698, "OpenImage": 0.276, "Reddit": 1010.0}
"""The paper's targets, which are those of runs on the applications' data sets."""


_COLUMNS = ["round", "outcome", "started_s", "ended_s", "accuracy", "loss"]


def measure_fig9(application: Application, context: ReproductionContext) -> Measurements:
    """Train with every strategy and every seed.

    Args:
        application: application of the panel.
        context: where and how to run.
    """
    scale, setting = SCALES[application][context.scale], clients.setting_of(application, context)
    seeds = list(range(1, scale.seeds + 1))
    parts = []
    for name, selection in STRATEGIES.items():
        context.progress(f"{name}: {scale.rounds} rounds, {scale.seeds} seeds")
        swept = clients.experiment(setting, f"fig9, {name}", scale.rounds, selection, {"seed": seeds})
        folder = name.lower().replace(", ", "-")
        runs = context.run_experiment(swept, context.out / "runs" / folder)
        parts += [run.rounds[_COLUMNS].assign(strategy=name, seed=seed) for seed, run in zip(seeds, runs, strict=True)]
    rounds = pd.concat(parts, ignore_index=True)[["strategy", "seed", *_COLUMNS]]
    target = scale.target if context.data is None else TARGETS[application]
    of_all = ROUNDS[application]
    differs = [] if scale.rounds == of_all else [f"rounds: {scale.rounds}; the paper: {of_all}"]
    return Measurements(
        clients.measured_setting(setting, scale.rounds, seeds, differs, {"target": target}),
        {"rounds": rounds},
        figures=draw(rounds, target, measure_of(application), context.out / clients.panel_name("fig9", application)),
    )


def conclude_fig9(application: Application, measurements: Measurements) -> ReproductionResult:
    """Compare the times to the target with section 5.3.

    Args:
        application: application of the panel.
        measurements: from `measure_fig9`.
    """
    setting, rounds = measurements.setting, measurements.tables["rounds"]
    target, measure = float(setting.choices["target"]), measure_of(application)
    seconds = {
        str(name): [(time_to(run, target, measure), float(run["ended_s"].iloc[-1])) for _, run in of_it.groupby("seed")]
        for name, of_it in rounds.groupby("strategy", sort=False)
    }
    times = {
        name: Times(np.array([time for time, _ in of_it]), np.array([end for _, end in of_it]))
        for name, of_it in seconds.items()
    }
    return ReproductionResult(
        _table(application, rounds, times, measure),
        claims=claims(application, times),
        remarks=[
            *clients.remarks(application, setting),
            f"Target: {measure.format_target(target)} on held-out samples; the paper's "
            f"{measure.format_target(TARGETS[application])} is of {application}. Times are the first evaluation that "
            f"meets it, of {len(setting.seeds)} seeds, with 95% intervals; speed-ups are of pairs of equal seeds "
            "(equal data, devices and first model), as geometric means.",
            "A run that ends before the target is censored: its time is at least the length of the run. A ratio with "
            "such a run has one bound only, and its interval is that of the bounds.",
            "Rounds that Lotto aborts for lack of candidates count with their time.",
        ],
    )


@dataclass(frozen=True)
class Measure:
    """Measure of a model's quality.

    Attributes:
        name: name for people.
        column: column of a run's rounds.
        least: whether smaller values are better; they are exponentials of the column.
        factor: factor from a value to its text.
        unit: unit in the text.
    """

    name: str
    column: str
    least: bool = False
    factor: float = 1.0
    unit: str = ""

    def of(self, rounds: pd.DataFrame) -> Floats:
        """Return the value of each of `(rounds,)`, NaN where the model was not evaluated."""
        values = rounds[self.column].to_numpy(np.float64)
        return np.exp(values) if self.least else values

    def format_target(self, value: float) -> str:
        """Return a target as text."""
        return f"{self.name} {self.factor * value:g}{self.unit}"


ACCURACY = Measure("accuracy", "accuracy", factor=100, unit="%")
PERPLEXITY = Measure("perplexity", "loss", least=True)


def measure_of(application: Application) -> Measure:
    """Return the measure of an application's model."""
    return PERPLEXITY if application == "Reddit" else ACCURACY


def time_to(rounds: pd.DataFrame, target: float, measure: Measure = ACCURACY) -> float:
    """Return the seconds of the run's clock until the first evaluation of a changed model that meets the target.

    Args:
        rounds: rounds of the run.
        target: value to reach.
        measure: measure of the target.

    Returns:
        NaN if no evaluation meets the target.
    """
    values = measure.of(rounds)
    meets = (values <= target if measure.least else values >= target) & model_changed(rounds)
    reached = rounds.loc[meets, "ended_s"]
    return float(reached.iloc[0]) if len(reached) else float("nan")


@dataclass(frozen=True)
class Times:
    """Times of one strategy's runs.

    Attributes:
        seconds: `(seeds,)` seconds to the target; NaN: the run ended before.
        ends: `(seeds,)` seconds to the end of the run.
    """

    seconds: Floats
    ends: Floats

    @property
    def reached(self) -> NDArray[np.bool_]:
        """Whether each run reached the target, `(seeds,)`."""
        return ~np.isnan(self.seconds)

    @property
    def at_least(self) -> Floats:
        """Seconds to the target, or to the end of a run that did not reach the target; `(seeds,)`."""
        return np.where(self.reached, self.seconds, self.ends)


@dataclass(frozen=True)
class SpeedUp:
    """Geometric mean of the paired ratios of two strategies' times, with its 95% interval.

    Attributes:
        ratio: the mean; NaN if both runs of a pair ended before the target, or if some ratios have a lower and others
            an upper bound.
        low, high: ends of the interval; 0 or infinity where runs that ended before the target leave the ratio open.
    """

    ratio: float
    low: float
    high: float

    @property
    def is_bound(self) -> bool:
        """Whether the ratio is only a bound."""
        return self.low == 0 or math.isinf(self.high)

    def __str__(self) -> str:
        """Return ratio and interval."""
        if self.low == 0:
            return f"at most {self.ratio:.2f} (upper end {self.high:.2f})"
        if math.isinf(self.high):
            return f"at least {self.ratio:.2f} (lower end {self.low:.2f})"
        return f"{self.ratio:.2f} ({self.low:.2f} to {self.high:.2f})"


def minutes_to(times: Floats) -> Interval:
    """Return the mean of `(seeds,)` seconds, in minutes; nothing if a seed has no time.

    The mean of the other seeds would be a mean of the fast ones.
    """
    return Interval(None, None) if np.isnan(times).any() else mean_interval(times / 60)


def speed_up(slower: Times, faster: Times) -> SpeedUp:
    """Return the speed-up of one strategy over another, over pairs of equal seeds.

    Args:
        slower: times in the numerators.
        faster: times in the denominators.
    """
    open_above, open_below = ~slower.reached, ~faster.reached  # a longer time makes the ratio larger, or smaller
    if (open_above & open_below).any() or (open_above.any() and open_below.any()):
        return SpeedUp(math.nan, 0.0, math.inf)
    # Logarithms: a ratio and its inverse then have the same interval.
    interval = mean_interval(np.log(slower.at_least / faster.at_least))
    assert interval.mean is not None
    half = math.inf if interval.half_width is None else interval.half_width
    low, high = math.exp(interval.mean - half), math.exp(interval.mean + half)
    return SpeedUp(math.exp(interval.mean), 0.0 if open_below.any() else low, math.inf if open_above.any() else high)


def _table(
    application: Application, rounds: pd.DataFrame, times: Mapping[str, Times], measure: Measure
) -> pd.DataFrame:
    over_rand, over_oort = OVER_RAND[application], OVER_OORT[application]
    published = {"Rand": 1.0, "Oort": over_rand / over_oort, "Lotto, or": over_rand}
    rows = []
    for name, of_name in times.items():
        minutes, ratio = minutes_to(of_name.seconds), speed_up(times["Rand"], of_name)
        of_it = rounds[rounds["strategy"] == name]
        last = [float(measure.of(run)[-1]) for _, run in of_it.groupby("seed")]
        rows.append(
            {
                "strategy": name,
                "min to target": minutes.mean,
                "±": minutes.half_width,
                "speed-up": ratio.ratio,
                "from": ratio.low or None,
                "to": None if math.isinf(ratio.high) else ratio.high,
                "speed-up (paper)": published.get(name),
                f"last {measure.name}": mean_interval(last).mean,
                "mean round s": float((of_it["ended_s"] - of_it["started_s"]).mean()),
                "reached": f"{int(of_name.reached.sum())} of {len(last)}",
                "aborted": f"{int((of_it['outcome'] == 'aborted').sum())} of {len(of_it)}",
            }
        )
    return pd.DataFrame.from_records(rows)


def claims(application: Application, times: Mapping[str, Times]) -> list[PaperClaim]:
    """Return the claims of section 5.3.

    Args:
        application: application with published numbers.
        times: times by strategy.
    """
    seeds = len(times["Rand"].seconds)

    def compare(claim: str, slower: str, faster: str, least: float, most: float = math.inf) -> PaperClaim:
        measured = speed_up(times[slower], times[faster])
        quantity = f"time of {slower} over that of {faster}"
        # Infinity, the open end of a bound, is not below itself: a bound is compared with the ends included.
        strict = (math.isinf(most) or math.isinf(least)) and not measured.is_bound
        if math.isnan(measured.ratio):
            check = Check(quantity, None, -math.inf, math.inf, least, most, strict)
            text = f"{quantity}, by seed: {_by_seed(times[slower], times[faster])}"
            return PaperClaim(claim, text, [check], seeds=seeds, not_run="censored")
        check = Check(quantity, measured.ratio, measured.low, measured.high, least, most, strict)
        text = f"{measured}: {quantity}"
        if measured.is_bound:
            text += f"; by seed: {_by_seed(times[slower], times[faster])}"
        return PaperClaim(claim, text, [check], seeds=seeds)

    def published(claim: str, slower: str, ratio: float) -> PaperClaim:
        return compare(claim, slower, "Lotto, or", ratio / SPREAD, ratio * SPREAD)

    over_rand, over_oort = OVER_RAND[application], OVER_OORT[application]
    close = "nearly identical" if over_oort == 1 else f"{over_oort:g} times as fast"
    no_faster = [compare("Lotto (and) is not faster than Rand", "Rand", "Lotto, and", -math.inf, 1)]
    return [
        compare("Lotto (or) is faster than Rand", "Rand", "Lotto, or", 1),
        published(f"Lotto (or) reaches the target {over_rand:g} times as fast as Rand", "Rand", over_rand),
        compare("Lotto (joint) is faster than Rand", "Rand", "Lotto, joint", 1),
        *(no_faster if application == "FEMNIST" else []),
        compare("or is faster than and", "Lotto, and", "Lotto, or", 1),
        compare("or is faster than joint", "Lotto, joint", "Lotto, or", 1),
        published(f"Lotto (or) is close to Oort: {close}", "Oort", over_oort),
    ]


def _by_seed(slower: Times, faster: Times) -> str:
    """Return the ratio of each pair; a bound where a run ended before the target."""
    signs = {(True, True): "", (True, False): "≤ ", (False, True): "≥ "}
    ratios = slower.at_least / faster.at_least
    pairs = zip(ratios, slower.reached, faster.reached, strict=True)
    return ", ".join(f"{signs[above, below]}{ratio:.2f}" if above or below else "open" for ratio, above, below in pairs)


def draw(rounds: pd.DataFrame, target: float, measure: Measure, path: Path) -> list[Path]:
    """Draw accuracy or perplexity over time, the mean of the seeds as long as all of them still run.

    Args:
        rounds: rounds of all runs, with the columns strategy and seed.
        target: value to reach.
        measure: measure of the target.
        path: path of the files, without extension.
    """
    with one_panel(2.2) as (figure, axes):
        for name, of_name in rounds.groupby("strategy", sort=False):
            runs = [run for _, run in of_name.groupby("seed")]
            end = min(float(run["ended_s"].iloc[-1]) for run in runs)
            grid = np.linspace(0, end, 200)
            curves = [measured_at(run, grid, measure) for run in runs]
            axes.plot(grid / 60, measure.factor * np.mean(curves, axis=0), label=name, color=_COLOURS[str(name)])
        axes.axhline(measure.factor * target, color="#7F7F7F", linewidth=0.8, linestyle=":")
        axes.set(xlabel="time [virtual min]", ylabel=f"{measure.name}{f' [{measure.unit}]' if measure.unit else ''}")
        if measure.least:
            axes.set_yscale("log")
        axes.grid(visible=True)
        axes.legend(loc="upper right" if measure.least else "lower right")
        return save(figure, path, plot_data(figure))


def measured_at(rounds: pd.DataFrame, grid: Floats, measure: Measure) -> Floats:
    """Return the last value measured before each moment; before the first evaluation 0, or NaN for perplexity.

    Args:
        rounds: rounds of the run.
        grid: `(g,)` moments in seconds.
        measure: the measure.
    """
    values, ended = measure.of(rounds), rounds["ended_s"].to_numpy(np.float64)
    values, ended = values[np.isfinite(values)], ended[np.isfinite(values)]
    place = np.searchsorted(ended, grid, side="right") - 1
    return np.where(place >= 0, values[np.maximum(place, 0)], np.nan if measure.least else 0.0)


REPRODUCTIONS = clients.panels(
    9,
    "Time to accuracy or perplexity with informed selection: Rand, Oort, and Lotto's or, and, joint",
    " and section 5.3",
    measure_fig9,
    conclude_fig9,
)
