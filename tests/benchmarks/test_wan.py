"""The report and the drawn cases of `--wan`; nothing is measured here."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fidelity.picture import draw
from benchmarks.fidelity.wan import Validation, WanComparison, by_group
from benchmarks.fidelity.wan_cases import WanCase, wan_cases
from benchmarks.fidelity.wan_measuring import Measured, links_of, predicted
from benchmarks.fidelity.wan_rounds import PAUSES_S, RoundTimes, experiment, in_this_process
from benchmarks.fidelity.wire_check import Checked

CASE = WanCase(100.0, 44.0, 200, 200, "reno", "warm")
WIRE = [Checked("rate, Mbit/s: 2", 2.0, 1.98), Checked("round trip, ms: 5", 5.0, 5.1), Checked("loss, %: 1", 1.0, 1.1)]


def comparison(case: WanCase, computed: list[float], real: list[float]) -> WanComparison:
    return WanComparison(case, computed, [Measured(seconds, 0.001, 2) for seconds in real])


def test_without_loss_medians_count_and_with_loss_means() -> None:
    assert comparison(CASE, [1.1], [1.0, 1.0, 4.0]).error == pytest.approx(0.1)
    assert comparison(replace(CASE, loss=0.01), [1.0, 2.0], [1.0, 1.0, 4.0]).error == pytest.approx(1.5 / 2 - 1)


def test_the_headline_tells_cases_with_loss_and_rounds_apart() -> None:
    cases = wan_cases(20, 1, 4)
    found = [comparison(case, [1.0 + 0.01 * number], [1.0]) for number, case in enumerate(cases)]
    rounds = [RoundTimes("one", 0.95, 1.0, 0.0), RoundTimes("two", 1.02, 1.0, 0.1)]
    line = Validation(found, rounds, WIRE, 4).headline(0.5)
    assert (line["cases"], line["lossy_cases"], line["rounds"]) == (21, 1, 2)
    assert line["median_error"] == pytest.approx(0.095)
    assert line["worst_error"] == pytest.approx(0.19)
    assert line["worst_case"] == cases[19].name
    assert line["within_15_percent"] == pytest.approx(16 / 20)
    assert line["lossy_worst_error"] == pytest.approx(0.2)
    assert line["round_median_error"] == pytest.approx(0.035)
    assert line["wire_rate_error"] == pytest.approx(0.01)
    assert line["wire_rtt_error"] == pytest.approx(0.02)
    assert line["within_target"] is False


def test_every_case_is_in_one_group_of_each_dimension() -> None:
    cases = wan_cases(30, 0, 4)
    rows = by_group([comparison(case, [1.0], [1.0]) for case in cases])
    dimensions = {row["of"] for row in rows}
    for dimension in dimensions:
        assert sum(int(str(row["cases"])) for row in rows if row["of"] == dimension) == len(cases)
    trips = [row["value"] for row in rows if row["of"] == "round trip"]
    assert trips == ["5 ms", "20 ms", "50 ms", "100 ms", "300 ms"]


def test_the_computed_side_has_the_cases_numbers() -> None:
    two_ways = predicted(CASE, 0.0)
    assert two_ways == pytest.approx(0.1, rel=0.02)
    assert predicted(CASE, 0.03) == pytest.approx(two_ways + 0.03)
    assert predicted(replace(CASE, clients=8, server_mbit_s=44.0), 0.0) == pytest.approx(0.1, rel=0.1)
    lossy = links_of(replace(CASE, loss=0.01, clients=4), loss_key=7)
    assert lossy.loss.tolist() == [0.01] * 4
    assert lossy.loss_key == 7
    assert lossy.transport.congestion_control == "reno"


def test_a_seed_makes_the_same_clients_in_every_process() -> None:
    described = experiment("lotto-client-centric", "cubic", PAUSES_S[0], 0.0)
    one, two = in_this_process(described), in_this_process(described)
    assert one[0].directory.agreement.tobytes() == two[0].directory.agreement.tobytes()


def test_a_picture_is_written_in_the_format_of_its_name(tmp_path: Path) -> None:
    points = [(CASE, 0.1, 0.11), (replace(CASE, loss=0.01, algorithm="bbr"), 2.0, 1.0)]
    draw(points, [(1.0, 1.1)], tmp_path / "there" / "picture.svg")
    draw(points, [], tmp_path / "picture.png")
    assert (tmp_path / "there" / "picture.svg").read_text().startswith("<?xml")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
