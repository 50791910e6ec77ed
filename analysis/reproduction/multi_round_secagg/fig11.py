"""Multi-RoundSecAgg's Figure 11: pictures from recovered updates, for T = 1, 2, 4.

So et al., arXiv 2106.03328, appendix H.2. In addition, which the paper does not try, a batch's mean is inverted as a
mean of several pictures.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import t as student

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import PaperClaim, above
from analysis.statistics import mean_interval
from analysis.style import house_style, save
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

if TYPE_CHECKING:
    from analysis.attacks.inversion import Inversion

POPULATION, PARTICIPANTS, ROUNDS = 40, 8, 60
PRIVACIES = (1, 2, 4)
ALONE, JOINTLY = "alone", "jointly"
_NAMES = {1: "random", 2: "T = 2", 4: "T = 4"}


@dataclass(frozen=True)
class InversionScale:
    """Victims of each T, and steps and starts of a search."""

    victims: int
    iterations: int
    starts: int


SHOWN_VICTIMS = 4  # number of victims with pictures in the figure
Shown = dict[str, "list[Inversion]"]

SCALES = {"small": InversionScale(8, 400, 2), "paper": InversionScale(40, 4000, 4)}


def experiment(dataset: str, data: Any = None) -> Experiment:
    """Return one image per client and one step per round, so that an update is a gradient, under SecAgg.

    Args:
        dataset: built-in data set.
        data: folder with its files; None: not needed.
    """
    # The small learning rate keeps the model still for sixty rounds, so that updates hardly change, as (31) assumes.
    return declared(
        f"multiround-fig11, {dataset}",
        """
        seed: 1
        workload: {model: mlp, samples_per_client: 1, batch_size: 1, momentum: 0.0, learning_rate: 0.0005}
        aggregation: {protocol: secagg, clip: 0.01, threshold: 5}
        cluster: {network: in-process}
        records: {aggregates: all}
        """,
        {
            "rounds": ROUNDS,
            "population": POPULATION,
            "workload": {"dataset": dataset, "evaluate_every": ROUNDS, **({} if data is None else {"path": str(data)})},
            "selection.participants": PARTICIPANTS,
            "sweep": {
                "selection": [
                    {"protocol": "random"},
                    *({"protocol": "batch-partition", "privacy": privacy} for privacy in PRIVACIES[1:]),
                ]
            },
        },
    )


def measure_fig11(context: ReproductionContext) -> Measurements:
    """Run, recover, invert and draw; on the digits, and on MNIST if its files are given."""
    scale, data = SCALES[context.scale], context.data
    frames, figures = [], []
    for dataset in ("digits",) if data is None else ("digits", "mnist"):
        runs = context.run_experiment(
            experiment(dataset, data if dataset == "mnist" else None), context.out / f"runs-{dataset}"
        )
        frame, shown = attacked(context, dataset, runs, scale)
        frames.append(frame)
        figures += side_by_side(shown, context.out / f"multiround-fig11-{dataset}")
    setting = Setting(
        "stand-in",
        data="UCI digits" if data is None else "UCI digits, MNIST",
        seeds=[1],
        sizes={"population": POPULATION, "participants": PARTICIPANTS, "rounds": ROUNDS, "victims": scale.victims},
        differs=["data: the paper's pictures are of another data set", "model: mlp", "one image a client, FedSGD"],
    )
    return Measurements(setting, {"victims": pd.concat(frames, ignore_index=True)}, figures)


def conclude_fig11(measurements: Measurements) -> ReproductionResult:
    """Compare the pictures' PSNR."""
    frame = measurements.tables["victims"]
    return ReproductionResult(table(frame), claims=claims(frame), remarks=[*remarks(measurements), *jointly(frame)])


def attacked(
    context: ReproductionContext, dataset: str, runs: list[RunRecords], scale: InversionScale
) -> tuple[pd.DataFrame, Shown]:
    """Return one row for each victim, T and way of inversion, and the first victims' pictures.

    Args:
        context: where and how to run.
        dataset: name of the data.
        runs: one run per T.
        scale: victims, steps and starts.
    """
    # Imported here, since it imports torch, which is not needed to list the reproductions.
    from analysis.attacks.inversion import Inverter, Search

    victims = np.linspace(0, POPULATION - 1, scale.victims).round().astype(int)
    rows: list[dict[str, Any]] = []
    shown: Shown = {}
    for run in runs:
        privacy = int(run.experiment["selection"].get("privacy", 1))
        inverter = Inverter(run, 1, ROUNDS)
        for way in (ALONE, JOINTLY) if privacy > 1 else (ALONE,):
            context.progress(f"{dataset}, {_NAMES[privacy]}, {way}: {scale.victims} victims")
            for victim in victims.tolist():
                inversion = inverter.invert(victim, Search(scale.iterations, scale.starts), alone=way == ALONE)
                rows.append(
                    {
                        "data": dataset,
                        "T": privacy,
                        "way": way,
                        "victim": victim,
                        "error": inversion.error,
                        "psnr": float(inversion.psnr.mean()),
                        "mse": float(inversion.mse.mean()),
                        "prior_psnr": float(-10 * np.log10(inversion.prior_mse.mean())),
                    }
                )
                if victim in victims[:SHOWN_VICTIMS]:
                    name = _NAMES[privacy] if privacy == 1 else f"{_NAMES[privacy]}, {way}"
                    shown.setdefault(name, []).append(inversion)
    return pd.DataFrame(rows), shown


