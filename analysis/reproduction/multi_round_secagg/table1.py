"""Multi-RoundSecAgg's Table 1: number of sets of users that a scheme can choose.

So et al., Securing Secure Aggregation, arXiv 2106.03328, sections 4 to 6; N = 120, K = 12.
"""

from math import factorial

import pandas as pd

from analysis.bounds.batch_partition import family_size
from analysis.reproduction.contract import (
    Measurements,
    Reproduction,
    ReproductionContext,
    ReproductionResult,
    Setting,
)
from analysis.reproduction.multi_round_secagg import published as paper
from analysis.reproduction.verdicts import PaperClaim, equal, within_factor

TABLE_1 = {
    paper.RANDOM: (1, "~10^16"),
    paper.WEIGHTED: (1, "~10^16"),
    paper.PARTITION: (12, "10"),
    "batch-partition, T = 6": (6, "190"),
    "batch-partition, T = 4": (4, "4060"),
    "batch-partition, T = 3": (3, "91389"),
}
"""T of each scheme, and the family size that the paper prints."""

_COLUMN = "n! / r! / (n-r)! in floats"


def _in_floats(count: int, chosen: int) -> float:
    """Return a binomial coefficient as `nCr` in utils/functions.py of the public code computes it."""
    return factorial(count) / factorial(chosen) / factorial(count - chosen)


def measure_table1(context: ReproductionContext) -> Measurements:
    """Compute the family sizes in integers, and as the public code does."""
    users, selected = paper.POPULATION, paper.PARTICIPANTS
    rows = [
        {
            "scheme": name,
            "T": privacy,
            "family size": family_size(users, selected, privacy),
            _COLUMN: _in_floats(users // privacy, selected // privacy),
        }
        for name, (privacy, _) in TABLE_1.items()
    ]
    sizes = {"population": users, "participants": selected}
    return Measurements(Setting("none", sizes=sizes), {"sizes": pd.DataFrame(rows)})


def conclude_table1(measurements: Measurements) -> ReproductionResult:
    """Compare exact integers with the paper's."""
    frame = measurements.tables["sizes"].copy()
    frame["family size (paper)"] = [TABLE_1[name][1] for name in frame["scheme"]]
    return ReproductionResult(
        frame.drop(columns=_COLUMN),
        claims=claims(frame),
        remarks=[
            "By formula: R = C(N/T, K/T), in integers. The public code takes the integer part of n! / r! / (n-r)!, two "
            "divisions of floating-point numbers (nCr in utils/functions.py)."
        ],
    )


def claims(frame: pd.DataFrame) -> list[PaperClaim]:
    """Compare the family sizes with the printed ones.

    Args:
        frame: one row per scheme, as `measure_table1` makes it.
    """
    rows = {str(row["scheme"]): row for _, row in frame.iterrows()}
    random = int(rows[paper.RANDOM]["family size"])
    return [
        PaperClaim(
            "random selection has about 10^16 sets",
            f"C(120, 12) = {random:,} = {random:.2e}",
            [within_factor("sets", float(random), 1e16, 2)],
            uses_data=False,
        ),
        *(
            PaperClaim(
                f"{name} has {printed} sets",
                f"{rows[name]['family size']}; in floats {rows[name][_COLUMN]!r}, integer part "
                f"{int(rows[name][_COLUMN])}",
                [equal("sets", float(rows[name]["family size"]), float(printed))],
                uses_data=False,
            )
            for name, (_, printed) in TABLE_1.items()
            if name not in (paper.RANDOM, paper.WEIGHTED)
        ),
    ]


REPRODUCTIONS = (
    Reproduction(
        "multiround-table1",
        "The number of sets each scheme can choose",
        f"{paper.PAPER}, Table 1",
        measure=measure_table1,
        conclude=conclude_table1,
    ),
)
