"""What share of the clients is online on average, by the `availability` section alone."""

import numpy as np

from testbed.emulation.availability.section import (
    Always,
    AvailabilityModel,
    Bernoulli,
    DiurnalWeibull,
    DropOut,
    LabelDependent,
    Markov,
    Traced,
)
from testbed.emulation.traces.intervals import AvailabilityTrace


def online_share(section: AvailabilityModel) -> float | None:
    """The mean share of the clients that is online at a moment, 0 to 1; None: the section does not say.

    Of a trace it is the mean over its devices and its horizon. Of `label-dependent` it is that of equally frequent
    labels, of `diurnal-weibull` that without the rhythm of the day.

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


def staying_share(section: DropOut, stages: int) -> float:
    """The mean share of the participants that do not drop out of a round.

    Args:
        section: who leaves where.
        stages: how many stages a round has after selection.
    """
    stays = 1.0 - float(np.mean(section.rate))
    hazards = section.hazard.values() if isinstance(section.hazard, dict) else [section.hazard] * stages
    return stays * float(np.prod([1.0 - hazard for hazard in hazards]))