def side_by_side(shown: Shown, path: Path) -> list[Path]:
    """Draw Figure 11: a line for each victim, with its picture, the recovered pictures and their PSNR.

    Args:
        shown: inversions by T and way.
        path: path of the files, without extension.
    """
    lines = list(zip(*shown.values(), strict=True))
    with house_style():
        figure, axes = plt.subplots(
            len(lines), 1 + len(shown), squeeze=False, figsize=(1.05 * (1 + len(shown)), 1.2 * len(lines) + 0.25)
        )
        for axis in axes.flat:
            axis.set_axis_off()
        for line, inversions in zip(axes, lines, strict=True):
            line[0].imshow(np.clip(inversions[0].originals[0], 0, 1), cmap="gray", vmin=0, vmax=1)
            for axis, inversion in zip(line[1:], inversions, strict=True):
                axis.imshow(np.clip(inversion.recovered.images[0], 0, 1), cmap="gray", vmin=0, vmax=1)
                axis.text(0.5, -0.04, f"{inversion.psnr[0]:.1f} dB", transform=axis.transAxes, ha="center", va="top")
        for axis, name in zip(axes[0], ("original", *shown), strict=True):
            axis.set_title(name)
        figure.tight_layout(pad=0.3)
        paths = save(figure, path)
        plt.close(figure)
    return paths


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over the victims, with 95% intervals of the PSNR."""
    rows = []
    for (dataset, _, way), group in frame.groupby(["data", "T", "way"], sort=False):
        privacy = int(group["T"].iloc[0])
        low, high = interval(group["psnr"])
        rows.append(
            {
                "data": dataset,
                "selection": _NAMES[privacy],
                "inverted": "own" if privacy == 1 else way,
                "update error": float(group["error"].mean()),
                "PSNR dB": float(group["psnr"].mean()),
                "95% low": low,
                "95% high": high,
                "MSE": float(group["mse"].mean()),
                "mean image, dB": float(group["prior_psnr"].mean()),
            }
        )
    return pd.DataFrame(rows)


def interval(values: "pd.Series[float]") -> tuple[float, float]:
    """Return Student's 95% interval of a mean."""
    reach = float(student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return float(values.mean()) - reach, float(values.mean()) + reach


MUCH_DB = 3.0
"""Difference of PSNR [dB] that counts as "much more": half of the mean squared error."""

CLAIM = "Random selection (T = 1) leaks much more of the images than T = 2 and 4 (PSNR, MSE)"


def claims(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claim that a larger T reveals less if the server inverts as in the paper; paired by victim."""
    stated = []
    for dataset, of_data in frame.groupby("data", sort=False):
        less = _less(of_data, ALONE)
        stated.append(
            PaperClaim(
                f"{CLAIM}: {dataset}",
                _format_psnr(of_data, ALONE),
                [above("dB less than at T = 1, by victim", mean_interval(each), MUCH_DB) for each in less.values()],
                seeds=1,
            )
        )
    return stated


def jointly(frame: pd.DataFrame) -> list[str]:
    """Return the differences that remain if the server searches for all pictures of a batch.

    The paper does not try this.
    """
    return [
        f"Jointly: {dataset}: {_format_psnr(of_data, JOINTLY)}."
        for dataset, of_data in frame.groupby("data", sort=False)
    ]


def _less(frame: pd.DataFrame, way: str) -> dict[int, "pd.Series[float]"]:
    """Return by T the PSNR [dB] that is lost relative to T = 1, for each victim."""
    own = frame[frame["T"] == 1].set_index("victim")["psnr"]
    batched = frame[frame["way"] == way]
    return {t: own - batched[batched["T"] == t].set_index("victim")["psnr"] for t in PRIVACIES[1:]}


def _format_psnr(frame: pd.DataFrame, way: str) -> str:
    own = frame.loc[frame["T"] == 1, "psnr"]
    differences = [
        f"T = {privacy}: {less.mean():.1f} dB less ({low:.1f} to {high:.1f})"
        for privacy, less in _less(frame, way).items()
        for low, high in [interval(less)]
    ]
    return f"{own.mean():.1f} dB at T = 1; {'; '.join(differences)}; {len(own)} victims"


def remarks(measurements: Measurements) -> list[str]:
    """Return the differences from the paper, and the limits of this reproduction."""
    is_of_digits_alone = set(measurements.tables["victims"]["data"]) == {"digits"}
    return [
        "Updates are recovered by least squares from the sums that SecAgg gave the server in sixty rounds; "
        f"{POPULATION} clients with one image each, eight a round, one step each (FedSGD) of a small rate.",
        "alone: the batch's mean is taken for the victim's own gradient, as the paper does. jointly: as many images as "
        "the batch has are sought at once, and the one most like the victim's is compared; which of them is the "
        "victim's the server does not know.",
        "Labels are inferred from the last layer's bias. The paper prints no numbers that could be read off; its "
        "pictures are of another data set.",
        f"Intervals are over the victims of one run for each T. Much more: {MUCH_DB:g} dB, half of the squared error.",
        *(("With --data DIR (MNIST's idx files) the same is done on MNIST.",) if is_of_digits_alone else ()),
    ]


REPRODUCTIONS = (
    Reproduction(
        "multiround-fig11",
        "Pictures out of recovered updates: random selection, batches of two and of four",
        "So et al., Multi-RoundSecAgg, arXiv 2106.03328, Figure 11 (appendix H.2)",
        data_files="MNIST's idx files (all four, or the test files alone)",
        built_in_data="stand-in",
        measure=measure_fig11,
        conclude=conclude_fig11,
    ),
)
