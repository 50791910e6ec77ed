"""A participant's time in Lotto's Table 2, measured by stage and by operation (arXiv 2401.02880, section 5.2).

Rounds run with measured compute: this machine's CPU time of the real client code, with real training of FEMNIST's CNN.
A participant's time in a round is the sum of its compute, its transfers, and its waiting between the answer to one
question and the next question. Single operations are timed besides.

The paper's participants need more time under client-centric Lotto than the proofs of the authors' code take. The rest
is computed from the paper's cells.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.lotto import published as paper
from analysis.reproduction.lotto.overhead import DATASETS, LATENCY_MS, RING_BITS
from analysis.reproduction.verdicts import PaperClaim, between, plus_minus
from analysis.statistics import mean_interval
from testbed.crypto import masks, signatures, vrf
from testbed.crypto.key_agreement import PrivateKey
from testbed.engine.calibration import seconds_per_call
from testbed.experiment.schema import Experiment
from testbed.messages import decode, encode
from testbed.records import RunRecords
from testbed.selection.lotto.messages import ParticipantEntry, ParticipantList

ROUNDS = {"small": 2, "paper": 50}
BATCHES = 5
"""Number of measurements of each operation."""

LIGHTWEIGHT = 10.0
"""Percent: "at most 10% runtime overhead" (section 5)."""

_LOTTO = "lotto/"


def experiment(rounds: int, population: int) -> Experiment:
    """Return rounds of Table 2's FEMNIST under client-centric Lotto, with measured compute.

    The rounds under Rand are the same without the stages of Lotto.

    Args:
        rounds: number of rounds.
        population: n, of the paper's three.
    """
    return declared(
        f"a participant's time, {population}",
        "{seed: 1, workload: {test_samples: 200}, time: {compute: measured, deadline_s: 86400.0}}",
        {
            "rounds": rounds,
            "population": population,
            "workload": {
                "dataset": DATASETS["FEMNIST"],
                "samples_per_client": paper.SAMPLES["FEMNIST"],
                "epochs": paper.EPOCHS["FEMNIST"],
                "batch_size": paper.BATCH_SIZE,
                "learning_rate": paper.LEARNING_RATES["FEMNIST"],
                "evaluate_every": rounds,
            },
            "selection": {
                "protocol": "lotto-client-centric",
                "server_verifies": "none",
                "participants": paper.PARTICIPANTS[population],
            },
            "aggregation": {"protocol": "secagg", "threshold": 0.7, "bits": RING_BITS},
            "devices": {"model": "constant", "factor": 1.0},
            "links": {**paper.LINKS, "latency_ms": LATENCY_MS},
        },
    )


def stages_of(run: RunRecords) -> pd.DataFrame:
    """Return a participant's mean seconds in each stage of each completed round.

    Returns:
        Columns round, stage, compute_s, transfer_s, waiting_s (between the last answer and this question), bytes_down
        and bytes_up. The seconds of a round sum to the participants' mean time, from first question to last answer.
    """
    completed = run.rounds.loc[run.rounds["outcome"] == "completed", "round"]
    rows = run.exchanges_of_participants
    rows = rows[rows["as_participant"] & rows["round"].isin(completed)].sort_values(["round", "client", "sent_s"])
    before = rows.groupby(["round", "client"])["received_s"].shift()
    frame = rows[["round", "stage", "compute_s", "bytes_down", "bytes_up"]].assign(
        transfer_s=rows["received_s"] - rows["sent_s"] - rows["compute_s"],
        waiting_s=(rows["sent_s"] - before).fillna(0.0),
    )
    clients = rows.groupby("round")["client"].nunique()
    sums = frame.groupby(["round", "stage"], observed=True, sort=False).sum().reset_index()
    columns = ["compute_s", "transfer_s", "waiting_s", "bytes_down", "bytes_up"]
    return sums[["round", "stage"]].join(sums[columns].div(sums["round"].map(clients), axis=0))


def operations(participants: int) -> Iterator[tuple[str, float, Any, int]]:
    """Yield the operations of a participant: name, count in a round, call, and units of a call.

    Args:
        participants: s.
    """
    seed, message = bytes(range(32)), bytes(80)
    secret, signing, own = (
        vrf.SecretKey.from_seed(seed),
        signatures.SigningKey.from_seed(seed),
        PrivateKey.from_seed(seed),
    )
    output, proof = secret.prove(message)
    signature = signing.sign(b"profile", message)
    peer = PrivateKey.from_seed(bytes(32)).public
    elements = np.zeros(paper.PARAMETERS["FEMNIST"], np.uint32)
    entries = [ParticipantEntry(client, signing.public, output, proof) for client in range(participants)]
    encoded = encode(ParticipantList(1, 10 * participants, entries))
    yield "VRF output", 1, lambda: secret.output(message), 1
    yield "VRF proof", 1, lambda: secret.prove(message), 1
    yield "VRF verification", participants - 1, lambda: vrf.verify(secret.public, message, proof), 1
    yield "decoding of a list of s proofs", 1, lambda: decode(ParticipantList, encoded), 1
    yield (
        "verification of a signature",
        participants,
        (lambda: signatures.verify(signing.public, b"profile", message, signature)),
        1,
    )
    yield "key agreement", 2 * (participants - 1), lambda: own.agree(peer, b"profile"), 1
    yield (
        "element of a mask",
        participants * len(elements),
        lambda: masks.add_masks(elements, [seed], [1], RING_BITS),
        len(elements),
    )


def measure_participant_time(context: ReproductionContext) -> Measurements:
    """Run rounds with measured compute, and time the operations of a participant."""
    rounds = ROUNDS[context.scale]
    stages, timed = [], []
    for population, participants in paper.PARTICIPANTS.items():
        context.progress(f"{population} clients: {rounds} rounds with measured compute")
        (run,) = context.run_experiment(experiment(rounds, population), context.out / "runs" / f"measured-{population}")
        stages.append(stages_of(run).assign(participants=participants))
        for name, count, call, units in operations(participants):
            seconds = [seconds_per_call(call, 1) / units for _ in range(BATCHES)]
            timed += [
                {"participants": participants, "operation": name, "count": int(count), "batch": batch, "unit_s": unit_s}
                for batch, unit_s in enumerate(seconds, 1)
            ]
    table = pd.concat(stages, ignore_index=True)
    leading = ["participants", "round", "stage"]
    return Measurements(
        Setting(
            "stand-in",
            f"generated ({DATASETS['FEMNIST']})",
            [1],
            {"rounds": rounds, "latency_ms": LATENCY_MS},
            ["code and machine: this testbed's on this machine, not the authors' Python on c5.xlarge"],
        ),
        {"stages": table[[*leading, *table.columns.drop(leading)]], "operations": pd.DataFrame(timed)},
    )


def conclude_participant_time(measurements: Measurements) -> ReproductionResult:
    """Show a participant's time by part, and compare the paper's extra time with the proofs."""
    stages, timed = measurements.tables["stages"], measurements.tables["operations"]
    return ReproductionResult(
        _by_part(stages, timed),
        claims=[lightweight(stages), _cause()],
        remarks=[
            "Means over participants and completed rounds; seconds of CPU time of this machine, and of transfers at 44 "
            f"Mbit/s and {LATENCY_MS:g} ms each way. Waiting is the time from an answer to the next question: the "
            "server waits for the last participant of a stage, and computes.",
            "Rows 'operation' are timed by themselves, and multiplied by their count in a round. They explain the "
            "compute of the stages; the rest of a stage is the testbed's Python.",
            _operations_of_selection(stages, timed),
            _rest(),
        ],
    )


def _selection_share(stages: pd.DataFrame, participants: int) -> list[float]:
    """Return the percent that selection adds to the rest of a participant's compute, by round."""
    rows = stages[stages["participants"] == participants]
    selection = rows[rows["stage"].str.startswith(_LOTTO)].groupby("round")["compute_s"].sum()
    rest = rows.groupby("round")["compute_s"].sum() - selection
    return [100 * float(share) for share in selection / rest]


