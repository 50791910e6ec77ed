"""Links drawn, or taken from traces, tables and matrices: assignment to clients, and dependence on the seed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from scipy.stats import binomtest, kstest, lognorm, truncnorm

from testbed.emulation.links import BYTES_PER_MBIT, ClientLinks, Links, client_links
from testbed.emulation.links.section import RandomValue, truncated_normal
from testbed.errors import ExperimentError, TraceError
from tests.messages_named import naming

SUSPICIOUS = 1e-4
FLASH = "flash_speed_distri.json"


def drawn(population: int, seed: int = 1, **section: Any) -> ClientLinks:
    generator = np.random.Generator(np.random.Philox(key=seed))
    return client_links(Links.model_validate(section), population, generator)


def mbit_s(rates: Any, time_s: float = 0.0) -> np.ndarray:
    return rates.at(time_s) / BYTES_PER_MBIT


# -- distributions ------------------------------------------------------------------------------------------------


def test_normal_is_truncated_not_clipped() -> None:
    form = {"distribution": "normal", "mean": 5, "sigma": 4, "minimum": 3, "maximum": 8}
    rates = mbit_s(drawn(20_000, down_mbit_s=form).down)
    assert kstest(rates, truncnorm(-0.5, 0.75, loc=5, scale=4).cdf).pvalue > SUSPICIOUS
    assert (rates == 3).sum() == 0


def test_log_normal_and_uniform() -> None:
    links = drawn(
        20_000,
        up_mbit_s={"distribution": "log-normal", "median": 6, "sigma": 0.7},
        latency_ms={"distribution": "uniform", "minimum": 10, "maximum": 30},
    )
    assert kstest(mbit_s(links.up), lognorm(0.7, scale=6).cdf).pvalue > SUSPICIOUS
    assert kstest(links.latency_s, "uniform", (0.01, 0.02)).pvalue > SUSPICIOUS


@given(
    st.floats(-50, 50), st.floats(0.01, 20), st.floats(0, 5), st.floats(0, 50), st.integers(0, 2**32),
)  # fmt: skip
def test_drawn_values_lie_within_their_bounds(mean: float, sigma: float, low: float, wide: float, seed: int) -> None:
    values = truncated_normal(np.full(50, mean), np.full(50, sigma), low, low + wide, np.random.default_rng(seed))
    assert ((low <= values) & (values <= low + wide)).all()


def test_far_out_in_the_upper_tail_digits_are_not_lost() -> None:
    values = truncated_normal(np.zeros(2000), np.ones(2000), 9.0, np.inf, np.random.default_rng(1))
    assert len(np.unique(values)) == 2000
    assert kstest(values, truncnorm(9, np.inf).cdf).pvalue > SUSPICIOUS


def test_without_spread_it_is_the_mean() -> None:
    assert truncated_normal(np.array([2.0, 5.0]), np.zeros(2), 3.0, np.inf, np.random.default_rng(1)).tolist() == [3, 5]


def test_no_generator_no_draw() -> None:
    with pytest.raises(ExperimentError, match=naming("links", "distribution", "random numbers")):
        ClientLinks.of(Links(down_mbit_s=RandomValue(distribution="uniform", minimum=1, maximum=2)), 3)


# -- traces -------------------------------------------------------------------------------------------------------


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "bandwidth"
    folder.mkdir()
    for number in range(3):
        rows = (f"{second} {10 * number + second + 1}" for second in range(4 + number))
        (folder / f"{number}.log").write_text("\n".join(rows))
    return folder


def test_traces_are_given_out_in_turn(traces: Path) -> None:
    links = drawn(7, down_mbit_s={"trace": traces, "shift": False, "scale": 2})
    np.testing.assert_allclose(mbit_s(links.down), [2, 22, 42, 2, 22, 42, 2])
    np.testing.assert_allclose(mbit_s(links.down, 5.0), [4, 22, 52, 4, 22, 52, 4])  # after 4, 5 and 6 s: from the start
    assert links.up.is_constant


def test_both_ways_of_one_trace_go_together(traces: Path) -> None:
    for assign in ("cycle", "sample"):
        form = {"trace": traces, "assign": assign}
        links = drawn(500, down_mbit_s=form, up_mbit_s=form | {"scale": 0.5})
        for time_s in (0.0, 1.3, 77.7):
            np.testing.assert_allclose(links.down.at(time_s), 2 * links.up.at(time_s))
        assert len(np.unique(mbit_s(links.down))) == 4 + 5 + 6


def test_two_traces_are_shifted_apart(traces: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    traces.rename(other)
    traces.mkdir()
    for file in other.iterdir():
        (traces / file.name).write_text(file.read_text())
    links = drawn(500, down_mbit_s={"trace": traces}, up_mbit_s={"trace": other})
    assert (links.down.at(0.0) != links.up.at(0.0)).mean() > 0.5


def test_a_shift_is_anywhere_in_the_trace(traces: Path) -> None:
    links = drawn(4000, down_mbit_s={"trace": traces / "0.log"})
    share = np.bincount(mbit_s(links.down).round().astype(int), minlength=5)[1:]
    assert all(binomtest(int(count), 4000, 0.25).pvalue > SUSPICIOUS for count in share)


def test_where_the_files_lie_does_not_matter(traces: Path, tmp_path: Path) -> None:
    first = drawn(50, down_mbit_s={"trace": traces, "assign": "sample"}).down.at(3.0)
    traces.rename(tmp_path / "moved")
    second = drawn(50, down_mbit_s={"trace": tmp_path / "moved", "assign": "sample"}).down.at(3.0)
    assert first.tobytes() == second.tobytes()


def test_the_real_3g_traces(shared: Path) -> None:
    links = drawn(700, down_mbit_s={"trace": shared / "traces/bandwidth-3g"})
    now = mbit_s(links.down)
    assert 0.5 < np.median(now) < 5
    assert now.max() < 20
    assert (links.down.at(0.0) != links.down.at(60.0)).mean() > 0.9


# -- tables -------------------------------------------------------------------------------------------------------


def test_a_table_of_rates(tmp_path: Path) -> None:
    table = tmp_path / "speeds.csv"
    table.write_text("phone,down,up\na,10,1\nb,20,2\nc,,3\nd,40,4\n")
    forms = {key: {"table": table, "column": key, "assign": "cycle"} for key in ("down", "up")}
    links = drawn(4, down_mbit_s=forms["down"])
    assert mbit_s(links.down).tolist() == [10, 20, 40, 10]
    sampled = {key: form | {"assign": "sample"} for key, form in forms.items()}
    table.write_text("phone,down,up\na,10,1\nb,20,2\nd,40,4\n")
    links = drawn(300, down_mbit_s=sampled["down"], up_mbit_s=sampled["up"] | {"scale": 10})
    np.testing.assert_allclose(mbit_s(links.down), mbit_s(links.up))
    assert set(mbit_s(links.down).tolist()) == {10, 20, 40}


def test_flash_speeds(tmp_path: Path) -> None:
    table = tmp_path / "speeds.json"
    phones = {"a": (4000.0, 500.0, 800.0, 0.0), "b": (100.0, 400.0, 900.0, 0.0)}
    columns = ("down_u", "down_sigma", "up_u", "up_sigma")
    table.write_text(json.dumps({name: dict(zip(columns, row, strict=True)) for name, row in phones.items()}))
    links = drawn(
        20_000,
        down_mbit_s={"table": table, "column": "down", "minimum": 0.5},
        up_mbit_s={"table": table, "column": "up"},
    )
    is_a = np.isclose(mbit_s(links.up), 6.4)  # kB/s times 8 / 1000, of the same phone as the downlink
    np.testing.assert_allclose(mbit_s(links.up)[~is_a], 7.2)
    down = mbit_s(links.down)
    assert kstest(down[is_a], truncnorm(-7.875, np.inf, loc=32, scale=4).cdf).pvalue > SUSPICIOUS
    assert kstest(down[~is_a], truncnorm(-0.09375, np.inf, loc=0.8, scale=3.2).cdf).pvalue > SUSPICIOUS
    assert binomtest(int(is_a.sum()), 20_000, 0.5).pvalue > SUSPICIOUS


def test_the_real_flash_speeds(shared: Path) -> None:
    form = {"table": shared / "traces/devices" / FLASH}
    links = drawn(5000, down_mbit_s=form | {"column": "down"}, up_mbit_s=form | {"column": "up"})
    assert 30 < np.median(mbit_s(links.down)) < 45  # the median phone has 4318 kB/s
    assert 20 < np.median(mbit_s(links.up)) < 30
    assert min(mbit_s(links.down).min(), mbit_s(links.up).min()) >= 0.1


@pytest.mark.parametrize(
    ("name", "text", "column", "complaint"),
    [
        ("a.csv", "down\n3\n0\n", "down", "row 2: down is 0 Mbit/s; a rate must be positive"),
        ("a.csv", "down\n3\n-2\n", "down", "row 2: down is -2 Mbit/s; a rate must be positive"),
        ("a.csv", "down,up\n3,4\n", "downlink", "no column 'downlink'; there are 'down', 'up'"),
        ("a.csv", "down\nnan\n", "down", "row 1: down is 'nan'; it must be a finite number"),
        ("f.json", '{"p": {"down_u": 9, "down_sigma": 1, "up_u": 9, "up_sigma": 1}}', "sideways", "there are down, up"),
        (
            "f.json",
            '{"p": {"down_u": 9, "down_sigma": -1, "up_u": 9, "up_sigma": 1}}',
            "down",
            "row 1: normal with mean",
        ),
        (
            "f.json",
            '{"p": {"down_u": -9e9, "down_sigma": 1, "up_u": 9, "up_sigma": 1}}',
            "down",
            "hardly ever above 0.1",
        ),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, name: str, text: str, column: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TraceError) as caught:
        drawn(3, down_mbit_s={"table": tmp_path / name, "column": column})
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


# -- latency matrices ---------------------------------------------------------------------------------------------


def test_a_column_of_a_latency_matrix(tmp_path: Path) -> None:
    matrix = tmp_path / "delays.csv"
    matrix.write_text("client,oslo,lisboa\nbergen,6.5,44\nporto,50,3\n")
    for column in ("lisboa", 1):
        links = drawn(3, latency_ms={"matrix": matrix, "column": column})
        np.testing.assert_allclose(links.latency_s, [0.044, 0.003, 0.044])
    links = drawn(400, latency_ms={"matrix": matrix, "column": "oslo", "assign": "sample", "scale": 2})
    assert binomtest(int(np.isclose(links.latency_s, 0.013).sum()), 400).pvalue > SUSPICIOUS
    for column, complaint in (
        ("roma", "no column 'roma'; there are 'oslo', 'lisboa'"),
        (2, "no column 2; there are 2"),
    ):
        with pytest.raises(TraceError, match=complaint):
            drawn(3, latency_ms={"matrix": matrix, "column": column})


# -- seeds --------------------------------------------------------------------------------------------------------


def test_the_seed_decides_and_no_key_disturbs_another(traces: Path) -> None:
    section: dict[str, Any] = {
        "down_mbit_s": {"trace": traces, "assign": "sample"},
        "up_mbit_s": {"distribution": "normal", "mean": 5, "sigma": 1, "minimum": 1},
        "latency_ms": {"distribution": "uniform", "minimum": 1, "maximum": 9},
    }

    def bits(links: ClientLinks) -> list[bytes]:
        return [links.down.at(2.0).tobytes(), links.up.at(2.0).tobytes(), links.latency_s.tobytes()]

    first = bits(drawn(40, 3, **section))
    assert first == bits(drawn(40, 3, **section))
    assert all(one != other for one, other in zip(first, bits(drawn(40, 4, **section)), strict=True))
    without = bits(drawn(40, 3, **(section | {"down_mbit_s": 5})))
    assert without[1:] == first[1:]


@pytest.mark.parametrize("population", [0, 1, 100_000])
def test_any_population(traces: Path, population: int) -> None:
    links = drawn(
        population,
        down_mbit_s={"trace": traces, "assign": "sample"},
        up_mbit_s={"distribution": "log-normal", "median": 5, "sigma": 1},
    )
    assert len(links.down) == len(links.up) == len(links.latency_s) == population


# -- outages ------------------------------------------------------------------------------------------------------


def test_outages_take_their_share_of_the_time_and_stop_both_ways() -> None:
    links = drawn(3000, up_mbit_s=20, outages={"mean_between_s": 90, "mean_length_s": 10})
    moments = [0.0, 1e3, 1e5, 1e7]
    for time_s in moments:
        down, up = mbit_s(links.down, time_s), mbit_s(links.up, time_s)
        assert set(np.unique(down)) <= {0.0, 44.0}
        assert ((down == 0) == (up == 0)).all()
    share = np.mean([mbit_s(links.down, time_s) == 0 for time_s in moments])
    assert 0.08 < share < 0.12
    carried = links.down.bytes_between(0.0, 1e6) / (44 * BYTES_PER_MBIT * 1e6)
    assert abs(carried.mean() - 0.9) < 0.01
    assert np.isfinite(links.up.time_to_send(0.0, np.full(3000, 1e9))).all()  # stalled, not lost


def test_how_long_outages_last() -> None:
    links = drawn(256, outages={"mean_between_s": 50, "mean_length_s": 5})
    who, time_s, rate = links.down.changes(0.0, 3000.0)
    lengths = np.concatenate([
        np.diff(time_s[who == client])[rate[who == client][:-1] == 0] for client in range(256)
    ])  # fmt: skip
    assert len(lengths) > 5000
    assert abs(lengths.mean() - 5) < 0.3
    assert abs(lengths.std() - 5) < 0.5


def test_a_hundred_thousand_clients_share_few_histories() -> None:
    links = drawn(100_000, outages={"mean_between_s": 50, "mean_length_s": 5})
    assert links.down.traces is links.up.traces
    assert links.down.traces is not None
    assert len(links.down.traces) == 256


class TwoMegabytes:
    """Links of one's own: as `options` say."""

    class Options(BaseModel):
        """Options that the experiment may set."""

        rate: float = Field(1e6, ge=0)

    def __init__(self, section: Links) -> None:
        self.rate = section.options["rate"]

    def links(self, population: int, generator: np.random.Generator) -> ClientLinks:
        missing = 1 if self.rate == 0 else 0
        rates = np.full(population - missing, self.rate + generator.random())
        return ClientLinks(rates, rates, np.zeros(population - missing), 1e9, 1e9)


