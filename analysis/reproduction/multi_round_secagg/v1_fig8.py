"""Figure 8 of Multi-RoundSecAgg's first version: the clients' models recovered by least squares.

So et al., arXiv 2106.03328v1, appendix G.2. There the server solves for whole local models, and an error is relative to
the model's norm (35). A local model is the global model, which everybody has, plus a small update. So the error is
compared with the error of the global model as a guess for everybody's model. The public notebook
(Model_reconstruction_MNIST.ipynb in DGIST-Distributed-AI-Lab/multi-round-secagg) has a rate of 0.03, then 0.003 from
round 200 on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.attacks.reconstruction import errors, estimates, view
from analysis.attacks.reconstruction_output import histogram
from analysis.attacks.victims import Victims
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.training_runs import describe_data
from analysis.reproduction.verdicts import PaperClaim, below, equal, within
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
"""Factor by which our error may differ from the paper's, which is of one run."""

NOTEBOOK = {"own": 1.718e-3, "neighbours": 8.96e-4}
"""Mean errors that the public notebook prints: of each client's estimate, and of the mean of two neighbours'."""


@dataclass(frozen=True)
class ModelScale:
    """Workload and number of runs.

    Attributes:
        workload: keys of the workload.
        seeds: number of runs.
        differs: differences from the paper, one short line each.
    """

    workload: Mapping[str, Any]
    seeds: int
    differs: tuple[str, ...] = ()


_NOTEBOOK_RATES = {"learning_rate": 0.03, "learning_rate_decay": 0.1, "learning_rate_milestones": [200]}
SCALES = {
    "small": ModelScale(
        {"dataset": "digits", "model": "mlp", "batch_size": 7, "learning_rate": 0.1},
        5,
        ("data: UCI digits (paper: MNIST)", "model: mlp, not the CNN", "learning rate: 0.1 in all rounds"),
    ),
    "paper": ModelScale({"dataset": "mnist", "model": "mnist-cnn", "batch_size": 100, **_NOTEBOOK_RATES}, 5),
}
MNIST_SMALL = ModelScale(
    {"dataset": "mnist", "model": "lenet", "batch_size": 100, **_NOTEBOOK_RATES},
    5,
    (
        "model: LeNet of 61,706 parameters, not the CNN (the public notebook's has 62,346)",
        "without the notebook's weight decay and absences",
    ),
)
"""Scale small with files."""


def scale_of(context: ReproductionContext) -> ModelScale:
    """Return the workload and seeds at the context's scale."""
    scale = SCALES[context.scale]
    if context.data is None:
        return SCALES["small"]
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


def measure_v1_fig8(context: ReproductionContext) -> Measurements:
    """Train, and solve for the models."""
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
    return Measurements(
        Setting(
            "stand-in" if context.data is None else "paper",
            data=describe_data(scale.workload, POPULATION),
            seeds=list(range(1, seeds + 1)),
            sizes={"population": POPULATION, "participants": PARTICIPANTS, "rounds before the window": BEFORE},
            differs=list(scale.differs),
        ),
        {"runs": pd.DataFrame(rows)},
        histogram(errors_by_window, context.out / "multiround-v1-fig8"),
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
    neighbours = (estimated.updates[:-1] + estimated.updates[1:]) / 2
    return {
        "seed": run.experiment["seed"],
        "rounds": rounds,
        "determined": int(estimated.determined.sum()),
        "error": float(of_clients.mean()),
        "of the global model": float(guess.mean()),
        "of two neighbours' mean": float(errors(neighbours, true[:-1]).mean()),
        "condition": estimated.condition,
    }, of_clients


def conclude_v1_fig8(measurements: Measurements) -> ReproductionResult:
    """Compare the errors with the paper's, and with the error of the global model."""
    frame, setting = measurements.tables["runs"], measurements.setting
    neighbours = frame[frame["rounds"] == WINDOWS[0]]["of two neighbours' mean"]
    return ReproductionResult(
        table(frame),
        claims=claims(frame, setting.data_kind == "paper"),
        remarks=[
            f"Data: {setting.data}, IID; {len(setting.seeds)} seeds. {'; '.join(setting.differs)}.",
            "An error is relative to the squared norm of the local model (35). The global model, which the server "
            "sends and everybody has, is the first guess: its error is the squared norm of a client's own update over "
            "that of its model.",
            "Least squares amplifies the change of models within the window by the condition of P.",
            f"The public notebook (Model_reconstruction_MNIST.ipynb) prints {NOTEBOOK['own']:.3g} for each client's "
            f"own estimate, and {NOTEBOOK['neighbours']:.3g} for the mean of two neighbours' estimates; here the "
            f"latter is {_listed(neighbours)} by seed.",
        ],
    )


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over the seeds for each window.

    Args:
        frame: one row per window and seed.
    """
    rows = []
    for rounds, group in frame.groupby("rounds", sort=False):
        rows.append(
            {
                "rounds": str(rounds),
                "determined": f"{group['determined'].min()} of {POPULATION}",
                "mean error": float(group["error"].mean()),
                "lowest seed": float(group["error"].min()),
                "highest seed": float(group["error"].max()),
                "error of two neighbours' mean": float(group["of two neighbours' mean"].mean()),
                "error of the global model": float(group["of the global model"].mean()),
                "mean error (paper)": PAPER if rounds == WINDOWS[0] else None,
            }
        )
    return pd.DataFrame(rows)


def claims(frame: pd.DataFrame, is_papers: bool) -> list[PaperClaim]:
    """Return the claims of the sentences above the figure.

    Args:
        frame: one row per window and seed.
        is_papers: whether the data are the paper's.
    """
    window = frame[frame["rounds"] == WINDOWS[0]]
    seeds = len(window)
    level = mean_interval(np.log10(window["error"])) if is_papers else None
    shares = {
        int(group["rounds"].iloc[0]): np.log10(group["error"] / group["of the global model"])
        for _, group in frame.groupby("rounds", sort=False)
    }
    fewest = int(window["determined"].min())
    return [
        PaperClaim(
            "The mean error of the recovered models is 1.72e-3",
            f"by seed {_listed(window['error'])}",
            [within("log10 of the mean error", level, float(np.log10(PAPER)), float(np.log10(LEVEL)))],
            seeds=seeds,
            not_run="" if is_papers else "data",
        ),
        PaperClaim(
            "The sums of forty rounds determine all models",
            f"of {POPULATION}: {', '.join(str(count) for count in window['determined'])}",
            [equal("fewest determined", float(fewest), POPULATION)],
            seeds=seeds,
            uses_data=False,
        ),
        PaperClaim(
            "So small an error implies that the server reconstructs the local models",
            "error over that of the global model, which is not reconstructed from anything: "
            + "; ".join(f"{rounds} rounds {_listed(10**share)}" for rounds, share in shares.items()),
            [below(f"log10 of it, {rounds} rounds", mean_interval(share), 0.0) for rounds, share in shares.items()],
            seeds=seeds,
        ),
    ]


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


REPRODUCTIONS = (
    Reproduction(
        "multiround-v1-fig8",
        "The clients' models out of forty rounds' sums, beside the global model as a guess",
        "So et al., Multi-RoundSecAgg, arXiv 2106.03328v1, Figure 8 (appendix G.2)",
        data_files="MNIST's idx files (all four, or the test files alone)",
        takes_seeds=True,
        built_in_data="stand-in",
        measure=measure_v1_fig8,
        conclude=conclude_v1_fig8,
    ),
)
