"""The ``records`` section of an experiment: what is recorded beyond the tables.

Unlike `output`, which says where, it must stay as it is when a run is gone on with: its records would have gaps.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

_Round = Annotated[int, Field(ge=1)]


class RecordsSection(BaseModel):
    """What is recorded beyond the tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    aggregates: Literal["none", "all"] | tuple[_Round, _Round] = Field(
        "none",
        description="Rounds whose model and mean update the records keep, what a server sees and `testbed attack` "
        "needs: none, all, or [first, last]; 12 bytes a parameter and round",
    )

    @field_validator("aggregates", mode="before")
    @classmethod
    def _one_of_three(cls, given: Any) -> Any:
        if isinstance(given, list | tuple) and len(given) != 2:
            raise ValueError(f"{list(given)}; allowed: none, all, or [first, last], two rounds")
        return tuple(given) if isinstance(given, list) else given  # strict validation takes no list for a tuple

    def check(self, rounds: int) -> None:
        """`ValueError` for rounds that the run does not have."""
        if isinstance(self.aggregates, tuple) and not self.aggregates[0] <= self.aggregates[1] <= rounds:
            first, last = self.aggregates
            raise ValueError(f"aggregates: [{first}, {last}]; allowed: 1 <= first <= last <= rounds = {rounds}")

    def keeps(self, round_number: int) -> bool:
        """Whether this round is asked for."""
        if isinstance(self.aggregates, tuple):
            return self.aggregates[0] <= round_number <= self.aggregates[1]
        return self.aggregates == "all"
