"""Lotto's Tables 2 and 3: time and traffic of a round, cell by cell beside the paper's.

Jiang et al., arXiv 2401.02880: section 5.2 with random selection, appendix C with informed selection.
"""

from typing import Any

import pandas as pd

from analysis.reproduction.contract import Measurements, Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.lotto.overhead import (
    ANNOUNCE_DEADLINE_S,
    COST_TABLES,
    INFORMED_SCALES,
    LATENCY_MS,
    RING_BITS,
    SCALES,
    SILENT,
    TRAINING,
    VERIFIED,
    measure,
    overhead_table,
)
from analysis.reproduction.lotto.published import MB, PARAMETERS, PARTICIPANTS, TABLE_2, TABLE_3, proofs_s
from analysis.reproduction.lotto.table_claims import claims_of_table2, claims_of_table3


def remarks_of(frame: pd.DataFrame) -> list[str]:
    """Return the remarks of both tables."""
    server = 64.88 * MB / 10 / PARAMETERS["FEMNIST"]  # Table 2's cells at 100 clients, 10 participants
    client = 3.9 * MB / PARAMETERS["FEMNIST"]
    training = ", ".join(f"{name} {factor:g}" for name, factor in TRAINING.items())
    return [
        _predicted(frame),
        _modelled(frame),
        "Costs of compute. testbed: this testbed's own, on a core like one of the paper's c5.xlarge clients (device "
        f"factor 1); training per parameter and example as measured on each model (FEMNIST's CNN = 1: {training}). "
        "authors: 302 ms for a proof and 226 ms to verify one, quoted from an earlier measurement of the published "
        "pure-Python code and not measured again; the costs of a mask's element and of a training step follow from "
        "the paper's own Rand clients at 100 and 700 (two numbers per application; 1 to 2 us per element of a mask "
        "is the speed of a Python loop that draws and adds one number at a time); everything else in those rows is "
        "predicted, Rand at 400 included.",
        "Every client has the same number of samples and the same device, so that rows differ in the protocol alone. "
        f"Links: 44 Mbit/s for clients, 25 Gbit/s for the server (the paper's), {LATENCY_MS:g} ms each way (not "
        "stated; its machines stood in one cloud region). Messages go over TCP, as they did there; "
        "--set links.transport=none leaves connections, windows and headers out.",
        "All clients answer the announcement of client-centric Lotto (unselected: acknowledge, as in the authors' "
        "code).",
        "Cli-Ctr is the paper's protocol, in which participants verify the proofs of their list and the server none. "
        f"In the rows '{VERIFIED}' our server also verifies those of all candidates before it draws, one after the "
        "other (the paper's has 32 cores), since one false claim would end everybody's round.",
        _unexplained(frame),
        f"Traffic. The paper's server moves {server:.2f} bytes per parameter and participant in every column (its MB "
        "are 2^20 bytes), its participants 4.0 at 100 clients and 3.7 to 3.8 at the others. 4 bytes are one "
        "float32 model; 8/3 bytes more are three masked values in each 64-bit word. So the server's figure fits the "
        f"model down and the masked update up; the participant's ({client:.2f}) is one direction only, and less "
        f"than a whole model above 100 clients. Ours counts both directions on both sides: 4 bytes down and "
        f"{RING_BITS / 8:g} up ({RING_BITS}-bit ring), {4 + RING_BITS / 8:g} in all, and everything that is sent "
        "besides.",
        "Cryptography and transfers are carried out in full size; masks stay seeds where they cancel. Training is "
        "charged for and not carried out (training: simulated), which changes no time and no byte; at scale paper, "
        "FEMNIST's clients train with the testbed's costs.",
        "Participants verify the list before they sign it, and the server waits for their signatures. So their extra "
        "time lengthens the round in this testbed; the paper says that it does not (footnote 4).",
        "Srv-Ctr's cells decide no claim: it adds milliseconds to a round, and the paper's 18 ratios to the baselines "
        "differ by far more.",
    ]


def _predicted(frame: pd.DataFrame) -> str:
    """Return how close the rows with the authors' costs come to the paper's minutes."""
    rows = frame[frame["costs"] == "authors"]
    ratios_of_party = []
    for heading, party in (("server min", "server"), ("client min", "participant")):
        ratios = (rows[heading] / rows[f"{heading} (paper)"].astype(float)).dropna()
        if len(ratios):
            low, median, high = ratios.min(), ratios.median(), ratios.max()
            ratios_of_party.append(f"the {party}'s are {low:.2f} to {high:.2f} times the paper's (median {median:.2f})")
    ratios_text = "; ".join(ratios_of_party) or "no round was completed"
    return f"With the authors' costs, minutes come out as follows: {ratios_text}."


def _modelled(frame: pd.DataFrame) -> str:
    """Return the share of the rounds' time that is modelled compute."""
    answering = frame[frame["protocol"] != SILENT]
    shares = {str(costs): rows["compute %"].dropna() for costs, rows in answering.groupby("costs")}
    ranges = [
        f"{of.min():.0f} to {of.max():.0f}% with {COST_TABLES[costs]}"
        for costs in COST_TABLES
        if (of := shares.get(costs)) is not None and len(of)
    ]
    return (
        "compute %: the share of a round's time that is modelled compute, the server's and the slowest client's of "
        f"each stage ({'; '.join(ranges) or 'no round was completed'}). The rest is transfers. Modelled compute "
        "follows from the table of costs; none of it was measured on a clock."
    )


