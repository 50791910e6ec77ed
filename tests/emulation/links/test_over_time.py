"""Latency and loss that follow traces, and notes on the trace files."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.emulation.links import ClientLinks, Links, client_links
from testbed.emulation.links.section import MOST_LOSS
from testbed.emulation.traces.series import BANDWIDTH, read_series, write_series
from testbed.emulation.transport.section import PRESETS
from testbed.errors import TraceError
from tests.messages_named import naming

STEADY = {"shift": False}


def drawn(population: int, seed: int = 1, **section: Any) -> ClientLinks:
    generator = np.random.Generator(np.random.Philox(key=seed))
    return client_links(Links.model_validate(section), population, generator)


def write_traces(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def everybody(links: ClientLinks) -> Any:
    return np.arange(len(links.latency_s))


def test_latency_follows_its_trace_and_begins_again(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "ms", a="0 10\n5 30\n", b="0 1\n2 2\n4 4\n")
    links = drawn(3, latency_ms={"trace": folder, "scale": 2, **STEADY})
    expected = {0.0: [20, 2, 20], 4.9: [20, 8, 20], 5.0: [60, 8, 60], 7.0: [60, 2, 60], 10.0: [20, 8, 20]}
    for now, wanted in expected.items():
        assert links.latency_at(now, everybody(links)) * 1000 == pytest.approx(wanted), now
    assert links.latency_at(5.0, np.array([2, 1])) * 1000 == pytest.approx([60, 8])
    assert links.latency_s * 1000 == pytest.approx([20, 2, 20])


def test_the_meaning_of_a_row_is_an_option(tmp_path: Path) -> None:
    write_traces(tmp_path / "ms", a="10 5\n11 7\n13 9\n")
    for rows, wanted in (("until-next", [5, 7, 7, 9]), ("interval-before", [5, 5, 7, 9])):
        path = {"trace": tmp_path / "ms", "rows": rows, **STEADY}
        links = drawn(1, latency_ms=path, down_mbit_s=path, up_mbit_s=path)
        found = [float(links.latency_at(now, np.zeros(1, int))[0]) * 1000 for now in (0.0, 1.0, 1.5, 3.5)]
        assert found == pytest.approx(wanted)
        rates = [float(links.down.at(now)[0]) / 125_000 for now in (0.0, 1.0, 1.5, 3.5)]
        assert rates == pytest.approx(wanted)


def test_constant_links_answer_as_ever() -> None:
    links = drawn(3, latency_ms=[1, 2], transport="tcp", loss=0.01)
    assert links.latency_at(77.0, np.array([1, 2])).tolist() == [0.002, 0.001]
    assert links.loss_at(77.0, np.array([1, 2])).tolist() == [0.01, 0.01]


def test_loss_follows_its_trace_and_is_never_all(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "loss", a="0 0\n1 0.25\n2 1\n")
    links = drawn(2, loss={"trace": folder, **STEADY}, transport="tcp")
    found = [links.loss_at(now, everybody(links)).tolist() for now in (0.5, 1.5, 2.5)]
    assert found == [[0.0, 0.0], [0.25, 0.25], [MOST_LOSS, MOST_LOSS]]
    assert links.loss_key != 0


def test_a_latency_above_zero_at_any_time_makes_a_transport(tmp_path: Path) -> None:
    later = write_traces(tmp_path / "later", a="0 0\n1 5\n")
    never = write_traces(tmp_path / "never", a="0 0\n1 0\n")
    assert drawn(1, latency_ms={"trace": later, **STEADY}, transport="auto").transport == PRESETS["tcp"]
    assert drawn(1, latency_ms={"trace": never, **STEADY}, transport="auto").transport == PRESETS["none"]


@pytest.mark.parametrize("keys", [{"loss": 0.1}, {"loss": [0, 0.1]}, {"buffer_ms": 20}])
def test_loss_without_latency_also_makes_a_transport(keys: dict[str, Any]) -> None:
    links = drawn(2, latency_ms=0, transport="auto", **keys)
    assert links.transport == PRESETS["tcp"]
    assert links.loss_key != 0
    assert drawn(2, latency_ms=0, transport="auto", loss=0).transport == PRESETS["none"]


@pytest.mark.parametrize(
    ("keys", "line"),
    [({"loss": 0.1}, "needs a transport"), ({"buffer_s": [np.inf, 0.1]}, "needs a transport"),
     ({"loss": 0.9, "transport": PRESETS["tcp"]}, "a loss must be from 0 to 0.5"),
     ({"loss": np.nan, "transport": PRESETS["tcp"]}, "a loss must be from 0 to 0.5")],
)  # fmt: skip
def test_user_defined_links_with_loss_need_retransmission(keys: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        ClientLinks(np.ones(2), np.ones(2), np.zeros(2), 1.0, 1.0, **keys)


def test_a_trace_without_loss_needs_no_transport(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "none", a="0 0\n1 0\n")
    assert drawn(1, latency_ms=0, loss={"trace": folder, **STEADY}, transport="auto").transport == PRESETS["none"]


def test_files_of_one_name_are_one_recording(tmp_path: Path) -> None:
    """Where bandwidth and latency have files of the same names, a client has both from one, and at one moment."""
    rows = "".join(f"{second} {second + 1}\n" for second in range(50))
    rates = write_traces(tmp_path / "rates", a=rows, b=rows.replace(" ", " 1"))
    delays = write_traces(tmp_path / "delays", a=rows, b=rows.replace(" ", " 1"))
    form = {"assign": "sample"}
    links = drawn(200, down_mbit_s={"trace": rates, **form}, latency_ms={"trace": delays, **form})
    for now in (0.0, 17.5):
        assert links.latency_at(now, everybody(links)) * 1000 == pytest.approx(links.down.at(now) / 125_000)
    (delays / "b.txt").rename(delays / "c.txt")
    apart = drawn(200, down_mbit_s={"trace": rates, **form}, latency_ms={"trace": delays, **form})
    assert (apart.down.at(0.0) == links.down.at(0.0)).all()
    assert (apart.latency_at(0.0, everybody(apart)) != links.latency_at(0.0, everybody(links))).mean() > 0.5
    assert drawn(20, 5, latency_ms={"trace": delays}).latency_s.tolist() != apart.latency_s[:20].tolist()


def test_repeated_times_are_noted_once(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "rates", a="0 1\n1 2\n1 4\n", b="0 1\n1 2\n")
    rates = {"trace": folder, "rows": "until-next", **STEADY}
    links = drawn(2, down_mbit_s=rates, up_mbit_s=rates)
    assert links.notes == (
        f"{folder}: 1 row has the time of the row before, in 1 of its 2 files; the mean bandwidth of a time is taken",
    )
    assert links.down.at(1.0).tolist() == [3 * 125_000, 2 * 125_000]
    alone = drawn(2, latency_ms={"trace": folder / "a.txt"})
    assert "1 row has the time of the row before, in it; the mean latency" in alone.notes[0]
    assert drawn(2, latency_ms={"trace": folder / "b.txt"}).notes == ()


def test_rates_with_rows_of_unstated_meaning_are_noted(tmp_path: Path) -> None:
    """Pensieve's files look like the testbed's own, and mean the time before each row."""
    folder = write_traces(tmp_path / "rates", a="0 1\n1 2\n2 4\n")
    (note,) = drawn(2, down_mbit_s={"trace": folder}, up_mbit_s={"trace": folder}).notes
    assert note.startswith(
        f"{folder}: each row was taken to hold until the next; if it was measured since the row before"
    )
    assert "Pensieve" in note
    for rows in ("until-next", "interval-before"):
        assert drawn(2, down_mbit_s={"trace": folder, "rows": rows}).notes == ()
    write_series(folder / "a.txt", BANDWIDTH, read_series(folder, BANDWIDTH).steps[0])
    assert drawn(2, down_mbit_s={"trace": folder}).notes == ()


def test_folders_in_a_folder_of_traces_are_noted(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "rates", a="0 1\n1 2\n")
    write_traces(folder / "more", b="0 1\n1 2\n")
    (note,) = drawn(2, latency_ms={"trace": folder}).notes
    assert re.search(naming(folder, "not read", "more"), note)


def test_a_trace_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("# testbed trace: bandwidth, seconds and Mbit/s\n0 1\n1 2\n")
    with pytest.raises(TraceError, match=naming("bandwidth", "latency", "ms")):
        drawn(1, latency_ms={"trace": tmp_path / "a.txt"})
