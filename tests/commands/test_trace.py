"""``testbed trace``: convert, inspect, synthesize, record."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.cli.trace.output import seconds
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.schedule import Schedule
from testbed.errors import ExperimentError
from testbed.records import RunRecords
from tests.messages_named import naming

Call = Callable[..., Any]
DAY = 86_400.0
PHONES = {
    "3": {"isSuccess": True, "trace_start": 0, "trace_end": 2 * DAY, "ready_time": [[10, 20], [50, 50], [90, DAY]]},
    "8": {"isSuccess": True, "trace_start": 0, "trace_end": DAY, "ready_time": [[5, 5]]},
    "9": {"isSuccess": False, "trace_start": None, "trace_end": None, "ready_time": []},
}
FEDSCALE = {1: {"duration": 9, "active": [1], "inactive": [10], "finish_time": 20, "model": "x"}}
MARKOV = ("--model", "markov", "--set", "mean_online_s=600", "--set", "mean_offline_s=900", "--seed", 1)


@pytest.fixture
def phones(tmp_path: Path) -> Path:
    path = tmp_path / "timers.json"
    path.write_text(json.dumps(PHONES))
    return path


# -- convert --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_convert_says_what_it_kept_and_dropped(suffix: str, phones: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / f"phones{suffix}"
    ended = call("trace", "convert", phones, "--from", "phone-intervals", "--out", out)
    assert ended.code == 0
    lines = [line.split(maxsplit=1) for line in ended.out.splitlines()[:-1]]
    counts = {name: int(number) for number, name in lines}
    assert counts["devices"] == 3
    assert counts["devices unusable"] == counts["devices unusable not successful"] == 1
    assert counts["devices never online"] == 1
    assert counts["intervals zero length"] == 2
    assert ended.out.splitlines()[-1] == f"{out}: 2 clients, 2 intervals, 2 d"
    trace = AvailabilityTrace.read(out)
    assert trace.online_from_s.tolist() == [10.0, 90.0]
    assert trace.never_online.tolist() == ([8] if suffix == ".parquet" else [])
    assert len(ended.errors) == (suffix == ".csv")  # a note: CSV loses the client that is never online


def write_sources(folder: Path) -> dict[str, tuple[Path, tuple[Any, ...]]]:
    """A small file in each format, and the options that it needs."""
    log = "2020-01-05 00:00:00\twifi\n2020-01-05 00:00:01\tbattery_charged_on\n2020-01-05 00:00:02\tscreen_lock\n"
    (folder / "flash.json").write_text(json.dumps({"1": {"messages": f"{log}2020-01-05 00:00:12\tscreen_unlock\n"}}))
    (folder / "fedscale").write_bytes(pickle.dumps(FEDSCALE))
    np.save(folder / "m.npy", np.array([[1, 0], [1, 1]]))
    (folder / "log.csv").write_text("who,a,b\nx,1,2\n")
    columns = ("--client-column", "who", "--from-column", "a", "--until-column", "b", "--unit", "h")
    return {
        "flash": (folder / "flash.json", ("--outside", "offline")),
        "fedscale": (folder / "fedscale", ()),
        "matrix": (folder / "m.npy", ("--round-seconds", "5min")),
        "csv": (folder / "log.csv", columns),
    }


@pytest.mark.parametrize(
    ("format", "intervals"),
    [
        ("flash", [(2.0, 12.0)]),
        ("fedscale", [(1.0, 10.0)]),
        ("matrix", [(0.0, 600.0), (300.0, 600.0)]),
        ("csv", [(3600.0, 7200.0)]),
    ],
)
def test_convert_reads_every_format(format: str, intervals: Any, tmp_path: Path, call: Call) -> None:
    source, options = write_sources(tmp_path)[format]
    out = tmp_path / "out.parquet"
    assert call("trace", "convert", source, "--from", format, *options, "--out", out).code == 0
    trace = AvailabilityTrace.read(out)
    assert list(zip(trace.online_from_s.tolist(), trace.online_until_s.tolist(), strict=True)) == intervals


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_convert_makes_a_table_of_capacities(suffix: str, tmp_path: Path, call: Call) -> None:
    (tmp_path / "capacity").write_bytes(pickle.dumps({7: {"computation": 162.0, "communication": 5600.0}}))
    out = tmp_path / f"capacity{suffix}"
    ended = call("trace", "convert", tmp_path / "capacity", "--from", "fedscale", "--out", out)
    assert ended.code == 0
    table = pd.read_csv(out) if suffix == ".csv" else pd.read_parquet(out)
    assert table.to_dict("records") == [{"client": 7, "computation_ms": 162.0, "down_mbit_s": 5.6, "up_mbit_s": 5.6}]


def test_convert_never_overwrites_unasked(phones: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "phones.csv"
    out.write_text("mine")
    ended = call("trace", "convert", phones, "--from", "phone-intervals", "--out", out)
    assert ended.code == 2
    assert "--force overwrites it" in ended.errors[0]
    assert out.read_text() == "mine"
    assert call("trace", "convert", phones, "--from", "phone-intervals", "--out", out, "--force").code == 0
    assert len(AvailabilityTrace.read(out)) == 1
    source, options = write_sources(tmp_path)["csv"]
    before = source.read_text()
    ended = call("trace", "convert", source, "--from", "csv", *options, "--out", source, "--force")
    assert "the source itself" in ended.errors[0]
    assert source.read_text() == before


def test_a_failed_conversion_leaves_no_file(tmp_path: Path, call: Call) -> None:
    (tmp_path / "timers.json").write_text("{")
    out = tmp_path / "out.parquet"
    assert call("trace", "convert", tmp_path / "timers.json", "--from", "phone-intervals", "--out", out).code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["timers.json"]


class Evil:
    """A pickle that runs a command when it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def test_a_malicious_pickle_is_refused_and_executes_nothing(tmp_path: Path, call: Call) -> None:
    bad, mark, out = tmp_path / "client_behave_trace", tmp_path / "executed", tmp_path / "out.parquet"
    bad.write_bytes(pickle.dumps({1: Evil(f"touch {mark}")}))
    ended = call("trace", "convert", bad, "--from", "fedscale", "--out", out)
    assert ended.code == 2
    (line,) = ended.errors
    assert "system" in line
    assert "nothing is executed" in line
    assert not mark.exists()
    assert not out.exists()
    pickle.loads(bad.read_bytes())  # noqa: S301  (the attack is real)
    assert mark.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "matrix", "--out", "o.csv"), "--round-seconds: needed with --from matrix"),
        (("--from", "csv", "--out", "o.csv", "--from-column", "a"), "--client-column: needed with --from csv"),
        (("--from", "flash", "--out", "o.csv", "--unit", "s"), "--unit: has no effect with --from flash"),
        (("--from", "matrix", "--round-seconds", "5 parsecs", "--out", "o.csv"), "'5 parsecs' is not a duration"),
        (("--from", "matrix", "--round-seconds", "0", "--out", "o.csv"), "'0' is not a duration"),
        (("--from", "flash", "--out", "o.txt"), "must end in .parquet or .csv"),
        (("--from", "flash", "--out", "o.csv"), "no-such-file: no such file"),
        (("--from", "word", "--out", "o.csv"), "'word'"),
        (("--out", "o.csv"), "--from"),
    ],
)
def test_mistakes_in_convert_are_one_line(
    arguments: tuple[str, ...], said: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call("trace", "convert", "no-such-file", *arguments)
    assert ended.code == 2
    assert ended.out == ""
    (line,) = ended.errors
    assert said in line
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file.txt").touch()
    ended = call("trace", "convert", "no-such-file", "--from", "flash", "--out", str(tmp_path / "file.txt/o.csv"))
    assert ended.code == 2
    (line,) = ended.errors
    assert "file.txt: cannot be created" in line


# -- convert: bandwidth, latency, loss ------------------------------------------------------------------------------


def wide_logs(folder: Path) -> Path:
    folder.mkdir()
    rows = "2024-05-01T12:00:00Z,B,1000,80\n2024-05-01T12:00:00Z,B,3000,-\n2024-05-01T12:00:01Z,B,4000,40\n"
    (folder / "drive.csv").write_text(f"Timestamp,Operator,DL_bitrate,PINGAVG\n{rows}")
    return folder


def test_convert_a_folder_of_wide_logs_and_run_it(written: Callable[..., Path], tmp_path: Path, call: Call) -> None:
    source = wide_logs(tmp_path / "logs")
    options = ("--time-column", "Timestamp", "--unit")
    rates = ("--kind", "bandwidth", "--value-column", "DL_bitrate", *options, "kbit/s", "--out", tmp_path / "rates")
    delays = ("--kind", "latency", "--value-column", "PINGAVG", *options, "ms", "--round-trip")
    ended = call("trace", "convert", source, *rates)
    assert ended.code == 0
    counts = [line.split(maxsplit=1) for line in ended.out.splitlines()[:-1]]
    assert {name: int(number) for number, name in counts} == {
        "files": 1,
        "rows": 3,
        "rows without a value": 0,
        "rows with repeated times": 1,
        "steps": 2,
    }
    assert ended.out.splitlines()[-1] == f"{tmp_path / 'rates'}: 1 trace of bandwidth, Mbit/s, read as csv"
    assert call("trace", "convert", source, *delays, "--out", tmp_path / "delays").code == 0
    facts = json.loads(call("trace", "inspect", tmp_path / "delays", "--format", "json").out)
    assert (facts["most_ms"], facts["least_ms"]) == (40, 20)
    facts = json.loads(call("trace", "inspect", tmp_path / "rates", "--format", "json").out)
    assert (facts["least_mbit_s"], facts["most_mbit_s"], facts["repeated_times"]) == (2, 4, 0)
    links = {"down_mbit_s": {"trace": str(tmp_path / "rates")}, "latency_ms": {"trace": str(tmp_path / "delays")}}
    ended = call("run", written(links=links), "--out", tmp_path / "run", "--quiet")
    assert ended.code == 0
    assert not [line for line in ended.errors if "warning" in line]
    assert "--force overwrites" in call("trace", "convert", source, *rates).errors[0]


def test_a_run_says_what_it_makes_of_repeated_times(written: Callable[..., Path], tmp_path: Path, call: Call) -> None:
    (tmp_path / "a.txt").write_text("0 5\n1 5\n1 7\n2 5\n")
    links = {"up_mbit_s": {"trace": str(tmp_path / "a.txt"), "rows": "until-next"}}
    ended = call("run", written(links=links), "--out", tmp_path / "run", "--quiet")
    assert ended.code == 0
    (line,) = (line for line in ended.errors if "warning" in line)
    assert "1 row has the time of the row before" in line
    text = call("trace", "inspect", tmp_path / "a.txt").out
    assert "repeated times" in text


def test_formats_of_bandwidth_are_found_out(tmp_path: Path, call: Call) -> None:
    (tmp_path / "a.down").write_text("0\n100\n")
    ended = call("trace", "convert", tmp_path / "a.down", "--kind", "bandwidth", "--out", tmp_path / "a.txt")
    assert ended.out.splitlines()[-1].endswith("1 trace of bandwidth, Mbit/s, read as mahimahi")
    call("trace", "convert", tmp_path / "a.down", "--kind", "bandwidth", "--bin", "10ms", "--out", tmp_path / "b.csv")
    assert len((tmp_path / "b.csv").read_text().splitlines()) > len((tmp_path / "a.txt").read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--time-column: needed with --from csv"),
        (("--time-column", "t", "--value-column", "v"), "--unit: needed with --from csv"),
        (("--time-column", "t", "--value-column", "v", "--unit", "mbps"), "--unit: 'mbps' is not allowed"),
        (("--time-column", "t", "--value-column", "v", "--unit", "kbit/s", "--round-trip"), "--round-trip: has no"),
        (("--time-column", "t", "--value-column", "v", "--unit", "kbit/s", "--match", "*"), "--match: has no effect"),
        (
            ("--time-column", "t", "--value-column", "v", "--unit", "kbit/s", "--outside", "offline"),
            "--outside: has no",
        ),
        (("--from", "mahimahi", "--unit", "kbit/s"), "--unit: has no effect with --from mahimahi"),
        (("--from", "spot"), "--from: 'spot' is not a format of --kind bandwidth; allowed: mahimahi, 3g-log, csv"),
        (("--from", "mahimahi", "--bin", "0"), "'0' is not a duration"),
        (("--from", "mahimahi"), "row 1: 't,v'; a mahimahi trace"),
    ],
)
def test_mistakes_with_bandwidth_are_one_line(arguments: Any, said: str, tmp_path: Path, call: Call) -> None:
    (tmp_path / "a.csv").write_text("t,v\n0,1\n1,2\n")
    ended = call("trace", "convert", tmp_path / "a.csv", "--kind", "bandwidth", "--out", tmp_path / "o.txt", *arguments)
    assert ended.code == 2
    (line,) = ended.errors
    assert said in line
    assert not (tmp_path / "o.txt").exists()


