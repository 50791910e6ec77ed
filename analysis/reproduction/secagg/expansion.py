"""SecAgg's traffic relative to updates in the clear, compared with the two expansions in the paper's abstract.

Bonawitz et al., Practical Secure Aggregation, CCS 2017 (IACR ePrint 2017/281): for 16-bit inputs 1.73 times at 2**10
users and 2**20-dimensional vectors, 1.98 times at 2**14 and 2**24, both directions together. A client's bytes are
linear in its peers and in the coordinates. The bytes of peers are measured in real rounds with real shares, up to half
of 2**10 users (all of them at scale paper). A vector of another length differs only in the packed bits of its
coordinates.

Most of an expansion is unavoidable: a coordinate of the masked vector has the bits of the sum, 26 instead of 16 at
2**10 users, which is 1.625 times. The overhead is the rest of the expansion: keys and shares.
"""

from dataclasses import dataclass

import pandas as pd

from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.experiments import declared
from analysis.reproduction.verdicts import PaperClaim, within_factor
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords

PUBLISHED = {(2**10, 2**20): 1.73, (2**14, 2**24): 1.98}
"""Ratio to the inputs in the clear, by (users, coordinates)."""
INPUT_BITS = 16
MARGIN = 1.25
"""Largest factor between our overhead and the paper's: a quarter for framing and for the encryption of shares, which
the paper's sum of keys and shares leaves out."""
PAPER_VALUES, VALUE_BYTES = 7, 32
"""Keys and shares that a client exchanges for each peer in the paper's sum (two keys, five shares), and their bytes."""

SIZES = {"small": (64, 128, 256, 512), "paper": (64, 128, 256, 512, 1024)}
SEED = 1
_VECTOR_STAGE = "secagg/masked-input"
_COORDINATES = 650  # of the model of these runs: digits, logistic regression


@dataclass(frozen=True)
class ExpansionTraffic:
    """Mean traffic of a client in the stages of SecAgg.

    Attributes:
        users: s.
        down: bytes that the client receives.
        up: bytes that the client sends.
        vector_bits: bits of a coordinate in the masked vector.
    """

    users: int
    down: float
    up: float
    vector_bits: int

    @property
    def beside_vector(self) -> float:
        """Bytes of everything but the masked coordinates."""
        return self.down + self.up - self.vector_bits * _COORDINATES / 8

    def expansion(self, users: int, coordinates: int) -> float:
        """Return the ratio to the inputs in the clear, for other numbers of users and coordinates.

        Args:
            users: number of users; a sum of more users takes more bits.
            coordinates: number of coordinates.
        """
        return unavoidable(users) + self.overhead(users, coordinates)

    def overhead(self, users: int, coordinates: int) -> float:
        """Return the expansion without that of the masked vector: bytes of keys and shares over those of the inputs.

        Args:
            users: number of users.
            coordinates: number of coordinates.
        """
        return _over_inputs(self.beside_vector * users / self.users, coordinates)


def unavoidable(users: int) -> float:
    """Return the expansion of the masked vector alone: bits of the sum over bits of an input.

    Example:
        >>> unavoidable(1024)
        1.625
    """
    return ring_bits(users) / INPUT_BITS


def overhead_of_paper(users: int, coordinates: int) -> float:
    """Return the overhead by the paper's own sum (section 7.1, table 1), to which its two expansions are rounded.

    Args:
        users: number of users.
        coordinates: number of coordinates.

    Example:
        >>> round(unavoidable(1024) + overhead_of_paper(1024, 2**20), 2)
        1.73
    """
    return _over_inputs(PAPER_VALUES * VALUE_BYTES * users, coordinates)


def _over_inputs(size: float, coordinates: int) -> float:
    return size / (INPUT_BITS * coordinates / 8)


def ring_bits(users: int) -> int:
    """Return the bits of a sum over this number of users, in the paper's ring."""
    return INPUT_BITS + (users - 1).bit_length()


def experiment(users: int, consistency: str) -> Experiment:
    """Return a round of SecAgg among all users.

    Args:
        users: s.
        consistency: key `aggregation.consistency`.
    """
    return declared(
        f"expansion, {users} users, consistency {consistency}",
        """
        rounds: 1
        workload: {dataset: digits, model: logistic, partition: {scheme: overlapping}, samples_per_client: 2,
          batch_size: 2}
        selection: {protocol: random}
        aggregation: {protocol: secagg, weights: equal, threshold: 0.7}
        """,
        {
            "seed": SEED,
            "population": users,
            "selection.participants": users,
            "aggregation": {"bits": ring_bits(users), "levels_bits": INPUT_BITS, "consistency": consistency},
        },
    )


def stage_bytes(run: RunRecords) -> pd.DataFrame:
    """Return a client's mean bytes in each stage of SecAgg, without the stages before it (one of them sends the model).

    Args:
        run: records of the run.

    Returns:
        Columns stage, down and up, each with the look-ups at the PKI.
    """
    rows = run.exchanges[run.exchanges["stage"].str.startswith("secagg/")]
    clients = rows["client"].nunique()
    sums = (
        rows.groupby("stage", sort=False)[["bytes_down", "bytes_up", "pki_bytes_down", "pki_bytes_up"]].sum() / clients
    )
    return pd.DataFrame(
        {
            "stage": sums.index,
            "down": (sums["bytes_down"] + sums["pki_bytes_down"]).to_numpy(),
            "up": (sums["bytes_up"] + sums["pki_bytes_up"]).to_numpy(),
        }
    )


