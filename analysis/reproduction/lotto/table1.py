"""Lotto's Table 1 measured: growth of computation and communication with the population and with the participants.

Jiang et al., arXiv 2401.02880, section 3.4. The paper derives orders. Here rounds of doubling sizes are run, and the
exponent follows from the increments, so that a round's constant part does not count. Informed selection adds the
refinement of the population, which no cost table charges: its CPU time is measured.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
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
from analysis.reproduction.lotto.published import PAPER
from analysis.reproduction.verdicts import PaperClaim, plus_minus, within
from analysis.statistics import mean_interval
from testbed.engine.calibration import seconds_per_call
from testbed.experiment.schema import Experiment
from testbed.records import RunRecords
from testbed.selection.lotto.refinement import Refinement, refined_population

VARIANTS: dict[str, dict[str, Any]] = {
    "Client-Centric": {"protocol": "lotto-client-centric", "server_verifies": "none"},
    "Client-Centric, server verifies": {"protocol": "lotto-client-centric"},
    "Server-Centric": {"protocol": "lotto-server-centric"},
}
SIZES: dict[str, dict[str, Sequence[tuple[int, int]]]] = {
    "small": {
        "n": [(250, 20), (500, 20), (1000, 20), (2000, 20)],
        "s": [(1000, 10), (1000, 20), (1000, 40), (1000, 80)],
    },
    "paper": {
        "n": [(2500, 20), (5000, 20), (10_000, 20), (20_000, 20)],
        "s": [(10_000, 20), (10_000, 40), (10_000, 80), (10_000, 160)],
    },
}
"""Sizes (n, s) by scale and by the size that is doubled."""

POPULATIONS = tuple(population for population, _ in SIZES["paper"]["n"])
"""Doubling populations of the refinement. Above 40,000 clients the arrays leave the processor's cache: time per client
then doubles once, which is no growth of the work."""

BATCHES = 5
"""Number of measurements of each population's refinement."""

ROUNDS = 5
MEASURES = ("server compute s", "server bytes", "participant compute s", "participant bytes")

FLAT = 0.02
"""Share of its value by which a measure may differ over all sizes and still count as constant: numbers take a byte more
or less."""

MARGIN = 0.25
"""Distance of a measured exponent from the order's that still agrees: at finite sizes it includes lower powers and
chance."""

TABLE_1: dict[str, dict[str, tuple[int, int]]] = {
    "Client-Centric": {
        "server compute s": (0, 0),
        "server bytes": (1, 2),
        "participant compute s": (0, 1),
        "participant bytes": (0, 1),
    },
    "Server-Centric": {
        "server compute s": (1, 0),
        "server bytes": (0, 2),
        "participant compute s": (0, 1),
        "participant bytes": (0, 1),
    },
}
"""Exponents of n and of s for random selection."""

_ORDERS = {(0, 0): "O(1)", (1, 0): "O(n)", (0, 1): "O(s)", (0, 2): "O(s²)", (1, 2): "O(n + s²)"}


def experiment(selection: Mapping[str, Any], population: int, participants: int) -> Experiment:
    """Return rounds with hardly any work but selection.

    Args:
        selection: section `selection`, without the participants.
        population: n.
        participants: s.
    """
    return declared(
        f"{selection['protocol']}, n = {population}, s = {participants}",
        """
        seed: 1
        workload: {dataset: synthetic-femnist, model: logistic, training: simulated, samples_per_client: 5,
          test_samples: 100}
        aggregation: {protocol: plain}
        time: {costs: {train.parameter_example: 0.0, float.add.element: 0.0}}
        """,
        {
            "rounds": ROUNDS,
            "population": population,
            "workload.evaluate_every": ROUNDS,
            "selection": {"participants": participants, **selection},
        },
    )


def measured(run: RunRecords) -> dict[str, float]:
    """Return the mean cost of selection in a completed round, by `MEASURES`.

    The server's compute is that of the whole round.
    """
    rounds = run.rounds[run.rounds["outcome"] == "completed"]
    rows = run.exchanges[run.exchanges["round"].isin(rounds["round"])]
    chosen = rows[rows["stage"].astype(str).str.startswith(("lotto/", "check-in"))]
    taking_part = run.participation[["round", "client"]].merge(rounds[["round"]], on="round")
    own = chosen.merge(taking_part, on=["round", "client"])
    bytes_of = ["bytes_down", "bytes_up", "pki_bytes_down", "pki_bytes_up"]
    return {
        "server compute s": float(rounds["server_compute_s"].mean()),
        "server bytes": float(chosen[bytes_of[:2]].to_numpy().sum() / len(rounds)),
        "participant compute s": float(own["compute_s"].sum() / len(taking_part)),
        "participant bytes": float(own[bytes_of].to_numpy().sum() / len(taking_part)),
    }


def exponent(values: Sequence[float]) -> float:
    """Return p of c + b x**p from values at doubling x: the increments' mean logarithm of growth; 0 without growth.

    Args:
        values: three or more values, at x, 2x, 4x, ...
    """
    if max(values) - min(values) <= FLAT * max(values):  # else noise would look like growth
        return 0.0
    # Increments drop the constant part: c + b x**p would else look flatter than it is.
    increments = [later - earlier for earlier, later in pairwise(values)]
    if min(increments) <= 0:  # no steady growth: take the growth from end to end
        return math.log2(values[-1] / values[0]) / (len(values) - 1)
    return math.log2(increments[-1] / increments[0]) / (len(increments) - 1)


