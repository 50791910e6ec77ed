"""Lost clients by stage: counted by hand, in a table, and in the summary."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.comparison.losses import LOST, counts, dropouts, first_losses, render, somebody_was_lost
from analysis.comparison.summary import summarise
from analysis.report import sheets
from testbed.errors import ExperimentError
from testbed.network.exchanges import OUTCOMES
from testbed.records import RunRecords
from tests.analysis import recorded
from tests.messages_named import naming

MakeRun = Callable[..., RunRecords]


@pytest.fixture
def lossy(tmp_path: Path) -> RunRecords:
    """Two rounds: of six clients, four take part in the first and two in the second."""

    def asked(stage: str, sent_s: float, outcomes: dict[int, str]) -> Any:
        codes = [OUTCOMES.index(outcome) for outcome in outcomes.values()]
        return recorded.asked(stage, sent_s, list(outcomes), [None] * len(outcomes), outcome=codes)

    rest = {1: "answered", 2: "answered", 3: "answered", 5: "answered"}
    first = [
        asked("check-in", 0.0, {0: "offline", 4: "late"} | rest),
        asked("train", 1.0, {1: "dropped", 2: "late", 3: "answered", 5: "answered"}),
        asked("plain/update", 2.0, {1: "offline", 2: "dropped", 3: "refused", 5: "answered"}),
    ]
    second = [
        asked("check-in", 3.0, {0: "answered", 4: "offline"} | rest),
        asked("train", 4.0, {1: "silent", 2: "offline"}),
    ]
    rounds = [
        recorded.RecordedRound(0.0, 3.0, first, [1, 2, 3, 5], [5]),
        recorded.RecordedRound(3.0, 5.0, second, [1, 2], [], outcome="aborted", reason="too-few"),
    ]
    return recorded.write_run(tmp_path / "lossy", {"name": "lossy", "seed": 1, "population": 6}, rounds)


def test_counts_by_stage_and_outcome(lossy: RunRecords) -> None:
    table = counts(lossy)
    assert table.index.tolist() == ["check-in", "train", "plain/update"]
    participants = table[["participants", *(f"participants_{outcome}" for outcome in LOST)]]
    assert participants.values.tolist() == [[6, 0, 0, 0, 0], [6, 1, 1, 1, 0], [4, 0, 1, 0, 1]]
    everybody = table[["asked", *(f"asked_{outcome}" for outcome in LOST)]]
    # Client 1 has dropped out of round 1, and is not lost again when it is asked for its update.
    assert everybody.values.tolist() == [[12, 2, 0, 1, 0], [6, 1, 1, 1, 0], [4, 0, 1, 0, 1]]
    assert set(table.dtypes) == {table["asked"].dtype}


def test_each_lost_participant_counts_once_in_the_stage_of_its_first_loss(lossy: RunRecords) -> None:
    assert list(first_losses(lossy).itertuples(index=False, name=None)) == [
        (1, 1, "train", "dropped"),
        (1, 2, "train", "late"),
        (1, 3, "plain/update", "refused"),
        (2, 2, "train", "offline"),
    ]
    assert somebody_was_lost(lossy)


def test_the_summary_counts_lost_clients(lossy: RunRecords) -> None:
    summary = summarise(lossy)
    assert (summary["dropouts"], summary["offline"], summary["late"]) == (2, 3, 2)
    by_stage = {key: value for key, value in summary.items() if key.startswith("dropped_by_stage.")}
    assert by_stage == {
        "dropped_by_stage.check-in": 0, "dropped_by_stage.train": 1, "dropped_by_stage.plain/update": 1,
    }  # fmt: skip


def test_a_run_without_rounds_has_nothing_to_count(make_run: MakeRun) -> None:
    run = make_run("run", rounds=0)
    assert counts(run).empty
    assert first_losses(run).empty
    assert not somebody_was_lost(run)
    assert dropouts([run]).empty
    for kind in ("text", "markdown"):
        assert re.fullmatch(naming("client", "yet") + ".*\n", render(dropouts([run]), kind))
    assert json.loads(render(dropouts([run]), "json")) == {"rows": []}


def test_seeds_are_added_up_and_protocols_are_not(make_run: MakeRun) -> None:
    runs = [
        make_run(f"{name}-{seed}", name, seed=seed, rounds=rounds, sweep={"selection.protocol": name, "seed": seed})
        for name, seed, rounds in (("random", 1, 3), ("random", 2, 3), ("lotto-client-centric", 1, 6))
    ]
    frame = dropouts(runs)
    assert frame[["label", "seeds", "rounds"]].drop_duplicates().values.tolist() == [
        ["random", 2, 6], ["lotto-client-centric", 1, 6],
    ]  # fmt: skip
    assert frame.loc[frame["label"] == "lotto-client-centric", "stage"].iloc[0] == "lotto/announce"
    update = frame[frame["stage"] == "secagg/masked-input"].set_index("label")
    assert update["participants_dropped"].tolist() == [2, 2]  # one in every third round
    assert update["participants_dropped_per_round"].tolist() == pytest.approx([2 / 6, 2 / 6])
    assert update["participants"].tolist() == [60, 60]


def test_csv_and_json_hold_every_column(lossy: RunRecords) -> None:
    frame = dropouts([lossy])
    table = pd.read_csv(io.StringIO(render(frame, "csv")))
    assert table.columns.tolist() == frame.columns.tolist()
    assert table["asked_offline"].tolist() == [2, 1, 0]
    assert table["asked_offline_per_round"].tolist() == [1.0, 0.5, 0.0]
    rows = json.loads(render(frame, "json"))["rows"]
    assert [row["participants_late"] for row in rows] == [0, 1, 0]
    assert all(list(row) == frame.columns.tolist() for row in rows)


def test_text_and_markdown_show_the_totals(lossy: RunRecords) -> None:
    frame = dropouts([lossy])
    title, _, heads, _, *lines = render(frame, "text").splitlines()
    assert title == "lossy: 2 rounds"
    assert heads.split() == ["Stage", *(2 * ["asked", *LOST, "lost/round"])]
    assert lines[1].split() == ["train", "6", "1", "1", "1", "0", "1.50", "6", "1", "1", "1", "0", "1.50"]
    assert lines[-1].split()[2:8] == ["16", "1", "2", "1", "1", "2.50"]
    assert max(map(len, [heads, *lines])) <= 118
    markdown = render(frame, "markdown").splitlines()
    assert markdown[0] == "**lossy: 2 rounds**"
    assert len({line.count("|") for line in markdown[2:]}) == 1
    with pytest.raises(ExperimentError, match="allowed: text, markdown, csv, json"):
        render(frame, "latex")


def check_in(sent_s: float) -> Any:
    """Two clients are asked, and the second is offline."""
    codes = [OUTCOMES.index(outcome) for outcome in ("answered", "offline")]
    return recorded.asked("check-in", sent_s, [0, 1], [None, None], outcome=codes)


def test_rounds_without_participants_count_for_nothing(tmp_path: Path) -> None:
    rounds = [
        recorded.RecordedRound(0.0, 1.0, [check_in(0.0)], [0], [0]),
        *(recorded.RecordedRound(s, s + 1.0, [check_in(s)], outcome="skipped", reason="few") for s in (1.0, 2.0, 3.0)),
    ]
    run = recorded.write_run(tmp_path / "run", {"name": "some", "seed": 1, "population": 2}, rounds)
    frame = dropouts([run])
    assert frame[["rounds", "rounds_recorded", "asked", "asked_offline"]].values.tolist() == [[1, 4, 2, 1]]
    assert frame["asked_offline_per_round"].tolist() == [1.0]
    assert re.match(naming("some: 1 round", "3"), render(frame, "text").splitlines()[0])


def test_without_any_participant_all_rounds_are_counted(tmp_path: Path) -> None:
    """The questions are recorded, so the table must not be empty."""
    rounds = [
        recorded.RecordedRound(s, s + 1.0, [check_in(s)], outcome="aborted", reason="too-few-candidates: 1 of 2")
        for s in (0.0, 1.0, 2.0)
    ]
    run = recorded.write_run(tmp_path / "run", {"name": "none", "seed": 1, "population": 2}, rounds)
    frame = dropouts([run])
    assert frame[["rounds", "rounds_recorded", "participants", "asked", "asked_offline"]].values.tolist() == [
        [0, 3, 0, 6, 3],
    ]  # fmt: skip
    assert frame["asked_offline_per_round"].tolist() == [1.0]
    title, _, _, _, check_ins, *_ = render(frame, "text").splitlines()
    assert re.match(naming("none:", "3 rounds", "all", "counted"), title)
    assert check_ins.split() == ["check-in", *(5 * ["0"]), "0.00", "6", "3", "0", "0", "0", "1.00"]
    sheet = sheets.dropouts([run])
    assert sheet is not None
    assert re.match(naming("none", "all", "counted"), sheet.notes[-1])
