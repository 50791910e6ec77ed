"""Synthesis of availability traces from the availability models of experiments.

Models with a clock (Markov, diurnal Weibull) give the exact times. Other models, user-defined ones included, are asked
round by round; their traces need the length of a round and hold for rounds of this length only.
"""

import math

import numpy as np

from testbed.arrays import Floats, Ids
from testbed.emulation.availability.clocked import AlternatingAvailability
from testbed.emulation.availability.factory import availability_model
from testbed.emulation.availability.section import (
    AvailabilityModel,
    DiurnalWeibull,
    Dropout,
    LabelDependent,
    Markov,
    Scheduled,
    Traced,
)
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.errors import ExperimentError
from testbed.randomness import Randomness

_MOST_QUESTIONS = 1_000_000_000  # clients x rounds
_MOST_CLIENTS = 100_000_000  # at 8 bytes for each and 24 for each interval
_MOST_INTERVALS = 50_000_000


def synthesize(
    model: AvailabilityModel,
    clients: int,
    horizon_s: float,
    randomness: Randomness,
    round_s: float | None = None,
) -> AvailabilityTrace:
    """Return a trace of a model's online intervals.

    Args:
        model: an experiment's `availability` section.
        clients: number of clients n, numbered from 0; the trace includes clients that are never online.
        horizon_s: end of the trace, which begins at 0, in seconds. The last round may be cut off.
        randomness: source of all draws; the same as in an experiment with the same seed.
        round_s: length of a round in seconds, for models that draw independently for each round.

    Raises:
        ExperimentError: the model has no times of its own and no `round_s` is given, needs data, replays a file, drops
            clients in the middle of rounds, or makes no client ever online.
    """
    if clients < 1 or not 0 < horizon_s < math.inf:
        raise ExperimentError(
            f"{clients} clients for {horizon_s:g} s; a trace needs at least one client and a positive, finite length"
        )
    if clients > _MOST_CLIENTS:
        raise ExperimentError(f"{clients} clients; a trace of more than {_MOST_CLIENTS:,} does not fit into memory")
    name = model.model
    if isinstance(model, Traced | Scheduled):
        raise ExperimentError(f"model {name} replays a file; there is nothing to synthesize")
    if isinstance(model, LabelDependent):
        raise ExperimentError(
            f"model {name} depends on the clients' data; use bernoulli with a list, e.g. unavailable=[0.1, 0.5]"
        )
    if model.dropout != Dropout():
        raise ExperimentError("dropout: a trace has no stages to drop out in; set dropout in the experiment instead")
    if isinstance(model, Markov | DiurnalWeibull):
        if round_s is not None:
            raise ExperimentError(f"model {name} has its own times; leave out the length of a round (--round-seconds)")
        expected = clients * horizon_s / (model.mean_online_s + model.mean_offline_s)
        if expected > _MOST_INTERVALS:
            raise ExperimentError(
                f"model {name}: about {expected:.1g} intervals, at most {_MOST_INTERVALS:,}; take fewer clients, less "
                "time, or longer means"
            )
        client, from_s, until_s = AlternatingAvailability(model, clients, randomness).intervals(clients, horizon_s)
    else:
        if round_s is None or not 0 < round_s < math.inf:
            raise ExperimentError(
                f"model {name} has rounds instead of times; give the length of a round (--round-seconds)"
            )
        client, from_s, until_s = _by_rounds(model, clients, horizon_s, randomness, round_s)
    if not len(client):
        raise ExperimentError(f"model {name}: no client is ever online with these values; a trace needs one interval")
    return AvailabilityTrace.from_rows(
        client, from_s, until_s, f"model {name}", horizon=(0.0, horizon_s), clients=np.arange(clients)
    )


def _by_rounds(
    section: AvailabilityModel, clients: int, horizon_s: float, randomness: Randomness, round_s: float
) -> tuple[Ids, Floats, Floats]:
    """Return the intervals of a model that is asked round by round; `(m,)` each, sorted by client, then time."""
    rounds = math.ceil(horizon_s / round_s)
    if rounds * clients > _MOST_QUESTIONS:
        raise ExperimentError(f"{rounds} rounds of {clients} clients; at most {_MOST_QUESTIONS:.0e} together")
    model = availability_model(section, clients, (), randomness, lambda: np.zeros((clients, 1), np.int64))
    everybody = np.arange(clients)
    was = np.zeros(clients, np.bool_)
    begun, ended = [], []  # (client, round) at which a run of rounds begins, and before which it ends
    for number in range(rounds):
        there = model.presence(number + 1, "", number * round_s, everybody).reachable
        begun.append(_paired(np.flatnonzero(there & ~was), number))
        ended.append(_paired(np.flatnonzero(was & ~there), number))
        was = there
    # Clients that are online in the last round have no change that ends their interval.
    ended.append(_paired(np.flatnonzero(was), rounds))
    begins, ends = (_sorted(np.concatenate(pairs, axis=1)) for pairs in (begun, ended))
    return begins[0], begins[1] * round_s, np.minimum(ends[1] * round_s, horizon_s)


def _paired(clients: Ids, number: int) -> Ids:
    return np.stack([clients, np.full(len(clients), number)])


def _sorted(pairs: Ids) -> Ids:
    return pairs[:, np.lexsort((pairs[1], pairs[0]))]
