"""The `links` section: accepted keys, messages for mistakes, and a round trip through a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from testbed.emulation.links import BYTES_PER_MBIT, ClientLinks, Links, cycle_values
from testbed.emulation.transport.section import PRESETS
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment, validated
from tests.messages_named import naming


@given(values=st.lists(st.floats(0.1, 10), min_size=1, max_size=7), population=st.integers(1, 30))
def test_a_list_is_given_out_in_turn(values: list[float], population: int) -> None:
    given_out = cycle_values(values, population)
    assert given_out.shape == (population,)
    assert given_out.tolist() == [values[client % len(values)] for client in range(population)]
    assert (cycle_values(values[0], population) == values[0]).all()


def test_links_become_bytes_and_seconds() -> None:
    section = Links(down_mbit_s=[8, 16], up_mbit_s=44, latency_ms=[50, 0, 20], server_up_mbit_s=1000)
    links = ClientLinks.of(section, 4)
    assert links.down.at(0.0).tolist() == [1e6, 2e6, 1e6, 2e6]
    assert links.up.at(7.0).tolist() == [5.5e6] * 4
    assert links.latency_s.tolist() == [0.05, 0.0, 0.02, 0.05]
    assert (links.server_up_bytes_s, links.server_down_bytes_s) == (125e6, 25_000 * BYTES_PER_MBIT)
    assert links.transport == PRESETS["tcp"]
    assert ClientLinks.of(Links(latency_ms=0), 4).transport == PRESETS["none"]


@pytest.mark.parametrize("key", ["down_mbit_s", "up_mbit_s", "latency_ms"])
@pytest.mark.parametrize(
    "value", [-1, [1, -1], [], float("nan"), [float("inf")], "fast", [[1]], None, {}, {"mean": 3}, {"distribution": 3}]
)
def test_links_that_mean_nothing_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Links.model_validate({key: value})
    assert refused.value.error_count() == 1


def test_only_latency_may_be_nothing() -> None:
    assert Links(latency_ms=0).latency_ms == 0
    for key in ("down_mbit_s", "up_mbit_s", "server_down_mbit_s", "server_up_mbit_s"):
        with pytest.raises(ValidationError):
            Links.model_validate({key: 0})
        with pytest.raises(ValidationError):
            Links.model_validate({key: float("inf")})


NORMAL = {"distribution": "normal", "mean": 5, "sigma": 1}


@pytest.mark.parametrize(
    ("links", "line"),
    [
        ({"down_mbit_s": {}}, "down_mbit_s: should be a number, a list, or a mapping with `distribution`, `trace` or"),
        ({"latency_ms": {"table": "x"}}, "latency_ms: should be a number, a list, or a mapping with `distribution`, "),
        ({"up_mbit_s": {"distribution": "gauss"}}, "up_mbit_s.distribution: should be 'uniform', 'normal' or 'log-nor"),
        ({"up_mbit_s": NORMAL}, "up_mbit_s: a normal distribution needs `minimum`; it needs mean, sigma, minimum"),
        ({"up_mbit_s": NORMAL | {"median": 4, "minimum": 0}}, "up_mbit_s: a normal distribution has no `median`; it h"),
        ({"up_mbit_s": NORMAL | {"minimum": 50}}, "up_mbit_s: `minimum` and `maximum` leave almost nothing of the dis"),
        ({"up_mbit_s": NORMAL | {"minimum": -1}}, "up_mbit_s.minimum: should be greater than or equal to 0, not -1"),
        ({"up_mbit_s": NORMAL | {"minimum": 0, "sigma": 0}}, "up_mbit_s.sigma: should be greater than 0, not 0"),
        ({"latency_ms": {"distribution": "uniform", "minimum": 9, "maximum": 3}}, "latency_ms: `maximum` (3) must be"),
        ({"up_mbit_s": {"trace": "x", "shft": True}}, "up_mbit_s.shft: unknown key; did you mean 'shift'? allowed: as"),
        ({"up_mbit_s": {"trace": "x", "scale": 0}}, "up_mbit_s.scale: should be greater than 0, not 0"),
        ({"up_mbit_s": {"trace": "x", "assign": "all"}}, "up_mbit_s.assign: should be 'cycle' or 'sample', not 'all'"),
        ({"up_mbit_s": {"table": "x.csv"}}, "up_mbit_s.column: is required"),
        ({"latency_ms": {"matrix": "x.csv"}}, "latency_ms.column: is required"),
        ({"latency_ms": {"matrix": "x.csv", "column": -1}}, "latency_ms.column: should be a valid string or greater t"),
        ({"transport": "udp"}, "transport: should be 'auto', 'none', 'tcp', 'tls' or 'quic', not 'udp'"),
        ({"transport": {"per_bit": 1}}, "transport.per_bit: unknown key; did you mean 'per_byte'? allowed: acknowledg"),
        ({"transport": {"preset": "udp"}}, "transport.preset: should be 'none', 'tcp', 'tls' or 'quic', not 'udp'"),
        ({"transport": {"preset": ["tcp"]}}, "transport.preset: should be 'none', 'tcp', 'tls' or 'quic'"),
        ({"transport": {"preset": "tcp", "conection": "x"}}, "transport.conection: unknown key; did you mean 'connect"),
        ({"transport": {"preset": "tcp", "connection": "x"}}, "transport.connection: should be 'persistent', 'per-"),
        ({"transport": {"preset": "tcp", "handshake": "x"}}, "transport.handshake: should be 'none', 'tcp', 'tls',"),
        ({"transport": {"congestion_control": "x"}}, "transport.congestion_control: should be 'none', 'reno', 'cubic'"),
        ({"transport": {"congestion_control": "reno"}}, "transport: `congestion_control` needs `segment_bytes`; se"),
        ({"transport": {"preset": "tls", "segment_bytes": None}}, "transport: `congestion_control` needs `segment_"),
        ({"loss": {}}, "loss: should be a number, a list, or a mapping with `distribution`"),
        ({"loss": "much"}, "loss: should be a valid number, not 'much'"),
        ({"loss": 0.6}, "loss: should be less than or equal to 0.5, not 0.6"),
        ({"loss": [0.1, -0.1]}, "loss.1: should be greater than or equal to 0, not -0.1"),
        ({"loss": NORMAL | {"minimum": 0}}, ": `loss` is a probability: its distribution needs a `maximum` of at most"),
        ({"loss": 0.01, "transport": "none"}, ": `loss` needs a transport"),
        ({"loss": [0, 0.01], "transport": "none"}, ": `loss` needs a transport"),
        ({"loss": 0.01, "transport": {"preset": "tcp", "congestion_control": "none"}}, ": `loss` needs a transport th"),
        ({"loss_burst_packets": 0.5}, "loss_burst_packets: should be greater than or equal to 1, not 0.5"),
        ({"buffer_ms": {"trace": "x"}}, "buffer_ms: should be a number, a list, or a mapping with `distribution`"),
        ({"buffer_ms": 0}, "buffer_ms: should be greater than 0, not 0"),
        ({"buffer_ms": 5, "transport": {"per_byte": 1}}, ": `buffer_ms` needs a transport"),
        ({"outages": {"mean_between_s": 5}}, "outages.mean_length_s: is required"),
        ({"outages": {"mean_between_s": 5, "mean_length_s": 0}}, "outages.mean_length_s: should be greater than 0, no"),
        (
            {"down_mbit_s": {"trace": "x"}, "outages": {"mean_between_s": 5, "mean_length_s": 1}},
            ": `outages` cannot be combined with",
        ),
        (
            {"down_mbit_s": {"trace": "x", "shift": False}, "up_mbit_s": {"trace": "x"}},
            ": down_mbit_s and up_mbit_s have the same trace, but not the same `shift`",
        ),
        (
            {
                "down_mbit_s": {"table": "x", "column": "a"},
                "up_mbit_s": {"table": "x", "column": "b", "assign": "cycle"},
            },
            ": down_mbit_s and up_mbit_s have the same table, but not the same `assign`",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_each(links: dict[str, Any], line: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        validated({"links": links}, "file")
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(f"file: links{'' if line.startswith(':') else '.'}{line}")


def test_a_list_of_no_losses_needs_no_transport() -> None:
    assert validated({"links": {"loss": [0, 0.0], "transport": "none"}}, "file").links.loss == [0, 0]


def test_every_form_survives_being_written_and_read_again() -> None:
    links = {
        "down_mbit_s": {"trace": "bandwidth", "scale": 2},
        "up_mbit_s": {"distribution": "log-normal", "median": 5, "sigma": 1},
        "latency_ms": {"matrix": "delays.csv", "column": "oslo"},
        "transport": {"per_message_bytes": 4},
    }
    experiment = validated({"links": links}, "file")
    assert experiment.links.down_mbit_s.trace == Path("bandwidth")
    assert validated(experiment.plain(), "file") == experiment
    assert Experiment.model_validate(experiment.model_dump(exclude_unset=True)) == experiment
    others = {"up_mbit_s": {"table": "speeds.csv", "column": "up"}, "latency_ms": [1, 2], "transport": "tls"}
    experiment = validated({"links": others}, "file")
    assert validated(experiment.plain(), "file") == experiment
    lossy = {
        "transport": {"preset": "tls", "congestion_control": "reno", "connection": "per-stage"},
        "loss": {"distribution": "uniform", "minimum": 0, "maximum": 0.01},
        "loss_burst_packets": 3,
        "buffer_ms": [20, 200],
    }
    experiment = validated({"links": lossy}, "file")
    assert experiment.links.transport.record_bytes == 16_384
    assert validated(experiment.plain(), "file") == experiment


def test_links_made_by_hand_are_checked() -> None:
    assert ClientLinks(np.ones(2), np.ones(2), np.zeros(2), 1.0, 1.0).down.is_constant
    with pytest.raises(ValueError, match=naming("2, 3 and 2 clients")):
        ClientLinks(np.ones(2), np.ones(3), np.zeros(2), 1.0, 1.0)
    with pytest.raises(ValueError, match=naming("rate", "0 bytes per second")):
        ClientLinks(np.ones(2), -np.ones(2), np.zeros(2), 1.0, 1.0)
    for latency in (-1.0, np.nan):
        with pytest.raises(ValueError, match="latency"):
            ClientLinks(np.ones(2), np.ones(2), np.full(2, latency), 1.0, 1.0)
