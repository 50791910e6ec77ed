"""The VRF benchmark prints its documented output; durations are not asserted."""

import json

import pytest

from benchmarks import report, vrf


def run(monkeypatch, capsys, *options):
    monkeypatch.setattr("sys.argv", ["benchmarks.vrf", "--repeat", "1", *options])
    vrf.main()
    return capsys.readouterr().out


def test_json_is_one_flat_object(monkeypatch, capsys):
    result = json.loads(run(monkeypatch, capsys, "--format", "json"))
    assert set(report.REQUIRED) <= set(result)
    assert all(isinstance(value, (int, float)) for value in result.values())
    assert result["seconds"] == pytest.approx((result["prove_ms"] + result["verify_ms"]) / 1e3)
    assert result["floor_seconds"] == pytest.approx((result["sign_ms"] + result["verify_signature_ms"]) / 1e3)
    assert result["ratio"] == pytest.approx(result["seconds"] / result["floor_seconds"])


def test_text_is_a_table_and_the_same_keys(monkeypatch, capsys):
    text = run(monkeypatch, capsys)
    for expected in ("VRF prove (ELL2)", "302", "226", "floor_seconds", "verify_signature_ms"):
        assert expected in text


def test_a_result_must_be_flat_and_hold_the_floor():
    with pytest.raises(ValueError, match="missing: floor_seconds, ratio"):
        report.emit({"seconds": 1.0}, [], as_json=True)
    with pytest.raises(ValueError, match="not so: sizes"):
        report.emit({"seconds": 1.0, "floor_seconds": 1.0, "ratio": 1.0, "sizes": [1, 2]}, [], as_json=True)


def test_tables_align_and_leave_missing_cells_empty():
    rows = [{"protocol": "random", "clients": 10**6, "ms": 1.5}, {"protocol": "lotto", "clients": 7}]
    assert report.table(rows).splitlines() == [
        "protocol    clients   ms",
        "--------  ---------  ---",
        "random    1,000,000  1.5",
        "lotto             7",
    ]
