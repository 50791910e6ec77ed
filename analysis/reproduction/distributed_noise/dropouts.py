"""Noise of sums when participants drop out, with and without enforcement, measured in sums.

Jiang, Wang, Chen, Dordis: Efficient Federated Learning with Dropout-Resilient Differential Privacy, EuroSys 2024, arXiv
2209.12528. The noise of a round is the server's mean minus the survivors' updates, which are trained once more.
"""

from typing import Any

import numpy as np
import pandas as pd

from analysis.attacks.victims import Victims
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import PaperClaim, above, below, between, equal, plus_minus
from analysis.statistics import mean_interval
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

TOLERATED = (None, 4, 8)
"""Tolerated dropouts T; None: no enforcement."""
PARTICIPANTS, THRESHOLD, CLIP, MULTIPLIER = 20, 0.6, 0.5, 2.0
DROPOUT_RATE = 0.15
ROUNDS, SEEDS = 20, {"small": 5, "paper": 20}
MARGIN = 0.03
"""Share of the noise's variance that may be missing or exceed the plan; one dropout costs at least one part in twenty.
"""


def experiment(tolerated: int | None, seeds: int) -> Experiment:
    """Return small models under real SecAgg; some of the participants drop out in the middle of a round.

    Args:
        tolerated: T; None: no enforcement.
        seeds: number of seeds.
    """
    noise: dict[str, Any] = {"mechanism": "skellam", "clip": CLIP, "noise_multiplier": MULTIPLIER}
    if tolerated is not None:
        noise["enforcement"] = {"tolerated_dropouts": tolerated}
    return declared(
        f"dropouts, T = {tolerated}",
        """
        population: 100
        workload: {dataset: digits, model: logistic, batch_size: 10, learning_rate: 0.1}
        selection: {protocol: random}
        aggregation: {protocol: secagg, weights: equal}
        privacy: {delta: 0.0001}
        records: {aggregates: all}
        time: {disconnects: visible, deadline_s: 30}
        """,
        {
            "rounds": ROUNDS,
            "workload.evaluate_every": ROUNDS,
            "selection.participants": PARTICIPANTS,
            "aggregation": {"threshold": THRESHOLD, "noise": noise},
            "availability": {"dropout": {"rate": DROPOUT_RATE, "stage": "random"}},
            "sweep": {"seed": list(range(1, seeds + 1))},
        },
    )


def measured(run: RunRecords) -> pd.DataFrame:
    """Return one row per completed round.

    Returns:
        Columns round, dropped (participants that dropped out before the sum), share (of the planned variance, by the
        privacy ledger) and measured (share of the planned variance, measured).
    """
    victims, rows = Victims(run), []
    ledger = run.frame("privacy").dropna(subset=["noise"])
    summed_up = run.participation[run.participation["survived"]]
    completed = run.rounds[run.rounds["outcome"] == "completed"]
    for number, participants in zip(completed["round"].tolist(), completed["participants"].tolist(), strict=True):
        aggregate = run.aggregate(number)
        assert aggregate is not None  # records.aggregates: all
        clients = summed_up.loc[summed_up["round"] == number, "client"].tolist()
        updates = [victims.workload.train(client, aggregate.model, number).delta for client in clients]
        summed = sum(delta * min(1.0, CLIP / float(np.linalg.norm(delta))) for delta in updates)
        noise = aggregate.mean * len(updates) - summed  # weights are equal
        rows.append(
            {
                "round": number,
                "dropped": participants - len(updates),
                "share": float(ledger.loc[ledger["round"] == number, "noise"].iloc[0]),
                "measured": float(np.square(noise).mean() / (MULTIPLIER * CLIP) ** 2),
            }
        )
    return pd.DataFrame(rows)


def measure_dropouts(context: ReproductionContext) -> Measurements:
    """Run rounds without enforcement, and with two tolerances."""
    seeds = context.seeds or SEEDS["small" if context.scale == "small" else "paper"]
    rounds, ledgers = [], []
    for tolerated in TOLERATED:
        context.progress(f"T = {tolerated}: {seeds} seeds, {ROUNDS} rounds")
        runs = context.run_experiment(experiment(tolerated, seeds), context.out / "runs" / f"tolerated-{tolerated}")
        name = "none" if tolerated is None else str(tolerated)
        for seed, run in enumerate(runs, 1):
            ledger = run.frame("privacy")
            rounds.append(measured(run).assign(tolerated=name, seed=seed))
            ledgers.append(
                {
                    "tolerated": name,
                    "seed": seed,
                    "epsilon": float(ledger["epsilon"].max()),
                    "planned epsilon": float(ledger["planned_epsilon"].max()),
                }
            )
    return Measurements(
        Setting(
            "stand-in",
            "UCI digits of scikit-learn, in the parts of 100 clients",
            seeds=list(range(1, seeds + 1)),
            sizes={
                "population": 100,
                "participants": PARTICIPANTS,
                "threshold": THRESHOLD,
                "rounds": ROUNDS,
                "noise multiplier": MULTIPLIER,
                "dropout rate": DROPOUT_RATE,
            },
            differs=[
                "digits and logistic regression instead of the paper's data and models",
                "noise of sums and epsilon instead of accuracy; time and traffic are not compared",
            ],
        ),
        {"rounds": pd.concat(rounds, ignore_index=True), "ledgers": pd.DataFrame(ledgers)},
    )


