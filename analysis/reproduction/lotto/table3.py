"""Lotto's Table 3: per-round time and traffic with informed selection (Jiang et al., arXiv 2401.02880, appendix C)."""

from typing import Any

import pandas as pd

from analysis.reproduction.contract import Claim, Reproduction, ReproductionContext, ReproductionResult
from analysis.reproduction.lotto.overhead import INFORMED_SCALES, table
from analysis.reproduction.lotto.overhead_claims import largest, remarks_of
from analysis.reproduction.lotto.published import TABLE_3

OR = {"by": ["latency", "loss"], "combine": "or", "exclude": 0.2}
"""The paper's choice among its strategies (section 5.3)."""

_SELECTIONS: dict[str, dict[str, Any]] = {
    "Oort": {"protocol": "oort"},
    "Cli-Ctr": {"protocol": "lotto-client-centric", "refine": OR},
    "Srv-Ctr": {"protocol": "lotto-server-centric", "refine": OR},
}


def run_table3(context: ReproductionContext) -> ReproductionResult:
    """Run the table at the context's scale."""
    scale = INFORMED_SCALES[context.scale]
    frame = table(context, scale, _SELECTIONS, TABLE_3, lambda application: list(_SELECTIONS))
    remarks = [
        f"Rounds of each run: {scale}; the paper: 50 (OpenImage 100). Only completed rounds count. In the first round "
        "nothing is known of anybody yet, and nobody is refined away.",
        "Lotto refines by 'or' at 20%, on response times that the server measures and losses that clients report. All "
        "devices are equally fast here, so that what differs is what selection costs, not whom it takes; for that see "
        "lotto-fig9.",
        *remarks_of(frame),
    ]
    return ReproductionResult(frame, claims=claims(frame), remarks=remarks)


def claims(frame: pd.DataFrame) -> list[Claim]:
    """Appendix C, statement by statement."""
    return [
        largest(frame, "Cli-Ctr", "server ×", "Cli-Ctr takes the server less than 10% more time than Oort", 1.10),
        largest(frame, "Srv-Ctr", "server ×", "Srv-Ctr takes the server at most 2% more time than Oort", 1.02),
        largest(frame, "Cli-Ctr", "server MB ×", "Cli-Ctr adds less than 1% to the server's traffic", 1.01),
        largest(frame, "Srv-Ctr", "server MB ×", "Srv-Ctr adds less than 1% to the server's traffic", 1.01),
    ]


REPRODUCTIONS = (
    Reproduction(
        "lotto-table3",
        "Time and traffic of a round with informed selection: Oort, client-centric and server-centric Lotto",
        "Jiang et al., Lotto, arXiv 2401.02880, Table 3",
        run_table3,
    ),
)