# -- convert: recordings and names ----------------------------------------------------------------------------------


def test_names_and_recordings_are_shown(tmp_path: Path, call: Call) -> None:
    for name, ticks in (("long", 20), ("short", 2)):
        (tmp_path / f"{name}.json").write_text(
            json.dumps({"metadata": {"gap_seconds": 3600}, "data": [1, 0] * (ticks // 2)})
        )
    out = tmp_path / "spot.parquet"
    ended = call("trace", "convert", tmp_path, "--from", "spot", "--out", out)
    assert ended.code == 0
    assert "1  devices recorded for a part of the horizon" in ended.out
    facts = json.loads(call("trace", "inspect", out, "--format", "json").out)
    assert facts["names"] == {"0": "long", "1": "short"}
    assert facts["online_fraction_mean"] == 0.5
    assert facts["recording_shortest_s"] == 7200
    text = call("trace", "inspect", out, "--out", tmp_path / "picture").out
    assert "client 1" in text
    assert (tmp_path / "picture.png").exists()
    ended = call("trace", "convert", tmp_path, "--from", "spot", "--out", tmp_path / "spot.csv")
    (note,) = ended.errors
    assert note.startswith("note: CSV has no place for the names of clients, for recordings, which are repeated")


def test_what_is_not_known_of_short_recordings_is_said(tmp_path: Path, call: Call) -> None:
    (tmp_path / "log.csv").write_text("who,a,b\nx,0,1\ny,0,100\n")
    columns = ("--client-column", "who", "--from-column", "a", "--until-column", "b")
    source = tmp_path / "log.csv"
    ended = call("trace", "convert", source, "--from", "csv", *columns, "--out", tmp_path / "o.parquet")
    assert "1 of 2 devices have intervals in less than half of the horizon" in " ".join(ended.errors)
    ended = call(
        "trace", "convert", source, "--from", "csv", *columns, "--outside", "repeat", "--out", tmp_path / "p.parquet"
    )
    assert ended.errors == []
    one = ("--recorded-from-column", "a")
    ended = call("trace", "convert", source, "--from", "csv", *columns, *one, "--out", tmp_path / "q.parquet")
    assert "give both, or none" in ended.errors[0]


def test_convert_a_state_case(phones: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "case.json").write_text('["3", "3", "8"]')
    out = tmp_path / "case.parquet"
    ended = call("trace", "convert", tmp_path / "case.json", "--from", "flhetbench", "--timers", phones, "--out", out)
    assert ended.code == 0
    assert AvailabilityTrace.read(out).names == {0: "3", 1: "3", 2: "8"}
    ended = call("trace", "convert", tmp_path / "case.json", "--from", "flhetbench", "--out", out, "--force")
    assert "--timers: needed with --from flhetbench" in ended.errors[0]


# -- durations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("90", 90), ("90s", 90), ("5min", 300), ("12h", 43200), ("7d", 7 * DAY), ("1.5 h", 5400), (".25s", 0.25)],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text, "--horizon") == value


@pytest.mark.parametrize("text", ["", "s", "-5", "5m", "1e3", "nan", "inf", "0s", "7 d 2 h", "5µs", "9" * 400, "٣h"])
def test_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match=naming("--horizon", 90)):
        seconds(text, "--horizon")


# -- inspect --------------------------------------------------------------------------------------------------------


@pytest.fixture
def converted(phones: Path, tmp_path: Path, call: Call) -> Path:
    out = tmp_path / "phones.parquet"
    assert call("trace", "convert", phones, "--from", "phone-intervals", "--out", out).code == 0
    return out


def test_inspect_an_availability_trace(converted: Path, tmp_path: Path, call: Call) -> None:
    ended = call("trace", "inspect", converted, "--format", "json")
    facts = json.loads(ended.out)
    assert facts["clients"] == 2
    assert facts["clients_never_online"] == 1
    assert facts["online_fraction_mean"] == pytest.approx((10 + DAY - 90) / 2 / (2 * DAY))
    text = dict(line.split("  ", 1) for line in call("trace", "inspect", converted).out.splitlines())
    assert text["horizon"].strip() == "2 d"
    assert next(text[key] for key in text if key.startswith("online mean")).strip() == "25 %"
    ended = call("trace", "inspect", converted, "--out", tmp_path / "figures" / "picture.png")
    assert ended.code == 0
    assert [Path(line).name for line in ended.errors] == ["picture.png", "picture.pdf"]
    assert (tmp_path / "figures" / "picture.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "figures" / "picture.pdf").read_bytes()[:4] == b"%PDF"


def test_inspect_bandwidth(tmp_path: Path, call: Call) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    (folder / "a.log").write_text("0 1\n1 3\n2 3\n")
    (folder / "b.log").write_text("0 2\n1 2\n")
    facts = json.loads(call("trace", "inspect", folder, "--format", "json").out)
    assert facts["traces"] == 2
    assert facts["most_mbit_s"] == 3
    assert json.loads(call("trace", "inspect", folder / "a.log", "--format", "json").out)["traces"] == 1
    assert call("trace", "inspect", folder, "--out", tmp_path / "links.pdf").code == 0
    assert (tmp_path / "links.png").exists()


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_inspect_a_schedule(suffix: str, tmp_path: Path, call: Call) -> None:
    rows = [(1, 0, "", "participant"), (1, 0, "train", "dropped"), (3, 5, "", "offline")]
    path = tmp_path / f"schedule{suffix}"
    Schedule.from_rows(rows).write(path)
    assert json.loads(call("trace", "inspect", path, "--format", "json").out) == {
        "rounds": 3,
        "clients": 2,
        "rows_participant": 1,
        "rows_offline": 1,
        "rows_dropped": 1,
        "lost_from_whole_round": 1,
        "lost_from_train": 1,
    }
    assert call("trace", "inspect", path, "--out", tmp_path / "picture").code == 0
    assert (tmp_path / "picture.png").exists()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("absent.parquet", None, "no such file"),
        ("absent", None, "no such file"),
        ("t.parquet", b"PAR1", "not a Parquet file"),
        ("t.parquet", b"", "empty"),
        ("t.csv", b"", "t.csv: "),
        ("t.csv", b"client,online_from_s,online_until_s\n1,5,3\n", "row 1: reversed interval"),
        ("t.csv", b"client,online_from_s\n1,5\n", "the columns must be"),
        ("t.csv", b"round,client,stage,fate\n1,2,,lost\n", "row 1: unknown fate 'lost'"),
        ("t.log", b"0 1\n1 -3\n", "row 2"),
        ("t.bin", b"\xff\xfe\x00", "t.bin: "),
        ("t.json", b"{}", "t.json: "),
    ],
)
def test_what_is_no_trace_is_one_line(name: str, data: bytes | None, said: str, tmp_path: Path, call: Call) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    ended = call("trace", "inspect", tmp_path / name)
    assert ended.code == 2
    (line,) = ended.errors
    assert said in line


def test_a_picture_of_another_kind_is_refused(converted: Path, tmp_path: Path, call: Call) -> None:
    ended = call("trace", "inspect", converted, "--out", tmp_path / "picture.gif")
    assert ended.code == 2
    assert ".png and .pdf" in ended.errors[0]


# -- synthesize -----------------------------------------------------------------------------------------------------


def test_synthesize_is_reproducible(tmp_path: Path, call: Call) -> None:
    made = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        out = tmp_path / f"{name}.csv"
        options = (*MARKOV[:-1], seed, "--clients", 50, "--horizon", "12h", "--out", out)
        assert call("trace", "synthesize", *options).code == 0
        made.append(out.read_bytes())
    assert made[0] == made[1] != made[2]
    trace = AvailabilityTrace.read(tmp_path / "a.csv")
    assert trace.online_until_s.max() <= 12 * 3600
    online = (trace.online_until_s - trace.online_from_s).sum() / (12 * 3600) / 50
    assert online == pytest.approx(0.4, abs=0.1)  # 600 / (600 + 900); the mean of 50 clients


def test_synthesize_models_that_know_rounds_only(tmp_path: Path, call: Call) -> None:
    out = tmp_path / "rounds.parquet"
    options = ("--set", "unavailable=[0, 0.5, 1]", "--clients", 3, "--horizon", "1h", "--seed", 4, "--out", out)
    ended = call("trace", "synthesize", "--model", "bernoulli", *options)
    assert ended.code == 2
    assert "--round-seconds" in ended.errors[0]
    assert call("trace", "synthesize", "--model", "bernoulli", *options, "--round-seconds", "7min").code == 0
    trace = AvailabilityTrace.read(out)
    assert trace.horizon == (0, 3600)
    assert trace.never_online.tolist() == [2]
    assert trace.online_until(np.array([0]), 0.0).tolist() == [3600]
    ends = {*trace.online_from_s.tolist(), *trace.online_until_s.tolist()}
    assert ends <= {420.0 * number for number in range(9)} | {3600.0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "markow"), "did you mean 'markov'?"),
        (("--model", "markov"), "availability.mean_online_s: is required"),
        (("--model", "markov", "--set", "mean=5"), "availability.mean: unknown key"),
        (("--model", "markov", "--set", "mean_online_s"), "must be key=value"),
        (("--model", "markov", "--set", "mean_online_s=[1"), "not valid YAML"),
        (("--model", "label-dependent"), "use bernoulli"),
        (("--model", "trace", "--set", "path=x.csv"), "nothing to synthesize"),
        ((*MARKOV[:-2], "--round-seconds", "5"), "has its own times"),
        ((*MARKOV[:-2], "--set", "dropout.rate=0.5"), "no stages"),
        (("--model", "bernoulli", "--set", "unavailable=1", "--round-seconds", "9"), "online"),
        ((*MARKOV[:-2], "--horizon", "soon"), "'soon'"),
        ((*MARKOV[:-2], "--clients", "0"), "--clients"),
        (("--model", "bernoulli", "--set", "unavailable=0.5", "--round-seconds", "1ms"), "at most"),
        (("--model", "no_such_module:Name", "--round-seconds", "9"), "no_such_module"),
    ],
)
def test_mistakes_in_synthesize_are_one_line_each(arguments: Any, said: str, tmp_path: Path, call: Call) -> None:
    given = {"--clients": 100_000, "--horizon": "1h", "--seed": 1, "--out": tmp_path / "o.csv"}
    rest = [item for option, value in given.items() if option not in arguments for item in (option, value)]
    ended = call("trace", "synthesize", *arguments, *rest)
    assert ended.code == 2
    assert all(line.startswith("error: ") for line in ended.errors)  # one line per mistake
    assert any(said in line for line in ended.errors)
    assert not (tmp_path / "o.csv").exists()


