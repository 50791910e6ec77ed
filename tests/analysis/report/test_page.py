"""The page as a file: that it says what the records say, that it holds all it needs, and that records are only text."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.comparison.overhead import compare
from analysis.report import rounds, write
from testbed.display import visible
from testbed.errors import ExperimentError
from testbed.network.recorder import Event
from testbed.records import RunRecords
from tests.analysis.recorded import RecordedRound, asked, write_run
from tests.analysis.report.pages import Scripts, facts_of, rounds_of, unpacked, values

MakeRun = Callable[..., RunRecords]
NASTY = "</script><script>alert(1)</script>&\"'<img src=x onerror=alert(1)>\u2028{{ 7*7 }}"


@pytest.fixture
def runs(make_run: MakeRun) -> list[RunRecords]:
    names = ["random", "lotto-client-centric", "batch-partition"]
    return [make_run(name, name, sweep={"selection.protocol": name}, failing={2: "aborted"}) for name in names]


def page_of(runs: list[RunRecords], folder: Path, **options: Any) -> str:
    return write(runs, folder / "report.html", **options).read_text(encoding="utf-8")


def test_the_tables_numbers_are_those_of_compare(runs: list[RunRecords], tmp_path: Path) -> None:
    sheet, frame = facts_of(page_of(runs, tmp_path))["sheets"]["overhead"], compare(runs)
    assert values(sheet, "Protocol") == frame["label"].tolist()
    heads = {"Round time": "round_s", "Client time": "client_s", "Server traffic": "server_bytes"}
    heads |= {"Client traffic": "client_bytes", "Time per update": "round_s_per_update"}
    for head, column in heads.items():
        assert values(sheet, head) == frame[column].tolist()
        assert values(sheet, f"{head} ×") == frame[f"{column}_ratio"].tolist()
    assert values(sheet, "Aborted") == frame["rounds_aborted"].tolist() == [1, 1, 1]
    assert values(sheet, "Accuracy") == (100 * frame["final_accuracy"]).tolist()
    assert values(sheet, "F") == frame["fairness_gap"].tolist()


def test_another_baseline(runs: list[RunRecords], tmp_path: Path) -> None:
    sheet = facts_of(page_of(runs, tmp_path, baseline="batch-partition"))["sheets"]["overhead"]
    ratios = dict(zip(values(sheet, "Protocol"), values(sheet, "Round time ×"), strict=True))
    assert ratios["batch-partition"] == 1
    with pytest.raises(ExperimentError, match="no such run"):
        page_of(runs, tmp_path, baseline="nobody")


def test_the_explorer_has_every_exchange(runs: list[RunRecords], tmp_path: Path) -> None:
    page = page_of(runs, tmp_path)
    for place, run in enumerate(runs):
        found, rows = rounds_of(page, place), run.exchanges
        column = found["column"]
        assert found["rows"] == len(rows)
        assert column["client"].tolist() == rows["client"].tolist()
        assert [found["outcomes"][code] for code in column["outcome"]] == rows["outcome"].tolist()
        took = (rows["received_s"] - rows["sent_s"]).to_numpy()
        assert (column["took"] == rounds.NEVER).tolist() == np.isnan(took).tolist()
        answered = ~np.isnan(took)
        np.testing.assert_allclose(
            column["took"][answered] * found["time_unit"], took[answered], atol=found["time_unit"]
        )
        assert (column["down"] * found["bytes_unit"]).tolist() == rows["bytes_down"].tolist()
        assert (column["up"] * found["bytes_unit"]).tolist() == rows["bytes_up"].tolist()
        keys = set(zip(run.participation["round"], run.participation["client"], strict=True))
        part = [key in keys for key in zip(rows["round"], rows["client"], strict=True)]
        assert ((column["part"] & 1) == 1).tolist() == part
        assert found["rounds"]["round"] == run.rounds["round"].tolist()
        asks = found["asks"]
        assert sum(asks["kept"]) == len(rows)
        assert np.repeat(asks["stage"], asks["kept"]).tolist() == rows["stage"].tolist()
        assert sum(asks["dropped"]) == (rows["outcome"] == "dropped").sum() > 0


def test_what_is_left_out_of_large_runs_is_counted(make_run: MakeRun) -> None:
    run = make_run("run", population=200, participants=5, rounds=12)
    whole = unpacked(rounds.packed(run))
    of_participants = unpacked(rounds.packed(run, rows=len(run.exchanges_of_participants)))
    assert (of_participants["participants_only"], of_participants["every"]) == (True, 1)
    assert of_participants["rows"] == len(run.exchanges_of_participants) < whole["rows"]
    few = unpacked(rounds.packed(run, rows=120))
    assert few["every"] > 1
    assert 0 < few["rows"] <= 2 * 120
    for found in (of_participants, few):
        for name in ("answered", "dropped", "bytes_down", "stage", "sent_s"):
            assert found["asks"][name] == whole["asks"][name]


def test_names_from_records_are_text(tmp_path: Path) -> None:
    experiment = {
        "name": NASTY, "seed": 1, "rounds": 1, "population": 3,
        "selection": {"protocol": NASTY}, "aggregation": {"protocol": NASTY},
        "provenance": {"label": NASTY, "sweep": {NASTY: 1}, "versions": {NASTY: NASTY}},
    }  # fmt: skip
    stages = [asked(NASTY, 0.0, [0, 1, 2], [1.0, None, 2.0], outcome=[0, 5, 0])]
    events = [Event(NASTY, "client:1", "refusal", NASTY)]
    run = write_run(
        tmp_path / "run", experiment, [RecordedRound(0.0, 2.0, stages, [0, 1, 2], [0, 2], reason=NASTY, events=events)]
    )
    page = page_of([run], tmp_path)
    parsed = Scripts(page)
    tags = {tag for tag, _ in parsed.tags}
    assert "img" not in tags
    assert [attributes.get("id") for tag, attributes in parsed.tags if tag == "script"] == [
        "facts", "rounds-0", "plotting", None,
    ]  # fmt: skip
    facts = facts_of(page)
    assert facts["title"] == visible(NASTY)
    assert "49" not in page.split("<title>")[1].split("</title>")[0]
    assert [row[1][0] for row in facts["sheets"]["events"]["rows"]] == ["refusal"]
    assert [row[7][0] for row in facts["sheets"]["events"]["rows"]] == [visible(NASTY)]
    assert rounds_of(page, 0)["events"]["detail"] == [visible(NASTY)]


def test_nothing_in_a_text_reorders_the_page_or_is_hidden(tmp_path: Path) -> None:
    hidden, seen = "a\u202eb\u200b\x1bc", "a\\u202eb\\u200b\\u001bc"
    experiment = {
        "name": hidden, "seed": 1, "rounds": 1, "population": 2,
        "selection": {"protocol": "random"}, "aggregation": {"protocol": "plain"}, "provenance": {"label": hidden},
    }  # fmt: skip
    stages = [asked(hidden, 0.0, [0, 1], [1.0, None], outcome=[0, 5])]
    events = [Event(hidden, "client:1", "refusal", hidden)]
    run = write_run(
        tmp_path / "run", experiment, [RecordedRound(0.0, 2.0, stages, [0, 1], [0], reason=hidden, events=events)]
    )
    page = page_of([run], tmp_path)
    facts, of_round = facts_of(page), rounds_of(page, 0)
    assert facts["title"] == seen
    assert of_round["rounds"]["reason"] == of_round["asks"]["stage"] == of_round["events"]["detail"] == [seen]
    assert seen in facts["stage_colours"]  # the explorer finds the stage's colour
    for text in (page, json.dumps(of_round["events"], ensure_ascii=False), "".join(of_round["asks"]["stage"])):
        assert not {"\u202e", "\u200b", "\x1b"} & set(text)


def test_the_same_experiment_in_two_directories_is_told_apart(make_run: MakeRun, tmp_path: Path) -> None:
    first = make_run("monday", rounds=2)
    shutil.copytree(first.path, tmp_path / "tuesday")
    facts = facts_of(page_of([first, RunRecords(tmp_path / "tuesday")], tmp_path))
    for name in ("runs", "metrics"):
        labels = [one["label"] for one in facts[name]]
        assert len(set(labels)) == 2
        assert all(str(path) in label for path, label in zip((first.path, tmp_path / "tuesday"), labels, strict=True))
    assert len({one["label"] for one in facts["curves"]}) == len(facts["curves"])


def test_the_page_loads_nothing(runs: list[RunRecords], tmp_path: Path) -> None:
    page = page_of(runs, tmp_path)
    parsed = Scripts(page)
    policies = [a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"]
    (policy,) = policies
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "connect-src" not in policy
    sources = [
        value for tag, attributes in parsed.tags for name, value in attributes.items() if name in ("src", "href")
    ]
    assert [source for source in sources if not str(source).startswith(("#", "data:"))] == []


def test_size_and_same_bytes(runs: list[RunRecords], tmp_path: Path) -> None:
    page = page_of(runs, tmp_path)
    assert len(page.encode()) < 5_000_000
    assert rounds.packed(runs[0]) == rounds.packed(RunRecords(runs[0].path))


def test_runs_that_are_not_finished_are_marked(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("run", rounds=4, finish=False)
    (tmp_path / "run" / "experiment.yaml").write_text(
        (tmp_path / "run" / "experiment.yaml").read_text().replace("rounds: 4", "rounds: 9")
    )
    facts = facts_of(page_of([RunRecords(run.path)], tmp_path))
    assert facts["unfinished"] == ["random"]
    assert values(facts["sheets"]["runs"], "State") == ["not finished"]
    assert facts["sheets"]["runs"]["rows"][0][6] == ["4 of 9", 4]


def test_a_run_without_a_round_and_one_without_evaluation(make_run: MakeRun, tmp_path: Path) -> None:
    nothing = write_run(tmp_path / "nothing", {"name": "nothing", "rounds": 3, "population": 5, "seed": 3}, [])
    facts = facts_of(page_of([nothing, make_run("run", accuracy_every=None)], tmp_path))
    assert facts["unfinished"] == ["nothing"]
    assert values(facts["sheets"]["runs"], "Accuracy") == [None, None]
    assert all("accuracy" not in curve["points"] for curve in facts["curves"])


def test_seeds_share_a_curve_with_an_interval(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run(f"seed-{seed}", seed=seed) for seed in (1, 2, 3)]
    (curve,) = facts_of(page_of(runs, tmp_path))["curves"]
    assert curve["seeds"] == 3
    first = [float(run.rounds["accuracy"].iloc[0]) for run in runs]
    assert curve["points"]["accuracy"][0] == pytest.approx(np.mean(first), rel=1e-5)
    assert curve["points"]["accuracy_half"][0] == pytest.approx(np.std(first, ddof=1) / 3**0.5 * 4.3027, rel=1e-4)


def test_a_folder_of_the_files_name(runs: list[RunRecords], tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(ExperimentError, match="is a folder"):
        write(runs, tmp_path / "taken")
    assert write(runs[:1], tmp_path / "new" / "folder" / "report.html").is_file()