def lightweight(stages: pd.DataFrame) -> PaperClaim:
    """Claim that selection is at most a tenth of a participant's compute.

    Args:
        stages: columns participants, round, stage and compute_s.
    """
    shares = {s: mean_interval(_selection_share(stages, s)) for s in paper.PARTICIPANTS.values()}
    return PaperClaim(
        "Lotto is built on lightweight security primitives: at most 10% more of a participant's work",
        "selection adds "
        + ", ".join(f"{plus_minus(share, '.1f')}%" for share in shares.values())
        + f" to a participant's measured compute at {', '.join(map(str, shares))} participants",
        [
            between(f"% of the compute without selection, s = {s}", share, most=LIGHTWEIGHT)
            for s, share in shares.items()
        ],
        seeds=int(stages["round"].nunique()),
        uses_data=False,
    )


def extra_times() -> pd.DataFrame:
    """Return the paper's extra seconds under Cli-Ctr in Table 2, by application and population.

    Returns:
        Columns application, population, participants, participant_s (extra), server_s (extra round time), proofs_s
        (predicted) and rest_s.
    """
    rows = []
    for application in paper.APPLICATIONS:
        for population, participants in paper.PARTICIPANTS.items():
            ours, base = (paper.TABLE_2[application, population, name] for name in ("Cli-Ctr", "Rand"))
            extra_s, proofs_s = 60 * (ours.client_min - base.client_min), paper.proofs_s(participants)
            rows.append(
                {
                    "application": application, "population": population, "participants": participants,
                    "participant_s": extra_s, "server_s": 60 * (ours.server_min - base.server_min),
                    "proofs_s": proofs_s, "rest_s": extra_s - proofs_s,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _cause() -> PaperClaim:
    extra = extra_times()
    by_application = "; ".join(
        f"{name}: {_joined(rows['rest_s'], '.0f')} of {_joined(rows['participant_s'], '.0f')} s"
        for name, rows in extra.groupby("application", sort=False)
    )
    shares = extra["proofs_s"] / extra["participant_s"]
    return PaperClaim(
        "Cli-Ctr takes participants up to 40% more time because selection is offloaded to them",
        f"proofs and their verification take {_joined(extra['proofs_s'].unique(), '.1f')} s in the authors' code, "
        f"{100 * shares.min():.0f} to {100 * shares.max():.0f}% of the extra time; unexplained at 100, 400 and 700 "
        f"clients: {by_application}",
        undetermined="a profile of the authors' client, and its definition of a participant's time",
        uses_data=False,
    )


def _joined(values: Any, form: str) -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def _rest() -> str:
    """Return two properties of the unexplained rest in the paper's cells."""
    extra = extra_times()
    off_path = int((extra["participant_s"] > extra["server_s"]).sum())
    elements = extra["application"].map(paper.PARAMETERS).astype(float)
    per_parameter = 1e6 * extra["rest_s"] / elements
    largest = extra["participants"] == max(paper.PARTICIPANTS.values())
    return (
        "The unexplained rest in the paper's cells: it grows with the model, by "
        f"{_joined(per_parameter[largest], '.0f')} us per parameter at 700 clients ({', '.join(paper.APPLICATIONS)}), "
        "while proofs do not depend on the model. "
        f"In {off_path} of {len(extra)} cells the round at the server is lengthened by less than the participant's "
        "time: this part of the rest is no work for which the server waits."
    )


def _operations_of_selection(stages: pd.DataFrame, timed: pd.DataFrame) -> str:
    rows = stages[stages["stage"] == "lotto/participants"]
    texts = []
    for participants, of_it in rows.groupby("participants"):
        proofs = timed[(timed["participants"] == participants) & (timed["operation"] == "VRF verification")]
        verified_s = float(proofs["unit_s"].median()) * float(proofs["count"].iloc[0])
        texts.append(f"{1e3 * verified_s:.1f} of {1e3 * float(of_it['compute_s'].mean()):.1f} ms")
    return (
        "Of the compute of stage lotto/participants, s - 1 verifications of proofs take "
        f"{', '.join(texts)} at {', '.join(map(str, paper.PARTICIPANTS.values()))} participants."
    )


def _by_part(stages: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each part of a participant's time, with columns for 10, 40 and 70 participants."""
    rows: list[dict[str, Any]] = []

    def add(part: str, kind: str, seconds: pd.Series) -> None:
        columns = {f"ms, s = {s}": 1e3 * float(seconds.get(s, np.nan)) for s in paper.PARTICIPANTS.values()}
        rows.append({"part": part, "kind": kind, **columns})

    means = stages.groupby(["stage", "participants"], sort=False).mean(numeric_only=True)
    for stage in stages["stage"].unique():
        add(stage, "compute", means["compute_s"][stage])
    of_round = stages.groupby(["participants", "round"])[["compute_s", "transfer_s", "waiting_s"]].sum()
    of_all = of_round.groupby("participants").mean()
    add("all stages", "compute", of_all["compute_s"])
    add("all stages", "transfers", of_all["transfer_s"])
    add("all stages", "waiting", of_all["waiting_s"])
    add("all stages", "time of a participant", of_all.sum(axis=1))
    units = timed.groupby(["operation", "participants"], sort=False)
    spent = units["unit_s"].median() * units["count"].first()
    for operation in timed["operation"].unique():
        add(operation, "operation", spent[operation])
    return pd.DataFrame(rows)


REPRODUCTIONS = (
    Reproduction(
        "lotto-participant-time",
        "A participant's time in Table 2, measured by stage and operation, and the paper's unexplained rest",
        f"{paper.PAPER}, Table 2 and section 5.2",
        built_in_data="stand-in",
        measure=measure_participant_time,
        conclude=conclude_participant_time,
    ),
)