def measure_expansion(context: ReproductionContext) -> Measurements:
    """Run rounds of both variants, and take their bytes by stage."""
    tables = []
    sizes = SIZES["small" if context.scale == "small" else "paper"]
    for consistency in _SURVIVORS:
        for users in sizes:
            context.progress(f"{users} users, consistency {consistency}")
            name = f"{consistency}-{users}"
            (run,) = context.run_experiment(experiment(users, consistency), context.out / "runs" / name)
            tables.append(stage_bytes(run).assign(consistency=consistency, users=users, seed=SEED))
    return Measurements(
        Setting(
            "none",
            seeds=[SEED],
            sizes={"largest users": max(sizes), "coordinates": _COORDINATES, "input bits": INPUT_BITS, "rounds": 1},
            differs=[
                f"updates of {_COORDINATES} coordinates; the bytes of longer ones follow from the bits of a coordinate",
                *(
                    f"up to {max(sizes):,} users instead of {users:,}; bytes grow with the number of peers"
                    for users, _ in PUBLISHED
                    if users > max(sizes)
                ),
            ],
        ),
        {"stages": pd.concat(tables, ignore_index=True)},
    )


def conclude_expansion(measurements: Measurements) -> ReproductionResult:
    """Extrapolate to the paper's sizes, and compare the overheads."""
    stages = measurements.tables["stages"]
    sums = stages.groupby(["consistency", "users"])[["down", "up"]].sum().reset_index()
    rows = [
        _row(consistency, ExpansionTraffic(users, down, up, ring_bits(users)))
        for consistency, users, down, up in sums.itertuples(index=False)
    ]
    frame = pd.DataFrame.from_records(rows)
    return ReproductionResult(
        frame,
        claims=claims(frame),
        remarks=[
            f"bytes a peer: everything but the masked coordinates (of which each run has {_COORDINATES}), over s - 1. "
            f"The paper's own sum has {PAPER_VALUES} keys or shares of {VALUE_BYTES} bytes for each, "
            f"{PAPER_VALUES * VALUE_BYTES} bytes.",
            "overhead: the expansion without that of the masked vector, whose coordinates have the bits of the sum "
            f"({unavoidable(1024):g} times at 1,024 users). The paper's: by its own sum.",
            f"By stage, bytes a peer at {int(stages['users'].max()):,} users: {_by_stage(stages)}.",
            "Counted are the stages of SecAgg in both directions, with the look-ups at the PKI, as encoded, before "
            "TCP. The broadcast of the model is not counted, as in the paper.",
            "Judged by the variant without signed survivors: the paper's sum has no signatures. Keys are signed in "
            "both here.",
        ],
    )


_SURVIVORS = {"none": "on the server's word", "signed": "signed"}
"""Word in the table for each consistency."""


def _row(consistency: str, of_run: ExpansionTraffic) -> dict[str, object]:
    # The overhead is the same at both sizes: they have equally many coordinates for each user.
    size = next(iter(PUBLISHED))
    return {
        "survivors": _SURVIVORS[consistency],
        "users": of_run.users,
        "down, kB": of_run.down / 1000,
        "up, kB": of_run.up / 1000,
        "bytes a peer": of_run.beside_vector / (of_run.users - 1),
        **{_column(n, d): of_run.expansion(n, d) for n, d in PUBLISHED},
        "overhead": of_run.overhead(*size),
        "overhead (paper)": overhead_of_paper(*size),
    }


def _by_stage(stages: pd.DataFrame) -> str:
    """Return the bytes a peer in each stage of the largest round without signed survivors, without the vector."""
    largest = stages[(stages["users"] == stages["users"].max()) & (stages["consistency"] == "none")]
    users = int(largest["users"].iloc[0])
    parts = []
    for stage, down, up in largest[["stage", "down", "up"]].itertuples(index=False):
        vector = ring_bits(users) * _COORDINATES / 8 if stage == _VECTOR_STAGE else 0.0
        parts.append(f"{stage} {down / (users - 1):.0f} down, {(up - vector) / (users - 1):.0f} up")
    return "; ".join(parts)


def _column(users: int, coordinates: int) -> str:
    return f"× at {users:,} users, 2^{coordinates.bit_length() - 1} coordinates"


def claims(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims on the two expansions of the abstract, by the largest rounds that were run.

    Args:
        frame: one row per variant and number of users, as `conclude_expansion` makes it.
    """
    return [_claim(*size, paper, frame) for size, paper in PUBLISHED.items()]


def _claim(users: int, coordinates: int, paper: float, frame: pd.DataFrame) -> PaperClaim:
    largest = {name: frame[frame["survivors"] == word].iloc[-1] for name, word in _SURVIVORS.items()}
    column, theirs = _column(users, coordinates), overhead_of_paper(users, coordinates)
    factors = {name: float(row[column]) for name, row in largest.items()}
    overhead = factors["none"] - unavoidable(users)
    measured = int(largest["none"]["users"])
    how = "measured" if users <= measured else f"by the bytes a peer at {measured:,}"
    return PaperClaim(
        f"{paper} times the traffic of inputs of {INPUT_BITS} bits in the clear, {users:,} users and "
        f"2^{coordinates.bit_length() - 1} coordinates",
        f"{factors['none']:.3f}; {factors['signed']:.3f} with signed survivors ({how}). Beyond the "
        f"{unavoidable(users):g} of the masked vector: {overhead:.3f}, {overhead / theirs:.2f} times the paper's "
        f"{theirs:.3f}",
        [within_factor("overhead beyond the masked vector", overhead, theirs, MARGIN)],
        uses_data=False,
    )


REPRODUCTIONS = (
    Reproduction(
        "secagg-expansion",
        "SecAgg: traffic over that of sending updates in the clear",
        "Bonawitz et al., CCS 2017, IACR ePrint 2017/281, abstract",
        measure=measure_expansion,
        conclude=conclude_expansion,
    ),
)
