"""The section of asynchronous rounds (`testbed.engine.buffered`), and what an experiment with it cannot have."""

from typing import Annotated

from pydantic import Field

from testbed.adversary.section import AdversarySection
from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.kit.ring_elements import noise_of
from testbed.emulation.availability import Scheduled
from testbed.emulation.availability.section import AvailabilityModel
from testbed.emulation.links import Links, Transport
from testbed.experiment.sections import Section, Time
from testbed.selection.contract import SelectionParameters
from testbed.workload.section import WorkloadSection


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
        """Raise `ValueError` (one line) for protocols that cannot work with it, or fewer clients than may train."""
        if self.concurrency > population:
            raise ValueError(f"concurrency: {self.concurrency} of a population of {population}; at most {population}")
        if selection.draws_singly is None:
            why = selection.needs_rounds
            raise ValueError(f"goes without selection.protocol: {selection.protocol}: {why}; use random")
        selection.check_asynchronous()
        if aggregation.asynchronous_buffer is None:
            fitting = [kind for kind in aggregations.PROTOCOLS if kind.asynchronous_buffer is not None]
            *others, last = [str(kind.model_fields["protocol"].default) for kind in fitting]
            names = f"{', '.join(others)} or {last}"
            raise ValueError(f"goes without aggregation.protocol: {aggregation.protocol}; use {names}")
        if noise_of(aggregation) is not None:
            raise ValueError(
                "goes without aggregation.noise: the ledger does not account for updates of several rounds in one sum"
            )
        aggregation.check_asynchronous(self.concurrency, selection.participants)

    def check_learning(self, workload: WorkloadSection) -> None:
        """The same for clients that keep something: what they have counts by the round in which they were asked."""
        for key in ("drift_correction", "local_layers"):
            if getattr(workload, key) is not None:
                raise ValueError(
                    f"goes without workload.{key}: what clients keep is told, and counts, in rounds that train and sum "
                    "the same model; leave out one of the two"
                )

    def check_world(
        self,
        time: Time,
        links: Links,
        availability: AvailabilityModel,
        adversary: AdversarySection | None,
        aggregation: AggregationParameters,
    ) -> None:
        """The same for clocks, links and clients that are followed in rounds alone."""
        stages = ("train", *(aggregation.stages if aggregation.asynchronous_buffer == "server" else ()))
        quorums = [stage for stage in time.stage_quorums if stage in stages]
        for key, given, why in (
            ("time.clock: wall", time.clock == "wall", "who trains until when is computed"),
            ("adversary", adversary is not None, "what it does to a buffer is not modelled"),
            ("availability.model: schedule", isinstance(availability, Scheduled), "a schedule is of rounds"),
            (
                f"links.transport: {_transport_name(links)}",
                _may_have_windows(links),
                "congestion windows are followed in the stages of a round alone; set links: {transport: none}, or "
                "{transport: {preset: tcp, congestion_control: none}} for the headers",
            ),
            *((f"time.stage_quorums: {stage}", True, "nobody waits for all of them here") for stage in quorums),
        ):
            if given:
                raise ValueError(f"goes without {key}: {why}")


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


def _may_have_windows(links: Links) -> bool:
    """Whether messages may be held back; `auto` decides by the clients' links."""
    if isinstance(links.transport, Transport):
        return links.transport.has_windows
    if links.transport != "auto":
        return links.transport != "none"
    free = (links.latency_ms, links.loss, links.buffer_ms) == (0, 0, None)
    return not free


def _transport_name(links: Links) -> str:
    return links.transport.preset if isinstance(links.transport, Transport) else links.transport
