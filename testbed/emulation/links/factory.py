"""From the `links` section to arrays: every client's rates and latency, drawn once per experiment.

Each purpose has a random stream of its own, so that what one key draws does not depend on the others.
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
    cycled,
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
    """Links of a population of n clients, and the server's.

    Attributes:
        down, up: rates of n clients; `(n,)` bytes per second are taken as constant rates.
        latency_s: `(n,)` one-way seconds; where they follow traces, those at time 0: ask `latency_at`.
        server_down_bytes_s, server_up_bytes_s: bytes per second, shared among the clients.
        transport: how messages are sent, and what headers and acknowledgements add to them.
        loss: `(n,)` probability that a packet is lost, each direction; one number for all, too.
        loss_burst_packets: mean packets lost in a row.
        buffer_s: `(n,)` seconds at its rate that the queue in front of a link holds; infinite: any length.
        loss_key: what losses are drawn from, any number.
        latency_trace: one-way seconds over time, for n clients, where they follow traces.
        loss_trace: probabilities over time, likewise; `loss` is that at time 0.
        notes: lines on what was found in the files, for people.

    Raises:
        ValueError: arrays that differ in length, or a rate or latency is negative or NaN, or a latency infinite, or a
            loss above 0.5, or one or a buffer where the transport has no windows.
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
            raise ValueError(f"links of {len(self.down)}, {len(self.up)} and {len(self.latency_s)} clients")
        if not ((self.latency_s >= 0) & (self.latency_s < np.inf)).all():
            raise ValueError("a latency must be a finite number of seconds, at least 0")
        loss, buffer_s = np.asarray(self.loss, np.float64), np.asarray(self.buffer_s, np.float64)
        if not ((loss >= 0) & (loss <= MOST_LOSS)).all() or not (buffer_s >= 0).all():
            raise ValueError(f"a loss must be from 0 to {MOST_LOSS}, and a buffer at least 0 seconds")
        highest_loss = loss if self.loss_trace is None else self.loss_trace.maximum()
        if not self.transport.has_windows and (highest_loss.any() or (buffer_s < np.inf).any()):
            raise ValueError("a loss or a buffer needs a transport that sends again what is lost, e.g. TCP")
        self.loss, self.buffer_s = (
            compress_constant(np.broadcast_to(of, self.latency_s.shape)) for of in (loss, buffer_s)
        )
        self.latency_s = compress_constant(np.asarray(self.latency_s))

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        """`(n,)` each: clients for which all of these are equal have the same links."""
        all_rates = [rates for rates in (self.down, self.up, self.latency_trace, self.loss_trace) if rates is not None]
        rate_columns = [column for rates in all_rates for column in (rates.trace_of, rates.phase_s, rates.scale)]
        return [*rate_columns, self.latency_s, self.loss, self.buffer_s]

    def latency_at(self, now_s: float, clients: Ids) -> Floats:
        """`(m,)` one-way seconds of these clients at a moment of the run."""
        if self.latency_trace is None:
            return self.latency_s[clients]
        return self.latency_trace.take(clients).at(now_s)

    def loss_at(self, now_s: float, clients: Ids) -> Floats:
        """`(m,)` probability that a packet of these clients is lost, each way, at a moment of the run."""
        if self.loss_trace is None:
            return self.loss[clients]
        return np.minimum(self.loss_trace.take(clients).at(now_s), MOST_LOSS)

    @classmethod
    def of(cls, section: Links, population: int) -> "ClientLinks":
        """The links that `section` describes, if nothing in it is drawn at random; else an `ExperimentError`."""
        return client_links(section, population, None)


@dataclass(frozen=True, eq=False)
class LinkGroup:
    """Clients whose links differ from those of the others.

    Attributes:
        clients: `(m,)` who they are.
        settings: the keys of the `links` section that have another value for them, and the value.
        generator: for what is drawn by these.
    """

    clients: Ids
    settings: Mapping[str, Any]
    generator: np.random.Generator


