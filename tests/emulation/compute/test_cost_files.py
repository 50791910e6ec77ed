"""Cost tables as files."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from testbed.emulation.compute.cost import REFERENCE_COSTS, read_costs, write_costs
from testbed.errors import ExperimentError
from testbed.experiment.schema import validated
from tests.messages_named import naming

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


def test_the_file_names_place_and_time_of_the_measurement(tmp_path: Path) -> None:
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
        (b"hmacc: 1", "unknown operation 'hmacc'; allowed: aead.byte, aead.open, aead.seal, "),
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
    with pytest.raises(ExperimentError, match=naming("read", "No such file or directory")):
        read_costs(tmp_path / "none.yaml")
    with pytest.raises(ExperimentError, match="cannot be read: Is a directory"):
        read_costs(tmp_path)
    with pytest.raises(ExperimentError, match=naming("written", "No such file or directory")):
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
    with pytest.raises(ExperimentError, match=naming("file", "time.costs", "costs.yaml", "hmac", -1)):
        validated({"time": {"costs": str(path)}}, "file")
