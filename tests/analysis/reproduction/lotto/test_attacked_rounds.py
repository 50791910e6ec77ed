"""Lotto's guarantees in attacked rounds, at tiny sizes, and verdicts on measurements that contradict the paper."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from analysis.reproduction.contract import Measurements, ReproductionContext, ReproductionResult
from analysis.reproduction.lotto import example_run, theorem2, theorem2_rounds, unpredictability, worked_example
from analysis.reproduction.lotto.example_run import ExampleScale
from analysis.reproduction.measurements import carry_out
from testbed.plugins.classes import importing_classes
from testbed.privacy.accounting import Skellam

pytestmark = pytest.mark.xdist_group("lotto-attacked-rounds")  # in one process, which runs its experiments once


def verdicts(result: ReproductionResult) -> list[str]:
    return [claim.verdict for claim in result.claims]


# -- Theorem 2 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("least", theorem2_rounds.LEAST)
def test_the_worst_case_is_within_the_bound_and_close_to_it(least: int) -> None:
    """The two differ by rounds with fewer than s candidates alone, which Theorem 1 makes rare."""
    p = 1.3 * theorem2_rounds.PARTICIPANTS / least
    without_round = float(binom.cdf(theorem2_rounds.PARTICIPANTS - 1, theorem2_rounds.POPULATION, p))
    for most in range(theorem2_rounds.PARTICIPANTS):
        row = theorem2_rounds.bounds_for(least, most)
        assert row["announced"] <= row["Theorem 2"] + 1e-12
        assert row["Theorem 2"] - row["announced"] <= without_round
        assert row["completed"] == pytest.approx(row["announced"] / (1 - without_round))
        assert row["Theorem 2"] == pytest.approx(binom.sf(most, theorem2_rounds.DISHONEST, p), rel=1e-9)


@pytest.fixture(scope="module")
def theorem(tmp_path_factory: pytest.TempPathFactory, in_process: Any) -> tuple[Measurements, ReproductionResult]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(theorem2_rounds.ROUNDS, "small", 8)
        (reproduction,) = theorem2.REPRODUCTIONS
        out = tmp_path_factory.mktemp("theorem2")
        measurements, result = carry_out(reproduction, ReproductionContext("small", out, in_process, lambda line: None))
        assert measurements is not None
        return measurements, result


def test_theorem_2_at_a_tiny_scale(theorem: tuple[Measurements, ReproductionResult]) -> None:
    measurements, result = theorem
    assert result.table["rounds"].tolist() == [8] * 6
    assert result.table["refused"].sum() == 0
    assert verdicts(result)[1] == "disagrees"  # by the exact sums, for completed rounds
    assert verdicts(result)[5] == "agrees"
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".csv"]
    counts = measurements.tables["rounds"]
    lotto = counts[(counts["selection"] != "random") & (counts["outcome"] == "completed")]
    assert (lotto["candidates"] >= theorem2_rounds.PARTICIPANTS).all()


def attacked(measurements: Measurements, shift: int, rounds: int) -> ReproductionResult:
    """Conclude from drawn counts of candidates: exact ones, or with `shift` dishonest candidates more."""
    counts = []
    for place, condition in enumerate(theorem2_rounds.CONDITIONS):
        rng = np.random.default_rng(place)
        p = 0.1 if condition.minimum is None else 13 / condition.minimum
        x, honest = rng.binomial(10, p, rounds), rng.binomial(90, p, rounds)
        candidates, shifted = x + honest, np.minimum(x + shift, 10)
        dishonest = np.full(rounds, 10) if condition.server == ("prefer-dishonest",) else shifted
        completed = (candidates >= 10) | (condition.minimum is None)
        frame = pd.DataFrame(
            {
                "selection": condition.selection,
                "server": " + ".join(condition.server) or "honest",
                "n_min": condition.minimum,
                "outcome": np.where(completed, "completed", "skipped"),
                "refused": False,
                "candidates": candidates,
                "dishonest": np.where(completed, dishonest, 0),
            }
        )
        counts.append(frame.groupby(list(frame.columns), dropna=False).size().rename("rounds").reset_index())
    tables = {**measurements.tables, "rounds": pd.concat(counts, ignore_index=True)}
    return theorem2.conclude_theorem2(replace(measurements, tables=tables))


def test_verdicts_on_theorem_2_depend_on_the_rounds(theorem: tuple[Measurements, ReproductionResult]) -> None:
    exact, shifted = (attacked(theorem[0], shift, 2000) for shift in (0, 1))
    assert verdicts(exact) == ["agrees", "disagrees", "agrees", "agrees", "agrees", "agrees"]
    assert verdicts(shifted) == ["disagrees", "disagrees", "partly", "partly", "disagrees", "agrees"]


# -- prediction --------------------------------------------------------------------------------------------------------


def test_the_expected_maximum_of_binomials() -> None:
    exact = unpredictability.most_of(3, 0.5)
    values = [binom.cdf(k, 3, 0.5) ** unpredictability.POPULATION for k in range(4)]
    assert exact == pytest.approx(sum(k * (values[k] - (values[k - 1] if k else 0)) for k in range(4)))


def drawn(weights: Any, rounds: int, seed: int) -> pd.DataFrame:
    """Return participations of rounds whose participants are drawn with weights that depend on past participations."""
    rng, often, rows = np.random.default_rng(seed), np.zeros(100, np.int64), []
    for number in range(1, rounds + 1):
        weight = weights(often)
        clients = rng.choice(100, 10, replace=False, p=weight / weight.sum())
        often[clients] += 1
        rows += [{"round": number, "client": int(client)} for client in clients]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("weights", "verdict"),
    [
        (lambda often: np.ones(100), "agrees"),
        (lambda often: 1.0 + often, "disagrees"),  # frequent participants come again
        (lambda often: 1e-3 + (often == often.min()), "disagrees"),  # rare participants come first
    ],
)
def test_the_verdict_on_guesses_depends_on_the_selection(weights: Any, verdict: str) -> None:
    rows = []
    for variant in ("lotto-server-centric", "lotto-client-centric"):
        for server in ("honest", "reserves a place"):
            for seed in range(1, 11):
                hits, named = unpredictability.named_in_advance(drawn(weights, 100, seed), 100)
                reserved = None if server == "honest" else 20
                row: dict[str, object] = {
                    "selection": variant,
                    "server": server,
                    "seed": seed,
                    "rounds": 100,
                    "most": 20,
                }
                rows.append(row | {"first reserved": reserved, "named": named, "named that took part": hits})
    assert rows[0]["named"] == 99 * 10
    setting = replace(
        theorem_setting(), choices={"expected maximum at s/n": 18.2, "expected maximum at a s/n": 22.0}, seeds=range(10)
    )
    result = unpredictability.conclude_unpredictability(Measurements(setting, {"runs": pd.DataFrame(rows)}))
    assert verdicts(result) == ["agrees", verdict, "disagrees"]


def theorem_setting() -> Any:
    from analysis.reproduction.contract import Setting

    return Setting("none", sizes={"population": 100, "participants": 10, "over-selection": 1.3, "rounds": 100})


def test_prediction_at_a_tiny_scale(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(unpredictability.SCALES, "small", (8, 2))
    (reproduction,) = unpredictability.REPRODUCTIONS
    _, result = carry_out(reproduction, context)
    assert len(result.table) == 4
    assert verdicts(result)[0] == "agrees"
    assert result.table["named that took part"].between(0, 1).all()


# -- the worked example ------------------------------------------------------------------------------------------------

TINY = ExampleScale(population=1000, dishonest=10, participants=10, rounds=6)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory, in_process: Any) -> tuple[Measurements, ReproductionResult]:
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(example_run.SCALES, "small", TINY)
        (reproduction,) = example_run.REPRODUCTIONS
        out = tmp_path_factory.mktemp("example")
        with importing_classes(False):  # as in the command
            measurements, result = carry_out(
                reproduction, ReproductionContext("small", out, in_process, lambda line: None)
            )
        assert measurements is not None
        return measurements, result


def test_the_example_with_and_without_lotto(example: tuple[Measurements, ReproductionResult]) -> None:
    measurements, result = example
    assert [path.suffix for path in result.figures] == [".png", ".pdf", ".csv"]
    lotto, free = (row for _, row in result.table.iterrows())
    assert (free["most dishonest"], free["most rounds of a client"]) == (9, 6)
    delta = 1 / TINY.population
    mechanism = Skellam(worked_example.MULTIPLIER, example_run.LENGTH, example_run.SCALE)
    # The ledger's epsilon is that of the victim's own share of the noise in every round.
    assert free["epsilon spent"] == pytest.approx(mechanism.epsilon(6, delta, 1 / 10), rel=1e-6)
    assert free["epsilon spent"] == pytest.approx(free["epsilon guaranteed"], rel=1e-6)
    assert lotto["epsilon spent"] < free["epsilon spent"] / 3
    rounds = measurements.tables["rounds"]
    completed = rounds[(rounds["selection"] == example_run.LOTTO) & (rounds["outcome"] == "completed")]
    assert len(completed) >= 3
    assert (completed["dishonest"] <= completed["candidates"]).all()


def test_the_examples_verdicts_depend_on_the_runs(example: tuple[Measurements, ReproductionResult]) -> None:
    measurements, result = example
    assert verdicts(result)[1] == "agrees"
    tables = {name: table.copy() for name, table in measurements.tables.items()}
    lotto = tables["clients"]["selection"] == example_run.LOTTO
    tables["bounds"]["epsilon"] = tables["clients"].loc[lotto, "largest epsilon"].max() * np.array([0.9, 1.2])
    lotto_rounds = tables["rounds"]["selection"] == example_run.LOTTO
    tables["rounds"].loc[lotto_rounds, "dishonest"] = 9
    tables["rounds"].loc[~lotto_rounds, "dishonest"] = 0
    changed = example_run.conclude_example(replace(measurements, tables=tables))
    assert verdicts(changed) == ["disagrees", "disagrees", "disagrees"]
