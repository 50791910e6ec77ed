"""The fairness gap of three rules of choosing batches: the figures of the public code's rule, and Theorem 1's F = 0."""

import numpy as np
import pytest

from analysis.multi_round import fairness_gap
from analysis.multi_round.simulation import dropout_probabilities, simulate
from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.multi_round_secagg import fairness
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


def test_equal_users_are_chosen_equally_often_and_unequal_ones_are_not() -> None:
    for mode in ("uniform", "fair"):
        parameters = BatchPartitionParameters(participants=12, privacy=3, mode=mode)
        for dropouts, is_equal in ((np.full(120, 0.3), True), (np.repeat([0.1, 0.5], 60), False)):
            matrix = simulate(parameters, dropouts, 400, 5)
            counts = np.append(matrix.sum(axis=0, dtype=np.int64), matrix.any(axis=1).sum())
            assert (fairness.p_value(counts, 3) > fairness.CHANCE) == is_equal


def test_p_values_are_those_of_chance() -> None:
    generator = np.random.default_rng(4)
    found = []
    for _ in range(300):
        chosen = np.array([np.isin(np.arange(40), generator.choice(40, 4, replace=False)) for _ in range(200)])
        found.append(fairness.p_value(np.append(np.repeat(chosen.sum(axis=0), 3), 200), 3))
    assert 0.4 < np.mean(found) < 0.6
    assert 0.01 < np.mean(np.array(found) < 0.05) < 0.1


def test_the_reproduction_tiny(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fairness.SCALES, "small", 4)
    monkeypatch.setattr(fairness, "ROUNDS", (50, 100, 400))
    result = fairness.run_fairness(context)
    assert len(result.table) == 10
    assert result.table["F(50) completed"].notna().all()
    verdicts = [claim.verdict for claim in result.claims]
    assert verdicts[:2] == ["agrees", "agrees"]
    assert verdicts[2] == "disagrees"  # the printed rule's gap does not vanish
    assert {claim.seeds for claim in result.claims} == {4}
