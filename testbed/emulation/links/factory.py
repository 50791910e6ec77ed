"""From the `links` section to arrays: every client's rates and latency, drawn once per experiment.

Each purpose has a random stream of its own, so that what one key draws does not depend on the others.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.links.rates import Rates
from testbed.emulation.links.section import (
    LEAST_SHARE,
    BufferSetting,
    DelaySetting,
    Drawn,
    Followed,
    Links,
    MatrixColumn,
    Outages,
    RateSetting,
    ShareSetting,
    Tabled,
    cycled,
    share_between,
    truncated_normal,
)
from testbed.emulation.traces.bandwidth import BYTES_PER_MBIT, BandwidthTraces, read_bandwidth
from testbed.emulation.transport.section import NO_TRANSPORT, PRESETS, Transport
from testbed.errors import ExperimentError, TraceError
from testbed.plugins import options
from testbed.plugins.classes import plugin_class


@dataclass(eq=False)
class ClientLinks:
    """Links of a population of n clients, and the server's.

    Attributes:
        down, up: rates of n clients; `(n,)` bytes per second are taken as constant rates.
        latency_s: `(n,)` one-way seconds.
        server_down_bytes_s, server_up_bytes_s: bytes per second, shared among the clients.
        transport: how messages are sent, and what headers and acknowledgements add to them.
        loss: `(n,)` probability that a packet is lost, each direction; one number for all, too.
        loss_burst_packets: mean packets lost in a row.
        buffer_s: `(n,)` seconds at its rate that the queue in front of a link holds; infinite: any length.
        loss_key: what losses are drawn from, any number.

    Raises:
        ValueError: arrays that differ in length, or a rate or latency is negative or NaN, or a latency infinite, or a
            loss above 1.
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

    def __post_init__(self) -> None:
        self.down, self.up = (  # user-defined classes give arrays
            given if isinstance(given, Rates) else Rates.constant(given) for given in (self.down, self.up)
        )
        if not len(self.down) == len(self.up) == len(self.latency_s):
            raise ValueError(f"links of {len(self.down)}, {len(self.up)} and {len(self.latency_s)} clients")
        if not ((self.latency_s >= 0) & (self.latency_s < np.inf)).all():
            raise ValueError("a latency must be a finite number of seconds, at least 0")
        loss, buffer_s = np.asarray(self.loss, np.float64), np.asarray(self.buffer_s, np.float64)
        if not ((loss >= 0) & (loss < 1)).all() or not (buffer_s >= 0).all():
            raise ValueError("a loss must be at least 0 and below 1, and a buffer at least 0 seconds")
        self.loss, self.buffer_s = (np.broadcast_to(column, self.latency_s.shape) for column in (loss, buffer_s))

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
    down, up = _both_rates(section, population, streams)
    latency_ms = _milliseconds(section.latency_ms, population, streams)
    loss = _given_or_drawn(section.loss, population, streams, "loss")
    buffer_ms = _buffers(section, population, streams)
    for group in groups:
        own, drawn = section.with_settings(group.settings), _Streams(group.generator)
        who = group.clients
        if group.settings.keys() & {"down_mbit_s", "up_mbit_s", "outages"}:
            theirs = _both_rates(own, population, drawn)
            down, up = down.replaced(who, theirs[0]), up.replaced(who, theirs[1])
        if "latency_ms" in group.settings:
            latency_ms[who] = _milliseconds(own.latency_ms, population, drawn)[who]
        if "loss" in group.settings:
            loss[who] = _given_or_drawn(own.loss, population, drawn, "loss")[who]
        if "buffer_ms" in group.settings:
            buffer_ms[who] = _buffers(own, population, drawn)[who]
    latency_s = latency_ms / 1000
    return ClientLinks(
        down,
        up,
        latency_s,
        section.server_down_mbit_s * BYTES_PER_MBIT,
        section.server_up_mbit_s * BYTES_PER_MBIT,
        _transport(section, latency_s),
        loss,
        section.loss_burst_packets,
        buffer_ms / 1000,
        int.from_bytes(streams("losses").bytes(8), "big") if loss.any() else 0,
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


def _transport(section: Links, latency_s: Floats) -> Transport:
    if isinstance(section.transport, Transport):
        return section.transport
    if section.transport == "auto":
        return PRESETS["tcp" if latency_s.any() else "none"]
    return PRESETS[section.transport]


def _given_or_drawn(setting: ShareSetting | BufferSetting, population: int, streams: _Streams, name: str) -> Floats:
    """A number, a list, or a distribution with a random stream of its own; `(population,)`."""
    return setting.draw(population, streams(name)) if isinstance(setting, Drawn) else cycled(setting, population)


def _buffers(section: Links, population: int, streams: _Streams) -> Floats:
    """`(population,)` ms."""
    if section.buffer_ms is None:
        return np.full(population, np.inf)
    return _given_or_drawn(section.buffer_ms, population, streams, "buffer")


def _same_file(down: RateSetting, up: RateSetting) -> bool:
    if isinstance(down, Followed) and isinstance(up, Followed):
        return down.trace == up.trace
    return isinstance(down, Tabled) and isinstance(up, Tabled) and down.table == up.table


def _both_rates(section: Links, population: int, streams: _Streams) -> tuple[Rates, Rates]:
    """Rates down and up, with the outages."""
    placing = {"down": "down", "up": "up"}
    if _same_file(section.down_mbit_s, section.up_mbit_s):
        placing["up"] = "down"  # the trace, or the device, of a client is the same both ways
    down, up = (
        _rates(setting, population, streams, name, placing[name])
        for name, setting in (("down", section.down_mbit_s), ("up", section.up_mbit_s))
    )
    if section.outages is not None:
        generator = streams("outages")
        traces = outage_traces(section.outages, population, generator)
        trace_of = np.arange(population) % len(traces)
        phase_s = generator.random(population) * traces.period_s[trace_of]
        down, up = (Rates.traced(traces, trace_of, phase_s, rates.scale) for rates in (down, up))
    return down, up


def _rates(setting: RateSetting, population: int, streams: _Streams, name: str, placing: str) -> Rates:
    """Rates in one direction: `name` has its own stream for values, `placing` the one for who has which row."""
    if isinstance(setting, Followed):
        return _followed(setting, population, streams, placing)
    if isinstance(setting, Tabled):

        def rows(count: int) -> Ids:
            return _assigned(setting.assign, count, population, streams, placing)

        mbit_s = table_rates(setting, rows, lambda: streams(f"{name} rate")) * setting.scale
    elif isinstance(setting, Drawn):
        mbit_s = setting.draw(population, streams(f"{name} rate"))
    else:
        mbit_s = cycled(setting, population)
    return Rates.constant(mbit_s * BYTES_PER_MBIT)


def _followed(setting: Followed, population: int, streams: _Streams, placing: str) -> Rates:
    traces = read_bandwidth(setting.trace)
    trace_of = _assigned(setting.assign, len(traces), population, streams, placing)
    phase_s = np.zeros(population)
    if setting.shift:
        phase_s = streams(f"{placing} shift").random(population) * traces.period_s[trace_of]
    return Rates.traced(traces, trace_of, phase_s, setting.scale)


def _milliseconds(setting: DelaySetting, population: int, streams: _Streams) -> Floats:
    if isinstance(setting, MatrixColumn):
        delays = matrix_delays(setting)
        return delays[_assigned(setting.assign, len(delays), population, streams, "latency")] * setting.scale
    return _given_or_drawn(setting, population, streams, "latency")


def _assigned(how: str, count: int, population: int, streams: _Streams, placing: str) -> Ids:
    """`(population,)` which of `count` rows or traces each client has."""
    if how == "cycle":
        return np.arange(population) % count
    return streams(f"{placing} row").integers(0, count, population)


FLASH_COLUMNS = ("down_u", "down_sigma", "up_u", "up_sigma")
_MBIT_PER_KB = 8e-3


def table_rates(
    setting: Tabled, assigned: Callable[[int], Ids], generator: Callable[[], np.random.Generator]
) -> Floats:
    """Each client's rate from a table of devices, before `scale`.

    FLASH's table of network speeds (Yang et al., Characterizing Impacts of Heterogeneity in Federated Learning upon
    Large-Scale Smartphone Data, WWW 2021; ``speed_distri.json`` of its code) has the mean and the standard deviation of
    the speed of each of 19 phones, down and up, in kB/s: the code divides a model's bytes by 1000 (uploads; downloads:
    by 1024) and that by a normal random number, drawn again while it is negative. FLASH draws again for every transfer;
    here a client's rate is drawn once, and 1 kB is 1000 bytes.

    Args:
        setting: which table and column.
        assigned: gives each client's row among that many: `(n,)`.
        generator: gives the random stream for rates that the table knows as distributions only.

    Returns:
        `(n,)` float64 Mbit/s, positive.

    Raises:
        TraceError: the file cannot be used; one line with file and row.
    """
    from testbed.emulation.traces.columns import column_names, read_columns

    path, column = setting.table, setting.column
    if set(FLASH_COLUMNS) <= set(column_names(path)):
        return _flash_rates(setting, assigned, generator)
    found = read_columns(path, [column])
    rates = found.values[0]
    if not (rates > 0).all():
        at = int(np.argmin(rates > 0))
        raise TraceError(f"{path}: row {found.rows[at]}: {column} is {rates[at]:g} Mbit/s; a rate must be positive")
    chosen: Floats = rates[assigned(len(rates))]
    return chosen


def _flash_rates(
    setting: Tabled, assigned: Callable[[int], Ids], generator: Callable[[], np.random.Generator]
) -> Floats:
    from testbed.emulation.traces.columns import read_columns

    if setting.column not in ("down", "up"):
        raise TraceError(f"{setting.table}: no column {setting.column!r} in FLASH's table; there are down, up")
    found = read_columns(setting.table, FLASH_COLUMNS)  # all four, so that a row is the same device both ways
    first = 0 if setting.column == "down" else 2
    mean, sigma = found.values[first : first + 2] * _MBIT_PER_KB
    bad = ~(sigma >= 0) | (share_between(mean, sigma, setting.minimum, np.inf) < LEAST_SHARE)
    if bad.any():
        at = int(np.argmax(bad))
        raise TraceError(
            f"{setting.table}: row {found.rows[at]}: normal with mean {mean[at]:g} and sigma {sigma[at]:g} Mbit/s is "
            f"hardly ever above {setting.minimum:g}; correct it, or set a smaller `minimum`"
        )
    row = assigned(len(mean))
    return truncated_normal(mean[row], sigma[row], setting.minimum, np.inf, generator())


def matrix_delays(setting: MatrixColumn) -> Floats:
    """`(rows,)` float64 ms: the server's column of a latency matrix; raises `TraceError`."""
    from testbed.emulation.traces.latency import read_latency_matrix

    values, _, names = read_latency_matrix(setting.matrix)
    column = setting.column
    if isinstance(column, str):
        if column not in names:
            shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
            raise TraceError(f"{setting.matrix}: no column {column!r}; there are {shown}")
        return values[:, names.index(column)]
    if column >= values.shape[1]:
        raise TraceError(f"{setting.matrix}: no column {column}; there are {values.shape[1]}, counted from 0")
    return values[:, column]


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
