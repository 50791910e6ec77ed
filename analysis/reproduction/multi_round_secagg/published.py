"""Published values of Multi-RoundSecAgg's training experiments (So et al., Securing Secure Aggregation, arXiv
2106.03328).

Accuracies are those of Tables 3, 4 and 5 (appendix F), in percent, without intervals. Hyperparameters are those of
appendix F, the data those of section 6 and appendix E. Rounds, seeds and the rounds of the accuracies are those of the
arrays in `results/` of the public repository (DGIST-Distributed-AI-Lab/multi-round-secagg).
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

PAPER = "So, Ali, Guler, Jiao, Avestimehr, Securing Secure Aggregation, AAAI 2023, arXiv 2106.03328"

Setting = Literal["IID", "non-IID"]
SETTINGS: tuple[Setting, ...] = ("IID", "non-IID")

POPULATION, PARTICIPANTS = 120, 12
SEEDS = 5
UNAVAILABLE = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Dropout probabilities p_i of the users (section 6, "Modeling dropouts")."""

LEARNING_RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
"""Grid from which the best learning rate is taken."""

DECAY, MILESTONES = 0.4, (400, 800)
"""Decay of the learning rate, and the rounds after which it applies, for both CIFAR tasks; MNIST has none."""

RANDOM, WEIGHTED, PARTITION, T6, T4, T3 = "random", "weighted-random", "partition", "T = 6", "T = 4", "T = 3"
SCHEMES: Mapping[str, Mapping[str, Any]] = {
    RANDOM: {"protocol": "random"},
    WEIGHTED: {"protocol": "weighted-random"},
    PARTITION: {"protocol": "partition"},
    T6: {"protocol": "batch-partition", "privacy": 6, "mode": "least-total"},
    T4: {"protocol": "batch-partition", "privacy": 4, "mode": "least-total"},
    T3: {"protocol": "batch-partition", "privacy": 3, "mode": "least-total"},
}
"""Section `selection` of the six schemes, in the order of the tables.

Batches are chosen by the least sum of participations, as in the public code that trained the paper's models
(`UserSelection_Codebook` in DGIST-Distributed-AI-Lab/multi-round-secagg), and not by Algorithm 2 as printed.
"""


class Accuracies(NamedTuple):
    """Row of a table, in percent."""

    iid: float
    non_iid: float

    def of(self, setting: Setting) -> float:
        """Return the accuracy in a setting."""
        return self.iid if setting == "IID" else self.non_iid


TABLE_3 = {
    RANDOM: Accuracies(49.15, 44.32),
    WEIGHTED: Accuracies(50.06, 47.11),
    PARTITION: Accuracies(25.73, 22.32),
    T6: Accuracies(42.89, 39.57),
    T4: Accuracies(49.43, 46.99),
    T3: Accuracies(50.22, 47.06),
}
"""VGG-11 on CIFAR-100."""

TABLE_4 = {
    RANDOM: Accuracies(64.64, 45.20),
    WEIGHTED: Accuracies(65.06, 47.89),
    PARTITION: Accuracies(55.70, 37.74),
    T6: Accuracies(65.01, 46.35),
    T4: Accuracies(64.95, 47.00),
    T3: Accuracies(64.80, 47.21),
}
"""LeNet on CIFAR-10."""

TABLE_5 = {
    RANDOM: Accuracies(98.21, 85.79),
    WEIGHTED: Accuracies(98.10, 94.04),
    PARTITION: Accuracies(93.94, 75.26),
    T6: Accuracies(97.72, 89.88),
    T4: Accuracies(98.11, 92.51),
    T3: Accuracies(98.15, 94.16),
}
"""The CNN of McMahan et al. on MNIST."""

STORED_4 = {
    RANDOM: Accuracies(64.64, 46.50),
    WEIGHTED: Accuracies(65.06, 47.89),
    PARTITION: Accuracies(55.70, 37.74),
    T6: Accuracies(65.02, 48.35),
    T4: Accuracies(64.75, 47.01),
    T3: Accuracies(64.60, 47.22),
}
"""Means in the public repository for Table 4: 1,000 rounds, three seeds (five of the random selections, non-IID). IID:
the last round; non-IID: rounds 990 to 999."""

STORED_5 = {
    RANDOM: Accuracies(98.21, 93.14),
    WEIGHTED: Accuracies(98.10, 94.04),
    PARTITION: Accuracies(93.94, 75.26),
    T6: Accuracies(97.72, 89.88),
    T4: Accuracies(98.11, 94.17),
    T3: Accuracies(98.15, 92.51),
}
"""Means in the public repository for Table 5: the last of 200 rounds, five seeds."""

STORED_5_SEEDS = {
    RANDOM: (96.66, 96.21, 85.97, 93.59, 93.28),
    WEIGHTED: (95.07, 97.05, 94.75, 87.24, 96.09),
}
"""The five seeds behind two of its non-IID means."""

STORED_9 = {
    (240, 12): {RANDOM: 61.46, WEIGHTED: 61.18, PARTITION: 52.05, T6: 60.37, T4: 60.14, T3: 61.05},
    (120, 24): {RANDOM: 61.94, WEIGHTED: 63.24, PARTITION: 10.00, T6: 53.49, T4: 62.98, T3: 62.66},
}
"""Accuracies in the public repository for Figure 9, by N and K: the last of 1,000 rounds; one seed, three of T = 4."""

COMPARABLE = 2.0
"""Points of accuracy. The paper calls 1.53 comparable (Table 5, non-IID, T = 4 against weighted random); rounded up."""

COMPARABLE_ERRORS = COMPARABLE / (100 - TABLE_5[WEIGHTED].non_iid)
"""These points as a share of the errors in this example."""


def comparable_margin(accuracy: float) -> float:
    """Return the points by which an accuracy may differ from another and count as comparable.

    These are `COMPARABLE` points, or fewer where both are near 100%: two points are then a large share of the errors.

    Args:
        accuracy: the other accuracy, in percent.

    Example:
        >>> comparable_margin(50.0), round(comparable_margin(97.0), 2)
        (2.0, 1.01)
    """
    return min(COMPARABLE, COMPARABLE_ERRORS * (100 - accuracy))
