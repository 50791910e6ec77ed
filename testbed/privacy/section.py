"""The experiment's `privacy:` section: the delta and the budget of the ledger."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from testbed.privacy.canaries import CanarySection

Unit = Literal["client", "sample"]

NEEDS_LOSSES = (
    "chooses by losses that clients report, which would leave them without the noise of this experiment; set "
    "privacy.report_losses: true (epsilon then does not cover them), or select otherwise"
)


class PrivacySection(BaseModel):
    """Accounting of the privacy ledger, which exists wherever an aggregation adds noise, also without this section."""

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
        "away; none: all clients send their updates",
    )

    def delta_for(self, records: int) -> float:
        """Return the delta of an experiment in which `records` records are protected."""
        return 1 / (10 * records) if self.delta is None else self.delta

    def warning(self, unit: Unit, records: int) -> str:
        """Return the reason why the delta is too large, in one line; empty if it is not.

        A mechanism that publishes one record in whole, at random, is (0, 1/records) private (Dwork, Roth 2014, section
        2.3). So a delta of 1/records or more protects nobody.

        Args:
            unit: the protected unit.
            records: number of protected units.
        """
        if self.delta is None or self.delta < 1 / records:
            return ""
        return (
            f"privacy.delta: {self.delta:g} is not below 1/{records}, one over the number of {unit}s: a mechanism that "
            f"publishes one {unit}'s data would be as private; take at most {1 / (10 * records):.3g}"
        )
