"""Results through a job's log: the received results equal the sent ones, or nothing is received."""

import base64
import gzip
import hashlib
import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.jobs import downloads
from testbed.errors import RunError
from testbed.workload.client_states import ClientStates
from tests.messages_named import naming


def log_of(directory: Path, **more: int) -> str:
    to = io.StringIO()
    to.write("INFO job_manager.py -- Runtime env is setting up.\nRunning entrypoint for job x: y\n")
    downloads.send(directory, to, **more)
    return to.getvalue()


def tar(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def run_at(path: Path, experiment: str = "name: x\n") -> Path:
    (path / "parts").mkdir(parents=True)
    (path / "experiment.yaml").write_text(experiment)
    (path / "rounds.parquet").write_bytes(os.urandom(120_000))
    return path


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_received_results_equal_the_sent_ones(tmp_path: Path) -> None:
    run_at(tmp_path / "sweep" / "a")
    run_at(tmp_path / "sweep" / "b")
    (tmp_path / "sweep" / "b" / "second-name").hardlink_to(next((tmp_path / "sweep" / "b").iterdir()))
    sent = contents(tmp_path / "sweep")
    (tmp_path / "sweep" / "a" / ".lock").write_text("")
    ClientStates(tmp_path / "sweep" / "a").write(0, 1, np.zeros(3, np.float32), 0)
    (tmp_path / "sweep" / "a" / "link").symlink_to("/etc/hostname")
    downloads.unpack(downloads.results_in_log(log_of(tmp_path / "sweep")), tmp_path / "fresh")
    assert contents(tmp_path / "fresh") == sent


@given(place=st.floats(0, 1), letter=st.sampled_from("AZaz09+/=\n"), cut=st.booleans())
def test_a_damaged_log_is_refused(
    tmp_path_factory: pytest.TempPathFactory, place: float, letter: str, cut: bool
) -> None:
    log = log_of(run_at(tmp_path_factory.mktemp("x") / "run"))
    begin, end = log.index("\n", log.index("testbed-results begin")) + 1, log.index("testbed-results end") - 6
    at = begin + round(place * (end - begin))
    other = letter if letter != log[at] else "B"
    with pytest.raises(RunError, match="damaged"):
        downloads.results_in_log(log[:at] if cut else log[:at] + other + log[at + 1 :])


def test_results_that_cannot_be_sent_are_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such directory"):
        downloads.results_in_log(log_of(tmp_path / "nothing"))
    with pytest.raises(RunError, match=r"MiB.*URI"):
        downloads.results_in_log(log_of(run_at(tmp_path / "run"), maximum=100_000))
    with pytest.raises(RunError, match="No module named 'cluster'"):
        downloads.results_in_log("Running\nModuleNotFoundError: No module named 'cluster'\n")


LINK = tarfile.TarInfo("link")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc"
HARD = tarfile.TarInfo("hard")
HARD.type, HARD.linkname = tarfile.LNKTYPE, "good"
DEVICE = tarfile.TarInfo("device")
DEVICE.type = tarfile.CHRTYPE


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../outside"),
        tarfile.TarInfo("a/../../outside"),
        tarfile.TarInfo("/tmp/outside"),
        tarfile.TarInfo("a\\..\\outside"),
        tarfile.TarInfo("a/./inside"),
        tarfile.TarInfo("a//inside"),
        tarfile.TarInfo("a\ninside"),
        tarfile.TarInfo("C:inside"),
        tarfile.TarInfo("good"),
        LINK,
        HARD,
        DEVICE,
    ],
    ids=[
        "parent",
        "inner-parent",
        "absolute",
        "backslash",
        "dot",
        "empty",
        "newline",
        "drive",
        "twice",
        "symlink",
        "hardlink",
        "device",
    ],
)
def test_malicious_archives_are_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    data = tar((tarfile.TarInfo("good"), b"x"), (member, b""))
    with pytest.raises(RunError, match=naming("the results")):
        downloads.unpack(data, tmp_path / "inside")
    assert {path.name for path in tmp_path.rglob("*")} <= {"inside", "good"}


def test_a_bomb_is_refused_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "_MAXIMUM_UNPACKED_BYTES", 1_000_000)
    with pytest.raises(RunError, match="look like"):
        downloads.unpack(tar((tarfile.TarInfo("zeros"), bytes(2_000_000))), tmp_path / "inside")
    assert not (tmp_path / "inside" / "zeros").exists()


def test_a_bomb_in_a_header_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """A pax header of 300 MB, which tarfile would read into memory."""
    header = tarfile.TarInfo("pax")
    header.type = tarfile.XHDTYPE
    header.size = 300_000_000
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as archive:
        archive.write(header.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(300):
            archive.write(bytes(1_000_000))
    tracemalloc.start()
    with pytest.raises(RunError, match=naming("header", "1 MiB")):
        downloads.unpack(packed.getvalue(), tmp_path / "inside")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


def test_links_in_the_target_are_not_followed_out_of_it(tmp_path: Path) -> None:
    earlier = run_at(tmp_path / "runs" / "x")
    (tmp_path / "elsewhere").mkdir()
    (earlier / "aggregates").symlink_to(tmp_path / "elsewhere")
    later = run_at(tmp_path / "fresh")
    (later / "aggregates").mkdir()
    (later / "aggregates" / "round-000001.npz").write_bytes(b"x")
    with pytest.raises(RunError, match=naming("symbolic link", "aggregates/round-000001.npz")):
        downloads.merge_into(later, earlier)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_files_that_are_not_archives_are_refused(tmp_path: Path) -> None:
    data = b"not a tar"
    log = f"testbed-results begin bytes={len(data)} sha256={hashlib.sha256(data).hexdigest()}\n"
    log += base64.b64encode(data).decode() + "\ntestbed-results end\n"
    with pytest.raises(RunError, match="unpacked"):
        downloads.unpack(downloads.results_in_log(log), tmp_path)


def test_a_later_copy_goes_over_an_earlier_one(tmp_path: Path) -> None:
    earlier = run_at(tmp_path / "runs" / "x")
    (earlier / "parts" / "3.parquet").write_text("")
    (earlier / "figures").mkdir()
    (earlier / "figures" / "mine.png").write_text("mine")
    later = run_at(tmp_path / "fresh")
    rounds = (later / "rounds.parquet").read_bytes()
    assert downloads.merge_into(later, earlier) == earlier
    assert (earlier / "rounds.parquet").read_bytes() == rounds
    assert (earlier / "figures" / "mine.png").read_text() == "mine"
    assert not (earlier / "parts").exists()


def test_other_things_are_not_overwritten(tmp_path: Path) -> None:
    other = run_at(tmp_path / "other", "name: other\n")
    kept = contents(other)
    with pytest.raises(RunError, match="another run"):
        downloads.merge_into(run_at(tmp_path / "fresh"), other)
    assert contents(other) == kept
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("")
    for target in (tmp_path / "notes", tmp_path / "notes" / "mine.txt"):
        with pytest.raises(RunError, match="--to"):
            downloads.merge_into(run_at(tmp_path / f"fresh-{target.name}"), target)
        with pytest.raises(RunError, match="--to"):
            downloads.check_free(target)
    downloads.check_free(tmp_path / "new")


def test_folders_within_one_another_without_end(tmp_path: Path) -> None:
    """Short names, so that the file system would take them; `tarfile` makes each folder by a call of its own."""
    with pytest.raises(RunError, match=naming("folders", 3001, 100)):
        downloads.unpack(tar((tarfile.TarInfo("a/" * 3000 + "b"), b"x")), tmp_path / "inside")
