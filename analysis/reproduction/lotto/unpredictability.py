"""Advantage of a server that can predict the selected clients: client-centric against server-centric Lotto.

The server of the server-centric variant can evaluate the public function in advance (arXiv 2401.02880, section 3.4 and
appendix B). So it can reserve a place for the client that will be selected most often; the privacy of many rounds
depends on that client's participations. With verifiable random functions it cannot. Here both variants are attacked
(`reserve-most-selected`): by prediction where possible, otherwise by guessing from past participations. A further
statistic counts how many participants of a round are among the most frequent ones of the earlier rounds.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import binom

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import PaperClaim, above, between, equal
from analysis.statistics import Interval, mean_interval
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

POPULATION, PARTICIPANTS, FACTOR = 100, 10, 1.3
SCALES = {"small": (100, 5), "paper": (1000, 20)}  # rounds, and seeds
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


def named_in_advance(took_part: pd.DataFrame, rounds: int) -> tuple[int, int]:
    """Count the participants that were named before their round, from the earlier rounds alone.

    Before each round but the first, the s clients with the most participations so far are named; of equals, those with
    the smaller numbers.

    Args:
        took_part: rows with round (from 1 on) and client.
        rounds: number of rounds.

    Returns:
        Named clients that took part, and named clients, over all rounds with participants.

    Example:
        >>> named_in_advance(pd.DataFrame({"round": [1, 2], "client": [7, 7]}), rounds=2)
        (1, 10)
    """
    often, hits, named = np.zeros(POPULATION, np.int64), 0, 0
    by_round = dict(iter(took_part.groupby("round")["client"]))
    for number in range(1, rounds + 1):
        if number not in by_round:
            continue
        clients = by_round[number].to_numpy(np.int64)
        if often.any():
            guess = np.argsort(-often, kind="stable")[:PARTICIPANTS]
            hits += int(np.isin(guess, clients).sum())
            named += len(guess)
        often[clients] += 1
    return hits, named


def measure_unpredictability(context: ReproductionContext) -> Measurements:
    """Run both variants under both servers, and count participations for each seed."""
    rounds, seeds = SCALES[context.scale]
    rows = []
    for variant in _VARIANTS:
        for server in _SERVERS:
            context.progress(f"{variant}, server {server}: {rounds} rounds with each of {seeds} seeds")
            experiment = experiment_of(variant, server, rounds, seeds)
            runs = context.run_experiment(
                experiment, context.out / experiment.name.replace(", ", "-").replace(" ", "-")
            )
            rows += [
                {"selection": variant, "server": server, "seed": seed, "rounds": rounds, **_of_run(run)}
                for seed, run in enumerate(runs, 1)
            ]
    chances = {"s/n": PARTICIPANTS / POPULATION, "a s/n": FACTOR * PARTICIPANTS / POPULATION}
    setting = Setting(
        "none",
        seeds=tuple(range(1, seeds + 1)),
        sizes={"population": POPULATION, "participants": PARTICIPANTS, "over-selection": FACTOR, "rounds": rounds},
        differs=["the paper argues and bounds (Corollaries 2 and 3), and measures nothing"],
        choices={f"expected maximum at {name}": most_of(rounds, chance) for name, chance in chances.items()},
    )
    return Measurements(setting, {"runs": pd.DataFrame(rows)})


def _of_run(run: RunRecords) -> dict[str, int | None]:
    counts, reserved = participations(run), reserved_first(run)
    hits, named = named_in_advance(run.participation, len(run.rounds))
    return {
        "most": int(counts.max()),
        "first reserved": None if reserved is None else int(counts[reserved]),
        "named": named,
        "named that took part": hits,
    }


def conclude_unpredictability(measurements: Measurements) -> ReproductionResult:
    """Compare prediction with guessing."""
    runs, setting = measurements.tables["runs"], measurements.setting
    by_server = {(str(variant), str(server)): rows for (variant, server), rows in runs.groupby(["selection", "server"])}
    expected = [float(setting.choices[f"expected maximum at {name}"]) for name in ("s/n", "a s/n")]
    n, s, rounds = (int(setting.sizes[name]) for name in ("population", "participants", "rounds"))
    return ReproductionResult(
        table=pd.DataFrame([_row(*key, by_server[key]) for key in _ORDER]),
        claims=[_predicted(by_server), _not_predicted(by_server, s / n), _leaks_less(by_server)],
        remarks=(
            f"n = {n}, s = {s}, a = {setting.sizes['over-selection']:g}, {rounds} rounds, means over "
            f"{len(setting.seeds)} seeds; the paper argues and bounds (Corollaries 2 and 3), and measures nothing.",
            "`most`: participations of the client with the most. `first reserved`: those of the client that the server "
            "chose before the first round (server-centric: by prediction; client-centric: the first that it guessed). "
            f"`named that took part`: of the {s} most frequent participants before a round, the share that took part "
            f"in it; {100 * s / n:g}% by chance.",
            f"The expected maximum is {expected[0]:.1f} for clients that take part with probability s/n, "
            f"{expected[1]:.1f} for being a candidate (a s/n).",
        ),
    )


_ORDER = tuple((variant, server) for variant in _VARIANTS for server in _SERVERS)


def _is_most(rows: pd.DataFrame) -> int:
    """Return the number of seeds in which the first reserved client took part most often of all."""
    return int((rows["first reserved"] == rows["most"]).sum())


def _hits(rows: pd.DataFrame) -> Interval:
    return mean_interval(rows["named that took part"] / rows["named"])


def _row(variant: str, server: str, rows: pd.DataFrame) -> dict[str, Any]:
    return {
        "selection": variant,
        "server": server,
        "rounds": int(rows["rounds"].iloc[0]),
        "seeds": len(rows),
        "most": float(rows["most"].mean()),
        "first reserved": float(rows["first reserved"].mean()) if rows["first reserved"].notna().any() else None,
        "it is the most": _is_most(rows),
        "named that took part": _hits(rows).mean,
    }


RunsByServer = dict[tuple[str, str], pd.DataFrame]


def _predicted(by_server: RunsByServer) -> PaperClaim:
    rows, honest = by_server[_VARIANTS[0], "reserves a place"], by_server[_VARIANTS[0], "honest"]
    return PaperClaim(
        "server-centric: the server predicts the client selected most often and reserves its place with certainty",
        f"named before round 1, that client took part most often of all with {_is_most(rows)} of {len(rows)} seeds: "
        f"{rows['first reserved'].mean():.1f} times; under an honest server the most is {honest['most'].mean():.1f}",
        [equal("share of the seeds", _is_most(rows) / len(rows), 1)],
        seeds=len(rows),
        uses_data=False,
    )


AT_CHANCE = 1.25
"""Largest factor between hits and chance that counts as no prediction."""


def _not_predicted(by_server: RunsByServer, chance: float) -> PaperClaim:
    rows, guessed = by_server[_VARIANTS[1], "honest"], by_server[_VARIANTS[1], "reserves a place"]
    hits = _hits(rows)
    mean, half = hits.mean or 0.0, hits.half_width
    over_chance = Interval(mean / chance, None if half is None else half / chance)
    return PaperClaim(
        "client-centric: the server cannot predict the client selected most often until training stops",
        f"of the clients named by their earlier participations {100 * mean:.2f} ± {100 * (half or 0):.2f}% take part "
        f"in the next round ({100 * chance:g}% by chance; {int(rows['named'].sum())} named); its first guess took part "
        f"most often of all with {_is_most(guessed)} of {len(guessed)} seeds",
        [between("hits over chance", over_chance, 1 / AT_CHANCE, AT_CHANCE)],
        seeds=len(rows),
        uses_data=False,
    )


def _leaks_less(by_server: RunsByServer) -> PaperClaim:
    predicted, guessed = (by_server[variant, "reserves a place"]["most"].to_numpy(np.float64) for variant in _VARIANTS)
    honest = [by_server[variant, "honest"]["most"].mean() for variant in _VARIANTS]
    return PaperClaim(
        "so the client-centric variant leaks less in the worst case",
        f"the most that a client takes part: {guessed.mean():.1f} by guessing, {predicted.mean():.1f} by prediction; "
        f"{honest[1]:.1f} and {honest[0]:.1f} under honest servers",
        [above("participations more by prediction than by guessing", mean_interval(predicted - guessed))],
        seeds=len(predicted),
        uses_data=False,
    )


REPRODUCTIONS = (
    Reproduction(
        "lotto-unpredictability",
        "How often a server can make one client take part, with and without predicting the selected clients",
        "Lotto (arXiv 2401.02880), section 3.4 and appendix B; the paper gives no measurement",
        measure=measure_unpredictability,
        conclude=conclude_unpredictability,
    ),
)
