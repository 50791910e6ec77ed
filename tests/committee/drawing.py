"""Committees drawn among real clients on an emulated network, with no protocol that uses them."""

import asyncio
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from testbed.committee.choice import chosen
from testbed.committee.messages import CommitteeList
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import SortitionRole, committee_roles
from testbed.crypto.memo import Memo
from testbed.emulation.availability import AvailabilitySection, availability_model
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.emulation.links import ClientLinks, Links
from testbed.network.contract import Timing
from testbed.network.emulated import EmulatedNetwork
from testbed.parties.client import Environment, RoleSpec
from testbed.parties.host import LocalHosts
from testbed.parties.pki import Directory
from testbed.randomness import Randomness

EXPERIMENT = bytes(range(16))


class Drawing:
    """Clients with keys, a network, and the server that draws.

    Args:
        section: the committee's.
        population: number of clients.
        seed: of everything.
        samples: `(n,)` that clients have announced.
        availability: keys of the section.
        dishonest: clients with another role.
        hosts: number of hosts.
        shortcuts: whether results are remembered, and idle clients answer for one another.
    """

    def __init__(
        self,
        section: CommitteeSection,
        population: int,
        *,
        seed: int = 1,
        samples: Any = None,
        availability: dict[str, Any] | None = None,
        dishonest: tuple[type[SortitionRole], frozenset[int]] | None = None,
        hosts: int = 1,
        shortcuts: bool = True,
    ) -> None:
        section.check(population)
        randomness = Randomness(seed)
        board = Directory.derived(population, randomness)
        compute = ComputeModel(False, REFERENCE_COSTS)
        self.section = section
        self.directory = Directory(board.signing, board.agreement, board.vrf, board.registered, samples=samples)
        self.environment = Environment(
            population=population,
            randomness=randomness,
            compute=compute,
            directory=self.directory,
            experiment_id=EXPERIMENT,
            rounds=100,
            derives_identities=True,
            results=Memo() if shortcuts else None,
        )
        roles = committee_roles(section)
        if dishonest is not None:
            roles.append(RoleSpec(dishonest[0], section, dishonest[1]))
        there = TypeAdapter(AvailabilitySection).validate_python(availability or {})
        self.network = EmulatedNetwork(
            LocalHosts(population, self.environment, roles, hosts=hosts),
            ClientLinks.of(Links(), population),
            np.ones(population),
            availability_model(there, population, (), randomness, lambda: np.zeros((population, 1), np.int64)),
            Timing(60.0),
            compute,
        )

    def draw(self, round_number: int = 1, memory: dict[str, Any] | None = None) -> CommitteeList:
        """Return the server's committee of a round."""

        async def drawn() -> CommitteeList:
            await self.network.begin_round(round_number)
            try:
                kept = {} if memory is None else memory
                return await chosen(self.section, round_number, self.network, self.directory, EXPERIMENT, kept)
            finally:
                self.network.end_round()

        return asyncio.run(drawn())
