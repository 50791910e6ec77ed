"""The plan of batches: its numbers are those of the bound, no larger batch meets the target, and the advice works."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.bounds.batch_partition_plan import smallest_threshold
from analysis.bounds.lotto import secagg_fails
from analysis.bounds.verifiable_batch_partition import BatchSetting, bound, candidates_suffice, tolerated
from analysis.cli.bound.lotto_plan import plan_lotto
from analysis.cli.bound.verifiable_batch_partition import plan_batch_partition
from tests.thoroughness import examples


def meets(setting: BatchSetting, row: dict[str, Any], threshold: int | float) -> bool:
    """Whether the bound of a round is within its share of the target, and enough batches stand."""
    fails = bound(setting, tolerated(setting, threshold))[0]
    enough = candidates_suffice(setting, row["dropout"])
    return fails <= row["target"] / row.get("rounds", 1) and enough >= row["sufficiency"]


def settings_of(row: dict[str, Any], **changes: Any) -> dict[int, BatchSetting]:
    keys = {key: row[key] for key in ("population", "participants", "over_selection", "dishonest", "min_population")}
    every = range(1, row["participants"] + 1)
    return {size: BatchSetting(privacy=size, **keys | changes) for size in every if row["participants"] % size == 0}


@given(
    st.sampled_from([12, 20, 30]),
    st.integers(0, 25),
    st.sampled_from([1.0, 1.3, 2.0]),
    st.sampled_from([0.6, 0.7, 0.9]),
    st.sampled_from([0.0, 0.02]),
    st.sampled_from([1e-9, 1e-4, 0.1]),
    st.sampled_from([0.5, 0.99]),
    st.sampled_from([None, 1, 50]),
)
@settings(max_examples=examples(40), deadline=None)
def test_it_is_the_largest_batch_that_meets_the_target_and_its_advice_works(
    participants: int,
    dishonest: int,
    over_selection: float,
    threshold: float,
    dropout: float,
    target: float,
    sufficiency: float,
    rounds: int | None,
) -> None:
    given = {"threshold": str(threshold), "dropout": dropout, "sufficiency": sufficiency, "rounds": rounds}
    row = plan_batch_partition(240, str(dishonest), participants, target, over_selection, **given)
    fitting = [size for size, one in settings_of(row).items() if meets(one, row, threshold)]
    assert row["largest_privacy"] == max(fitting, default=None)
    for size, one in settings_of(row).items():
        assert row[f"secagg_fails_at_{size}"] == bound(one, tolerated(one, threshold))[0]
        assert row[f"candidates_suffice_at_{size}"] == candidates_suffice(one, dropout)
    if fitting:
        assert row["batches_of_a_round"] == participants // max(fitting)
        return
    why = row["largest_privacy_reason"]
    assert "\n" not in why
    if "meet the target with" in why:
        factor = re.search(r"--over-selection ([\d.]+)", why)
        least = re.search(r"--threshold (\d+)", why)
        changed = settings_of(row, **({} if factor is None else {"over_selection": float(factor[1])}))
        assert meets(changed[1], row, threshold if least is None else int(least[1]))
        if least is not None:
            assert not meets(changed[1], row, int(least[1]) - 1)


@pytest.mark.parametrize("dishonest", [4, 12])
def test_it_names_the_smallest_over_selection_for_each_batch_size(dishonest: int) -> None:
    row = plan_batch_partition(240, str(dishonest), 12, 1e-3, 1.3, dropout=0.02)
    larger = []
    for size in settings_of(row):
        factor = row[f"smallest_over_selection_at_{size}"]
        tried = [1.3 + 0.05 * step for step in range(20)]
        works = [one for one in tried if meets(settings_of(row, over_selection=round(one, 2))[size], row, 0.7)]
        assert factor == pytest.approx(works[0]) if works else (factor is None or factor > tried[-1])
        larger += [size] if factor is not None else []
    assert row["largest_privacy"] is None
    assert row["largest_privacy_over_selected"] == max(larger)
    factor = row[f"smallest_over_selection_at_{max(larger)}"]
    assert f"{max(larger)}  (--over-selection {factor:g})" in plan_batch_partition.text(row)


def test_a_plan_needs_an_honest_client() -> None:
    with pytest.raises(ValueError, match=r"^dishonest: all 100 clients; no parameter "):
        plan_lotto(100, "100", 10, 1e-6)
    with pytest.raises(ValueError, match=r"^dishonest: all 100 clients; no parameter "):
        plan_batch_partition(100, "100", 10, 1e-6, 1.3)


def test_without_a_threshold_that_is_enough_it_says_so() -> None:
    row = plan_batch_partition(100, "60", 10, 1e-9, 1.3, sufficiency=0.5)
    assert smallest_threshold(BatchSetting(100, 10, 1, 1.3, 60), 1e-9) is None
    assert row["largest_privacy"] is None
    assert "no threshold is enough" in row["largest_privacy_reason"]
    assert "secagg_fails" not in plan_batch_partition.text(row)


@pytest.mark.parametrize("rounds", [None, 40])
def test_the_text_says_for_how_many_rounds_the_target_is(rounds: int | None) -> None:
    plans = (
        plan_batch_partition.text(plan_batch_partition(240, "4", 12, 1e-3, 2.0, sufficiency=0.9, rounds=rounds)),
        plan_lotto.text(plan_lotto(240, "4", 12, 1e-3, 2.0, sufficiency=0.9, rounds=rounds)),
    )
    for written in plans:
        assert ("in 40 rounds" in written) == (rounds is not None)
        assert ("in one fixed round" in written) == (rounds is None)


def test_lottos_plan_divides_its_target_among_the_rounds() -> None:
    row = plan_lotto(1000, "50", 70, 1e-6, rounds=100)
    t = row["smallest_threshold"]
    assert 100 * secagg_fails(50, 70, 1.3, 1000, t) <= 1e-6 < 100 * secagg_fails(50, 70, 1.3, 1000, t - 1)
    assert t > plan_lotto(1000, "50", 70, 1e-6)["smallest_threshold"]
    with pytest.raises(ValueError, match="rounds"):
        plan_lotto(1000, "50", 70, 1e-6, rounds=0)