def test_a_class_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.emulation.links.factory.plugin_class", lambda name, key: TwoMegabytes)
    section = Links.model_validate({"model": "mine.links:TwoMegabytes", "options": {"rate": 2e6}})
    first, again = (client_links(section, 3, np.random.default_rng(1)).down.at(0.0) for _ in range(2))
    assert (first == again).all()
    assert (first > 2e6).all()
    with pytest.raises(ExperimentError, match=naming("ClientLinks", "3 clients")):
        client_links(section.model_copy(update={"options": {"rate": 0}}), 3, np.random.default_rng(1))
    default = client_links(section.model_copy(update={"options": {}}), 3, np.random.default_rng(1))
    assert (default.down.at(0.0) < 2e6).all()
    for options, says in (
        ({"rat": 2e6}, "did you mean 'rate'? allowed: rate (Options of mine.links:TwoMegabytes)"),
        ({"rate": -1}, "links.options.rate: should be greater than or equal to 0, not -1"),
        ({"rate": "2e6"}, "links.options.rate: should be a valid number, not '2e6'"),
    ):
        with pytest.raises(ExperimentError) as refused:
            client_links(section.model_copy(update={"options": options}), 3, np.random.default_rng(1))
        assert says in str(refused.value)


def test_a_missing_user_defined_class() -> None:
    section = Links.model_validate({"model": "no_such_module:Name"})
    with pytest.raises(ExperimentError, match=r"links\.model: no_such_module:Name: no module"):
        client_links(section, 3, np.random.default_rng(1))


def test_options_without_a_class() -> None:
    with pytest.raises(ValueError, match=naming("`options`", "user-defined class")):
        Links.model_validate({"options": {"rate": 1}})
