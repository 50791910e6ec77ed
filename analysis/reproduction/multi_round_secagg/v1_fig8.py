"""Figure 8 of Multi-RoundSecAgg's first version: the clients' models recovered by least squares.

So et al., arXiv 2106.03328v1, appendix G.2. There the server solves for whole local models, and an error is relative to
the model's norm (35). A local model is the global model, which everybody has, plus a small update. So the error is
compared with the error of the global model as a guess for everybody's model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.attacks.reconstruction import errors, estimates, view
from analysis.attacks.reconstruction_output import histogram
from analysis.attacks.victims import Victims
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import PaperClaim, below, equal, within_factor
from analysis.statistics import mean_interval
from testbed.arrays import Floats
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

POPULATION, PARTICIPANTS = 40, 8
BEFORE, WINDOWS = 259, (40, 60)
"""Rounds before the window, and lengths of the window: the paper's forty rounds from round 260 on, and half as many
more."""

PAPER = 1.72e-3
LEVEL = 2.0
"""Factor by which our error may differ from the paper's, which is of one run with an unstated learning rate."""


@dataclass(frozen=True)
class ModelScale:
    """Workload and number of runs."""

    workload: dict[str, Any]
    seeds: int
    is_papers: bool = False


SCALES = {
    "small": ModelScale({"dataset": "digits", "model": "mlp", "batch_size": 7, "learning_rate": 0.1}, 5),
    "paper": ModelScale({"dataset": "mnist", "model": "mnist-cnn", "batch_size": 100, "learning_rate": 0.1}, 5, True),
}
MNIST_SMALL = ModelScale({"dataset": "mnist", "model": "mlp", "batch_size": 100, "learning_rate": 0.1}, 5)
"""Scale small with files."""


def scale_of(context: ReproductionContext) -> ModelScale:
    """Return the workload and seeds at the context's scale."""
    scale = SCALES[context.scale]
    if context.data is None:
        return scale if context.scale == "small" else replace(SCALES["small"], seeds=scale.seeds)
    scale = MNIST_SMALL if context.scale == "small" else scale
    return replace(scale, workload={**scale.workload, "path": str(context.data)})


def experiment(scale: ModelScale, seeds: int) -> Experiment:
    """Return random selection, IID, with everybody available, and records of the window's sums.

    Args:
        scale: the workload.
        seeds: number of seeds.
    """
    last = BEFORE + WINDOWS[-1]
    return declared(
        "multiround-v1-fig8",
        """
        workload: {momentum: 0.0, partition: {scheme: iid}}
        selection: {protocol: random}
        aggregation: {protocol: plain}
        cluster: {network: in-process}
        """,
        {
            "rounds": last,
            "population": POPULATION,
            "workload": {**scale.workload, "evaluate_every": last},
            "selection.participants": PARTICIPANTS,
            "records.aggregates": [BEFORE + 1, last],
            "sweep": {"seed": list(range(1, seeds + 1))},
        },
    )


def run_v1_fig8(context: ReproductionContext) -> ReproductionResult:
    """Train, solve for the models, and compare with the global model."""
    scale = scale_of(context)
    seeds = context.seeds or scale.seeds
    context.progress(f"{BEFORE + WINDOWS[-1]} rounds, {seeds} seeds")
    rows: list[dict[str, Any]] = []
    errors_by_window: dict[str, Floats] = {}
    for run in context.run_experiment(experiment(scale, seeds), context.out / "runs"):
        for rounds in WINDOWS:
            row, of_clients = recovered(run, rounds)
            rows.append(row)
            errors_by_window.setdefault(f"{rounds} rounds", of_clients)
    frame = pd.DataFrame(rows)
    return ReproductionResult(
        table(frame),
        histogram(errors_by_window, context.out / "multiround-v1-fig8"),
        claims(frame, scale.is_papers),
        [
            f"Data: {scale.workload['dataset']}, IID, {scale.workload['model']}, a rate of "
            f"{scale.workload['learning_rate']:g} (the paper: MNIST, the CNN; its rate is not stated); {seeds} seeds.",
            "An error is relative to the squared norm of the local model (35). The global model, which the server "
            "sends and everybody has, is the first guess: its error is the squared norm of a client's own update over "
            "that of its model.",
            "Least squares amplifies the change of models within the window by the condition of P.",
        ],
    )


