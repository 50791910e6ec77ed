"""Like reliability and moving updates: the measurements are those of the code, and claims can fail."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.attacks.reconstruction import View
from analysis.reproduction.batches import like_reliability, like_reliability_runs, moving_updates
from analysis.reproduction.contract import Measurements, Setting


@pytest.fixture(scope="module")
def simulations(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("records")
    rows = [row for seed in (1, 2) for row in like_reliability_runs.simulated_rows(seed, 200, folder)]
    return pd.DataFrame(rows)


def accuracies() -> pd.DataFrame:
    rows = [
        {"setting": setting, "partition": partition, "T": privacy, "seed": seed, "accuracy": level + seed}
        for setting in like_reliability_runs.SETTINGS
        for privacy in like_reliability_runs.ACCURACY_PRIVACIES
        for partition, level in ((like_reliability_runs.BY_INDEX, 50.0), (like_reliability_runs.BY_RECORD, 60.0))
        for seed in (1, 2)
    ]
    return pd.DataFrame(rows)


def concluded(simulated: pd.DataFrame) -> dict[str, str]:
    """Return verdicts by claim."""
    sizes = {"rounds": 200, "rounds of training": 10}
    measurements = Measurements(
        Setting("stand-in", "", [1, 2], sizes), {"simulated": simulated, "accuracy": accuracies()}
    )
    return {claim.claim: claim.verdict for claim in like_reliability.conclude_like_reliability(measurements).claims}


def test_like_reliability_is_compared_seed_by_seed(simulations: pd.DataFrame) -> None:
    assert len(simulations) == 2 * 4 * 3 * 2
    verdicts = concluded(simulations)
    assert verdicts["T does not depend on who forms a batch"] == "agrees"
    assert verdicts["Theorem 1 with a probability for each batch gives the skipped rounds of the selection"] == "agrees"


@pytest.mark.parametrize(
    ("column", "value", "claim"),
    [
        ("T strong", 1, "T does not depend on who forms a batch"),
        ("skipped", 0.9, "Theorem 1 with a probability for each batch gives the skipped rounds of the selection"),
        ("C exact", 5.0, "Batches of like reliability raise C at T = 12 and T = 6"),
    ],
)
def test_a_claim_fails_on_other_numbers(simulations: pd.DataFrame, column: str, value: float, claim: str) -> None:
    assert concluded(simulations.assign(**{column: value}))[claim] != "agrees"


def window(change: float, seed: int = 2) -> tuple[View, np.ndarray]:
    """Return a view of random rounds and the updates of its participants."""
    clients, rounds, rng = 12, 30, np.random.default_rng(seed)
    matrix = np.array([np.isin(np.arange(clients), rng.choice(clients, 4, replace=False)) for _ in range(rounds)])
    updates = rng.normal(size=(clients, 5)) + change * rng.normal(size=(rounds, clients, 5))
    updates[~matrix] = 0
    return View(np.arange(rounds), 0, matrix, updates.sum(axis=1), np.zeros(5, np.float32)), updates


def test_a_window_has_the_errors_of_its_changes() -> None:
    still, moving = (moving_updates.window_row(*window(change), 30) for change in (0.0, 0.3))
    assert still["change"] < 1e-12
    assert still["error of least squares"] < 1e-10
    assert 0.2 < moving["change"] < 0.5
    assert moving["largest error over guarantee"] < 1
    # Independent changes of equal sizes of rounds: least squares is the best linear unbiased estimator.
    assert moving["error of least squares"] == pytest.approx(moving["error if independent"], rel=0.4)
    assert moving["sums differ"] < 1e-12
    assert moving["determined"] == 12


def test_clients_that_are_always_together_are_left_out() -> None:
    view, updates = window(0.3)
    view.participation[:, 1], updates[:, 1] = view.participation[:, 0], updates[:, 0]
    row = moving_updates.window_row(replace(view, sums=updates.sum(axis=1)), updates, 30)
    assert row["determined"] == 10
    assert row["largest error over guarantee"] < 1


def moving_verdicts(**columns: float) -> dict[str, str]:
    rows = [
        {"rate": rate, "steps": steps, "seed": seed, **moving_updates.window_row(*window(rate, seed), rounds)}
        for rate in (0.05, 0.1, 0.4)
        for steps in moving_updates.BATCH_SIZES
        for seed in (1, 2, 3)
        for rounds in (20, 30)
    ]
    frame = pd.DataFrame(rows).assign(**{"least A": 20.0} | columns)
    frame["rounds"] = frame["rounds"].map({20: moving_updates.WINDOWS[0], 30: moving_updates.WINDOWS[1]})
    result = moving_updates.conclude_moving_updates(
        Measurements(Setting("stand-in", seeds=[1, 2, 3]), {"windows": frame})
    )
    assert len(result.table) == 3 * 2 * 2
    return {claim.claim.split()[0]: claim.verdict for claim in result.claims}


def test_moving_updates_are_judged_by_the_theorem() -> None:
    verdicts = moving_verdicts()
    assert verdicts["No"] == "agrees"
    assert moving_verdicts(**{"largest error over guarantee": 1.1})["No"] == "partly"
    assert moving_verdicts(**{"least A": 14.0})["No"] == "partly"


def test_a_record_is_of_other_rounds(tmp_path: Path) -> None:
    like_reliability_runs.simulated_rows(3, 50, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["record-3.csv"]
