"""Comparison of secure aggregation protocols: its conditions, parameters, measures and table."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from analysis.reproduction.aggregation_comparison import conditions, protocols, table, withstood
from analysis.reproduction.aggregation_comparison.conditions import SIZES, Condition, PlannedRuns, Size, planned
from analysis.reproduction.aggregation_comparison.measures import PHASES, phases, promised, protocol_of, rounds_of
from analysis.reproduction.aggregation_comparison.protocols import MEMBERS, PROTOCOLS, ComparedProtocol, ProtocolSetting
from analysis.reproduction.contract import ReproductionContext
from analysis.reproduction.measurements import stored
from testbed.errors import ExperimentError
from testbed.records import RunRecords

_DIGITS = {"dataset": "digits", "batch_size": 20, "training": "simulated", "samples_per_client": 20}
TINY = Size(
    8, "logistic", (0.25, 0.5), (6, 12), ("mlp",), (0.3,), (1, 2), (0.25, 0.5), 4,
    workload=_DIGITS, small_workload={**_DIGITS, "model": "logistic"},
)  # fmt: skip
OF = {compared.name: compared for compared in PROTOCOLS}
ONES = [compared for compared in PROTOCOLS if compared.name == compared.protocol]
USUAL = Condition("always on", "", ProtocolSetting(8, 2, 0.2), "logistic")


def plan_of(condition: Condition, compared: ComparedProtocol, size: Size = TINY) -> PlannedRuns:
    plan = planned(size, condition, compared)
    assert plan is not None
    return plan


def ran(context: ReproductionContext, name: str, condition: Condition = USUAL) -> list[RunRecords]:
    return context.run_experiment(plan_of(condition, OF[name]).experiment, context.out / OF[name].directory)


# -- parameters ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["small", "real"])
@pytest.mark.parametrize("compared", PROTOCOLS, ids=lambda compared: compared.name)
def test_every_protocol_can_be_set_up_for_every_condition(scale: str, compared: ComparedProtocol) -> None:
    size = SIZES[scale]
    listed = [*size.conditions(), *size.counting()]
    assert len({condition.directory for condition in listed}) == len(listed)
    for condition in listed:
        plan = planned(size, condition, compared) if condition.concerns(compared) else None
        if plan is None:
            continue
        section: Any = plan.experiment.aggregation
        assert section.protocol == compared.protocol
        assert plan.tolerance.participants == condition.setting.participants
        if compared.name in ("plain", "lightsecagg", "one-shot", "e-seafl", "pine"):  # set up for any number
            assert plan.tolerance.lost >= condition.setting.lost


@pytest.mark.parametrize("name", ["secagg", "secagg-plus", "flamingo", "one-shot", "e-seafl"])
def test_a_protocol_has_the_fewest_bits_that_it_accepts(name: str) -> None:
    size = SIZES["real"]
    for condition in size.conditions():
        if condition.varied not in ("always on", "participants"):
            continue
        plan, n = plan_of(condition, OF[name], size), condition.setting.participants
        section: Any = plan.experiment.aggregation
        assert section.bits == plan.bits
        assert 2**plan.bits > n * 20 * (2**16 - 1) > 2 ** (plan.bits - 1)
        narrower = section.model_copy(update={"bits": plan.bits - 1})
        with pytest.raises((ExperimentError, ValueError), match="bits"):
            narrower.check(n), narrower.check_weights(n, 20)


def test_no_client_has_more_samples_than_the_bits_are_for(context: ReproductionContext) -> None:
    """The runs themselves refuse weights that do not fit, so a run with the fewest bits is the check."""
    (run, _) = ran(context, "secagg")
    assert set(run.rounds["outcome"]) == {"completed"}


def test_secagg_plus_tolerates_as_many_losses_as_it_can_exactly() -> None:
    size = SIZES["real"]
    setting = size.set_up_for(0.5)
    assert setting.lost == 65
    plan = plan_of(Condition("always on", "", setting, size.model), OF["secagg-plus"], size)
    assert plan.tolerance.lost == plan_of(USUAL_REAL, OF["secagg"], size).tolerance.lost == 44
    section = plan.experiment.aggregation
    with pytest.raises(ValueError, match="44 of 100"):
        section.model_copy(update={"dropouts": 0.45}).check(100)
    never = replace(OF["secagg"], options=lambda setting: {"threshold": 1})
    with pytest.raises(ExperimentError, match="threshold: t = 1"):
        planned(size, USUAL_REAL, never)


USUAL_REAL = next(SIZES["real"].conditions())


def test_thresholds_are_safe_against_the_corrupted() -> None:
    for n in range(4, 60):
        for share in (0.0, 0.1, 0.33):
            setting = ProtocolSetting(n, 0, share)
            t = OF["secagg"].section(setting)["threshold"]
            assert 2 * t - n > setting.corrupted >= 2 * (t - 1) - n


@pytest.mark.parametrize("name", ["flamingo", "one-shot"])
def test_a_committee_withstands_all_of_the_corrupted(name: str) -> None:
    for n in (8, 20, 59, 60, 61, 200, 1000):
        for share in (0.0, 0.1, 0.3):
            setting = ProtocolSetting(n, n // 10, share)
            committee = OF[name].section(setting)["committee"]
            size, t = len(committee["members"]), committee["threshold"]
            assert size == min(n, MEMBERS)
            corrupted = min(setting.corrupted, size)
            assert 2 * t - size > corrupted >= 2 * (t - 1) - size
    phones = replace(USUAL, setting=ProtocolSetting(20, 2, 0.1, online=0.25), phones="5G")
    section: Any = plan_of(phones, OF[name]).experiment.aggregation
    assert (section.committee.selection, section.committee.over_selection) == ("lotto-client-centric", 6.0)


@pytest.mark.parametrize("name", ["secagg", "lightsecagg", "flamingo", "one-shot", "e-seafl"])
def test_numbers_of_clients_are_not_recorded_as_fractions(name: str, context: ReproductionContext) -> None:
    """A 12 that is written as 12.0 would be read back as a multiple of the committee."""
    asked: Any = plan_of(USUAL, OF[name]).experiment.aggregation
    read: Any = protocol_of(ran(context, name)[0]).parameters
    for key in ("threshold", "max_colluders", "min_survivors", "committee"):
        if hasattr(asked, key):
            assert getattr(read, key) == getattr(asked, key)
            number = read.committee.threshold if key == "committee" else getattr(read, key)
            assert type(number) is int


# -- rounds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compared", PROTOCOLS, ids=lambda compared: compared.name)
def test_a_round_loses_exactly_the_number_of_the_condition(
    compared: ComparedProtocol, context: ReproductionContext
) -> None:
    for condition in TINY.lossy():
        plan = planned(TINY, condition, compared) if condition.concerns(compared) else None
        if plan is None or condition.varied == "lost, points free":
            continue
        directory = context.out / condition.directory
        rows = [row for run in context.run_experiment(plan.experiment, directory) for row in rounds_of(run, compared)]
        assert {row["outcome"] for row in rows} == {"completed" if condition.completes else "aborted"}
        if condition.number is not None:
            assert {row["lost"] for row in rows} == {condition.number}


def test_messages_are_counted_for_clients_inside_and_outside_the_committee(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "MEMBERS", 5)
    asked = {}
    for compared in ONES:
        *_, last = rounds_of(ran(context, compared.name)[0], compared)
        asked[compared.name] = last["questions"], last["most questions"]
    assert asked == {
        "plain": (1, 1), "secagg": (5, 5), "secagg-plus": (5, 5), "lightsecagg": (4, 4), "flamingo": (1, 3),
        "one-shot": (1, 4), "e-seafl": (1, 1), "pine": (1, 1),
    }  # fmt: skip


@pytest.mark.parametrize("name", [compared.name for compared in ONES])
def test_phases_are_parts_of_a_round(name: str, context: ReproductionContext) -> None:
    run, compared = ran(context, name)[0], OF[name]
    rows = list(rounds_of(run, compared))
    assert [row["outcome"] for row in rows] == ["completed"] * (2 if compared.session else 1)
    of_stage = phases(run, compared)
    assert of_stage[compared.upload] == "upload"
    for row in rows:
        stages = run.exchanges_of_participants
        ours = stages[(stages["round"] == row["round"]) & stages["stage"].astype(str).isin(of_stage)]
        assert row["client s"] == pytest.approx(sum(row[f"client s ({phase})"] for phase in PHASES))
        assert row["client s"] == pytest.approx(ours["compute_s"].sum() / 8)
        assert row["MB up"] == pytest.approx(ours["bytes_up"].sum() / 8 / 1e6)
        assert row["busiest client s"] >= row["client s"] * (1 - 1e-9)
        assert row["training s"] + sum(row[f"elapsed s ({phase})"] for phase in PHASES) < row["round s"]
        by_phase = sum(row[f"server s ({phase})"] for phase in PHASES)
        assert 0 < by_phase <= row["server s"] * (1 + 1e-9)
    if name in ("secagg", "secagg-plus", "lightsecagg", "flamingo"):
        assert rows[0]["MB up (set-up)"] > 0


def test_a_set_up_for_all_rounds_is_in_the_first_alone(context: ReproductionContext) -> None:
    first, second = rounds_of(ran(context, "flamingo")[0], OF["flamingo"])
    assert first["elapsed s (set-up)"] > 0 == second["elapsed s (set-up)"]
    again = "flamingo, a committee a round"
    assert all(row["elapsed s (set-up)"] > 0 for row in rounds_of(ran(context, again)[0], OF[again]))


def test_losses_cost_the_server_seconds_of_recovery(context: ReproductionContext) -> None:
    rows = {}
    for number in (0, 2):
        condition = replace(USUAL, varied="lost", value=f"{number}", number=number, completes=True)
        out = context.out / str(number)
        out.mkdir()
        (run, _) = ran(replace(context, out=out), "secagg", condition)
        (rows[number],) = rounds_of(run, OF["secagg"])
    more = {phase: rows[2][f"server s ({phase})"] - rows[0][f"server s ({phase})"] for phase in PHASES}
    assert more["recovery"] > 10 * abs(more["set-up"])
    assert more["recovery"] > 0


def test_guarantees_of_the_experiment() -> None:
    plan = plan_of(USUAL, OF["secagg"])
    assert promised(plan.experiment, 8) == {"least sum": 5, "may collude": "1"}
    assert promised(plan_of(USUAL, OF["lightsecagg"]).experiment, 8)["may collude"] == "none"


# -- attacks -------------------------------------------------------------------------------------------------------


def surveyed(context: ReproductionContext, names: Sequence[str], rate: float) -> dict[str, pd.DataFrame]:
    return {
        name: pd.DataFrame(withstood.survey_rows(OF[name], rate, withstood.withstood(context, OF[name], rate)))
        for name in names
    }


def test_the_survey_finds_attacks_on_each_protocol(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withstood, "ROUNDS", 1)
    rows = surveyed(context, ("plain", "secagg", "flamingo", "one-shot", "e-seafl"), 0.1)
    assert withstood.not_protected(rows["secagg"]) == "–"
    assert withstood.not_protected(rows["plain"]) == "send-different-models"
    assert withstood.not_protected(rows["flamingo"]) == "encrypt-wrong-seeds"
    assert withstood.not_protected(rows["one-shot"]) == "–"
    text = withstood.in_words("secagg", rows["secagg"])
    assert "contradict-dropouts: refused: secagg.too-few-signatures at secagg/unmask" in text
    assert "break-batch" not in text  # there are none to break
    assert withstood.in_words("plain", rows["plain"].iloc[:0]) == "plain. No misbehaviour concerns it."


def test_lightsecagg_set_up_for_more_losses_shows_a_malicious_server_more(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withstood, "ROUNDS", 1)
    few, many = (surveyed(context, ("lightsecagg",), rate)["lightsecagg"] for rate in (0.1, 0.5))
    assert "(an update)" not in withstood.not_protected(few)
    assert "contradict-dropouts (an update), parallel-lists" in withstood.not_protected(many)


# -- table ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def measured(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(SIZES, "small", TINY)
    # Links differ in numbers alone.
    monkeypatch.setattr(conditions, "PHONE_LINKS", {"4G": conditions.PHONE_LINKS["4G"]})
    monkeypatch.setattr(table, "withstood", lambda context, compared, rate: [])
    return table.measure_comparison(context)


def test_the_whole_table(measured: Any, context: ReproductionContext) -> None:
    assert [path.suffix for path in measured.figures] == [".png", ".pdf", ".csv"]
    drawn = pd.read_csv(context.out / "generations.csv")
    assert set(drawn["series"].dropna()) >= {"secagg", "lightsecagg", "e-seafl"}
    result = table.conclude_comparison(stored(measured))
    frame = result.table
    assert list(frame.columns[:3]) == ["varied", "value", "protocol"]
    assert set(frame.loc[frame["varied"] == "always on", "protocol"]) == set(OF)
    assert list(frame.loc[frame["varied"] == table.SUMMARY, "protocol"]) == [compared.name for compared in ONES]
    assert not any("," in column or "|" in column for column in frame.columns)  # pages name columns in lists
    assert {claim.verdict for claim in result.claims} <= {"agrees", "partly", "disagrees", "undetermined", "not run"}
    (remark,) = [remark for remark in result.remarks if remark.startswith("Protocols and their papers")]
    assert all(compared.source in remark for compared in PROTOCOLS)
    leaving = frame[(frame["varied"] == "each leaves") & (frame["value"] == "50%")].set_index("protocol")
    assert leaving.loc["secagg", "chance of a sum"] == f"{100 * sum((1, 8, 28, 56)) / 256:.1f}%"  # 3 of 8 may be lost
    assert leaving.loc["secagg", "round s per sum"] > leaving.loc["secagg", "round s (completed)"]
    assert leaving.loc["secagg", "completed"].endswith(" of 4")
