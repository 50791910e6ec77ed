"""Construction of the clients' links from the `links` section, drawn once per experiment.

Each purpose has its own random stream, so that the draws of one key do not depend on the other keys.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids, compress_constant
from testbed.emulation.links.rates import Rates
from testbed.emulation.links.section import (
    MOST_LOSS,
    Followed,
    FollowedDelay,
    FollowedShare,
    Links,
    MatrixColumn,
    Outages,
    RandomValue,
    RateSetting,
    Tabled,
    cycle_values,
)
from testbed.emulation.links.tables import matrix_delays, table_rates
from testbed.emulation.links.trace_files import TraceFiles
from testbed.emulation.traces.bandwidth import BYTES_PER_MBIT, BandwidthTraces, bandwidth_of
from testbed.emulation.traces.series import BANDWIDTH, LATENCY, LOSS, Kind
from testbed.emulation.transport.section import NO_TRANSPORT, PRESETS, Transport
from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.plugins.classes import plugin_class


@dataclass(eq=False)
class ClientLinks:
    """Links of a population of n clients and of the server.

    Attributes:
        down, up: rates of n clients; `(n,)` bytes per second are taken as constant rates.
        latency_s: `(n,)` one-way seconds. If latencies follow traces, the values at time 0; use `latency_at` then.
        server_down_bytes_s, server_up_bytes_s: bytes per second, shared among the clients.
        transport: sending of messages, and the overhead of headers and acknowledgements.
        loss: `(n,)` probability that a packet is lost, in each direction; also one number for all clients.
        loss_burst_packets: mean number of packets lost in a row.
        buffer_s: `(n,)` length of the queue in front of a link, in seconds at the link's rate; infinite: any length.
        loss_key: any number; seed of the losses.
        latency_trace: one-way seconds over time for n clients, if latencies follow traces.
        loss_trace: loss probabilities over time, likewise; `loss` holds the values at time 0.
        notes: remarks on the trace files, for people.

    Raises:
        ValueError: arrays differ in length; a rate or latency is negative or NaN, a latency is infinite, or a loss is
            above 0.5; or there is a loss or buffer and the transport has no windows.

    Example:
        >>> down_bytes_s = np.array([1.25e6, 2.5e6])
        >>> links = ClientLinks(down_bytes_s, down_bytes_s / 5, np.array([0.02, 0.05]), 1.25e8, 1.25e8)
        >>> links.up.at(0.0).tolist(), links.latency_at(0.0, np.array([1])).tolist()
        ([250000.0, 500000.0], [0.05])
    """

    down: Rates
    up: Rates
    latency_s: Floats
    server_down_bytes_s: float
    server_up_bytes_s: float
    transport: Transport = NO_TRANSPORT
    loss: Floats = field(default_factory=lambda: np.zeros(()))
    loss_burst_packets: float = 1.0
    buffer_s: Floats = field(default_factory=lambda: np.array(np.inf))
    loss_key: int = 0
    latency_trace: Rates | None = None
    loss_trace: Rates | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.down, self.up = (  # user-defined classes give arrays
            rates if isinstance(rates, Rates) else Rates.constant(rates) for rates in (self.down, self.up)
        )
        if not len(self.down) == len(self.up) == len(self.latency_s):
            raise ValueError(
                "down, up and latency_s must have the same length: they are links of "
                f"{len(self.down)}, {len(self.up)} and {len(self.latency_s)} clients"
            )
        if not ((self.latency_s >= 0) & (self.latency_s < np.inf)).all():
            raise ValueError("a latency must be a finite number of seconds, at least 0")
        loss, buffer_s = np.asarray(self.loss, np.float64), np.asarray(self.buffer_s, np.float64)
        if not ((loss >= 0) & (loss <= MOST_LOSS)).all() or not (buffer_s >= 0).all():
            raise ValueError(f"a loss must be from 0 to {MOST_LOSS}, and a buffer at least 0 seconds")
        highest_loss = loss if self.loss_trace is None else self.loss_trace.maximum()
        if not self.transport.has_windows and (highest_loss.any() or (buffer_s < np.inf).any()):
            raise ValueError("a loss or a buffer needs a transport that retransmits lost packets, e.g. TCP")
        self.loss, self.buffer_s = (
            compress_constant(np.broadcast_to(of, self.latency_s.shape)) for of in (loss, buffer_s)
        )
        # Equal values take the memory of one: populations have millions of clients.
        self.latency_s = compress_constant(np.asarray(self.latency_s))

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        """Arrays of `(n,)` each; clients with equal values in all of them have the same links."""
        all_rates = [rates for rates in (self.down, self.up, self.latency_trace, self.loss_trace) if rates is not None]
        rate_columns = [column for rates in all_rates for column in (rates.trace_of, rates.phase_s, rates.scale)]
        return [*rate_columns, self.latency_s, self.loss, self.buffer_s]

    def latency_at(self, now_s: float, clients: Ids) -> Floats:
        """Return the `(m,)` one-way seconds of these clients at a time of the run in seconds."""
        if self.latency_trace is None:
            return self.latency_s[clients]
        return self.latency_trace.take(clients).at(now_s)

    def loss_at(self, now_s: float, clients: Ids) -> Floats:
        """Return the `(m,)` packet loss probabilities of these clients, each way, at a time of the run in seconds."""
        if self.loss_trace is None:
            return self.loss[clients]
        return np.minimum(self.loss_trace.take(clients).at(now_s), MOST_LOSS)

    @classmethod
    def of(cls, section: Links, population: int) -> "ClientLinks":
        """Return the links that `section` describes; raise `ExperimentError` if any of them is drawn at random."""
        return client_links(section, population, None)


@dataclass(frozen=True, eq=False)
class LinkGroup:
    """Clients with link settings of their own.

    Attributes:
        clients: `(m,)` client numbers.
        settings: keys of the `links` section with other values for these clients, and the values.
        generator: source of the draws for these settings.
    """

    clients: Ids
    settings: Mapping[str, Any]
    generator: np.random.Generator


def client_links(
    section: Links, population: int, generator: np.random.Generator | None, groups: Sequence[LinkGroup] = ()
) -> ClientLinks:
    """Return the links that `section` describes.

    Args:
        section: the experiment's `links` section.
        population: number of clients n.
        generator: for simulation; the same state gives the same links. None: refuse to draw.
        groups: disjoint groups of clients with other settings. The settings of a group are drawn for all n clients, so
            that they do not depend on the members. If one direction's rate has another setting, the rates of both
            directions are drawn.

    Raises:
        TraceError: a file cannot be used; one line with file and row.
        ExperimentError: there is something to draw and no generator; or the user-defined class cannot be found, or does
            not return the links of n clients.
    """
    streams = _Streams(generator)
    if section.model is not None:
        return _own_links(section.model, section, population, streams("own"))
    series = TraceFiles()
    down, up = _both_rates(section, population, streams, series)
    latency, loss_setting = section.latency_ms, section.loss
    latency_trace = loss_trace = None
    if isinstance(latency, FollowedDelay):
        latency_trace = _over_time(section, latency, LATENCY, population, streams, series, 1e-3)
        latency_ms = 1000 * latency_trace.at(0.0)
    else:
        latency_ms = _milliseconds(latency, population, streams)
    if isinstance(loss_setting, FollowedShare):
        loss_trace = _over_time(section, loss_setting, LOSS, population, streams, series)
        loss = np.minimum(loss_trace.at(0.0), MOST_LOSS)
    else:
        loss = _values(loss_setting, population, streams, "loss")
    buffer_ms = _buffers(section, population, streams)
    for group in groups:
        group_section, group_streams = section.with_settings(group.settings), _Streams(group.generator)
        members = group.clients
        if group.settings.keys() & {"down_mbit_s", "up_mbit_s", "outages"}:
            group_rates = _both_rates(group_section, population, group_streams, series)
            down, up = down.replaced(members, group_rates[0]), up.replaced(members, group_rates[1])
        if "latency_ms" in group.settings:
            assert not isinstance(group_section.latency_ms, FollowedDelay)
            # Drawn for all clients, then chosen: a client's value does not depend on the other members.
            latency_ms[members] = _milliseconds(group_section.latency_ms, population, group_streams)[members]
        if "loss" in group.settings:
            assert not isinstance(group_section.loss, FollowedShare)
            loss[members] = _values(group_section.loss, population, group_streams, "loss")[members]
        if "buffer_ms" in group.settings:
            buffer_ms[members] = _buffers(group_section, population, group_streams)[members]
    latency_s = latency_ms / 1000
    has_latency = bool((latency_s if latency_trace is None else latency_trace.maximum()).any())
    loses = bool((loss if loss_trace is None else loss_trace.maximum()).any() or np.isfinite(buffer_ms).any())
    return ClientLinks(
        down,
        up,
        latency_s,
        section.server_down_mbit_s * BYTES_PER_MBIT,
        section.server_up_mbit_s * BYTES_PER_MBIT,
        _transport(section, has_latency or loses),
        loss,
        section.loss_burst_packets,
        buffer_ms / 1000,
        int.from_bytes(streams("losses").bytes(8), "big") if loses else 0,
        latency_trace,
        loss_trace,
        series.notes,
    )


def _own_links(name: str, section: Links, population: int, generator: np.random.Generator) -> ClientLinks:
    own = options.create_with_options(plugin_class(name, "links.model"), name, "links", section)
    options.check_methods(own, name, "links.model", "links(population, generator)")
    links = own.links(population, generator)
    if not isinstance(links, ClientLinks) or len(links.down) != population:
        raise ExperimentError(f"links.model: {name} must return the ClientLinks of {population} clients")
    return links


class _Streams:
    """A random generator for each purpose, all derived from one draw of the given generator."""

    def __init__(self, generator: np.random.Generator | None) -> None:
        self._root = None if generator is None else generator.bytes(32)

    def __call__(self, purpose: str) -> np.random.Generator:
        if self._root is None:
            raise ExperimentError("links: a distribution, sample or shift needs random numbers; call client_links(...)")
        # A stream per purpose: another setting of one key leaves the draws of the others as they are.
        key = hashlib.sha256(self._root + purpose.encode()).digest()[:16]
        return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))


def _transport(section: Links, takes_time: bool) -> Transport:
    if isinstance(section.transport, Transport):
        return section.transport
    if section.transport == "auto":
        return PRESETS["tcp" if takes_time else "none"]
    return PRESETS[section.transport]


def _values(setting: float | list[float] | RandomValue, population: int, streams: _Streams, name: str) -> Floats:
    """Return `(population,)` values of a number, a list, or a distribution with its own random stream."""
    return (
        setting.draw(population, streams(name))
        if isinstance(setting, RandomValue)
        else cycle_values(setting, population)
    )


def _buffers(section: Links, population: int, streams: _Streams) -> Floats:
    """Return `(population,)` lengths of the queues in ms."""
    if section.buffer_ms is None:
        return np.full(population, np.inf)
    return _values(section.buffer_ms, population, streams, "buffer")


def _same_file(down: RateSetting, up: RateSetting) -> bool:
    if isinstance(down, Followed) and isinstance(up, Followed):
        return down.trace == up.trace
    return isinstance(down, Tabled) and isinstance(up, Tabled) and down.table == up.table


def _both_rates(section: Links, population: int, streams: _Streams, series: TraceFiles) -> tuple[Rates, Rates]:
    """Return the rates of downlinks and uplinks, outages included."""
    stream_names = {"down": "down", "up": "up"}
    if _same_file(section.down_mbit_s, section.up_mbit_s):
        stream_names["up"] = "down"  # the trace, or the device, of a client is the same both ways
    down, up = (
        _rates(setting, population, streams, name, stream_names[name], series)
        for name, setting in (("down", section.down_mbit_s), ("up", section.up_mbit_s))
    )
    if section.outages is not None:
        generator = streams("outages")
        traces = outage_traces(section.outages, population, generator)
        trace_of = np.arange(population) % len(traces)
        phase_s = generator.random(population) * traces.period_s[trace_of]
        down, up = (Rates.traced(traces, trace_of, phase_s, rates.scale) for rates in (down, up))
    return down, up


def _rates(
    setting: RateSetting, population: int, streams: _Streams, name: str, assignment_stream: str, series: TraceFiles
) -> Rates:
    """Return the rates in one direction.

    `name` names the random stream of the values, `assignment_stream` that of the clients' rows or traces.
    """
    if isinstance(setting, Followed):
        return _followed(setting, bandwidth_of(series.read(setting, BANDWIDTH)), population, streams, assignment_stream)
    if isinstance(setting, Tabled):

        def rows(count: int) -> Ids:
            return _assigned(setting.assign, count, population, streams, assignment_stream)

        mbit_s = table_rates(setting, rows, lambda: streams(f"{name} rate")) * setting.scale
    elif isinstance(setting, RandomValue):
        mbit_s = setting.draw(population, streams(f"{name} rate"))
    else:
        mbit_s = cycle_values(setting, population)
    return Rates.constant(mbit_s * BYTES_PER_MBIT)


def _followed(
    setting: Followed | FollowedDelay | FollowedShare,
    traces: BandwidthTraces,
    population: int,
    streams: _Streams,
    assignment_stream: str,
) -> Rates:
    trace_of = _assigned(setting.assign, len(traces), population, streams, assignment_stream)
    phase_s = np.zeros(population)
    if setting.shift:
        phase_s = streams(f"{assignment_stream} shift").random(population) * traces.period_s[trace_of]
    return Rates.traced(traces, trace_of, phase_s, setting.scale)


def _over_time(
    section: Links,
    setting: FollowedDelay | FollowedShare,
    kind: Kind,
    population: int,
    streams: _Streams,
    series: TraceFiles,
    factor: float = 1.0,
) -> Rates:
    """Return latencies or losses over time: piecewise constant numbers, in the form of rates.

    If the files have the same names as those of the downlink, and are assigned in the same way, they come from the same
    recordings. A client then has the same recording, at the same position, as for its downlink.
    """
    trace_series = series.read(setting, kind)
    down, assignment_stream = section.down_mbit_s, kind.name
    if isinstance(down, Followed) and (down.assign, down.shift) == (setting.assign, setting.shift):
        # By name: a recording of delays has the same file name as that of its rates.
        same_files = series.read(down, BANDWIDTH).names == trace_series.names
        assignment_stream = "down" if same_files else assignment_stream
    numbers = BandwidthTraces.of(
        trace_series.offsets, trace_series.time_s, trace_series.value * factor, trace_series.period_s
    )
    return _followed(setting, numbers, population, streams, assignment_stream)


def _milliseconds(
    setting: float | list[float] | RandomValue | MatrixColumn, population: int, streams: _Streams
) -> Floats:
    if isinstance(setting, MatrixColumn):
        delays = matrix_delays(setting)
        return delays[_assigned(setting.assign, len(delays), population, streams, "latency")] * setting.scale
    return _values(setting, population, streams, "latency")


def _assigned(assignment: str, count: int, population: int, streams: _Streams, assignment_stream: str) -> Ids:
    """Return `(population,)` indices of each client's row or trace, out of `count`."""
    if assignment == "cycle":
        return np.arange(population) % count
    return streams(f"{assignment_stream} row").integers(0, count, population)


