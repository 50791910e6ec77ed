"""Published scenarios of Hasircioglu and Gunduz: Privacy Amplification via Random Participation in Federated Learning.

arXiv 2205.01556, sections 6.1 and 6.2 and Appendix B.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from analysis.bounds.random_participation import Participation

PAPER = "Hasircioglu and Gunduz, Privacy Amplification via Random Participation, arXiv 2205.01556"

EPSILON, DELTA = 0.015, 1e-6
"""Guarantee that the paper requires of every round (section 6.1)."""

NONE, PROPOSED, WCS, OLS = "no privacy", "proposed (Theorem 4.1)", "WCS (Theorem 5.2)", "OLS (Theorem 5.1)"
SCHEMES = (NONE, PROPOSED, WCS, OLS)
"""The four schemes: the same algorithm, with the noise that each analysis requires."""


@dataclass(frozen=True)
class PublishedScenario:
    """Scenario of section 6.

    Attributes:
        name: name of the figure's files.
        figure: figure with its accuracies.
        title: title in the paper's words.
        population: N.
        participation: p, q and d that determine sigma.
        sigmas: the paper's sigma by scheme.
        rates: the paper's learning rates by scheme (Appendix B.2).
    """

    name: str
    figure: str
    title: str
    population: int
    participation: Participation
    sigmas: Mapping[str, float]
    rates: Mapping[str, float]


MANY_CLIENTS = PublishedScenario(
    "random-participation-fig6",
    "Figure 6",
    "many clients, small data sets",
    population=23_264,
    participation=Participation(30, 0.001, 0.1),
    sigmas={PROPOSED: 1.065, WCS: 7.65, OLS: 22.4},
    rates={NONE: 0.002, PROPOSED: 0.002, WCS: 0.0001, OLS: 0.0001},
)
FEW_CLIENTS = PublishedScenario(
    "random-participation-fig7",
    "Figure 7",
    "few clients, large data sets",
    population=697,
    participation=Participation(1000, 0.1, 0.001),
    sigmas={PROPOSED: 0.646, WCS: 0.873, OLS: 1.103},
    rates={NONE: 0.002, PROPOSED: 0.002, WCS: 0.002, OLS: 0.002},
)
SCENARIOS = (MANY_CLIENTS, FEW_CLIENTS)
