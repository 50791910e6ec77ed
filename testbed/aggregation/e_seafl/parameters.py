"""The section `aggregation` of an experiment for `e-seafl`."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from testbed.aggregation.kit.parameters import (
    ClipKey,
    LevelsBitsKey,
    MinSurvivorsParameters,
    QuantisedParameters,
    check_two_participants,
)
from testbed.aggregation.quantisation import Quantisation


class ESeaflParameters(MinSurvivorsParameters, QuantisedParameters):
    """Sums that hide every single update as long as one assisting node is honest; one message per client."""

    stages: ClassVar[tuple[str, ...]] = ("e-seafl/masked-input", "e-seafl/sum-masks")
    outsiders_check_batches: ClassVar[bool] = True
    protocol: Literal["e-seafl"] = "e-seafl"
    assisting_nodes: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0, 1, 2),
        min_length=1,
        max_length=100,
        description="Numbers of the clients that are the assisting nodes (paper: 3). All must answer, and at least one "
        "must not collude with the server. They have the links and devices of clients",
    )
    min_survivors: int | float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="Clients that a sum must have, or the assisting nodes refuse: a number, or a fraction of the "
        "participants",
    )
    bits: int = Field(32, ge=8, le=64, description="Ring width: sums are taken modulo 2**bits")
    levels_bits: LevelsBitsKey = 16
    clip: ClipKey = 1.0
    model_binding: Literal["signed", "none"] = Field(
        "signed",
        description="signed: masks are bound to the client's training task, so that a sum only has clients that were "
        "sent the same model; none: they are not (to demonstrate the attack)",
    )

    @model_validator(mode="after")
    def _nodes_differ(self) -> Self:
        if len(set(self.assisting_nodes)) != len(self.assisting_nodes):
            raise ValueError(f"assisting_nodes: {list(self.assisting_nodes)} names a client twice")
        return self

    @property
    def quantisation(self) -> Quantisation:
        """The mapping from updates to ring elements."""
        return Quantisation(self.clip, self.levels_bits, self.bits)

    def check(self, participants: int) -> None:
        """Check that a sum of this many participants is possible; raises `ValueError`."""
        check_two_participants(self, participants)
        self.check_min_survivors(participants)

    def check_population(self, population: int) -> None:
        """Raise `ValueError` for an assisting node that is no client."""
        if (last := max(self.assisting_nodes)) >= population:
            raise ValueError(f"assisting_nodes: client {last}; the population has clients 0 to {population - 1}")
