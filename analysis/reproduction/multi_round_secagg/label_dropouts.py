"""Random against weighted random selection, with one label per client and dropouts that grow with the label.

Table 5 of So et al. (arXiv 2106.03328) has 85.79% for random and 94.04% for weighted random selection, and explains the
difference by fairness. Here possible causes of the difference are varied: the learning rate, and a ReLU on the logits,
as in the public notebook. For a seed, both selections have the same data, first model and absences.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ttest_ind

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.multi_round_secagg.published import (
    COMPARABLE,
    PARTITION,
    RANDOM,
    SCHEMES,
    STORED_5_SEEDS,
    TABLE_5,
    WEIGHTED,
)
from analysis.reproduction.multi_round_secagg.tasks import DIGITS, MNIST, MNIST_SMALL, Task
from analysis.reproduction.multi_round_secagg.training import experiment
from analysis.reproduction.training_runs import AccuracyCurves, describe_data, late_recalls
from analysis.reproduction.verdicts import Check, PaperClaim, above, plus_minus, within
from analysis.statistics import Interval, interval_of, mean_interval
from testbed.arrays import Floats
from testbed.errors import ExperimentError
from testbed.records import RunRecords

COMPARED = (RANDOM, WEIGHTED)
AWAY_MOST = (8, 9)
"""Labels with the clients that drop out most: with probabilities of 0.46 and 0.5."""

LOST = 10.0
"""Recall [%] up to which a label counts as lost: no better than guessing."""

RECTIFIED = "analysis.reproduction.multi_round_secagg.rectified:Rectified"
"""Class of a workload; its module needs torch, which listing the reproductions does not import."""

PLAIN, RELU = "plain logits", "ReLU"


@dataclass(frozen=True)
class Factors:
    """Varied factors and number of repetitions.

    Attributes:
        task: workload without the varied factors.
        rates: learning rates.
        seeds: number of paired repetitions.
    """

    task: Task
    rates: tuple[float, ...]
    seeds: int


BUILT_IN = Factors(DIGITS, (0.1, 0.03), 5)
SMALL = Factors(replace(MNIST_SMALL, rounds=100, evaluations=50), (0.1, 0.03, 0.01), 15)
PAPER = Factors(replace(MNIST, rounds=300, evaluations=100), (0.1, 0.03, 0.01), 20)


def factors_of(context: ReproductionContext) -> Factors:
    """Return the factors at the context's scale.

    Raises:
        ExperimentError: the paper's scale lacks the paper's data.
    """
    if context.data is None and context.scale == "paper":
        raise ExperimentError(
            "multiround-label-dropouts: --scale paper learns mnist itself; give the folder of its files with --data DIR"
        )
    factors = BUILT_IN if context.data is None else SMALL if context.scale == "small" else PAPER
    return factors if context.seeds is None else replace(factors, seeds=context.seeds)


@dataclass(frozen=True)
class LabelDropoutResult:
    """Result of one selection's runs with one learning rate and last layer; arrays are over the seeds, in percent.

    Attributes:
        last: accuracy of the last evaluation.
        late: mean accuracy over the evaluations of the last tenth of rounds.
        recalls: `(seeds, labels)` means over the same evaluations.
    """

    last: Floats
    late: Floats
    recalls: Floats

    @property
    def away_most(self) -> Floats:
        """Mean recall of the labels in `AWAY_MOST`."""
        return np.asarray(self.recalls[:, list(AWAY_MOST)].mean(axis=1), np.float64)

    @property
    def worst(self) -> Floats:
        """Recall of the worst label."""
        return np.asarray(self.recalls.min(axis=1), np.float64)

    @property
    def lost(self) -> Floats:
        """Number of lost labels."""
        return np.asarray((self.recalls <= LOST).sum(axis=1), np.float64)


Outcomes = Mapping[tuple[float, str], Mapping[str, LabelDropoutResult]]
"""Results by learning rate and last layer, then by selection."""


def measure_label_dropouts(context: ReproductionContext) -> Measurements:
    """Train both selections with every learning rate, last layer and seed."""
    factors = factors_of(context)
    rows, recalls = list[dict[str, Any]](), list[dict[str, Any]]()
    for seed in range(1, factors.seeds + 1):
        context.progress(f"seed {seed} of {factors.seeds}: {len(factors.rates)} rates, two last layers")
        for layer in (PLAIN, RELU):
            task = _task(factors.task, layer, context.data)
            selections = [SCHEMES[name] for name in COMPARED]
            swept = experiment(task, "non-IID", seed, selections, factors.rates)
            folder = context.out / "runs" / f"{layer.split()[0].lower()}-seed-{seed}"
            points = iter(context.run_experiment(swept, folder))
            for rate in factors.rates:
                for name in COMPARED:
                    key = {"rate": rate, "last layer": layer, "selection": name, "seed": seed}
                    of_run, of_labels = _of_run(next(points))
                    rows.append(key | of_run)
                    recalls += [key | {"label": label, "recall": recall} for label, recall in enumerate(of_labels)]
    task = _task(factors.task, PLAIN, context.data)
    return Measurements(
        Setting(
            "stand-in" if context.data is None else "paper",
            data=describe_data({**task.workload, **task.settings["non-IID"]}, task.population),
            seeds=list(range(1, factors.seeds + 1)),
            sizes={"population": task.population, "participants": task.participants, "rounds": task.rounds},
            differs=list(task.notes),
        ),
        {"runs": pd.DataFrame(rows), "recalls": pd.DataFrame(recalls)},
    )


def _of_run(run: RunRecords) -> tuple[dict[str, float], list[float]]:
    """Return the accuracies of a run, and the recall of each label, in percent."""
    curves = AccuracyCurves.of([run])
    return {"last": float(curves.last[0]), "late": float(curves.late[0])}, late_recalls([run])[0].tolist()


def outcomes_of(measurements: Measurements) -> Outcomes:
    """Return the results by learning rate, last layer and selection."""
    outcomes: dict[tuple[float, str], dict[str, LabelDropoutResult]] = {}
    recalls = measurements.tables["recalls"]
    keys = ["rate", "last layer", "selection"]
    for key, rows in measurements.tables["runs"].groupby(keys, sort=False):
        of_labels = recalls[(recalls[keys] == list(key)).all(axis=1)]
        by_seed = of_labels.pivot(index="seed", columns="label", values="recall").to_numpy(np.float64)
        rate, layer, name = float(rows["rate"].iloc[0]), str(key[1]), str(key[2])
        last, late = (rows[column].to_numpy(np.float64) for column in ("last", "late"))
        outcomes.setdefault((rate, layer), {})[name] = LabelDropoutResult(last, late, by_seed)
    return outcomes


def conclude_label_dropouts(measurements: Measurements) -> ReproductionResult:
    """Compare both selections."""
    frame, setting = table(outcomes_of(measurements)), measurements.setting
    return ReproductionResult(frame, claims=claims(frame, len(setting.seeds)), remarks=remarks(setting))


def _task(task: Task, layer: str, data: Path | None) -> Task:
    workload = dict(task.workload)
    if data is not None:
        workload["path"] = str(data)
    if layer == RELU:
        workload |= {"dataset": RECTIFIED, "options": {"dataset": workload["dataset"]}}
    return replace(task, workload=workload)


def table(outcomes: Outcomes) -> pd.DataFrame:
    """Return a row for each rate and last layer: both selections, and their differences by seed with intervals."""
    rows = []
    for (rate, layer), of_names in outcomes.items():
        row: dict[str, object] = {"rate": f"{rate:g}", "last layer": layer}
        for name in COMPARED:
            row[f"{name} %"] = float(of_names[name].late.mean())
        for measure in ("late", "last", "away_most", "worst", "lost"):
            difference = _difference(of_names, measure)
            row |= {_HEADINGS[measure]: difference.mean, f"± {_HEADINGS[measure]}": difference.half_width}
        row |= {f"{name} labels 8, 9 %": float(of_names[name].away_most.mean()) for name in COMPARED}
        rows.append(row)
    return pd.DataFrame.from_records(rows)


_HEADINGS = {
    "late": "late", "last": "last", "away_most": "labels 8, 9", "worst": "worst label", "lost": "labels lost",
}  # fmt: skip


def _difference(of_names: Mapping[str, LabelDropoutResult], measure: str) -> Interval:
    """Return the mean of weighted random minus random, seed by seed."""
    return mean_interval(getattr(of_names[WEIGHTED], measure) - getattr(of_names[RANDOM], measure))


UNTRAINED = min(row.non_iid for row in TABLE_5.values())
"""Accuracy [%] below which a factor counts as failed training: the lowest of Table 5, of partition."""


def claims(frame: pd.DataFrame, seeds: int) -> list[PaperClaim]:
    """Return the claims on Table 5's difference, its size, and the reason that the paper gives.

    Factors with which training fails are not judged.

    Args:
        frame: as `table` makes it.
        seeds: number of seeds of each difference.
    """
    published = TABLE_5[WEIGHTED].non_iid - TABLE_5[RANDOM].non_iid
    stored = stored_difference()
    return [
        _claim(
            "weighted random is better than random (one label per client, dropouts by label), under every factor",
            frame, "late", seeds, lambda what, gap: above(what, gap),
        ),
        _claim(
            f"it is better by {published:.2f} points (Table 5)",
            frame, "late", seeds, lambda what, gap: within(what, gap, published, COMPARABLE),
            f"; the five stored seeds of the public runs: {plus_minus(stored, '+.2f')}",
        ),
        _claim(
            "labels with the clients that drop out most are recognised less under random (the reason given: fairness)",
            frame, "away_most", seeds, lambda what, gap: above(what, gap),
        ),
    ]  # fmt: skip


def stored_difference() -> Interval:
    """Return weighted random less random of the public runs behind Table 5, with Welch's 95% interval [points]."""
    test = ttest_ind(STORED_5_SEEDS[WEIGHTED], STORED_5_SEEDS[RANDOM], equal_var=False)
    low, high = test.confidence_interval(0.95)
    return Interval(float(low + high) / 2, float(high - low) / 2)


