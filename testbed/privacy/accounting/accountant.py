"""What the ledger asks of a mechanism: the epsilon of a client that was in these rounds."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Protocol


class Accountant(Protocol):
    """What taking part costs in privacy, under one mechanism with fixed parameters.

    Attributes:
        unit: what is protected, a client's whole data or one sample of it; neighbours differ in one of them.
        mechanism: its name, as experiments write it.
    """

    unit: ClassVar[Literal["client", "sample"]]
    mechanism: ClassVar[str]

    def epsilon(self, rounds: Mapping[float, int], delta: float) -> float:
        """The epsilon at `delta` of all the rounds that one client took part in; inf where there was no noise.

        It holds for observers who see who takes part.

        Args:
            rounds: how many rounds had which share of the planned noise variance in their sum, as in
                ``{1.0: 7, 0.9: 2}``.
            delta: in (0, 1).
        """
