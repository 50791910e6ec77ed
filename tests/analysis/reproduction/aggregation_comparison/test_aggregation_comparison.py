"""Comparison of secure aggregation protocols: its conditions, measures and claims."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.reproduction.aggregation_comparison import claims as judged
from analysis.reproduction.aggregation_comparison import conditions, protocols, table, withstood
from analysis.reproduction.aggregation_comparison.conditions import SIZES, Condition, Size, experiment
from analysis.reproduction.aggregation_comparison.measures import PHASES, phases, promised, protocol_of, row
from analysis.reproduction.aggregation_comparison.protocols import MEMBERS, PROTOCOLS, ComparedProtocol, ProtocolSetting
from analysis.reproduction.contract import ReproductionContext
from testbed.engine.registry import aggregation_protocol
from testbed.errors import ExperimentError
from testbed.records import RunRecords

TINY = Size(
    8, "logistic", (0.3,), (6, 12), ("mlp",), (0.3,), 2,
    workload={"dataset": "digits", "batch_size": 20, "training": "simulated"},
)  # fmt: skip
OF = {one.protocol: one for one in PROTOCOLS}
USUAL = Condition("always on", "", ProtocolSetting(8, 0.1, 0.2), {"model": "logistic"})


def ran(context: ReproductionContext, name: str, condition: Condition = USUAL) -> RunRecords:
    (run,) = context.run_experiment(experiment(TINY, condition, OF[name]), context.out / name)
    return run


@pytest.mark.parametrize("scale", ["small", "real"])
@pytest.mark.parametrize("one", PROTOCOLS, ids=lambda one: one.protocol)
def test_every_protocol_can_be_set_up_for_every_condition(scale: str, one: ComparedProtocol) -> None:
    size = SIZES[scale]
    listed = list(size.conditions())
    names = [condition.directory for condition in listed]
    assert len(set(names)) == len(names)
    for condition in listed:
        made = experiment(size, condition, one)
        assert made.aggregation.protocol == one.protocol
        if not condition.dropout:
            continue
        least = aggregation_protocol(made.aggregation).guarantees(condition.setting.participants).min_sum_size
        if one.protocol in ("plain", "lightsecagg", "one-shot"):  # those that can be set up for any number
            assert least <= (1 - condition.dropout) * condition.setting.participants


def test_set_up_tolerates_fewer_dropouts_where_the_protocol_cannot_take_more() -> None:
    """No graph of secagg-plus is safe with half of its participants gone; with four in ten gone, a graph is safe."""
    lost = replace(USUAL, setting=ProtocolSetting(20, 0.6, 0.1))
    section: Any = experiment(TINY, lost, OF["secagg-plus"]).aggregation
    assert 0.2 < section.dropouts < 0.5
    assert experiment(TINY, lost, OF["lightsecagg"]).aggregation.threshold == 8  # type: ignore[attr-defined]
    never = replace(OF["secagg"], options=lambda setting: {"threshold": 1})
    with pytest.raises(ExperimentError, match="threshold: t = 1"):
        experiment(TINY, lost, never)


def test_thresholds_are_safe_against_the_corrupted() -> None:
    for n in range(4, 60):
        for share in (0.0, 0.1, 0.33):
            setting = ProtocolSetting(n, 0.1, share)
            t = OF["secagg"].section(setting)["threshold"]
            assert 2 * t - n > setting.corrupted >= 2 * (t - 1) - n


@pytest.mark.parametrize("name", ["flamingo", "one-shot"])
def test_a_committee_withstands_all_of_the_corrupted(name: str) -> None:
    for n in (8, 20, 59, 60, 61, 200, 1000):
        for share in (0.0, 0.1, 0.3):
            setting = ProtocolSetting(n, 0.1, share)
            committee = OF[name].section(setting)["committee"]
            size, t = committee["size"], committee["threshold"]
            assert size == min(n, MEMBERS)
            corrupted = min(setting.corrupted, size)
            assert 2 * t - size > corrupted >= 2 * (t - 1) - size
            assert "selection" not in committee
    phones = replace(USUAL, setting=ProtocolSetting(20, 0.1, 0.1, online=0.25))
    section: Any = experiment(TINY, replace(phones, phones="5G"), OF[name]).aggregation
    assert (section.committee.selection, section.committee.over_selection) == ("lotto-client-centric", 6.0)


@pytest.mark.parametrize("name", ["secagg", "lightsecagg", "flamingo", "one-shot"])
def test_numbers_of_clients_are_not_recorded_as_fractions(name: str, context: ReproductionContext) -> None:
    """A 12 that is written as 12.0 would be read back as a multiple of the committee."""
    asked: Any = experiment(TINY, USUAL, OF[name]).aggregation
    read: Any = protocol_of(ran(context, name)).parameters
    for key in ("threshold", "max_colluders", "min_survivors", "committee"):
        if hasattr(asked, key):
            assert getattr(read, key) == getattr(asked, key)
            number = read.committee.threshold if key == "committee" else getattr(read, key)
            assert type(number) is int


def test_questions_are_counted_for_clients_outside_the_committee(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocols, "MEMBERS", 5)
    asked = {name: row(ran(context, name), one)["questions"] for name, one in OF.items()}
    assert asked == {"plain": 1, "secagg": 5, "secagg-plus": 5, "lightsecagg": 4, "flamingo": 1, "one-shot": 1}


@pytest.mark.parametrize("name", list(OF))
def test_phases_are_parts_of_a_round(name: str, context: ReproductionContext) -> None:
    run, one = ran(context, name), OF[name]
    found = row(run, one)
    assert (found["completed"], found["aborted"], found["skipped"]) == (2, 0, 0)
    stages = [str(stage) for stage in run.exchanges["stage"].unique()]
    of_stage = {stage: phase for stage, phase in phases(run, one).items() if stage in stages}
    assert {stage for stage in stages if stage.partition("/")[0] == name} <= of_stage.keys()
    assert found["stages"] == len(of_stage)
    assert of_stage[one.upload] == "upload"
    ours = run.exchanges[run.exchanges["stage"].isin(of_stage)]
    assert found["client s"] == pytest.approx(sum(found[f"client s ({phase})"] for phase in PHASES))
    assert found["client s"] == pytest.approx(ours["compute_s"].sum() / 16)
    assert found["MB up"] == pytest.approx(ours["bytes_up"].sum() / 16 / 1e6)
    assert sum(found[f"elapsed s ({phase})"] for phase in PHASES) < found["round s"]
    by_phase = sum(found[f"server s ({phase})"] for phase in PHASES)
    assert 0 < by_phase <= found["server s"] * (1 + 1e-9)
    if name not in ("plain", "one-shot"):  # nothing comes before the one message
        assert found["MB up (set-up)"] > 0


def test_dropouts_cost_the_server_seconds_of_recovery(context: ReproductionContext) -> None:
    found = {}
    for dropout in (0.0, 0.3):
        out = context.out / str(dropout)
        out.mkdir()
        lost = replace(USUAL, dropout=dropout, setting=ProtocolSetting(8, 0.5, 0.2))
        run = ran(replace(context, out=out), "secagg", lost)
        found[dropout] = row(run, OF["secagg"])
        assert found[dropout]["completed"] == 2
        for _, of_round in run.rounds.iterrows():
            assert sum(one["compute_s"] for one in of_round["server_work"]) == pytest.approx(
                of_round["server_compute_s"]
            )
            assert of_round["server_work"][0]["stage"] == "round"
    more = {phase: found[0.3][f"server s ({phase})"] - found[0.0][f"server s ({phase})"] for phase in PHASES}
    assert more["recovery"] > 10 * abs(more["set-up"])
    assert more["recovery"] > 0


def test_rounds_that_fail_have_no_costs(context: ReproductionContext) -> None:
    lost = replace(USUAL, dropout=1.0)
    run = ran(context, "secagg", lost)
    found = row(run, OF["secagg"])
    assert (found["completed"], found["aborted"]) == (0, 2)
    measures = [value for name, value in found.items() if name not in ("completed", "aborted", "skipped")]
    assert measures == [None] * len(measures)
    assert promised(run) == {"may be lost": 8 - 5, "least sum": 5, "may collude": "1"}


def test_the_survey_finds_attacks_on_each_protocol(
    context: ReproductionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withstood, "SURVEY", replace(withstood.SURVEY, rounds=1))
    found = {one.protocol: withstood.withstood(context, one) for one in PROTOCOLS if one.protocol != "secagg-plus"}
    of_servers, of_clients = (
        "contradict-dropouts (an update), parallel-lists",
        "deal-inconsistent-shares, answer-wrong-sum",
    )
    assert withstood.not_protected(found["lightsecagg"]) == f"{of_servers}, {of_clients}"
    assert withstood.not_protected(found["secagg"]) == "–"
    assert withstood.not_protected(found["plain"]) == "send-different-models"
    assert withstood.not_protected(found["flamingo"]) == "encrypt-wrong-seeds"
    assert withstood.not_protected(found["one-shot"]) == "–"
    said = withstood.in_words(OF["secagg"], found["secagg"])
    assert "contradict-dropouts: refused: secagg.too-few-signatures at secagg/unmask" in said
    assert "break-batch" not in said  # there are none to break
    assert withstood.in_words(OF["plain"], []) == "plain. No misbehaviour concerns it."


@pytest.fixture
def whole(context: ReproductionContext, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(SIZES, "small", TINY)
    monkeypatch.setattr(
        conditions, "PHONE_LINKS", {"4G": conditions.PHONE_LINKS["4G"]}
    )  # links differ in numbers alone
    monkeypatch.setattr(table, "withstood", lambda context, one: [])
    return table.run_comparison(context)


def test_the_whole_table(whole: Any, context: ReproductionContext) -> None:
    frame = whole.table
    assert list(frame.columns[:3]) == ["varied", "value", "protocol"]
    assert len(frame) == len(list(TINY.conditions())) * len(PROTOCOLS)
    assert set(frame["rounds"].str.len()) == {5}
    assert [path.suffix for path in whole.figures] == [".png", ".pdf", ".csv"]
    drawn = pd.read_csv(context.out / "generations.csv")
    assert set(drawn["series"].dropna()) >= set(OF)
    assert {claim.verdict for claim in whole.claims} <= {"agrees", "partly", "disagrees", "undetermined", "not run"}
    (remark,) = [one for one in whole.remarks if one.startswith("Protocols and their papers")]
    assert all(one.source in remark for one in PROTOCOLS)


# -- claims ------------------------------------------------------------------------------------------------------------


def numbers(**changed: float) -> pd.DataFrame:
    """Return rows that agree with the papers, except for the `changed` values."""
    has = {
        "secagg lost": 3.0, "plus lost": 2.0, "light lost": 1.0, "secagg set-up": 4.0, "plus set-up": 1.5,
        "pieces": 9 / 7, "plus asked": 5, "flamingo asked": 1, "one-shot asked": 1, **changed,
    }  # fmt: skip
    rows = []

    def add(varied: str, value: str, protocol: str, n: int = 10, **of_it: float) -> None:
        usual = {
            "server s": 1.0,
            "MB up (set-up)": 1.0,
            "MB up (upload)": 1.0,
            "round s": 1.0,
            "questions": 5,
            "completed": 1,
        }
        rows.append({"varied": varied, "value": value, "protocol": protocol, "n": n, "dropout": 0.0, "T": 1,
                     "may be lost": 2, "MB up": 1.0, "MB down": 1.0, **usual, **of_it})  # fmt: skip

    add("always on", "", "secagg")
    for protocol, key in (("secagg-plus", "plus"), ("flamingo", "flamingo"), ("one-shot", "one-shot")):
        add("always on", "", protocol, MEMBERS + 1, questions=has[f"{key} asked"])
    add("always on", "", "lightsecagg", **{"MB up (set-up)": has["pieces"]})
    for rate in (0.3, 0.5):
        lost = {"dropout": rate, "completed": int(rate < 0.5)}
        for name, key in (("secagg", "secagg lost"), ("secagg-plus", "plus lost"), ("lightsecagg", "light lost")):
            add("dropout", f"{rate:.0%}", name, **{**lost, "server s": has[key] if rate < 0.5 else np.nan})
    for n, grown in ((10, (1.0, 1.0)), (40, (has["secagg set-up"], has["plus set-up"]))):
        add("participants", f"{n}", "secagg", n, **{"MB up (set-up)": grown[0]})
        add("participants", f"{n}", "secagg-plus", n, **{"MB up (set-up)": grown[1]})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("changed", "verdicts"),
    [
        ({}, ["agrees"] * 5),
        ({"secagg lost": 1.0}, ["partly", "agrees", "agrees", "agrees", "agrees"]),
        ({"secagg lost": 1.0, "plus lost": 1.0, "light lost": 3.0}, ["disagrees", *["agrees"] * 4]),
        ({"pieces": 2.0}, ["agrees", "disagrees", "agrees", "agrees", "agrees"]),
        ({"plus set-up": 3.0}, ["agrees", "agrees", "partly", "agrees", "agrees"]),
        ({"secagg set-up": 1.0, "plus set-up": 3.0}, ["agrees", "agrees", "disagrees", "agrees", "agrees"]),
        ({"flamingo asked": 5}, ["agrees", "agrees", "agrees", "disagrees", "agrees"]),
        ({"one-shot asked": 2}, ["agrees", "agrees", "agrees", "agrees", "disagrees"]),
    ],
)
def test_claims_are_decided_by_the_numbers(changed: dict[str, float], verdicts: list[str]) -> None:
    found = judged.claims(numbers(**changed))
    assert [claim.verdict for claim in found if not claim.undetermined] == verdicts
    assert [claim.verdict for claim in found if claim.undetermined] == ["undetermined"] * 2
    assert "30% lost" in found[0].measured  # at 50% nobody has completed a round


def test_claims_without_runs_are_not_judged() -> None:
    frame = numbers()
    without = frame[~frame["protocol"].isin(("lightsecagg", "flamingo", "one-shot"))]
    verdicts = [claim.verdict for claim in judged.claims(without)]
    assert verdicts == ["partly", "not run", "agrees", "undetermined", "not run", "undetermined", "not run"]


def test_a_client_that_is_on_the_committee_speaks_more_than_once() -> None:
    """The paper's claim is not judged if everybody is on the committee."""
    frame = numbers(**{"one-shot asked": 3})
    frame["n"] = frame["n"].clip(upper=MEMBERS)
    assert judged.claims(frame)[-1].verdict == "not run"


def test_remarks_name_the_phone_links() -> None:
    said = " ".join(table._remarks(TINY))
    for name in conditions.PHONE_LINKS:
        assert f"{name} " in said
