"""Costs of a sum, claims and the kept comparison: numbers from measured rounds alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.reproduction.aggregation_comparison import claims as judged
from analysis.reproduction.aggregation_comparison.completion import Tolerance
from analysis.reproduction.aggregation_comparison.costs import (
    MULTI_SCALAR_SPEED_UP,
    ROUNDS_OF_A_SET_UP,
    costs,
    per_sum,
    points_share,
    rows_of,
    tolerance_in,
)
from analysis.reproduction.aggregation_comparison.protocols import MEMBERS, PROTOCOLS
from analysis.reproduction.aggregation_comparison.table import REPRODUCTIONS, SUMMARY
from analysis.reproduction.contract import Measurements
from analysis.reproduction.kept import kept_result
from analysis.reproduction.pages import page
from analysis.statistics import Proportion

README = Path(analysis.__file__).parents[1] / "README.md"


def rounds(*rows: dict[str, Any]) -> pd.DataFrame:
    """Return measured rounds with all columns: 1 where a row does not say otherwise."""
    from analysis.reproduction.aggregation_comparison.costs import MEASURES

    usual = {**dict.fromkeys(MEASURES, 1.0), "seed": 1, "round": 1, "outcome": "completed", "questions": 1,
             "most questions": 1, "stages": 1}  # fmt: skip
    return pd.DataFrame([{**usual, **row} for row in rows], columns=list(usual))


def setting(**changed: Any) -> dict[str, Any]:
    return {"n": 100, "may be lost": 44, "members": 0, "members may be lost": 0, "session": "", **changed}


def test_costs_are_means_over_seeds_of_completed_rounds() -> None:
    measured = rounds(
        {"round s": 2.0}, {"seed": 2, "round s": 4.0}, {"seed": 2, "round s": 6.0, "round": 2},
        {"seed": 3, "round s": 99.0, "outcome": "aborted"},
    )  # fmt: skip
    columns = costs(measured, setting())
    assert columns["round s"] == (2 + 5) / 2
    assert columns["round s ±"] == pytest.approx(12.706 * 1.5, rel=1e-3)  # Student t, two seeds
    assert columns["completed"] == "3 of 4"
    assert columns["set-up once s"] is None


def test_a_set_up_once_is_apart_from_later_rounds() -> None:
    measured = rounds({"round s": 5.0, "MB up": 3.0}, {"round": 2}, {"round": 3, "round s": 3.0})
    columns = costs(measured, setting(session="once"))
    assert (columns["round s"], columns["set-up once s"], columns["set-up once MB up"]) == (2.0, 3.0, 2.0)
    assert columns["round s (share of set-up)"] == pytest.approx(2 + 3 / ROUNDS_OF_A_SET_UP)
    assert costs(measured, setting())["round s"] == pytest.approx(10 - 1 - 6, abs=0.01)  # mean of 5, 1 and 3
    assert costs(measured, setting(session="each round"))["set-up once s"] is None


def test_set_up_and_training_overlap_at_most_by_the_shorter() -> None:
    for set_up, training, rest in ((2.0, 3.0, 8.0), (4.0, 3.0, 7.0), (0.0, 3.0, 10.0)):
        row = {"round s": 10.0, "elapsed s (set-up)": set_up, "training s": training}
        assert costs(rounds(row), setting())["round s (set-up while training)"] == rest


def test_a_sum_costs_the_ended_rounds_before_it() -> None:
    completed = rounds({"round s": 3.0}, {"seed": 2, "round s": 3.0})
    ended = rounds(*({"seed": seed, "outcome": "aborted", "round s": 2.0} for seed in (1, 2)))
    nobody = completed.iloc[:0]
    of_row = {"exact": nobody, "completed": completed, "ended": ended, "counted": nobody}
    columns = per_sum(of_row, setting(), 0.5)
    chance = Tolerance(100, 44).completes_with_rate(0.5)
    assert columns["chance of a sum"] == chance
    assert columns["round s per sum"] == pytest.approx((chance * 3 + (1 - chance) * 2) / chance)
    # Simulated: the total over many rounds, divided by the number of sums.
    draws = np.random.default_rng(1).random(200_000) < chance
    assert columns["round s per sum"] == pytest.approx((3 * draws + 2 * ~draws).sum() / draws.sum(), rel=0.02)
    nearly_all = per_sum({**of_row, "exact": completed, "completed": nobody, "ended": nobody}, setting(), 0.1)
    assert nearly_all["round s per sum"] == 3.0
    assert per_sum({**of_row, "completed": nobody}, setting(), 0.5)["round s per sum"] is None


def test_counted_rounds_have_an_interval() -> None:
    one = rounds(*({"outcome": "completed" if at < 3 else "aborted"} for at in range(10)))
    nobody = one.iloc[:0]
    columns = per_sum({"exact": nobody, "completed": nobody, "ended": nobody, "counted": one}, setting(), 0.5)
    assert columns["completed"] == "3 of 10"
    assert columns["completed low"] < 0.3 < columns["completed high"]


def test_products_of_public_points_are_told_from_runs_in_which_they_are_free() -> None:
    usual = {"server s (recovery)": 7.0, "server s": 8.0, "round s": 9.0}
    free = rounds({"server s (recovery)": 1.0, "round": 2})
    columns = points_share(usual, free, setting(members=60, session="once", **{"members may be lost": 24}))
    left = 6.0 * 21 / 36 / MULTI_SCALAR_SPEED_UP
    assert columns == {
        "server s for points": 6.0,
        "server s (fast points)": pytest.approx(2.0 + left),
        "round s (fast points)": pytest.approx(3.0 + left),
    }


# -- claims ------------------------------------------------------------------------------------------------------------


def numbers(**changed: float) -> pd.DataFrame:
    """Return rows that agree with the papers, except for the `changed` values."""
    has = {
        "secagg lost": 3.0, "plus lost": 2.0, "light lost": 1.0, "secagg set-up": 4.0, "plus set-up": 1.5,
        "pieces": 9 / 7, "plus asked": 5, "flamingo asked": 1, "one-shot asked": 1, "e-seafl asked": 1, **changed,
    }  # fmt: skip
    rows = []

    def add(varied: str, value: str, protocol: str, n: int = 10, **of_it: float) -> None:
        usual = {
            "server s": 1.0, "server s ±": 0.0, "MB up (set-up)": 1.0, "MB up (upload)": 1.0, "round s": 1.0,
            "round s (set-up while training)": 1.0, "questions": 5, "members": 0, "T": 1, "may be lost": 2,
        }  # fmt: skip
        rows.append({"varied": varied, "value": value, "protocol": protocol, "n": n, **usual, **of_it})

    add("always on", "", "secagg")
    add("always on", "", "secagg-plus", MEMBERS + 1, questions=has["plus asked"])
    for protocol in ("flamingo", "one-shot"):
        add("always on", "", protocol, MEMBERS + 1, questions=has[f"{protocol} asked"], members=MEMBERS)
    add("always on", "", "e-seafl", questions=has["e-seafl asked"])
    add("always on", "", "lightsecagg", **{"MB up (set-up)": has["pieces"]})
    for number in (3, 5):
        for name, key in (("secagg", "secagg lost"), ("secagg-plus", "plus lost"), ("lightsecagg", "light lost")):
            add("lost", f"{number} of 10", name, **{"server s": has[key] if number < 5 else np.nan})
    for n, grown in ((10, (1.0, 1.0)), (40, (has["secagg set-up"], has["plus set-up"]))):
        add("participants", f"{n}", "secagg", n, **{"MB up (set-up)": grown[0]})
        add("participants", f"{n}", "secagg-plus", n, **{"MB up (set-up)": grown[1]})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, ["agrees"] * 6),
        ({"secagg lost": 1.0}, ["partly", *["agrees"] * 5]),
        ({"secagg lost": 1.0, "plus lost": 1.0, "light lost": 3.0}, ["disagrees", *["agrees"] * 5]),
        ({"pieces": 2.0}, ["agrees", "disagrees", *["agrees"] * 4]),
        ({"plus set-up": 3.0}, ["agrees", "agrees", "partly", *["agrees"] * 3]),
        ({"secagg set-up": 1.0, "plus set-up": 3.0}, ["agrees", "agrees", "disagrees", *["agrees"] * 3]),
        ({"flamingo asked": 5}, ["agrees", "agrees", "agrees", "disagrees", "agrees", "agrees"]),
        ({"one-shot asked": 2}, [*["agrees"] * 4, "disagrees", "agrees"]),
        ({"e-seafl asked": 2}, [*["agrees"] * 5, "disagrees"]),
    ],
)
def test_claims_are_decided_by_the_numbers(changed: dict[str, float], verdicts: list[str]) -> None:
    claims = judged.claims(numbers(**changed))
    assert [claim.verdict for claim in claims if not claim.undetermined] == verdicts
    assert [claim.verdict for claim in claims if claim.undetermined] == ["undetermined"] * 2
    assert "3 of 10 lost" in claims[0].measured  # with 5 lost nobody has completed a round


def test_claims_without_runs_are_not_judged() -> None:
    frame = numbers()
    without = frame[~frame["protocol"].isin(("lightsecagg", "flamingo", "one-shot", "e-seafl"))]
    verdicts = [claim.verdict for claim in judged.claims(without)]
    assert verdicts == ["partly", "not run", "agrees", "undetermined", "not run", "undetermined", "not run", "not run"]


def test_a_client_that_is_on_the_committee_speaks_more_than_once() -> None:
    """The paper's claim is not judged if everybody is on the committee."""
    frame = numbers(**{"one-shot asked": 3})
    frame["n"] = frame["n"].clip(upper=MEMBERS)
    assert judged.claims(frame)[-2].verdict == "not run"