# -- record ---------------------------------------------------------------------------------------------------------


def test_record_a_run(written: Callable[..., Path], tmp_path: Path, call: Call) -> None:
    run, out = tmp_path / "run", tmp_path / "schedule.csv"
    experiment = written(availability={"dropout": {"rate": 0.5, "stage": "random"}})
    assert call("run", experiment, "--out", run, "--quiet").code == 0
    ended = call("trace", "record", run, "--out", out)
    assert ended.code == 0
    schedule = Schedule.read(out)
    assert ended.out.splitlines()[-1] == f"{out}: {len(schedule)} rows"
    participants = {(number, client) for number, client, _, fate in schedule.rows() if fate == "participant"}
    recorded = RunRecords(run).participation
    assert participants == set(zip(recorded["round"], recorded["client"], strict=True))
    assert {fate for *_, fate in schedule.rows()} >= {"participant", "dropped"}
    assert "--force" in call("trace", "record", run, "--out", out).errors[0]


def test_a_schedule_is_of_rounds(written: Callable[..., Path], tmp_path: Path, call: Call) -> None:
    experiment = written(
        asynchronous={"concurrency": 3}, aggregation={"protocol": "plain"}, links={"transport": "none"}, rounds=1
    )
    assert call("run", experiment, "--out", tmp_path / "run", "--quiet").code == 0
    ended = call("trace", "record", tmp_path / "run", "--out", tmp_path / "o.csv")
    assert ended.code == 2
    assert "run: an asynchronous run; a schedule is by rounds" in ended.errors[0]


def test_record_wants_one_run(written: Callable[..., Path], tmp_path: Path, call: Call) -> None:
    sweep = tmp_path / "sweep"
    assert call("run", written(sweep={"rounds": [1, 2]}), "--out", sweep, "--quiet").code == 0
    ended = call("trace", "record", sweep, "--out", tmp_path / "o.csv")
    assert ended.code == 2
    assert "2 runs; choose one" in ended.errors[0]
    for directory, code, said in ((tmp_path / "absent", 2, "no such directory"), (tmp_path, 2, "runs")):
        ended = call("trace", "record", directory, "--out", tmp_path / "o.csv")
        assert ended.code == code
        assert said in ended.errors[0]
    (tmp_path / "empty").mkdir()
    ended = call("trace", "record", tmp_path / "empty", "--out", tmp_path / "o.csv")
    assert ended.code == 2
    assert "no runs here" in ended.errors[0]