def _unexplained(frame: pd.DataFrame) -> str:
    """Return the excess seconds of the paper's participants under client-centric Lotto, and the part of the proofs."""
    excess = {
        application: ", ".join(
            f"{60 * (TABLE_2[application, n, 'Cli-Ctr'].client_min - TABLE_2[application, n, 'Rand'].client_min):.0f}"
            for n in (100, 400, 700)
        )
        for application in ("FEMNIST", "OpenImage", "Reddit")
    }
    proofs = ", ".join(f"{proofs_s(participants):.1f}" for participants in PARTICIPANTS.values())
    rows = frame[(frame["protocol"] == "Cli-Ctr") & (frame["costs"] == "authors")].dropna(subset=["client × (paper)"])
    less = int((rows["client ×"] < rows["client × (paper)"].astype(float)).sum())
    return (
        f"Participants under Cli-Ctr. Our overhead is less than the paper's in {less} of {len(rows)} cells. Table 2's "
        "participants need more seconds than under Rand, at 100, 400 and 700 clients: "
        + "; ".join(f"{application} {seconds}" for application, seconds in excess.items())
        + f". A proof and the verification of s - 1 others take {proofs} s at the authors' costs, for every model. "
        "lotto-participant-time compares the rest with measured work of participants."
    )


RANDOM_SELECTIONS: dict[str, dict[str, Any]] = {
    "Rand": {"protocol": "random"},
    "Cli-Ctr": {"protocol": "lotto-client-centric", "server_verifies": "none"},
    VERIFIED: {"protocol": "lotto-client-centric"},
    "Srv-Ctr": {"protocol": "lotto-server-centric"},
    SILENT: {"protocol": "lotto-client-centric", "server_verifies": "none", "unselected": "silent"},
}


def measure_table2(context: ReproductionContext) -> Measurements:
    """Run Table 2 at the context's scale."""
    scale = SCALES[context.scale]
    shown = {  # silence costs the same in every application, so one application is enough
        name: [selection for selection in RANDOM_SELECTIONS if selection != SILENT or name == "FEMNIST"]
        for name in scale.applications
    }
    return measure(context, scale, RANDOM_SELECTIONS, shown)


def conclude_table2(measurements: Measurements) -> ReproductionResult:
    """Compare every cell with Table 2, and the cells with section 5.2."""
    frame = overhead_table(measurements.tables["rounds"], TABLE_2)
    remarks = [
        _completed(
            measurements, "one in which Lotto finds too few candidates is aborted, which the paper does not mention"
        ),
        f"In the rows '{SILENT}' unselected clients do not answer, and the server waits for a deadline, as in the "
        f"paper: {ANNOUNCE_DEADLINE_S:g} s here, since the paper states none. The wait dominates short rounds.",
        *remarks_of(frame),
    ]
    return ReproductionResult(frame, claims=claims_of_table2(frame), remarks=remarks)


def _completed(measurements: Measurements, note: str) -> str:
    """Return the first remark: rounds of each run, and the rounds that count."""
    lengths = [f"{line[0].upper()}{line[1:]}." for line in measurements.setting.differs]
    return " ".join([*lengths, f"Only completed rounds count; {note}."])


OR = {"by": ["latency", "loss"], "combine": "or", "exclude": 0.2}
"""The paper's choice among its strategies (section 5.3)."""

INFORMED_SELECTIONS: dict[str, dict[str, Any]] = {
    "Oort": {"protocol": "oort"},
    "Cli-Ctr": {"protocol": "lotto-client-centric", "refine": OR, "server_verifies": "none"},
    VERIFIED: {"protocol": "lotto-client-centric", "refine": OR},
    "Srv-Ctr": {"protocol": "lotto-server-centric", "refine": OR},
}


def measure_table3(context: ReproductionContext) -> Measurements:
    """Run Table 3 at the context's scale."""
    return measure(context, INFORMED_SCALES[context.scale], INFORMED_SELECTIONS)


def conclude_table3(measurements: Measurements) -> ReproductionResult:
    """Compare every cell with Table 3, and the cells with appendix C."""
    frame = overhead_table(measurements.tables["rounds"], TABLE_3)
    remarks = [
        _completed(measurements, "in the first, nothing is known about any client yet, and no client is refined away"),
        "Lotto refines by 'or' at 20%, on response times that the server measures and losses that clients report. "
        "All devices are equally fast here, and all clients have equal samples, so that rows differ in the cost of "
        "selection, not in the selected clients; for those see lotto-fig9. For this reason the measured overheads are "
        "those of Table 2, compared with another measurement of the paper.",
        *remarks_of(frame),
    ]
    return ReproductionResult(frame, claims=claims_of_table3(frame), remarks=remarks)


REPRODUCTIONS = (
    Reproduction(
        "lotto-table2",
        "Time and traffic of a round with random selection: Rand, client-centric and server-centric Lotto",
        "Jiang et al., Lotto, arXiv 2401.02880, Table 2",
        measure=measure_table2,
        conclude=conclude_table2,
    ),
    Reproduction(
        "lotto-table3",
        "Time and traffic of a round with informed selection: Oort, client-centric and server-centric Lotto",
        "Jiang et al., Lotto, arXiv 2401.02880, Table 3",
        measure=measure_table3,
        conclude=conclude_table3,
    ),
)
