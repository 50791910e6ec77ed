"""The experiment's `privacy:` section: the delta of the ledger, and what may be spent."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from testbed.privacy.canaries import CanarySection

Unit = Literal["client", "sample"]

NEEDS_LOSSES = (
    "chooses by losses that clients report, which would leave them without the noise of this experiment; set "
    "privacy.report_losses: true (epsilon then does not cover them), or select otherwise"
)


class PrivacySection(BaseModel):
    """How the privacy ledger accounts; it is kept wherever an aggregation adds noise, also without this section."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    delta: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="The delta at which epsilon is accounted; below 1/records. None: a tenth of 1/records, where the "
        "records are the clients or their samples, whichever the mechanism protects",
    )
    budget: float | None = Field(
        None,
        gt=0,
        description="The epsilon that no client may exceed: the run ends before a round that could take any client "
        "beyond it. None: no end",
    )

    report_losses: bool = Field(
        False,
        description="May clients tell the server their mean loss and number of samples beside noisy updates, for "
        "selection by losses (oort, refine)? They leave without noise, and epsilon does not cover them",
    )

    canaries: CanarySection | None = Field(
        None,
        exclude_if=lambda section: section is None,
        description="Clients that send known vectors, so that `testbed attack audit` can measure what the run gives "
        "away; none: everybody sends what it has learned",
    )

    def delta_for(self, records: int) -> float:
        """The delta, given how many records there are that one of is protected."""
        return 1 / (10 * records) if self.delta is None else self.delta

    def warning(self, unit: Unit, records: int) -> str:
        """What is wrong with the delta, in one line; empty when nothing is.

        A mechanism that publishes one record in whole, at random, is (0, 1/records) private (Dwork, Roth 2014, section
        2.3): such a delta promises nothing to anybody.
        """
        if self.delta is None or self.delta < 1 / records:
            return ""
        return (
            f"privacy.delta: {self.delta:g} is not below 1/{records}, one over the number of {unit}s: a mechanism that "
            f"publishes one {unit}'s data would be as private; take at most {1 / (10 * records):.3g}"
        )
