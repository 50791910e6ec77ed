"""A user-defined selection protocol, in about 30 lines: clients take turns.

Use it in an experiment file, with this folder on PYTHONPATH:

    selection: {protocol: "own_selection:TakingTurns", participants: 10, start: 5}

`start` is this protocol's own, declared in its `Parameters`: a misspelt key is refused, as `testbed validate FILE
--import-classes` says beforehand.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field

from testbed.errors import RoundSkipped
from testbed.parties.client import RoleSpec
from testbed.selection.check_in import STAGE, CheckInRole, check_in
from testbed.selection.contract import Selection, SelectionParameters, SelectionProtocol, SelectionRound


class TakingTurnsParameters(SelectionParameters):
    """The keys of the protocol in an experiment; others are refused."""

    start: int = Field(0, ge=0, description="The client that participates first")


class TakingTurns(SelectionProtocol):
    """The next K clients that are there, in the order of their numbers, from where the last round stopped."""

    Parameters: ClassVar[type[SelectionParameters]] = TakingTurnsParameters
    parameters: TakingTurnsParameters
    stages = (STAGE,)

    @property
    def roles(self) -> list[RoleSpec]:
        """Return the clients' roles: they check in. A `Role` of your own may have more handlers."""
        return [RoleSpec(CheckInRole, None)]

    async def select(self, round_: SelectionRound) -> Selection:
        """Choose the participants; everything that crosses the network goes through `round_.network.ask`."""
        present = await check_in(round_)
        wanted, start = self.parameters.participants, self.parameters.start
        if len(present) < wanted:
            detail = f"{len(present)} available, {wanted} wanted"
            raise RoundSkipped("too-few-available", detail, candidates=len(present))
        next_turn = (start + (round_.number - 1) * wanted) % round_.population
        order = np.argsort((present - next_turn) % round_.population)
        return Selection(np.sort(present[order[:wanted]]), len(present))
