"""Who is reachable when, and who drops out where."""

from testbed.availability.building import availability_model
from testbed.availability.presence import Availability, Presence
from testbed.availability.section import (
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
