"""The fairness gap of three rules of choosing batches: figures of the public code's rule, limits of F, and claims."""

import numpy as np
import pandas as pd
import pytest

from analysis.multi_round import fairness_gap
from analysis.multi_round.simulation import dropout_probabilities, simulate
from analysis.reproduction.contract import Measurements, ReproductionContext, Setting
from analysis.reproduction.measurements import carry_out
from analysis.reproduction.multi_round_secagg import fairness, fairness_claims
from testbed.selection.batch_partition import BatchPartitionParameters

SEEDS = range(1, 21)
ROUNDS = 200
TOLERANCE = 0.2  # of the figure: draws of p_i differ much
EXPECTED = {  # F(200) by completed rounds, p_i from 0.1 to 0.5
    "fair": {6: 0.205, 4: 0.122, 3: 0.105},
    "least-total": {6: 0.123, 4: 0.032, 3: 0.011},
}


@pytest.mark.parametrize("mode", EXPECTED)
def test_the_gap_after_200_rounds(mode: str) -> None:
    for privacy, expected in EXPECTED[mode].items():
        parameters = BatchPartitionParameters(participants=12, privacy=privacy, mode=mode)
        gaps = [
            fairness_gap(simulate(parameters, dropout_probabilities(120, seed), ROUNDS, seed), completed_only=True)
            for seed in SEEDS
        ]
        assert np.mean(gaps) == pytest.approx(expected, rel=TOLERANCE, abs=0.003)


def _counts(matrix: np.ndarray, privacy: int) -> tuple[np.ndarray, int]:
    """Rounds of each batch, and completed rounds."""
    return matrix[:, ::privacy].sum(axis=0).astype(np.float64), int(matrix.any(axis=1).sum())


def test_equal_users_are_chosen_equally_often_and_unequal_ones_are_not() -> None:
    parameters = BatchPartitionParameters(participants=12, privacy=3, mode="uniform")
    for dropouts, is_equal in ((np.full(120, 0.3), True), (np.repeat([0.1, 0.5], 60), False)):
        counts, completed = _counts(simulate(parameters, dropouts, 3000, 5), 3)
        assert (fairness_claims.p_value(counts, completed) > 0.001) == is_equal
        assert (fairness_claims.bias_limit(counts, completed) < 0.1) == is_equal
        assert (fairness_claims.gap_limit(counts, 3000) < 0.1) == is_equal


def _rounds(generator: np.random.Generator, weights: np.ndarray, rounds: int) -> np.ndarray:
    """Rounds of 40 batches of which one is taken, with probabilities in proportion to the weights."""
    return np.bincount(generator.choice(40, rounds, p=weights / weights.sum()), minlength=40).astype(np.float64)


def test_p_values_are_those_of_chance() -> None:
    generator = np.random.default_rng(4)
    values = []
    for _ in range(300):
        chosen = np.array([np.isin(np.arange(40), generator.choice(40, 4, replace=False)) for _ in range(200)])
        values.append(fairness_claims.p_value(chosen.sum(axis=0).astype(np.float64), 200))
    assert 0.4 < np.mean(values) < 0.6
    assert 0.01 < np.mean(np.array(values) < 0.05) < 0.1


def test_limits_cover_the_true_differences() -> None:
    """In nearly all of 200 repetitions, and they do not exceed them by much."""
    generator, weights = np.random.default_rng(6), np.repeat([0.9, 1.1], 20)
    gap, bias, rounds = 0.2 / 40, 0.1, 100_000
    drawn = [_rounds(generator, weights, rounds) for _ in range(200)]
    gaps = np.array([fairness_claims.gap_limit(counts, rounds) for counts in drawn])
    biases = np.array([fairness_claims.bias_limit(counts, rounds) for counts in drawn])
    assert (gaps >= gap).mean() >= 0.95
    assert gaps.mean() < 2.2 * gap
    assert 0.93 < (biases >= bias).mean() < 1
    assert biases.mean() < 1.2 * bias


def test_a_rule_that_takes_the_fewest_participations_prefers_them() -> None:
    matrix = np.zeros((40, 8), np.bool_)
    for number, row in enumerate(matrix):
        row[2 * (number % 4) : 2 * (number % 4) + 2] = True  # in turn
    assert fairness.preference(matrix, 2) > 0.2
    generator = np.random.default_rng(2)
    uniform = np.repeat(generator.permuted(np.tile([True, False, False, False], (4000, 1)), axis=1), 2, axis=1)
    assert abs(fairness.preference(uniform, 2)) < 0.03


def test_losses_fall_as_one_over_the_rounds_if_selection_is_unbiased_and_stop_if_not() -> None:
    generator = np.random.default_rng(3)
    minima = np.concatenate((generator.normal(size=(40, 20)), np.repeat([[1.0], [-1.0]], 20, axis=0)), axis=1)
    even = np.array([np.isin(np.arange(40), generator.choice(40, 4, replace=False)) for _ in range(4000)])
    uneven = even & (np.arange(40) < 20)
    fair, biased = (fairness.suboptimality(matrix, minima) for matrix in (even, uneven))
    assert fair[4000] < 0.4 * fair[1000]
    assert biased[4000] > 0.8 * biased[1000] > 5 * fair[1000]
    skipped = fairness.suboptimality(np.zeros((3, 40), np.bool_), minima)
    assert skipped.tolist() == [1, 1, 1, 1]


def test_the_reproduction_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fairness.SCALES, "small", 4)
    monkeypatch.setattr(fairness, "ROUNDS", (50, 100, 400))
    (reproduction,) = fairness.REPRODUCTIONS
    measurements, result = carry_out(reproduction, context)
    assert measurements is not None
    assert len(result.table) == 10
    assert result.table["F(50) completed"].notna().all()
    verdicts = {claim.claim.partition(" (")[0]: claim.verdict for claim in result.claims}
    assert verdicts["F = 0 where all drop out with the same probability"] == "disagrees"  # after 400 rounds
    assert verdicts["The second component is needed for fairness"] == "agrees"
    assert verdicts["With it, the gap goes to zero with unequal probabilities, too"] == "disagrees"
    assert verdicts["Selection by frequency of participation breaks the conditional unbiasedness"] == "agrees"
    assert {claim.seeds for claim in result.claims} == {4}
    assert not any(claim.uses_data for claim in result.claims)


def test_more_rounds_show_that_the_gap_is_nothing() -> None:
    rows = [
        {"rule": "uniform", "T": 6, "seed": seed, "batch": batch, "rounds": 9_000_000 + 20 * batch,
         "completed": 90_000_000}
        for seed in (1, 2) for batch in range(20)
    ]  # fmt: skip
    measurements = Measurements(
        Setting("none", seeds=(1, 2), sizes={"rounds": 100_000_000}), {"equal": pd.DataFrame(rows)}
    )
    for claim in (
        fairness_claims._equal_users(measurements, 2),
        fairness_claims._lemma_1(measurements, 2),
    ):
        assert claim.verdict == "agrees"
