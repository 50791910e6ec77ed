"""The section of asynchronous rounds (`testbed.engine.buffered`).

Options that such rounds exclude: `testbed.experiment.compatibility`.
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
        description="Clients that train at any time (the paper's M_c); under secure aggregation also those that have "
        "finished and hold their updates; whoever leaves is replaced"
    )
    staleness_exponent: float = Field(
        0.5,
        ge=0,
        le=10,
        description="a: an update that is tau rounds old counts 1 / (1 + tau)^a of itself; 0: all count alike",
    )
    max_staleness: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Updates that are more rounds old are thrown away; none: however old they are"
    )
    redraw_s: float = Field(
        60.0,
        gt=0,
        le=1e9,
        description="After so many seconds the server looks again for clients, where fewer were online than may train",
    )

    def check(self, population: int, selection: SelectionParameters, aggregation: AggregationParameters) -> None:
        """Raise `ValueError` (one line) for fewer clients than may train, or for settings of the protocols."""
        if self.concurrency > population:
            raise ValueError(
                f"asynchronous.concurrency: {self.concurrency} of a population of {population}; at most {population}"
            )
        selection.check_asynchronous()
        aggregation.check_asynchronous(self.concurrency, selection.participants)


def without_unwritten(links: Links, aggregation: AggregationParameters) -> tuple[Links, AggregationParameters]:
    """The two sections for asynchronous rounds: what nobody has written takes the value that these rounds can have.

    Keys that are set here stay unwritten, so that `notes` can tell.
    """
    if "transport" not in links.model_fields_set:
        links = links.model_copy(update={"transport": "none"})
        links.model_fields_set.discard("transport")
    return links, aggregation.for_asynchronous_rounds()


def notes(asynchronous: Asynchronous | None, links: Links, aggregation: AggregationParameters) -> list[str]:
    """What an experiment with asynchronous rounds has that nobody has written, a line each."""
    if asynchronous is None:
        return []
    lines = []
    if "transport" not in links.model_fields_set:
        lines.append(
            "asynchronous rounds go without TCP (links.transport: none), as windows are followed in the stages of a "
            "round alone; set links: {transport: none} for synchronous runs that are compared with them"
        )
    return [*lines, *aggregation.asynchronous_notes()]
