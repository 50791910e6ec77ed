"""Advantage of a server that can predict the selected clients: client-centric against server-centric Lotto.

The server of the server-centric variant can evaluate the public function in advance (arXiv 2401.02880, section 3.4 and
appendix B). So it can reserve a place for the client that will be selected most often; the privacy of many rounds
depends on that client's participations. With verifiable random functions it cannot. Here both variants are attacked
(`reserve-most-selected`): by prediction where possible, otherwise by guessing from past participations.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import binom

from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import Check, PaperClaim, above, equal
from analysis.statistics import Proportion, mean_interval
from testbed.arrays import Floats
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

POPULATION, PARTICIPANTS, FACTOR = 100, 10, 1.3
SCALES = {"small": (100, 10), "paper": (1000, 20)}  # rounds, and seeds
_VARIANTS = ("lotto-server-centric", "lotto-client-centric")
_SERVERS: dict[str, list[str]] = {"honest": [], "reserves a place": ["reserve-most-selected"]}


def experiment_of(variant: str, server: str, rounds: int, seeds: int) -> Experiment:
    """Return rounds in which only the server is dishonest.

    Args:
        variant: selection protocol.
        server: key of `_SERVERS`.
        rounds: number of rounds.
        seeds: number of seeds.
    """
    return declared(
        f"{variant}, {server}",
        """
        workload: {dataset: digits, model: logistic, batch_size: 100}
        aggregation: {protocol: plain}
        cluster: {network: in-process}
        """,
        {
            "rounds": rounds,
            "population": POPULATION,
            "workload.evaluate_every": rounds,
            "selection": {"protocol": variant, "participants": PARTICIPANTS, "over_selection": FACTOR},
            "adversary": {"dishonest": 0, "server": _SERVERS[server]},
            "sweep": {"seed": list(range(1, seeds + 1))},
        },
    )


def participations(run: RunRecords) -> npt.NDArray[np.int64]:
    """Return the number of rounds that each client took part in, `(n,)`."""
    return np.bincount(run.participation["client"], minlength=POPULATION)


def reserved_first(run: RunRecords) -> int | None:
    """Return the first client with a reserved place; None if there was none."""
    details = run.events.loc[run.events["kind"] == "attack", "detail"]
    return int(details.iloc[0].rpartition(" ")[2]) if len(details) else None


def most_of(rounds: int, probability: float) -> float:
    """Return the expected maximum of n independent Binomial(rounds, probability) variables.

    Args:
        rounds: number of rounds.
        probability: probability of each round.
    """
    reached = np.arange(rounds)
    # The expectation of a count is the sum of Pr[maximum > k] over k.
    return float((1 - binom.cdf(reached, rounds, probability) ** POPULATION).sum())


def run_unpredictability(context: ReproductionContext) -> ReproductionResult:
    """Run both variants under both servers, and count the participations of the client with the most."""
    rounds, seeds = SCALES[context.scale]
    rows, runs_of = [], {}
    for variant in _VARIANTS:
        for server in _SERVERS:
            context.progress(f"{variant}, server {server}: {rounds} rounds with each of {seeds} seeds")
            experiment = experiment_of(variant, server, rounds, seeds)
            runs = context.run_experiment(
                experiment, context.out / experiment.name.replace(", ", "-").replace(" ", "-")
            )
            rows.append(_row(variant, server, rounds, runs))
            runs_of[variant, server] = np.array([participations(run).max() for run in runs], np.float64)
    frame = pd.DataFrame(rows)
    remarks = (
        f"n = {POPULATION}, s = {PARTICIPANTS}, a = {FACTOR}, {rounds} rounds, means over {seeds} seeds; the paper "
        "argues and bounds (Corollaries 2 and 3), and measures nothing.",
        "`most`: participations of the client with the most. `first reserved`: those of the client that the server "
        "chose before the first round (server-centric: by prediction; client-centric: the first that it guessed).",
        f"The expected maximum is {most_of(rounds, PARTICIPANTS / POPULATION):.1f} for clients that take part with "
        f"probability s/n, {most_of(rounds, FACTOR * PARTICIPANTS / POPULATION):.1f} for being a candidate (a s/n).",
    )
    return ReproductionResult(frame, (), claims(frame, runs_of), remarks)


def _row(variant: str, server: str, rounds: int, runs: list[RunRecords]) -> dict[str, Any]:
    counts = [participations(run) for run in runs]
    reserved = [(count, client) for count, run in zip(counts, runs, strict=True) for client in [reserved_first(run)]]
    forced = [(int(count[client]), int(count.max())) for count, client in reserved if client is not None]
    return {
        "selection": variant,
        "server": server,
        "rounds": rounds,
        "seeds": len(runs),
        "most": float(np.mean([count.max() for count in counts])),
        "first reserved": float(np.mean([own for own, _ in forced])) if forced else None,
        "it is the most": sum(own == most for own, most in forced),
    }


def claims(frame: pd.DataFrame, most: Mapping[tuple[str, str], Floats]) -> list[PaperClaim]:
    """Return the claims on the advantage of prediction.

    Args:
        frame: one row per variant and server.
        most: `(seeds,)` participations of the client with the most, by variant and server.
    """
    predicted, guessed, honest = _rows(frame)
    more = mean_interval(most[_VARIANTS[0], "reserves a place"] - most[_VARIANTS[1], "reserves a place"])
    return [
        *_prediction_claims(frame),
        PaperClaim(
            "so the client-centric variant leaks less in the worst case",
            f"the most that a client takes part: {guessed['most']:.1f} by guessing, {predicted['most']:.1f} by "
            f"prediction; {honest[1]} and {honest[0]} under honest servers",
            [above("participations more by prediction than by guessing", more)],
            seeds=int(predicted["seeds"]),
        ),
    ]


def _rows(frame: pd.DataFrame) -> "tuple[pd.Series[Any], pd.Series[Any], list[str]]":
    """Return the rows of the predicting and of the guessing server, and the most under honest servers, by variant."""
    rows = {(row["selection"], row["server"]): row for _, row in frame.iterrows()}
    predicted, guessed = (rows[variant, "reserves a place"] for variant in _VARIANTS)
    return predicted, guessed, [f"{rows[variant, 'honest']['most']:.1f}" for variant in _VARIANTS]


def _prediction_claims(frame: pd.DataFrame) -> list[PaperClaim]:
    predicted, guessed, honest = _rows(frame)
    seeds = int(predicted["seeds"])
    hit = Proportion.of(int(guessed["it is the most"]), seeds)
    return [
        PaperClaim(
            "server-centric: the server predicts the client selected most often and reserves its place with certainty",
            f"named before round 1, that client took part most often of all with {predicted['it is the most']} of "
            f"{seeds} seeds: {predicted['first reserved']:.1f} times; under an honest server the most is {honest[0]}",
            [equal("share of the seeds", predicted["it is the most"] / seeds, 1)],
            seeds=seeds,
        ),
        PaperClaim(
            "client-centric: the server cannot predict the client selected most often until training stops",
            f"its first guess took part most often of all with {guessed['it is the most']} of {seeds} seeds",
            [Check("share of the seeds", hit.rate, hit.low, hit.high, most=1, strict=True)],
            seeds=seeds,
        ),
    ]


REPRODUCTIONS = (
    Reproduction(
        "lotto-unpredictability",
        "How often a server can make one client take part, with and without predicting the selected clients",
        "Lotto (arXiv 2401.02880), section 3.4 and appendix B; the paper gives no measurement",
        run_unpredictability,
        claims_of=lambda table, seeds: [*_prediction_claims(table), None],  # the last needs each seed's
    ),
)