# -- the kept comparison -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept() -> Measurements:
    result = kept_result(REPRODUCTIONS[0])
    assert result is not None
    if result.measurements is None:
        pytest.skip("the kept result is older than the measurements: run `testbed reproduce generations --scale real`")
    return result.measurements


def test_kept_rounds_lose_exactly_the_number_that_the_table_says(kept: Measurements) -> None:
    lost = kept.tables["rounds"][kept.tables["rounds"]["varied"] == "lost"]
    assert len(lost) > 30
    assert (lost["outcome"] == "completed").all()
    assert (lost["lost"] == [int(str(value).partition(" ")[0]) for value in lost["value"]]).all()


def test_counted_rounds_complete_as_often_as_the_exact_chance_says(kept: Measurements) -> None:
    settings = kept.tables["settings"]
    for row in rows_of(settings[settings["varied"] == "counted"]):
        counted = kept.tables["rounds"]
        counted = counted[(counted["varied"] == "counted") & (counted["value"] == row["value"])]
        counted = counted[counted["protocol"] == row["protocol"]]
        chance = tolerance_in(row).completes_with_rate(float(row["rate"]))
        done = Proportion.of(int((counted["outcome"] == "completed").sum()), len(counted), 0.999)
        assert done.low <= chance <= done.high, (row["protocol"], done, chance)


def test_rounds_without_losses_take_the_same_time_with_each_seed(kept: Measurements) -> None:
    """Costs are modelled, so one seed is enough where neither losses nor links are random."""
    always = kept.tables["rounds"]
    always = always[(always["varied"] == "always on") & ~always["protocol"].str.startswith(("secagg-plus", "flamingo"))]
    spread = always.groupby("protocol")["round s"].agg(lambda values: values.max() / values.min())
    assert (spread < 1.001).all()


def test_the_table_of_the_readme_is_that_of_the_kept_result(kept: Measurements) -> None:
    text = README.read_text(encoding="utf-8")
    assert f"<!-- part: generations | varied={SUMMARY} |" in text
    assert page(text, "README.md") == text
    for compared in PROTOCOLS:
        assert compared.name != compared.protocol or f"| {compared.name} |" in text