def _claim(
    claim: str,
    frame: pd.DataFrame,
    measure: str,
    seeds: int,
    judged: Callable[[str, Interval], Check],
    addition: str = "",
) -> PaperClaim:
    heading = _HEADINGS[measure]
    trained = (frame[[f"{name} %" for name in COMPARED]] >= UNTRAINED).all(axis=1)
    gaps = [interval_of(row[heading], row[f"± {heading}"]) for _, row in frame.iterrows()]
    names = [f"{row['rate']}, {row['last layer']}" for _, row in frame.iterrows()]
    text = "; ".join(
        f"{name}: {plus_minus(gap, '+.2f')}{'' if is_trained else ' (training fails, not judged)'}"
        for name, gap, is_trained in zip(names, gaps, trained, strict=True)
    )
    checks = [
        judged("points of weighted over random", gap)
        for gap, is_trained in zip(gaps, trained, strict=True)
        if is_trained
    ]
    return PaperClaim(claim, text + addition, checks, seeds=seeds)


def remarks(setting: Setting) -> list[str]:
    """Return the data, and the meaning of the columns.

    Args:
        setting: setting of the measurements.
    """
    sizes = setting.sizes
    return [
        f"Data: {setting.data}.",
        *setting.differs,
        f"{sizes['rounds']:.0f} rounds, {len(setting.seeds)} seeds; N = {sizes['population']:.0f}, K = "
        f"{sizes['participants']:.0f}; one label per client; a client is away with a probability that grows with its "
        "label from 0.1 to 0.5. F of random is therefore large, that of weighted random is not.",
        "late, last, labels 8, 9, worst label, labels lost: weighted random less random, seed by seed, with the "
        "half-width of 95% intervals. late: the mean over the evaluations of the last tenth of rounds, as the recalls; "
        f"lost: recognised in {LOST:g}% or less.",
        "ReLU: the logits pass a ReLU, as in the public notebook. Training counts as failed where a selection is below "
        f"{UNTRAINED:g}%, Table 5's {PARTITION}.",
        "Table 5 prints "
        f"{TABLE_5[RANDOM].non_iid:g} for random. The public runs have after the last round "
        f"{_listed(STORED_5_SEEDS[RANDOM])}, and {_listed(STORED_5_SEEDS[WEIGHTED])} for weighted random.",
    ]


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


REPRODUCTIONS = (
    Reproduction(
        "multiround-label-dropouts",
        "Random against weighted random when clients of some labels drop out more: learning rate and last layer",
        "So et al., Multi-RoundSecAgg, arXiv 2106.03328, Table 5 (non-IID) and appendix F; first version, section 6",
        data_files="MNIST's idx files (all four, or the test files alone)",
        takes_seeds=True,
        built_in_data="stand-in",
        measure=measure_label_dropouts,
        conclude=conclude_label_dropouts,
    ),
)
