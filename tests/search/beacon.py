"""The server's access to the beacon that opens rounds and registers lists, in mixes with a beacon."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from testbed.errors import Refusal
from testbed.network.hosts import Delivery
from testbed.parties import round_beacon
from testbed.selection.lotto import messages


def used_by(plan: Any) -> bool:
    """Return whether a beacon opens the rounds of this experiment."""
    return getattr(plan.experiment.selection, "round_beacon", "none") == "public"


def heard(delivery: Delivery, number: int) -> Delivery:
    """Return the delivery to one client that has received announcements up to this number."""
    return replace(delivery, last_announced=np.array([number]))


class Opening:
    """The server's access to the beacon in one round; without a beacon it does nothing.

    Args:
        plan: of the experiment.
        beacon: the beacon's party, shared by all rounds of a play; None: no beacon.
        number: the round.
    """

    def __init__(self, plan: Any, beacon: Any, number: int) -> None:
        self._plan, self._beacon, self._number = plan, beacon, number
        self.pulse: bytes | None = None
        if beacon is not None:
            try:
                self.pulse = beacon.open(number)
            except Refusal:
                self.pulse = None

    @property
    def randomness(self) -> tuple[bytes, ...]:
        """Return the beacon's randomness, part of the input of the draws."""
        return () if self.pulse is None else (round_beacon.randomness_of(self.pulse),)

    def announced(self, message: Any) -> Any:
        """Return the announcement with the pulse."""
        return message if self._beacon is None else msgspec.structs.replace(message, pulse=self.pulse)

    def listed(self, message: Any) -> Any:
        """Return the list with the beacon's receipt, if it gives one."""
        if self._beacon is None:
            return message
        content = messages.list_content(self._plan.experiment_id, self._plan.experiment.selection, message)
        try:
            receipt = self._beacon.register(self._number, messages.list_digest(content))
        except Refusal:
            receipt = bytes(64)
        return msgspec.structs.replace(message, beacon=messages.ListRegistration(receipt, self.pulse))


def made_for(plan: Any) -> Any:
    """Return the beacon of a play, or None."""
    return plan.round_beacon(None) if used_by(plan) else None
