"""A user-defined model: what it answers is checked before the network relies on it."""

from typing import Any

import numpy as np

from testbed.arrays import Ids
from testbed.emulation.availability.presence import Availability, Presence
from testbed.errors import ExperimentError
from testbed.plugins import options


class CheckedAvailability:
    """Passes questions on, and refuses answers that are none.

    Args:
        model: an `Availability`, as far as anybody knows.
        name: how the experiment names its class.

    Raises:
        ExperimentError: it has no `presence`, or no `comes_back` that is true or false; later, an answer of the
            wrong type or shape. What goes wrong inside the model comes through unchanged.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        options.check_methods(model, name, "availability.model", "presence(round_number, stage, now_s, clients)")
        if not isinstance(model, Availability) or not isinstance(model.comes_back, bool):
            raise self._error(
                "needs an attribute `comes_back` that is True or False (see testbed.emulation.availability)"
            )
        self.comes_back = model.comes_back

    def _error(self, problem: str) -> ExperimentError:
        return ExperimentError(f"availability.model: {self._name}: {problem}")

    def presence(self, round_number: int, stage: str, now_s: float, clients: Ids) -> Presence:
        """See `Availability.presence`."""
        answer = self._model.presence(round_number, stage, now_s, clients)
        if not isinstance(answer, Presence):
            raise self._error(f"presence() must return a Presence, not {type(answer).__name__}")
        m = len(clients)
        columns: dict[str, tuple[Any, type[np.generic]]] = {
            "reachable": (answer.reachable, np.bool_),
            "drops": (answer.drops, np.bool_),
            "leaves_s": (answer.leaves_s, np.float64),
        }
        for name, (array, dtype) in columns.items():
            if not isinstance(array, np.ndarray) or array.shape != (m,) or array.dtype != dtype:
                found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                raise self._error(f"presence().{name} must be {np.dtype(dtype)} of shape ({m},), not {found}")
        if np.isnan(answer.leaves_s).any():
            raise self._error("presence().leaves_s has NaN; a client that stays has infinity")
        return Presence(answer.reachable, answer.drops & answer.reachable, answer.leaves_s)