def recovered(run: RunRecords, rounds: int) -> tuple[dict[str, Any], Floats]:
    """Return the mean error of the estimated models and of the global model, and each client's error, `(m,)`.

    Args:
        run: records of the run.
        rounds: length of the window.
    """
    window = view(run, BEFORE + 1, BEFORE + rounds)
    victims = Victims(run)
    aggregates = [run.aggregate(number) for number in window.rounds.tolist()]
    models = np.array([aggregate.weight * aggregate.model for aggregate in aggregates if aggregate is not None])
    # Sums of whole local models, as in the first version: an update plus the round's global model.
    estimated = estimates(replace(window, sums=window.sums + models), victims.weights)
    updates = victims.updates(window.model, int(window.rounds[0]))[estimated.clients]
    true = window.model + updates
    of_clients = errors(estimated.updates, true)
    guess = errors(np.broadcast_to(window.model.astype(np.float64), true.shape), true)
    return {
        "seed": run.experiment["seed"],
        "rounds": rounds,
        "determined": int(estimated.determined.sum()),
        "error": float(of_clients.mean()),
        "of the global model": float(guess.mean()),
        "condition": estimated.condition,
    }, of_clients


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over the seeds for each window."""
    rows = []
    for rounds, group in frame.groupby("rounds", sort=False):
        rows.append(
            {
                "rounds": str(rounds),
                "determined": f"{group['determined'].min()} of {POPULATION}",
                "mean error": float(group["error"].mean()),
                "lowest seed": float(group["error"].min()),
                "highest seed": float(group["error"].max()),
                "error of the global model": float(group["of the global model"].mean()),
                "mean error (paper)": PAPER if rounds == WINDOWS[0] else None,
            }
        )
    return pd.DataFrame(rows)


def claims(frame: pd.DataFrame, is_papers: bool) -> list[PaperClaim]:
    """Return the claims of the sentences above the figure.

    Args:
        frame: one row per window and seed.
        is_papers: whether data and model are the paper's.
    """
    window = frame[frame["rounds"] == WINDOWS[0]]
    seeds = len(window)
    level = mean_interval(window["error"]) if is_papers else None
    shares = {
        int(group["rounds"].iloc[0]): np.log10(group["error"] / group["of the global model"])
        for _, group in frame.groupby("rounds", sort=False)
    }
    return [
        PaperClaim(
            "The mean error of the recovered models is 1.72e-3",
            f"by seed {_listed(window['error'])}",
            [within_factor("mean error, the paper's data and model", level, PAPER, LEVEL)],
            seeds=seeds,
        ),
        _determined([int(count) for count in window["determined"]]),
        PaperClaim(
            "So small an error implies that the server reconstructs the local models",
            "error over that of the global model, which is not reconstructed from anything: "
            + "; ".join(f"{rounds} rounds {_listed(10**share)}" for rounds, share in shares.items()),
            [below(f"log10 of it, {rounds} rounds", mean_interval(share), 0.0) for rounds, share in shares.items()],
            seeds=seeds,
        ),
    ]


def _determined(counts: Sequence[int]) -> PaperClaim:
    return PaperClaim(
        "The sums of forty rounds determine all models",
        f"of {POPULATION}: {', '.join(map(str, counts))}",
        [equal("fewest determined", float(min(counts)), POPULATION)],
        seeds=len(counts),
    )


def claims_of(table: pd.DataFrame, seeds: int) -> list[PaperClaim | None]:
    """Return the second claim if the fewest determined models are all, since then every seed determines all.

    Args:
        table: as `table` makes it, with means only.
        seeds: number of seeds of each mean.
    """
    fewest = int(table["determined"].iloc[0].partition(" ")[0])
    return [None, _determined([fewest] * seeds) if fewest == POPULATION else None, None]


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


REPRODUCTIONS = (
    Reproduction(
        "multiround-v1-fig8",
        "The clients' models out of forty rounds' sums, beside the global model as a guess",
        "So et al., Multi-RoundSecAgg, arXiv 2106.03328v1, Figure 8 (appendix G.2)",
        run_v1_fig8,
        data_files="MNIST's idx files (all four, or the test files alone)",
        takes_seeds=True,
        claims_of=claims_of,
    ),
)
