"""Small rounds with a malicious server or dishonest clients, and the record of the attack."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from testbed.adversary.misbehaviour import AttackContext, dishonest_role, malicious_server
from testbed.errors import RoundAborted
from testbed.parties.client import RoleSpec
from tests.aggregation.federations import SmallFederation

Played = tuple[Any, Any, list[str]]
"""The federation, the round's outcome (or the `RoundAborted` that ended it), and the details of the attacks."""


def run_round(small: Any) -> Played:
    """Run one round."""
    try:
        outcome: Any = small.run()
    except RoundAborted as ended:
        outcome = ended
    return small, outcome, [event.detail for event in small.network.events if event.kind == "attack"]


def attacked(
    honest: type, kind: Any, parameters: Any, deltas: np.ndarray, dishonest: set[int], options: Any = None,
    build: Callable[..., Any] = SmallFederation, **more: Any,
) -> Played:  # fmt: skip
    """Run one round with a malicious server and its accomplices; `more` goes to the federation."""
    context = AttackContext(frozenset(dishonest), {} if options is None else {kind: options})
    return run_round(build(deltas, parameters, protocol=malicious_server(honest, [kind], context), **more))


def with_dishonest(
    honest: type, kind: Any, parameters: Any, deltas: np.ndarray, dishonest: set[int], options: Any = None,
    from_round: int = 1,
) -> Played:  # fmt: skip
    """Run one round with an honest server and dishonest clients."""
    clients = frozenset(dishonest)
    context = AttackContext(clients, {} if options is None else {kind: options}, from_round=from_round)
    role = RoleSpec(dishonest_role(kind.extends, [kind], context), parameters, clients)
    return run_round(SmallFederation(deltas, parameters, protocol=honest, roles=[role]))


def digest_of(small: Any, clients: list[int], deltas: np.ndarray, element: Any = None) -> str:
    """Return the SHA-256 of the sum of the clients' true quantised updates of round 1, in elements of this type."""
    total: Any = 0
    for client in clients:
        coins = small.randomness.simulation_key(client, 1, "stochastic rounding")
        total = total + small.parameters.quantisation.encode(np.float32(deltas[client]), 1, coins)
    return hashlib.sha256((total if element is None else total.astype(element)).tobytes()).hexdigest()