def refinement_s(population: int) -> float:
    """Return the CPU seconds of one refinement by 'or' of a population in which everybody was measured.

    Args:
        population: n.
    """
    random = np.random.default_rng(population)
    latency_s, quality = random.exponential(size=population), random.exponential(size=population)
    rule = Refinement()
    return seconds_per_call(lambda: refined_population(rule, latency_s, quality), 1)


def measure_table1(context: ReproductionContext) -> Measurements:
    """Run every size, and time the refinement."""
    rows = []
    for variant, selection in VARIANTS.items():
        for doubled, sizes in SIZES[context.scale].items():
            for population, participants in sizes:
                context.progress(f"{variant}, n = {population}, s = {participants}")
                folder = f"{variant}-{population}-{participants}".lower().replace(", ", "-").replace(" ", "-")
                runs = context.run_experiment(
                    experiment(selection, population, participants), context.out / "runs" / folder
                )
                costs = measured(runs[0])
                rows.append({"variant": variant, "doubled": doubled, "n": population, "s": participants, **costs})
    context.progress("refinement of populations")
    refinements = [
        {"batch": batch, "n": population, "server compute s": refinement_s(population)}
        for batch in range(1, BATCHES + 1)
        for population in POPULATIONS
    ]
    return Measurements(
        Setting("none", "", [1], {"rounds": ROUNDS}),
        {"sizes": pd.DataFrame(rows), "refinement": pd.DataFrame(refinements)},
    )


def conclude_table1(measurements: Measurements) -> ReproductionResult:
    """Fit the exponents, and compare them with the orders."""
    frame, refinement = measurements.tables["sizes"], measurements.tables["refinement"]
    medians = refinement.groupby("n")["server compute s"].median()
    informed = pd.DataFrame(
        {"variant": "Informed, refinement", "doubled": "n", "n": medians.index, "server compute s": medians.to_numpy()}
    )
    return ReproductionResult(
        pd.concat([frame, informed], ignore_index=True),
        claims=[*claims(frame), informed_claim(refinement)],
        remarks=[
            f"Means of the completed ones of {int(measurements.setting.sizes['rounds'])} rounds. Bytes are those of "
            "selection; a server's compute is that of the whole round, of which training and sums are charged nothing.",
            "Server-Centric begins with a check-in of the population, which the paper leaves to the framework: n "
            "messages.",
            "Every server here verifies the signatures of the s participants, which the paper's only passes on: its "
            "compute grows with s.",
            "A participant's bytes include its look-ups at the PKI.",
            "Informed selection refines the population and then draws as random selection does. The refinement's "
            "compute is CPU time of this machine, with everybody measured; the other compute follows from the table "
            "of costs, which charges nothing for the refinement.",
        ],
    )


def informed_claim(refinement: pd.DataFrame) -> PaperClaim:
    """Claim the O(n) computation that informed selection adds to the server.

    Args:
        refinement: columns batch, n and ``server compute s``; doubling sizes in ascending order in each batch.
    """
    exponents = mean_interval(
        [exponent(of_batch["server compute s"].tolist()) for _, of_batch in refinement.groupby("batch")]
    )
    longest = refinement.loc[refinement["n"] == refinement["n"].max(), "server compute s"].median()
    return PaperClaim(
        "Informed: the server's computation is O(n)",
        f"the refinement grows with n to the power of {plus_minus(exponents, '.2f')}; "
        f"{1e3 * longest:.2f} ms for {refinement['n'].max():,} clients",
        [within("exponent of n", exponents, 1, MARGIN)],
        seeds=int(refinement["batch"].nunique()),
    )


def claims(frame: pd.DataFrame) -> list[PaperClaim]:
    """Return the claims of Table 1's row of random selection, entry by entry.

    Args:
        frame: columns variant, doubled and `MEASURES`; the sizes of each variant in ascending order.
    """
    made = []
    for variant, orders in TABLE_1.items():
        for measure, (of_n, of_s) in orders.items():
            n, s = (exponent(_sizes(frame, variant, doubled)[measure].tolist()) for doubled in ("n", "s"))
            quantity = measure.replace(" compute s", "'s computation").replace(" bytes", "'s communication")
            made.append(
                PaperClaim(
                    f"{variant}: the {quantity} is {_ORDERS[of_n, of_s]}",
                    f"grows with n to the power of {n:.2f}, with s to that of {s:.2f}",
                    [within("exponent of n", n, of_n, MARGIN), within("exponent of s", s, of_s, MARGIN)],
                )
            )
    return made


def _sizes(frame: pd.DataFrame, variant: str, doubled: str) -> pd.DataFrame:
    return frame[(frame["variant"] == variant) & (frame["doubled"] == doubled)]


REPRODUCTIONS = (
    Reproduction(
        "lotto-table1",
        "How computation and communication grow with n and s",
        f"{PAPER}, Table 1",
        measure=measure_table1,
        conclude=conclude_table1,
    ),
)
