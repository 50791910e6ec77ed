"""Degrees and thresholds that the test of Google's implementation of Bell et al. expects.

federated-compute, `fcp/secagg/server/graph_parameter_finder_test.cc` (Apache 2.0), at commit
bdbd822af00fb45b21a8364d40d62ca1eba4e27a of google-parfait/federated-compute; 2**-40 for security and 2**-20 for
correctness.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Server = Literal["semi-malicious", "curious", "none"]
"""Server against which the graph protects; none: nobody is dishonest, with the tails of the curious server."""

SOURCE = "google-parfait (federated-compute), fcp/secagg/server, test of the graph parameter finder"
SECURITY, CORRECTNESS = 40, 20

_EXPECTED: dict[tuple[Server, float, float], str] = {
    ("curious", 0.45, 0.45): "- 92/46 822/417 3494/1771 5508/2788 6240/3156",
    ("curious", 0.33, 0.33): "8/4 68/34 286/150 422/221 480/251 518/270",
    ("semi-malicious", 0.3, 0.3): "- 92/62 872/584 4822/3230 9388/6286 11136/7454",
    ("curious", 0.05, 0.33): "4/2 28/6 72/24 86/29 96/32 102/34",
    ("semi-malicious", 0.05, 0.33): "8/5 72/39 398/223 746/420 882/496 970/545",
    ("curious", 0.33, 0.05): "4/4 34/29 78/60 92/70 102/77 110/83",
    ("semi-malicious", 0.33, 0.05): "4/4 42/37 132/109 178/146 196/160 212/173",
    ("curious", 0.05, 0.05): "2/2 12/6 30/17 34/20 36/21 38/22",
    ("semi-malicious", 0.05, 0.05): "2/2 16/11 52/37 62/44 68/48 74/52",
    ("curious", 0.33, 0.0): "4/4 26/25 38/36 42/40 46/44 50/47",
    ("semi-malicious", 0.33, 0.0): "4/4 26/26 38/37 42/41 46/45 50/49",
    ("curious", 0.0, 0.33): "4/2 26/2 38/2 42/2 46/2 50/2",
    ("none", 0.0, 0.33): "4/2 26/2 38/2 42/2 46/2 50/2",
    ("semi-malicious", 0.0, 0.33): "8/5 68/35 228/115 326/164 372/187 410/206",
    ("curious", 0.0, 0.0): "2/2 2/2 2/2 2/2 2/2 2/2",
    ("none", 0.0, 0.0): "- - 2/2 2/2 2/2 2/2",
    ("semi-malicious", 0.0, 0.0): "2/2 2/2 2/2 2/2 2/2 2/2",
}
"""Degree/threshold for 10, 100, ... a million clients; -: not in the test."""


@dataclass(frozen=True)
class Instance:
    """Row of the test.

    Attributes:
        clients: s.
        server: server against which the graph protects.
        dishonest: dishonest fraction of the clients.
        dropouts: fraction of the clients that drop out.
        neighbours: expected k; 0 if the instance is expected to be refused.
        threshold: expected t; 0 if the instance is expected to be refused.
    """

    clients: int
    server: Server
    dishonest: float
    dropouts: float
    neighbours: int = 0
    threshold: int = 0


def expected() -> Iterator[Instance]:
    """Yield the instances that have parameters."""
    for (server, dishonest, dropouts), line in _EXPECTED.items():
        for power, pair in enumerate(line.split(), 1):
            if pair != "-":
                neighbours, threshold = map(int, pair.split("/"))
                yield Instance(10**power, server, dishonest, dropouts, neighbours, threshold)


REFUSED = (
    Instance(0, "curious", 0.1, 0.1),
    Instance(1000, "curious", 0.1, 1.0),
    Instance(1000, "curious", 0.1, -1.0),
    Instance(1000, "curious", 0.5, 0.5),
    Instance(1000, "semi-malicious", 0.5, 0.5),
    Instance(1000, "semi-malicious", 0.33, 0.33),
    Instance(1000, "none", 0.5, 0.5),
)
"""Instances that are invalid, or have no parameters."""
