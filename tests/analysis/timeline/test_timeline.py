"""Traces of rounds: the format, and that they say what the records say."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.timeline import numbered, write
from analysis.timeline.placed import placed
from testbed.cli import main
from testbed.errors import ExperimentError
from testbed.network.exchanges import ANSWERED, OUTCOMES, REFUSED
from testbed.network.recorder import Event
from testbed.records import RunRecords, find_runs
from tests.analysis.recorded import RecordedRound, asked, synthetic_run, write_run
from tests.analysis.timeline.traces import CLIENTS, FIRST, check, of, read
from tests.former_defaults import with_former_defaults
from tests.messages_named import naming
from tests.thoroughness import examples

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "rounds": 3,
    "population": 12,
    "workload": {"dataset": "digits", "model": "logistic"},
    "selection": {"protocol": "lotto-client-centric", "participants": 5, "over_selection": 2},
    "aggregation": {"protocol": "secagg", "threshold": 0.5},
    "availability": {"model": "bernoulli", "unavailable": 0.1, "dropout": {"rate": 0.3, "stage": "random"}},
    "time": {"deadline_s": 5},
    "cluster": {"network": "in-process"},
}
HAND = {"population": 3, "name": "hand", "time": {"clock": "virtual"}}


def ran(folder: Path, **changes: Any) -> RunRecords:
    """A real run of the small experiment."""
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(with_former_defaults(SMALL | changes)))
    assert main(["run", str(file), "--out", str(folder / "run"), "--quiet"]) == 0
    (run,) = find_runs(folder / "run")
    return run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> RunRecords:
    return ran(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_run_with_losses_is_told_whole(small: RunRecords, tmp_path: Path, name: str) -> None:
    written = write(small, "1-3", tmp_path / name)
    document = check(written.path, small, [1, 2, 3])
    assert of(document, ph="i", name="dropped")
    assert written.events == len(document["traceEvents"])
    assert written.size == (tmp_path / name).stat().st_size
    assert [one["args"]["survivors"] for one in of(document, cat="round")] == small.rounds["survivors"].tolist()


def test_the_same_rounds_give_the_same_file(small: RunRecords, tmp_path: Path) -> None:
    for name in ("one.json.gz", "two.json.gz"):
        write(small, [2], tmp_path / name)
    assert (tmp_path / "one.json.gz").read_bytes() == (tmp_path / "two.json.gz").read_bytes()
    check(tmp_path / "one.json.gz", small, [2])


@pytest.mark.parametrize("clients", [True, False])
def test_links_that_nobody_shares_give_the_times_that_things_took(tmp_path: Path, clients: bool) -> None:
    """Without a shared link and without a transport, what is derived is what was: sizes over rates, and latencies."""
    rates = {"down_mbit_s": [8, 2], "up_mbit_s": [4, 1], "latency_ms": 50, "transport": "none"}
    run = ran(
        tmp_path, population=2, rounds=1, selection={"protocol": "random", "participants": 2}, availability={},
        aggregation={"protocol": "plain"}, links=rates, records={"clients": clients},
    )  # fmt: skip
    document = check(write(run, None, tmp_path / "trace.json").path, run, [1])
    (update,) = [one for one in of(document, name="plain/update", cat="exchange") if one["tid"] == FIRST + 1]
    parts = [
        one for one in of(document, tid=FIRST + 1, ph="X") if one["cat"] == "transfer" and one["ts"] >= update["ts"]
    ]
    question, answer = parts
    assert math.isclose(question["ts"], update["ts"])
    assert math.isclose(answer["ts"] + answer["dur"], update["ts"] + update["dur"])
    expected_s = 0.05 + update["args"]["bytes_up"] * 8 / 1e6
    assert math.isclose(float(answer["dur"]) / 1e6, expected_s, rel_tol=1e-6) == clients
    (train,) = [one for one in of(document, name="train", cat="exchange") if one["tid"] == FIRST]
    (compute,) = [one for one in of(document, cat="compute", tid=FIRST) if one["ts"] < train["ts"] + train["dur"]]
    assert math.isclose(float(compute["dur"]) / 1e6, run.exchanges["compute_s"].max(), rel_tol=0.5)
    if clients:
        arrived_s = 0.05 + train["args"]["bytes_down"] * 8 / 8e6
        assert math.isclose(float(compute["ts"] - train["ts"]) / 1e6, arrived_s, rel_tol=1e-6)


def test_a_class_is_said_beside_the_client(tmp_path: Path) -> None:
    run = ran(tmp_path, rounds=1, classes={"slow": {"share": 1.0, "down_mbit_s": 1}})
    document = read(write(run, None, tmp_path / "trace.json").path)
    assert of(document, name="thread_name", pid=CLIENTS)[0]["args"]["name"] == "client 0 (slow)"


@pytest.mark.parametrize("protocol", ["random", "lotto-client-centric"])
@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_runs_of_each_kind(tmp_path: Path, protocol: str, aggregation: str) -> None:
    run = synthetic_run(
        tmp_path / "run", protocol, rounds=6, aggregation=aggregation, failing={2: "skipped", 4: "aborted"}
    )
    document = check(write(run, "2-4,6", tmp_path / "trace.json").path, run, [2, 3, 4, 6])
    assert [one["args"]["outcome"] for one in of(document, cat="round")][:2] == ["skipped", "completed"]


def _hand(path: Path, *stages: Any, events: list[Event] | None = None, **more: Any) -> RunRecords:
    return write_run(path, HAND, [RecordedRound(0.0, 10.0, list(stages), [0, 1, 2], [0], events=events or [], **more)])


def test_a_stage_ends_with_its_last_answer_or_when_the_next_begins(tmp_path: Path) -> None:
    run = _hand(
        tmp_path / "run",
        asked("one", 1.0, [0, 1], [2.0, 3.5], down=10, up=20),
        asked("two", 4.0, [0, 1], [5.0, None], down=10, up=[20, 0], outcome=[ANSWERED, OUTCOMES.index("late")]),
        asked("three", 7.0, [0, 2], [8.0, None], down=10, up=[20, 0], outcome=[ANSWERED, OUTCOMES.index("dropped")]),
    )
    document = check(write(run, None, tmp_path / "trace.json").path, run, [1])
    stages = [(one["ts"], one["dur"], one["args"].get("derived")) for one in of(document, cat="stage")]
    assert stages == [(1e6, 2.5e6, None), (4e6, 3e6, "end"), (7e6, 3e6, "end")]
    late, dropped = of(document, cat="loss")
    assert (late["name"], late["ts"], dropped["name"], dropped["ts"]) == ("late", 7e6, "dropped", 10e6)


def test_asynchronous_clients_train_when_they_do(tmp_path: Path) -> None:
    stages = [
        asked("train", 3.0, [3], [None], down=9, outcome="dropped"),
        asked("train", 5.0, [1], [14.0], down=10, up=20),
        asked("train", 12.0, [0], [16.0], down=10, up=20),
        asked("train", 4.0, [2], [9.0], down=10, up=20),
        asked("secagg/advertise-keys", 17.0, [0, 1, 2], [18.0, 18.0, 18.5], up=20),
        asked("secagg/share-keys", 19.0, [0, 1, 2], [19.5, 19.5, 19.5], up=20),
    ]
    rounds = [RecordedRound(0.0, 8.0, []), RecordedRound(8.0, 20.0, stages, [0, 1, 2], [0, 1, 2])]
    run = write_run(tmp_path / "run", HAND | {"asynchronous": {"concurrency": 3}}, rounds)
    document = read(write(run, "2", tmp_path / "trace.json").path)
    told = [(one["name"], one["ts"] / 1e6, one["dur"] / 1e6) for one in of(document, cat="stage")]
    assert told == [("train", 8.0, 9.0), ("secagg/advertise-keys", 17.0, 1.5), ("secagg/share-keys", 19.0, 0.5)]
    trained = {one["tid"] - FIRST: one for one in of(document, cat="exchange", name="train")}
    times = {client: (one["ts"] / 1e6, one["dur"] / 1e6) for client, one in trained.items()}
    assert times == {0: (12.0, 4.0), 1: (5.0, 9.0), 2: (4.0, 5.0), 3: (3.0, 14.0)}
    (asked_of,) = [one["args"] for one in of(document, cat="stage", name="train")]
    assert (asked_of["asked"], asked_of["answered"]) == (4, 3)


def test_reasons_stand_with_what_they_explain_and_other_events_on_their_own(tmp_path: Path) -> None:
    hostile = 'list.size: "\x1b[31m</script>\u2028'
    run = _hand(
        tmp_path / "run",
        asked("one", 1.0, [0, 1], [2.0, 3.0], down=10, up=20, outcome=[ANSWERED, REFUSED]),
        asked("two", 4.0, [0, 1], [5.0, None], down=10, up=[20, 0], outcome=[ANSWERED, OUTCOMES.index("silent")]),
        events=[
            Event("one", "client:1", "refusal", hostile),
            Event("two", "client:1", "crash", "IndexError"),
            Event("two", "client:2", "misbehaviour", "signed something else"),
            Event("", "coordinator", "resume", "resumed after round 0"),
            Event("after round", "coordinator", "stopped", "budget"),
        ],
    )
    document = check(write(run, None, tmp_path / "trace.json").path, run, [1])
    told = {one["name"]: one for one in of(document, ph="i")}
    assert told["refused"]["args"]["reason"] == hostile
    assert told["refused"]["ts"] == 3e6
    assert told["silent"]["args"]["reason"] == "IndexError"
    assert "refusal" not in told
    assert "crash" not in told
    assert told["misbehaviour"]["tid"] == FIRST + 2
    assert told["misbehaviour"]["ts"] == 10e6
    assert told["stopped"]["args"]["detail"] == "budget"
    assert (tmp_path / "trace.json").read_bytes().isascii()


def test_a_round_in_which_nobody_was_asked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", HAND, [RecordedRound(0.0, 1.0, [], outcome="skipped", reason="nobody")])
    document = read(write(run, None, tmp_path / "trace.json").path)
    (told,) = of(document, ph="X")
    assert told["args"]["reason"] == "nobody"


times = st.floats(0, 5, allow_nan=False)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_whatever_happened_nests_and_adds_up(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    stages, now = [], data.draw(st.floats(0, 1e6))
    began = now
    for at in range(data.draw(st.integers(1, 3))):
        count = data.draw(st.integers(1, 3))
        outcome = data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
        took = data.draw(st.lists(times, min_size=count, max_size=count))
        answered = [value in (ANSWERED, REFUSED) for value in outcome]
        received = [now + s if there else None for s, there in zip(took, answered, strict=True)]
        sizes = data.draw(st.lists(st.integers(0, 10**9), min_size=2, max_size=2))
        offline = np.array(outcome) == OUTCOMES.index("offline")
        made = asked(
            f"stage {at}", now, range(count), received, down=np.where(offline, 0, sizes[0]),
            up=np.where(offline, 0, sizes[1]), outcome=outcome,
        )  # fmt: skip
        made.compute_s[:] = np.where(offline, 0.0, data.draw(st.lists(times, min_size=count, max_size=count)))
        stages.append(made)
        now += 5 + data.draw(times)
    run = _hand_from(tmp_path_factory.mktemp("any") / "run", began, now, stages)
    check(write(run, [1], run.path / "trace.json").path, run, [1])


def _hand_from(path: Path, began: float, ended: float, stages: list[Any]) -> RunRecords:
    return write_run(path, HAND, [RecordedRound(began, ended, stages, [0], [0])])


def test_large_times_are_exact_to_the_nanosecond(tmp_path: Path) -> None:
    run = _hand_from(tmp_path / "run", 1e6, 1e6 + 2, [asked("one", 1e6, [0], [1e6 + 1.5], down=1, up=1)])
    assert placed(run, [1]).exchanges["end"].tolist() == [1_000_001_500_000_000]
    (told,) = of(read(write(run, [1], tmp_path / "trace.json").path), cat="exchange")
    assert told["ts"] == 1_000_000_000_000
    assert told["dur"] == 1_500_000


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=5))
def test_ranges_are_read_as_they_are_written(ranges: list[tuple[int, int]]) -> None:
    ordered = [tuple(sorted(one)) for one in ranges]
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ordered)
    assert numbered(text) == ordered


@pytest.mark.parametrize("text", ["", "a", "3-", "-3", "5-3", "3,,4", "1-2-3", "1.5", "1" * 30])
def test_other_text_names_no_rounds(text: str) -> None:
    with pytest.raises(ExperimentError, match=naming("3, 3-5 or 3,7-9")):
        numbered(text)


@pytest.mark.parametrize(("wanted", "missing"), [("4", 4), ("0", 0), ("2-9", 9), ([5], 5)])
def test_rounds_that_are_not_there_are_named(
    small: RunRecords, tmp_path: Path, wanted: str | list[int], missing: int
) -> None:
    with pytest.raises(ExperimentError, match=f"there is no round {missing}; it has rounds 1 to 3"):
        write(small, wanted, tmp_path / "trace.json")
    assert not (tmp_path / "trace.json").exists()


def test_the_last_completed_round_is_the_default(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path / "run", rounds=4, failing={4: "aborted"}, finish=False)
    assert write(run, None, tmp_path / "trace.json").rounds == (3,)
