"""A participant's time by part, from real rounds with measured compute."""

import pandas as pd
import pytest

from analysis.comparison.measures import per_round
from analysis.reproduction.contract import Measurements, ReproductionContext
from analysis.reproduction.lotto import participant_time, published
from analysis.reproduction.lotto.participant_time import REPRODUCTIONS, experiment, extra_times, stages_of
from analysis.reproduction.measurements import carry_out


@pytest.fixture
def measured(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> Measurements:
    """A round with 10 participants and little training."""
    monkeypatch.setattr(published, "PARTICIPANTS", {100: 10})
    monkeypatch.setitem(published.SAMPLES, "FEMNIST", 20)
    monkeypatch.setitem(participant_time.ROUNDS, "small", 2)
    monkeypatch.setattr(participant_time, "BATCHES", 1)
    measurements, result = carry_out(REPRODUCTIONS[0], context)
    assert measurements is not None
    assert [claim.verdict for claim in result.claims][1:] == ["undetermined"]
    assert result.table["ms, s = 10"].gt(0).sum() > 12
    return measurements


def test_the_parts_sum_to_the_participants_time(measured: Measurements, context: ReproductionContext) -> None:
    (run,) = context.run_experiment(experiment(2, 100), context.out / "runs" / "measured-100")
    parts = stages_of(run)
    seconds = parts.groupby("round")[["compute_s", "transfer_s", "waiting_s"]].sum().sum(axis=1)
    assert seconds.to_numpy() == pytest.approx(per_round(run)["client_s"].to_numpy())
    assert parts["stage"].str.startswith("lotto/").sum() == 2 * 3
    assert (measured.tables["operations"]["unit_s"] > 0).all()


@pytest.mark.parametrize(("selection_s", "verdict"), [(0.1, "agrees"), (2.0, "disagrees")])
def test_selection_is_lightweight_or_not(selection_s: float, verdict: str) -> None:
    seconds = {"lotto/participants": selection_s, "train": 5.0}
    stages = pd.DataFrame(
        [
            {"participants": s, "round": number, "stage": stage, "compute_s": compute_s}
            for s in published.PARTICIPANTS.values()
            for number in (1, 2)
            for stage, compute_s in seconds.items()
        ]
    )
    assert participant_time.lightweight(stages).verdict == verdict


def test_the_rest_is_the_papers_cells_less_the_proofs() -> None:
    extra = extra_times().set_index(["application", "population"])
    assert len(extra) == 9
    row = extra.loc[("FEMNIST", 700)]
    assert row["participant_s"] == pytest.approx(60 * (2.82 - 2.01))
    assert row["rest_s"] == pytest.approx(60 * (2.82 - 2.01) - 0.302 - 69 * 0.226)
