"""Multi-RoundSecAgg's Table 1: number of sets of users that a scheme can choose.

So et al., Securing Secure Aggregation, arXiv 2106.03328, sections 4 to 6; N = 120, K = 12.
"""

from math import exp, lgamma

import pandas as pd

from analysis.bounds.batch_partition import family_size
from analysis.reproduction.contract import Reproduction, ReproductionContext, ReproductionResult
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


def _in_floats(count: int, chosen: int) -> float:
    """Return a binomial coefficient as exp(ln n! - ln k! - ln (n-k)!)."""
    return exp(lgamma(count + 1) - lgamma(chosen + 1) - lgamma(count - chosen + 1))


def run_table1(context: ReproductionContext) -> ReproductionResult:
    """Compare exact integers with the paper's."""
    sizes = {name: family_size(paper.POPULATION, paper.PARTICIPANTS, privacy) for name, (privacy, _) in TABLE_1.items()}
    rows = [
        {"scheme": name, "T": privacy, "family size": sizes[name], "family size (paper)": printed}
        for name, (privacy, printed) in TABLE_1.items()
    ]
    frame = pd.DataFrame.from_records(rows)
    return ReproductionResult(
        frame,
        claims=claims(frame),
        remarks=["By formula: R = C(N/T, K/T), in integers."],
    )


def claims(table: pd.DataFrame) -> list[PaperClaim]:
    """Compare the family sizes with the printed ones (`table`: a row for each scheme, as `run_table1` makes it)."""
    sizes = {str(row["scheme"]): int(row["family size"]) for _, row in table.iterrows()}
    three = sizes["batch-partition, T = 3"]
    return [
        PaperClaim(
            "random selection has about 10^16 sets",
            f"C(120, 12) = {sizes[paper.RANDOM]:,} = {sizes[paper.RANDOM]:.2e}",
            [within_factor("sets", float(sizes[paper.RANDOM]), 1e16, 2)],
        ),
        *(
            PaperClaim(
                f"{name} has {printed} sets", f"{sizes[name]}", [equal("sets", float(sizes[name]), float(printed))]
            )
            for name, (_, printed) in TABLE_1.items()
            if name in (paper.PARTITION, "batch-partition, T = 6", "batch-partition, T = 4")
        ),
        PaperClaim(
            "T = 3 has 91389 sets",
            f"C(40, 4) = {three}; in floating point, by logarithms of factorials, {_in_floats(40, 4)!r}, which is "
            "91389 when it is truncated",
            [equal("sets", float(three), 91389.0)],
        ),
    ]


REPRODUCTIONS = (
    Reproduction(
        "multiround-table1",
        "The number of sets each scheme can choose",
        f"{paper.PAPER}, Table 1",
        run_table1,
        claims_of=lambda table, seeds: claims(table),
    ),
)
