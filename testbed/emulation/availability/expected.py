"""Mean share of online clients, computed from the `availability` section alone."""

import numpy as np

from testbed.emulation.availability.section import (
    Always,
    AvailabilityModel,
    Bernoulli,
    DiurnalWeibull,
    Dropout,
    LabelDependent,
    Markov,
    Traced,
)
from testbed.emulation.traces.intervals import AvailabilityTrace


def online_share(section: AvailabilityModel) -> float | None:
    """Return the mean share of the clients that are online at a moment.

    Args:
        section: the experiment's `availability` section.

    Returns:
        A share from 0 to 1; None if the section does not determine it. For a trace, the mean over its devices and
        horizon; for `label-dependent`, that of equally frequent labels; for `diurnal-weibull`, that without the daily
        rhythm.

    Raises:
        TraceError: the trace cannot be used.
    """
    match section:
        case Always():
            return 1.0
        case Bernoulli():
            return 1.0 - float(np.mean(section.unavailable))
        case LabelDependent():
            return 1.0 - (section.lowest + section.highest) / 2
        case Markov() | DiurnalWeibull():
            total = section.mean_online_s + section.mean_offline_s
            return section.mean_online_s / total
        case Traced():
            return _of_trace(AvailabilityTrace.read(section.path))
    return None


def _of_trace(trace: AvailabilityTrace) -> float:
    device, begin, until = trace.stretches()
    watched = trace.recorded_until_s - trace.recorded_from_s
    return float(((until - begin) / watched[device]).sum() / len(trace))


def staying_share(section: Dropout, stages: int) -> float:
    """Return the mean share of the participants that do not drop out of a round.

    Args:
        section: dropout rate and hazards.
        stages: number of stages of a round after selection.

    Example:
        >>> staying_share(Dropout(rate=0.2, hazard=0.5), stages=2)
        0.2
    """
    stays = 1.0 - float(np.mean(section.rate))
    hazards = section.hazard.values() if isinstance(section.hazard, dict) else [section.hazard] * stages
    return stays * float(np.prod([1.0 - hazard for hazard in hazards]))
