"""Who is reachable when, and who drops out where."""

from testbed.emulation.availability.factory import availability_model
from testbed.emulation.availability.models import Availability, Presence
from testbed.emulation.availability.section import (
    Always,
    AvailabilityModel,
    AvailabilitySection,
    Bernoulli,
    DiurnalWeibull,
    DropOut,
    LabelDependent,
    Markov,
    OwnAvailability,
    Scheduled,
    Traced,
)

__all__ = [
    "Always",
    "Availability",
    "AvailabilityModel",
    "AvailabilitySection",
    "Bernoulli",
    "DiurnalWeibull",
    "DropOut",
    "LabelDependent",
    "Markov",
    "OwnAvailability",
    "Presence",
    "Scheduled",
    "Traced",
    "availability_model",
]
