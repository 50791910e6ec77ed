"""Cost tables: measuring them, and files of them."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.compute import calibration
from testbed.emulation.compute.calibration import (
    TRAINING,
    Work,
    measured_costs,
    participant_seconds,
    read_costs,
    write_costs,
)
from testbed.emulation.compute.cost import REFERENCE_COSTS
from testbed.errors import ExperimentError
from testbed.experiment.validation import validated


class Clock:
    """CPU time that only the work itself makes pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(calibration, "thread_cpu_s", lambda: self.now_s)

    def works(self, *seconds: float) -> None:
        """One call, which takes the next of `seconds`, the last of them for ever."""
        self.calls = getattr(self, "calls", 0)
        self.now_s += seconds[min(self.calls, len(seconds) - 1)]
        self.calls += 1


def test_the_median_of_batches_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    # The first call, to fill caches, is not counted; then five batches of one call each.
    assert calibration.seconds_per_call(lambda: clock.works(9, 0.5, 0.1, 0.3, 0.2, 0.4), 5) == pytest.approx(0.3)


@given(st.floats(1e-7, 0.1))
def test_batches_are_long_enough(seconds: float) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        clock = Clock(monkeypatch)
        found = calibration.seconds_per_call(lambda: clock.works(seconds), 1)
        assert found == pytest.approx(seconds, rel=1e-6)
        assert clock.calls * seconds >= 0.02


def test_every_operation_of_the_reference_table_is_measured() -> None:
    asked: list[str] = []

    def training() -> Work:
        return lambda: sum(range(10_000)), 1e6

    costs = measured_costs(training, repeat=1, doing=asked.append)
    assert list(costs) == list(REFERENCE_COSTS)
    assert sorted(asked) == sorted(REFERENCE_COSTS)
    assert all(0 < seconds < 0.1 for seconds in costs.values())
    # Orders of magnitude that hold on any machine: a proof costs more than a signature, a mask less than a HMAC.
    assert costs["vrf.verify"] > costs["ed25519.sign"] > costs["hmac"] > costs["mask.element"]
    assert participant_seconds(costs | {TRAINING: 1.0}) > participant_seconds(costs | {TRAINING: 0.5})


costs_strategy = st.dictionaries(st.sampled_from(sorted(REFERENCE_COSTS)), st.floats(0, 1e3))


@given(costs=costs_strategy)
def test_a_table_survives_being_written_and_read(tmp_path_factory: pytest.TempPathFactory, costs: dict) -> None:
    path = tmp_path_factory.mktemp("costs") / "costs.yaml"
    if not costs:
        return
    write_costs(path, costs)
    assert read_costs(path) == pytest.approx(costs, rel=1e-4, abs=1e-300)
    assert yaml.safe_load(path.read_text()).keys() == costs.keys()
    assert [file.name for file in path.parent.iterdir()] == ["costs.yaml"]


def test_the_file_says_where_and_when(tmp_path: Path) -> None:
    write_costs(tmp_path / "costs.yaml", REFERENCE_COSTS)
    comments = [line for line in (tmp_path / "costs.yaml").read_text().splitlines() if line.startswith("#")]
    assert len(comments) == 3
    assert " UTC, " in comments[1]
    assert "Python 3." in comments[2]
    assert "numpy" in comments[2]


def test_numbers_as_yaml_1_2_has_them(tmp_path: Path) -> None:
    (tmp_path / "costs.yaml").write_text("hmac: 1e-6\nmessage: 0\naead.seal: .5E-3\n")
    assert read_costs(tmp_path / "costs.yaml") == {"hmac": 1e-6, "message": 0, "aead.seal": 0.0005}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"hmacc: 1", "unknown operation 'hmacc'; allowed: aead.open, aead.seal, "),
        (b"3: 1", "unknown operation 3; allowed: "),
        (b"[1, 2]: 1", "not valid YAML: "),
        (b"hmac: -1.0e-6", "hmac: -1e-06 is not a number of seconds, finite and at least 0"),
        (b"hmac: .nan", "hmac: nan is not a number of seconds"),
        (b"hmac: .inf", "hmac: inf is not a number of seconds"),
        (b"hmac: fast", "hmac: 'fast' is not a number of seconds"),
        (b"hmac: true", "hmac: True is not a number of seconds"),
        (b"hmac: [1]", "hmac: [1] is not a number of seconds"),
        (b"hmac:", "hmac: None is not a number of seconds"),
        (b"", "a cost table maps operations to seconds; `testbed calibrate` writes one"),
        (b"- hmac", "a cost table maps operations to seconds"),
        (b"hmac: {", "not valid YAML: "),
        (b"hmac: 2024-13-45", "not valid YAML: "),
        (b"\xff\xfe\x00", "not a text file (UTF-8)"),
    ],
)
def test_bad_tables_are_one_line(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "costs.yaml"
    path.write_bytes(content)
    with pytest.raises(ExperimentError) as caught:
        read_costs(path)
    assert str(caught.value).startswith(f"{path}: {complaint}")
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="cannot be read: No such file or directory"):
        read_costs(tmp_path / "none.yaml")
    with pytest.raises(ExperimentError, match="cannot be read: Is a directory"):
        read_costs(tmp_path)
    with pytest.raises(ExperimentError, match="cannot be written: No such file or directory"):
        write_costs(tmp_path / "none" / "costs.yaml", REFERENCE_COSTS)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExperimentError, match="cannot be written"):
        write_costs(tmp_path / "folder", REFERENCE_COSTS)
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


def test_an_experiment_takes_a_file_of_costs(tmp_path: Path) -> None:
    path = tmp_path / "costs.yaml"
    write_costs(path, {"hmac": 2e-6})
    experiment = validated({"time": {"compute": "modelled", "costs": str(path)}}, "file")
    assert experiment.time.costs == {"hmac": 2e-6}
    path.write_text("hmac: -1")
    with pytest.raises(ExperimentError, match=r"^file: time\.costs: .*costs\.yaml: hmac: -1 is not a number"):
        validated({"time": {"costs": str(path)}}, "file")