def conclude_dropouts(measurements: Measurements) -> ReproductionResult:
    """Compare the noise in sums, and the spent epsilon, with the plan."""
    rounds, sizes = measurements.tables["rounds"], measurements.setting.sizes
    return ReproductionResult(
        pd.DataFrame(
            [row for tolerated, part in rounds.groupby("tolerated", sort=False) for row in _rows(tolerated, part)]
        ),
        claims=claims(rounds, measurements.tables["ledgers"]),
        remarks=[
            f"{sizes['participants']} of {sizes['population']} clients in a round, t = {sizes['threshold']:g} s, "
            f"{sizes['dropout rate']:.0%} drop out in a random stage; {len(measurements.setting.seeds)} seeds of "
            f"{sizes['rounds']} rounds each. Digits, logistic regression, real SecAgg.",
            "measured: the mean square of the difference between the server's sum and the survivors' clipped "
            "updates, over the planned variance; ±: 95% interval over the rounds. ledger: the share that the privacy "
            "ledger charges.",
            "Participants that drop out after their input is in the sum do not count as dropouts here: the sum has "
            "their noise.",
            "T = 8 is s - t: more dropouts end the round. With T = 4, rounds with more dropouts lack some noise, and "
            "the ledger charges for it.",
            "The time and traffic of XNoise depend on the recovery of seeds, which differs here, so they are not "
            "judged.",
        ],
    )


def claims(rounds: pd.DataFrame, ledgers: pd.DataFrame) -> list[PaperClaim]:
    """Return the paper's claims on noise with and without XNoise.

    Args:
        rounds: one row per round, as `measure_dropouts` makes it.
        ledgers: one row per run, with the largest epsilon of a client and that with all of the planned noise.
    """
    tolerances = [name for name in rounds["tolerated"].unique() if name != "none"]
    without = rounds[(rounds["tolerated"] == "none") & (rounds["dropped"] > 0)]
    tolerable = {T: rounds[(rounds["tolerated"] == T) & (rounds["dropped"] <= int(T))] for T in tolerances}
    excess = ledgers["epsilon"] / ledgers["planned epsilon"]
    unenforced = excess[ledgers["tolerated"] == "none"].tolist()
    most = max(excess[ledgers["tolerated"] == max(tolerances, key=int)])
    lost, over, seeds = mean_interval(without["measured"]), mean_interval(unenforced), len(unenforced)
    return [
        PaperClaim(
            "dropouts leave less noise than planned, and cost more privacy, if no countermeasure is taken",
            f"{plus_minus(lost, '.3f')} of the planned variance in {len(without)} rounds with dropouts; the largest "
            f"epsilon is {plus_minus(over, '.3f')} times the planned one",
            [below("share of the planned variance", lost, 1.0), above("times the planned epsilon", over, 1.0)],
            seeds=seeds,
            uses_data=False,
        ),
        PaperClaim(
            "XNoise keeps the planned noise level with any dropouts up to the tolerance",
            "; ".join(
                f"T = {T}: {plus_minus(mean_interval(part['measured']), '.3f')} of the planned variance in "
                f"{len(part)} rounds with up to {part['dropped'].max()} dropouts"
                for T, part in tolerable.items()
            ),
            [
                check
                for T, part in tolerable.items()
                for check in (
                    between(
                        f"share of the planned variance, T = {T}",
                        mean_interval(part["measured"]),
                        1 - MARGIN,
                        1 + MARGIN,
                    ),
                    equal(f"least share that the ledger has, T = {T}", float(part["share"].min()), 1.0),
                )
            ],
            seeds=seeds,
            uses_data=False,
        ),
        PaperClaim(
            "with it no more privacy is spent than planned",
            f"largest epsilon over the planned one, of all seeds: {most:g}",
            [equal("most times the planned epsilon, T = s - t", most, 1.0)],
            seeds=seeds,
            uses_data=False,
        ),
    ]


def _rows(tolerated: object, rounds: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    for dropped, part in rounds.groupby("dropped"):
        ratio = mean_interval(part["measured"])
        rows.append(
            {
                "tolerated": tolerated,
                "dropped out": dropped,
                "rounds": len(part),
                "noise, ledger": float(part["share"].mean()),
                "noise, measured": ratio.mean,
                "±": ratio.half_width,
            }
        )
    return rows


REPRODUCTIONS = (
    Reproduction(
        "distributed-noise-dropouts",
        "The noise of sums when participants drop out, with and without XNoise",
        "Jiang, Wang, Chen, Dordis, EuroSys 2024, arXiv 2209.12528, abstract",
        takes_seeds=True,
        built_in_data="stand-in",
        measure=measure_dropouts,
        conclude=conclude_dropouts,
    ),
)
