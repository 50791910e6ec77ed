"""``testbed calibrate`` from the outside."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.emulation.compute.cost import REFERENCE_COSTS, read_costs


def test_it_measures_prints_and_writes(call: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "costs.yaml"
    ended = call("calibrate", "--repeat", 1, "--out", out)
    assert ended.code == 0
    assert f"wrote {out}; use it with time: {{compute: modelled, costs: {out}}}" in ended.err
    header, *rows, total, _ = ended.out.splitlines()
    assert header.split() == ["operation", "measured", "reference", "ratio"]
    assert [row.split()[0] for row in rows] == list(REFERENCE_COSTS)
    assert total.startswith("a participant's round")
    costs = read_costs(out)
    assert costs.keys() == REFERENCE_COSTS.keys()
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    for row in rows:
        operation, number, unit, *_, ratio = row.split()
        assert float(number) * units[unit] == pytest.approx(costs[operation], rel=0.01)
        assert float(ratio) == pytest.approx(costs[operation] / REFERENCE_COSTS[operation], abs=0.006)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--out", "{folder}"], "error: --out {folder}: is a directory; give the name of a file"),
        (["--out", "{folder}/none/costs.yaml"], "error: --out {folder}/none/costs.yaml: no such directory "),
        (["--repeat", "0"], "error: Invalid value for '--repeat': "),
    ],
)  # fmt: skip
def test_mistakes_are_said_before_anything_is_measured(
    call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    monkeypatch.setattr("testbed.engine.calibration.measured_costs", lambda *_: pytest.fail("measured"))
    ended = call("calibrate", *(argument.replace("{folder}", str(tmp_path)) for argument in arguments))
    assert ended.code == 2
    assert len(ended.errors) == 1
    assert ended.errors[0].startswith(complaint.replace("{folder}", str(tmp_path)))
    assert not list(tmp_path.iterdir())
