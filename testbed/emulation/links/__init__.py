"""Links between clients and server: bandwidth and latency per client, capacity of the server, transport overhead."""

from testbed.emulation.links.factory import ClientLinks, LinkGroup, client_links
from testbed.emulation.links.rates import Rates
from testbed.emulation.links.section import LIST, NUMBER, EitherForm, Links, NotEmpty, cycle_values, form_of
from testbed.emulation.traces.bandwidth import BYTES_PER_MBIT, BandwidthTraces
from testbed.emulation.transport.section import Transport

__all__ = [
    "BYTES_PER_MBIT",
    "LIST",
    "NUMBER",
    "BandwidthTraces",
    "ClientLinks",
    "EitherForm",
    "LinkGroup",
    "Links",
    "NotEmpty",
    "Rates",
    "Transport",
    "client_links",
    "cycle_values",
    "form_of",
]
