"""Lotto's Table 2: per-round time and traffic with random selection (Jiang et al., arXiv 2401.02880, section 5.2)."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.reproduction.contract import Bench, Claim, Reproduced, Reproduction
from analysis.reproduction.lotto_overhead import (
    ANNOUNCE_DEADLINE_S,
    LATENCY_MS,
    RING_BITS,
    SILENT,
    SIZES,
    largest,
    table,
)
from analysis.reproduction.lotto_published import MB, PARAMETERS, TABLE_2, Application

_SELECTIONS: dict[str, dict[str, Any]] = {
    "Rand": {"protocol": "random"},
    "Cli-Ctr": {"protocol": "lotto-client-centric"},
    "Srv-Ctr": {"protocol": "lotto-server-centric"},
    SILENT: {"protocol": "lotto-client-centric", "unselected": "silent"},
}


def _shown_for(application: Application) -> Sequence[str]:
    """Silence costs the same in every application: one is enough."""
    return [name for name in _SELECTIONS if name != SILENT or application == "FEMNIST"]


def make(bench: Bench) -> Reproduced:
    """Run the table at the bench's scale."""
    size = SIZES[bench.scale]
    frame = table(bench, size, _SELECTIONS, TABLE_2, _shown_for)
    rounds = ", ".join(f"{name} {count}" for name, count in size.rounds.items())
    remarks = [
        f"Rounds of each run: {rounds}; the paper: 50 (OpenImage 100). Only completed rounds count; one in which Lotto "
        "found too few candidates is aborted, which the paper does not mention.",
        *remarks_of(frame),
    ]
    return Reproduced(frame, claims=claims(frame), remarks=remarks)


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Section 5.2, statement by statement."""
    return [
        largest(frame, "Cli-Ctr", "server ×", "Cli-Ctr takes the server at most 10% more time at every scale", 1.10),
        largest(frame, "Srv-Ctr", "server ×", "Srv-Ctr takes the server at most 4% more time", 1.04),
        largest(frame, "Cli-Ctr", "client ×", "Cli-Ctr takes a participant up to 40% more time", 1.40),
        largest(frame, "Srv-Ctr", "client ×", "Srv-Ctr takes a participant less than 4% more time", 1.04),
        largest(frame, "Cli-Ctr", "server MB ×", "Cli-Ctr adds less than 1% to the server's traffic", 1.01),
        largest(frame, "Cli-Ctr", "client MB ×", "Cli-Ctr adds less than 1% to a participant's traffic", 1.01),
        largest(frame, "Srv-Ctr", "server MB ×", "Srv-Ctr adds less than 1% to the server's traffic", 1.01),
        largest(frame, "Srv-Ctr", "client MB ×", "Srv-Ctr adds less than 1% to a participant's traffic", 1.01),
    ]


def remarks_of(frame: pd.DataFrame) -> list[str]:
    """What holds for Tables 2 and 3."""
    server = 64.88 * MB / 10 / PARAMETERS["FEMNIST"]
    client = 3.9 * MB / PARAMETERS["FEMNIST"]
    remarks = [
        "Costs of compute. testbed: this testbed's own, on a core like one of the paper's c5.xlarge clients (device "
        "factor 1). authors: 302 ms for a proof and 226 ms to verify one, as measured on their published pure-Python "
        "code; a mask's element and a training step take what the paper's own Rand clients at 100 and 700 need (two "
        "numbers per application, about 1 us per element of a mask, which is what Python's Mersenne Twister takes); "
        "everything else in those rows is predicted, Rand at 400 included.",
        "Every client has the same number of samples and the same device, so that rows differ in the protocol alone. "
        f"Links: 44 Mbit/s for clients, 25 Gbit/s for the server (the paper's), {LATENCY_MS:g} ms each way (not "
        "stated; its machines stood in one cloud region).",
        "Who answers the announcement of client-centric Lotto: everybody (unselected: acknowledge, as the authors' "
        f"code does); the rows '{SILENT}' wait for a deadline as the paper writes, {ANNOUNCE_DEADLINE_S:g} s here, "
        "since the paper states none. That is the larger cost wherever rounds are short.",
        "Our server verifies the proofs of all candidates before it draws from them, since one false claim would end "
        "everybody's round; the paper does not ask it to. At the authors' 226 ms each that is most of what Cli-Ctr "
        "adds to the server's time.",
        f"Traffic. The paper's server moves {server:.2f} bytes per parameter and participant in every column (its MB "
        "are 2^20 bytes), its participants 4.0 at 100 clients and 3.7 to 3.8 at the others. 4 bytes are one "
        "float32 model; 8/3 bytes more are three masked values in each 64-bit word. So the server's figure fits the "
        f"model down and the masked update up; the participant's ({client:.2f}) is one direction only, and less "
        f"than a whole model above 100 clients. Ours counts both directions on both sides: 4 bytes down and "
        f"{RING_BITS / 8:g} up ({RING_BITS}-bit ring), {4 + RING_BITS / 8:g} in all, and everything that is sent "
        "besides.",
    ]
    if len(set(frame["application"]) - {"FEMNIST"}):
        remarks.append(
            "OpenImage and Reddit: cryptography and transfers of the real size, training charged for and not carried "
            "out (training: simulated)."
        )
    return remarks


REPRODUCTIONS = (
    Reproduction(
        "lotto-table2",
        "Time and traffic of a round with random selection: Rand, client-centric and server-centric Lotto",
        "Jiang et al., Lotto, arXiv 2401.02880, Table 2",
        make,
    ),
)
