"""A selection protocol on an emulated network, without training or aggregation."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from testbed.crypto.signatures import SigningKey
from testbed.emulation.availability import AvailabilitySection, availability_model
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.emulation.links import ClientLinks, Links
from testbed.errors import Refusal, RoundAborted
from testbed.network.contract import Timing, no_ids
from testbed.network.emulated import EmulatedNetwork
from testbed.parties.client import Environment, RoleSpec
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.parties.round_beacon import BeaconAccess, RoundBeacon
from testbed.randomness import Randomness
from testbed.selection.contract import Selection, SelectionRound

EXPERIMENT_ID = bytes(range(16))
POPULATION, PARTICIPANTS = 40, 5  # of the malicious servers


class Selecting:
    """A protocol's server, its clients and the network between them, for several rounds.

    Args:
        protocol: the server side.
        population: number of clients.
        seed: of all randomness.
        registered: whether clients register with a PKI.
        more_roles: additional roles of some clients (misbehaviour).
        availability: keys of the section.
        timing: deadlines of the server.
    """

    def __init__(
        self,
        protocol: Any,
        population: int,
        *,
        seed: int = 1,
        registered: bool = True,
        more_roles: Sequence[RoleSpec] = (),
        availability: dict[str, Any] | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.protocol = protocol
        self.population = population
        self.randomness = Randomness(seed)
        compute = ComputeModel(False, REFERENCE_COSTS)
        self.environment = Environment(
            population=population,
            randomness=self.randomness,
            compute=compute,
            directory=Directory.empty(population),
            experiment_id=EXPERIMENT_ID,
            batches=protocol.batches,
        )
        self.hosts = LocalHosts(population, self.environment, [*protocol.roles, *more_roles])
        self.pki = PKI(population, self.randomness)
        if registered and protocol.needs_registration:
            self.hosts.register(self.pki)
        section = TypeAdapter(AvailabilitySection).validate_python(availability or {})
        self.network = EmulatedNetwork(
            self.hosts,
            ClientLinks.of(Links(), population),
            np.ones(population),
            availability_model(section, population, (), self.randomness, lambda: np.zeros((population, 1), np.int64)),
            timing or Timing(60.0),
            compute,
        )
        self.participations = np.zeros(population, np.int64)
        self.beacon: BeaconAccess | None = None
        if protocol.beacon_latency_s is not None:
            key = SigningKey.from_seed(self.randomness.secret("round beacon", 0, "signing key"))
            self.environment.directory = replace(self.environment.directory, beacon=key.public)
            self.beacon = BeaconAccess(RoundBeacon(key, EXPERIMENT_ID), self.network, 0.05)
        self.last: Selection

    def client(self, number: int) -> Any:
        """Return the client object."""
        return self.hosts.hosts[0].client(number)

    def select(self, number: int = 1) -> Selection:
        """Run the selection of one round; `last` stores its outcome, also if it ends the round."""
        return asyncio.run(self._select(number))

    async def _select(self, number: int) -> Selection:
        await self.network.begin_round(number)
        start = SelectionRound(
            number, self.population, self.network, self.participations, self.environment.directory,
            self.randomness, EXPERIMENT_ID, beacon=self.beacon,
        )  # fmt: skip
        try:
            self.last = await self.protocol.select(start)
        except (RoundAborted, Refusal) as end:
            participants = no_ids() if end.participants is None else end.participants
            self.last = Selection(participants, end.candidates or 0)
            raise
        finally:
            self.network.end_round()
        return self.last

    def refusals(self) -> dict[int, str]:
        """Return the clients that refused in the last round, and the failed checks."""
        return {
            int(event.party.removeprefix("client:")): event.detail.partition(":")[0]
            for event in self.network.events
            if event.kind == "refusal" and event.party != "beacon"
        }


def malicious_server(variant: tuple[Any, Any], **decisions: Callable) -> Any:
    """Return a server with some decisions overridden; n_min is half the population.

    Args:
        variant: the class of the honest server and the class of its parameters.
        decisions: the methods of the malicious server.
    """
    kind, section = variant
    parameters = section(participants=PARTICIPANTS, over_selection=3.0, min_population=POPULATION // 2)
    return type("Malicious", (kind,), decisions)(parameters, POPULATION)


def refused_round(run: Any, number: int = 1) -> tuple[list[int], dict[int, str], str]:
    """Run a round that must be aborted because of refusals: participants, refusals, the reason's detail."""
    with pytest.raises(RoundAborted) as aborted:
        run.select(number)
    assert aborted.value.reason == "refused"
    refusals = run.refusals()
    for client, check in refusals.items():
        assert run.client(client).agreed_participants is None
        assert check in aborted.value.detail
    return run.last.participants.tolist(), refusals, aborted.value.detail
