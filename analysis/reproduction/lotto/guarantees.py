"""The figures of the Lotto paper that follow from formulas (arXiv 2401.02880): nothing is run, all is computed."""

from analysis.reproduction.contract import Reproduction
from analysis.reproduction.lotto import deficit as lotto_deficit
from analysis.reproduction.lotto import over_selection, security
from analysis.reproduction.lotto import refinement as lotto_refinement

_PAPER = "Jiang, Ye, Chen, et al., Lotto, USENIX Security 2024, arXiv 2401.02880"

REPRODUCTIONS: tuple[Reproduction, ...] = (
    Reproduction(
        "lotto-fig1b",
        "Privacy deficit when dishonest participants add no noise",
        f"{_PAPER}, Figure 1b",
        lotto_deficit.run_fig1b,
    ),
    Reproduction(
        "lotto-fig2",
        "Over-selection that finds enough candidates",
        f"{_PAPER}, Figure 2",
        over_selection.run_fig2,
    ),
    Reproduction(
        "lotto-fig4",
        "What population refinement does for the worst client",
        f"{_PAPER}, Figure 4",
        lotto_refinement.run_fig4,
    ),
    Reproduction(
        "lotto-fig5",
        "The largest exclusion that keeps a base rate of dishonest clients",
        f"{_PAPER}, Figure 5",
        lotto_refinement.run_fig5,
    ),
    Reproduction(
        "lotto-fig6",
        "Lotto's bounds: dishonest participants, SecAgg, distributed DP",
        f"{_PAPER}, Figure 6",
        security.run_fig6,
        aliases=("lotto-fig6a", "lotto-fig6b", "lotto-fig6c"),
    ),
    Reproduction(
        "lotto-fig10",
        "Privacy cost, client-centric against server-centric",
        f"{_PAPER}, Figure 10",
        security.run_fig10,
    ),
)