def client_links(
    section: Links, population: int, generator: np.random.Generator | None, groups: Sequence[LinkGroup] = ()
) -> ClientLinks:
    """The links that `section` describes for `population` clients.

    Args:
        section: the experiment's.
        population: number of clients n.
        generator: for simulation; the same state gives the same links. None: refuse to draw.
        groups: of clients whose links differ; nobody is in two of them. What their settings describe is drawn for all
            n clients, whoever belongs to the group. Both directions' rates are drawn where one has another setting.

    Raises:
        TraceError: a file cannot be used; one line with file and row.
        ExperimentError: something is to be drawn, and there is no generator; or the user-defined class cannot be found,
            or does not return the links of n clients.
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
    own = options.made(plugin_class(name, "links.model"), name, "links", section)
    options.check_methods(own, name, "links.model", "links(population, generator)")
    links = own.links(population, generator)
    if not isinstance(links, ClientLinks) or len(links.down) != population:
        raise ExperimentError(f"links.model: {name} must return the ClientLinks of {population} clients")
    return links


class _Streams:
    """A random generator for each purpose, all derived from one draw of the one given."""

    def __init__(self, generator: np.random.Generator | None) -> None:
        self._root = None if generator is None else generator.bytes(32)

    def __call__(self, purpose: str) -> np.random.Generator:
        if self._root is None:
            raise ExperimentError("links: a distribution, sample or shift needs random numbers; call client_links(...)")
        key = hashlib.sha256(self._root + purpose.encode()).digest()[:16]
        return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))


def _transport(section: Links, takes_time: bool) -> Transport:
    if isinstance(section.transport, Transport):
        return section.transport
    if section.transport == "auto":
        return PRESETS["tcp" if takes_time else "none"]
    return PRESETS[section.transport]


def _values(setting: float | list[float] | RandomValue, population: int, streams: _Streams, name: str) -> Floats:
    """A number, a list, or a distribution with a random stream of its own; `(population,)`."""
    return setting.draw(population, streams(name)) if isinstance(setting, RandomValue) else cycled(setting, population)


def _buffers(section: Links, population: int, streams: _Streams) -> Floats:
    """`(population,)` ms."""
    if section.buffer_ms is None:
        return np.full(population, np.inf)
    return _values(section.buffer_ms, population, streams, "buffer")


def _same_file(down: RateSetting, up: RateSetting) -> bool:
    if isinstance(down, Followed) and isinstance(up, Followed):
        return down.trace == up.trace
    return isinstance(down, Tabled) and isinstance(up, Tabled) and down.table == up.table


def _both_rates(section: Links, population: int, streams: _Streams, series: TraceFiles) -> tuple[Rates, Rates]:
    """Rates down and up, with the outages."""
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
        mbit_s = cycled(setting, population)
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
    """Latencies or losses over time: piecewise constant numbers, as rates are.

    A client has the trace and the moment that its downlink has, where the files of both are called the same and are
    given out in the same way: then they come from the same recordings.
    """
    trace_series = series.read(setting, kind)
    down, assignment_stream = section.down_mbit_s, kind.name
    if isinstance(down, Followed) and (down.assign, down.shift) == (setting.assign, setting.shift):
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
    """`(population,)` which of `count` rows or traces each client has."""
    if assignment == "cycle":
        return np.arange(population) % count
    return streams(f"{assignment_stream} row").integers(0, count, population)


MOST_HISTORIES = 256
OUTAGES_EACH = 64


def outage_traces(section: Outages, population: int, generator: np.random.Generator) -> BandwidthTraces:
    """Histories of a connection as traces of rate 1 (connected) and 0; at most one per client.

    Connected and disconnected spells alternate, both exponentially distributed (the two-state Gilbert model in
    continuous time). A population of any size shares a library of at most 256 such histories of 64 outages each,
    repeated for ever, in which every client begins at a random moment.
    """
    histories = max(1, min(population, MOST_HISTORIES))
    spells = generator.exponential(
        [section.mean_between_s, section.mean_length_s], (histories, OUTAGES_EACH, 2)
    ).reshape(histories, -1)
    spells = np.maximum(spells, 1e-9 * (section.mean_between_s + section.mean_length_s))  # time must pass in each
    until_s = np.cumsum(spells, axis=1)
    begin_s = np.concatenate((np.zeros((histories, 1)), until_s[:, :-1]), axis=1)
    steps = 2 * OUTAGES_EACH
    return BandwidthTraces.of(
        np.arange(histories + 1) * steps,
        begin_s.ravel(),
        np.tile([1.0, 0.0], histories * OUTAGES_EACH),
        until_s[:, -1],
    )
