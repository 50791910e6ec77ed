"""The section of asynchronous rounds (`testbed.engine.buffered`).

`testbed.experiment.compatibility` lists the options that asynchronous rounds exclude.
"""

from typing import Annotated

from pydantic import Field

from testbed.aggregation.contract import AggregationParameters
from testbed.emulation.links import Links
from testbed.experiment.sections import Section
from testbed.selection.contract import SelectionParameters


class Asynchronous(Section):
    """Buffered asynchronous aggregation (FedBuff). The buffer holds `selection.participants` updates (K)."""

    concurrency: Annotated[int, Field(gt=0)] = Field(
        description="Clients that train at the same time (the paper's M_c), with secure aggregation including clients "
        "that have finished and hold their updates. A client that leaves is replaced"
    )
    staleness_exponent: float = Field(
        0.5,
        ge=0,
        le=10,
        description="Exponent a: an update that is tau rounds old has the weight 1 / (1 + tau)^a. 0: all count alike",
    )
    max_staleness: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Largest age of an update, in rounds; older updates are dropped. Unset: no limit"
    )
    redraw_s: float = Field(
        60.0,
        gt=0,
        le=1e9,
        description="Seconds after which the server again looks for clients if fewer than concurrency are online",
    )

    def check(self, population: int, selection: SelectionParameters, aggregation: AggregationParameters) -> None:
        """Raise `ValueError` (one line) for too small a population, or for unfit settings of the protocols."""
        if self.concurrency > population:
            raise ValueError(
                f"asynchronous.concurrency: {self.concurrency} must be at most the population of {population}"
            )
        selection.check_asynchronous()
        aggregation.check_asynchronous(self.concurrency, selection.participants)


def without_unwritten(links: Links, aggregation: AggregationParameters) -> tuple[Links, AggregationParameters]:
    """Return the two sections for asynchronous rounds, with fitting values for keys that the user has not set.

    These keys still count as not set, so that `notes` can report them.

    Args:
        links: the experiment's links.
        aggregation: the experiment's aggregation.
    """
    if "transport" not in links.model_fields_set:
        links = links.model_copy(update={"transport": "none"})
        # Still not set by the user, so that `notes` reports the change.
        links.model_fields_set.discard("transport")
    return links, aggregation.for_asynchronous_rounds()


def notes(asynchronous: Asynchronous | None, links: Links, aggregation: AggregationParameters) -> list[str]:
    """Return a note, one line, for each key that asynchronous rounds have set in place of the user.

    Args:
        asynchronous: the section; None: no notes.
        links: the experiment's links.
        aggregation: the experiment's aggregation.
    """
    if asynchronous is None:
        return []
    lines = []
    if "transport" not in links.model_fields_set:
        lines.append(
            "asynchronous rounds run without TCP (links.transport: none), because congestion windows are modelled "
            "within the stages of synchronous rounds only; set links: {transport: none} in synchronous runs that you "
            "compare with this one"
        )
    return [*lines, *aggregation.asynchronous_notes()]
