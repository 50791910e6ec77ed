"""From the `links` section to arrays: every client's rates and latency, drawn once per experiment.

Each purpose has a random stream of its own, so that what one key draws does not depend on the others.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids
from testbed.emulation.links.distributions import Drawn
from testbed.emulation.links.outages import outage_traces
from testbed.emulation.links.rates import Rates
from testbed.emulation.links.section import (
    DelaySetting,
    Followed,
    Links,
    MatrixColumn,
    RateSetting,
    Tabled,
    cycled,
)
from testbed.emulation.links.tables import matrix_delays, table_rates
from testbed.emulation.links.transport import NO_TRANSPORT, PRESETS, Transport
from testbed.emulation.traces.bandwidth import BYTES_PER_MBIT, read_bandwidth
from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.plugins.classes import plugin_class


@dataclass(frozen=True)
class ClientLinks:
    """Links of a population of n clients, and the server's.

    Attributes:
        down, up: rates of n clients; `(n,)` bytes per second are taken as constant rates.
        latency_s: `(n,)` one-way seconds.
        server_down_bytes_s, server_up_bytes_s: bytes per second, shared among the clients.
        transport: what headers and acknowledgements add to each message.

    Raises:
        ValueError: the three differ in length, or a rate or latency is negative or NaN, or a latency infinite.
    """

    down: Rates
    up: Rates
    latency_s: Floats
    server_down_bytes_s: float
    server_up_bytes_s: float
    transport: Transport = NO_TRANSPORT

    def __post_init__(self) -> None:
        given: Rates | npt.ArrayLike
        for name, given in (("down", self.down), ("up", self.up)):
            if not isinstance(given, Rates):
                object.__setattr__(self, name, Rates.constant(given))  # user-defined classes give arrays
        if not len(self.down) == len(self.up) == len(self.latency_s):
            raise ValueError(f"links of {len(self.down)}, {len(self.up)} and {len(self.latency_s)} clients")
        if not ((self.latency_s >= 0) & (self.latency_s < np.inf)).all():
            raise ValueError("a latency must be a finite number of seconds, at least 0")

    @classmethod
    def of(cls, section: Links, population: int) -> "ClientLinks":
        """The links that `section` describes, if nothing in it is drawn at random; else an `ExperimentError`."""
        return client_links(section, population, None)


def client_links(section: Links, population: int, generator: np.random.Generator | None) -> ClientLinks:
    """The links that `section` describes for `population` clients.

    Args:
        section: the experiment's.
        population: number of clients n.
        generator: for simulation; the same state gives the same links. None: refuse to draw.

    Raises:
        TraceError: a file cannot be used; one line with file and row.
        ExperimentError: something is to be drawn, and there is no generator; or the user-defined class cannot be found,
            or does not return the links of n clients.
    """
    streams = _Streams(generator)
    if section.model is not None:
        return _own_links(section.model, section, population, streams("own"))
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
    transport = section.transport
    return ClientLinks(
        down,
        up,
        _milliseconds(section.latency_ms, population, streams) / 1000,
        section.server_down_mbit_s * BYTES_PER_MBIT,
        section.server_up_mbit_s * BYTES_PER_MBIT,
        transport if isinstance(transport, Transport) else PRESETS[transport],
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


def _same_file(down: RateSetting, up: RateSetting) -> bool:
    if isinstance(down, Followed) and isinstance(up, Followed):
        return down.trace == up.trace
    return isinstance(down, Tabled) and isinstance(up, Tabled) and down.table == up.table


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
    if isinstance(setting, Drawn):
        return setting.draw(population, streams("latency"))
    if isinstance(setting, MatrixColumn):
        delays = matrix_delays(setting)
        return delays[_assigned(setting.assign, len(delays), population, streams, "latency")] * setting.scale
    return cycled(setting, population)


def _assigned(how: str, count: int, population: int, streams: _Streams, placing: str) -> Ids:
    """`(population,)` which of `count` rows or traces each client has."""
    if how == "cycle":
        return np.arange(population) % count
    return streams(f"{placing} row").integers(0, count, population)