# A library for all clients: a history of its own for each of a million would take two gigabytes.
MOST_HISTORIES = 256
OUTAGES_EACH = 64


def outage_traces(section: Outages, population: int, generator: np.random.Generator) -> BandwidthTraces:
    """Return connection histories as traces of rate 1 (connected) and 0; at most one per client.

    Connected and disconnected spells alternate, both exponentially distributed (the two-state Gilbert model in
    continuous time). Populations share a library of at most 256 histories of 64 outages each, repeated for ever; every
    client begins at a random moment of its history.

    Args:
        section: mean time between outages and mean length of an outage.
        population: number of clients.
        generator: source of the draws.
    """
    histories = max(1, min(population, MOST_HISTORIES))
    spells = generator.exponential(
        [section.mean_between_s, section.mean_length_s], (histories, OUTAGES_EACH, 2)
    ).reshape(histories, -1)
    spells = np.maximum(spells, 1e-9 * (section.mean_between_s + section.mean_length_s))  # no spell of length 0
    until_s = np.cumsum(spells, axis=1)
    begin_s = np.concatenate((np.zeros((histories, 1)), until_s[:, :-1]), axis=1)
    steps = 2 * OUTAGES_EACH
    return BandwidthTraces.of(
        np.arange(histories + 1) * steps,
        begin_s.ravel(),
        np.tile([1.0, 0.0], histories * OUTAGES_EACH),
        until_s[:, -1],
    )
