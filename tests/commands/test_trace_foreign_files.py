"""``testbed trace`` on files that others wrote: what is not sure is refused, with the option that settles it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.series import BANDWIDTH, read_series

Call = Callable[..., Any]
NUMBERED = ("--from", "csv", "--client-column", "1", "--from-column", "2", "--until-column", "3")
NAMED = ("--from", "csv", "--client-column", "c", "--from-column", "a", "--until-column", "b")
RATES = ("--kind", "bandwidth", "--time-column", "t", "--value-column", "v", "--unit", "Mbit/s")


def refusal(ended: Any) -> str:
    assert ended.code == 2
    (line,) = ended.errors
    return str(line)


def test_headerless_intervals(tmp_path: Path, call: Call) -> None:
    source, out = tmp_path / "machine_events.csv", tmp_path / "o.parquet"
    source.write_text("3,0,10\n40,5,20\n50,30,45\n")
    line = refusal(call("trace", "convert", source, *NUMBERED, "--out", out))
    assert "say --no-header if it is data, --header if it is names" in line
    assert not out.exists()
    assert call("trace", "convert", source, *NUMBERED, "--no-header", "--out", out).code == 0
    assert AvailabilityTrace.read(out).clients.tolist() == [3, 40, 50]
    line = refusal(call("trace", "convert", source, *NUMBERED, "--header", "--out", out, "--force"))
    assert "'1' and '3' are one column; name two" in line  # its first cell names it 3


@pytest.mark.parametrize(
    ("row", "options", "said", "settled"),
    [
        ("x,,5", (), "row 1: no time in column 'a'; --skip-incomplete", ("--skip-incomplete",)),
        ("x,1714564790000,1714564850000", (), "say --unit ms", ("--unit", "ms")),
        ("x,20240501,20240502", (), "say --unit s if they are seconds", ("--unit", "s")),
        ("x;1,500;2,500", (), "say --decimal comma or --decimal point", ("--decimal", "point")),
    ],
)
def test_the_option_that_is_named_settles_it(
    row: str, options: Any, said: str, settled: Any, tmp_path: Path, call: Call
) -> None:
    separator = ";" if ";" in row else ","
    source, out = tmp_path / "log.csv", tmp_path / "o.parquet"
    source.write_text(separator.join("cab") + f"\n{row}\n" + (f"y{separator}1{separator}2\n" if "x,," in row else ""))
    assert said in refusal(call("trace", "convert", source, *NAMED, *options, "--out", out))
    ended = call("trace", "convert", source, *NAMED, *options, *settled, "--out", out)
    assert ended.code == 0
    if settled == ("--skip-incomplete",):
        assert "1  rows incomplete" in [line.strip() for line in ended.out.splitlines()]
    if "point" in settled:
        assert AvailabilityTrace.read(out).horizon == (1500.0, 2500.0)


def test_a_long_log_is_split(tmp_path: Path, call: Call) -> None:
    source, out = tmp_path / "runs.csv", tmp_path / "runs"
    keys = [(t, run) for t in range(10) for run in ("A", "B")]
    source.write_text("run,t,v\n" + "".join(f"{run},{t},{5 if run == 'A' else 50}\n" for t, run in keys))
    assert "--split-column NAME makes a trace of each" in refusal(
        call("trace", "convert", source, *RATES, "--out", tmp_path / "o.txt")
    )
    split = ("--split-column", "run")
    assert "--split-column makes several traces, so give a folder" in refusal(
        call("trace", "convert", source, *RATES, *split, "--out", tmp_path / "o.txt")
    )
    ended = call("trace", "convert", source, *RATES, *split, "--out", out)
    assert ended.out.splitlines()[-1] == f"{out}: 2 traces of bandwidth, Mbit/s, read as csv"
    assert read_series(out, BANDWIDTH).names == ("A.txt", "B.txt")
    averaged = ("--average-repeated", "--out", tmp_path / "mean.txt")
    assert call("trace", "convert", source, *RATES, *averaged).code == 0
    assert set(read_series(tmp_path / "mean.txt", BANDWIDTH).value) == {27.5}


def test_what_rows_mean_is_said_where_nobody_has(tmp_path: Path, call: Call) -> None:
    source, native = tmp_path / "a.csv", tmp_path / "norway.log"
    source.write_text("t,v\n0,1\n1,2\n2,3\n")
    native.write_text("0 1\n1 2\n2 3\n")
    (note,) = call("trace", "convert", source, *RATES, "--out", tmp_path / "a.txt").errors
    assert "until the next" in note
    assert "Pensieve" in note
    assert note.endswith("say --rows interval-before")
    for rows in ("until-next", "interval-before"):
        chosen = ("--rows", rows, "--out", tmp_path / f"{rows}.txt")
        assert call("trace", "convert", source, *RATES, *chosen).errors == []
        assert call("trace", "inspect", native, "--rows", rows).errors == []
    assert "--rows interval-before here" in call("trace", "inspect", native).errors[0]
    assert call("trace", "inspect", tmp_path / "a.txt").errors == []  # it says so itself
    delays = ("--kind", "latency", *RATES[2:-1], "ms", "--out", tmp_path / "d.txt")
    assert call("trace", "convert", source, *delays).errors == []


@pytest.mark.parametrize("format", [(), ("--from", "3g-log"), ("--from", "csv")])
def test_bandwidth_that_is_a_trace_already(format: Any, tmp_path: Path, call: Call) -> None:
    folder = tmp_path / "bandwidth-3g"
    folder.mkdir()
    (folder / "bus.log").write_text("0.0\t2.29\n1.01\t1.36\n2.011\t2.92\n")
    ended = call("trace", "convert", folder, "--kind", "bandwidth", *format, "--out", tmp_path / "o")
    line = refusal(ended)
    assert "two numbers in each line, which is the format of traces already" in line
    assert "`testbed trace inspect` shows it" in line
    named = ("--no-header", "--time-column", "1", "--value-column", "2", "--unit", "kbit/s")
    ended = call("trace", "convert", folder, "--kind", "bandwidth", *named, "--out", tmp_path / "o")
    assert ended.code == 0
    assert "a trace of bandwidth already" in refusal(
        call("trace", "convert", tmp_path / "o", "--kind", "bandwidth", *named, "--out", tmp_path / "p")
    )


def test_availability_that_is_a_trace_already(tmp_path: Path, call: Call) -> None:
    trace = AvailabilityTrace.from_rows([0, 1], [0, 5], [5, 9])
    out = ("--out", tmp_path / "o.parquet")
    for source in (tmp_path / "a.parquet", tmp_path / "a.csv"):
        trace.write(source)
        for format in (("--from", "phone-intervals"), ("--from", "csv"), ("--from", "matrix"), ()):
            line = refusal(call("trace", "convert", source, *format, *out))
            assert "an availability trace already; no conversion is needed, use it as it is" in line
            assert f"path: {source}" in line
        for kind in ("bandwidth", "latency", "loss"):
            line = refusal(call("trace", "convert", source, "--kind", kind, "--out", tmp_path / "o.txt"))
            assert f"{source.name}: an availability trace, and holds no {kind}; use it as it is" in line
    (tmp_path / "s.csv").write_text("round,client,stage,fate\n1,2,,dropped\n")
    assert "s.csv: a schedule already" in refusal(
        call("trace", "convert", tmp_path / "s.csv", "--from", "matrix", *out)
    )
    columns = ("--client-column", "client", "--from-column", "online_from_s", "--until-column", "online_until_s")
    assert call("trace", "convert", tmp_path / "a.csv", "--from", "csv", *columns, *out).code == 0


def test_json_and_folders_of_folders(tmp_path: Path, call: Call) -> None:
    (tmp_path / "starlink.json").write_text(json.dumps([{"rtt": 5}]))
    ended = call("trace", "convert", tmp_path / "starlink.json", "--kind", "latency", "--out", tmp_path / "o.txt")
    assert "starlink.json: this is JSON" in refusal(ended)
    folder = tmp_path / "5G" / "Netflix" / "Driving"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("t,v\n0,1\n1,2\n")
    top = tmp_path / "5G"
    assert "inside the source" in refusal(call("trace", "convert", top, *RATES, "--out", top / "out"))
    assert call("trace", "convert", top, *RATES, "--out", tmp_path / "o").code == 0
    assert [file.name for file in (tmp_path / "o").iterdir()] == ["Netflix-Driving-a.txt"]
    assert "name one of its 1 folders, e.g. Netflix" in refusal(call("trace", "inspect", top))
    (top / "b.txt").write_text("0 1\n1 2\n")
    notes = call("trace", "inspect", top, "--rows", "until-next").errors
    assert notes == ["note: files in its folders are not read, e.g. in Netflix"]


def test_options_of_tables_are_for_tables(tmp_path: Path, call: Call) -> None:
    (tmp_path / "a.down").write_text("0\n5\n")
    for option in (("--no-header",), ("--decimal", "point"), ("--split-column", "x"), ("--average-repeated",)):
        ended = call(
            "trace", "convert", tmp_path / "a.down", "--kind", "bandwidth", *option, "--out", tmp_path / "o.txt"
        )
        assert f"{option[0].replace('no-', '')}: has no effect with --from mahimahi" in refusal(ended)
    ended = call("trace", "convert", tmp_path / "a.down", "--from", "spot", "--skip-incomplete", "--out", "o.csv")
    assert "--skip-incomplete: has no effect with --from spot" in refusal(ended)


def test_published_traces_are_called_traces(shared: Path, tmp_path: Path, call: Call) -> None:
    folder = shared / "traces" / "bandwidth-3g"
    if not folder.exists():
        pytest.skip("no 3G traces here")
    ended = call("trace", "convert", folder, "--kind", "bandwidth", "--out", tmp_path / "o")
    assert "the format of traces already" in refusal(ended)


def test_rows_that_are_averaged_unasked_are_noted(tmp_path: Path, call: Call) -> None:
    source, out = tmp_path / "log.csv", tmp_path / "o.txt"
    source.write_text("t,v,who\n" + "".join(f"{row - row // 10},{row + 1},a\n" for row in range(30)))
    options = ("--kind", "bandwidth", "--from", "csv", "--time-column", "t")
    command = (
        "trace",
        "convert",
        source,
        *options,
        "--value-column",
        "v",
        "--unit",
        "Mbit/s",
        "--rows",
        "until-next",
        "--out",
        out,
    )
    noted = call(*command)
    assert noted.code == 0, noted.err
    text = " ".join(noted.err.split())
    assert "note: 2 of 30 rows have the time of the row before" in text
    assert "--split-column NAME makes a trace of each; --average-repeated confirms the mean" in text
    silent = call(*command, "--average-repeated", "--force")
    assert (silent.code, silent.err) == (0, "")


def test_a_trace_of_links_is_no_availability_and_is_named_as_it_is(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "3g"
    folder.mkdir()
    (folder / "one.log").write_text("0.0\t2.2\n1.0\t1.3\n")
    for source in (folder, folder / "one.log"):
        for kind in ((), ("--kind", "bandwidth")):
            line = refusal(call("trace", "convert", source, *kind, "--out", tmp_path / "out.csv"))
            assert f"links: {{down_mbit_s: {{trace: {source}}}}}" in line
    assert "--from" in refusal(call("trace", "convert", tmp_path / "nothing", "--out", tmp_path / "out.csv"))
