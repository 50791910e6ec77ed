"""Availability of clients over time, and dropouts within a round."""

from testbed.emulation.availability.factory import availability_model
from testbed.emulation.availability.models import Availability, Presence
from testbed.emulation.availability.section import (
    Always,
    AvailabilityModel,
    AvailabilitySection,
    Bernoulli,
    DiurnalWeibull,
    Dropout,
    LabelDependent,
    Markov,
    Scheduled,
    Traced,
    UserDefinedAvailability,
)

__all__ = [
    "Always",
    "Availability",
    "AvailabilityModel",
    "AvailabilitySection",
    "Bernoulli",
    "DiurnalWeibull",
    "Dropout",
    "LabelDependent",
    "Markov",
    "Presence",
    "Scheduled",
    "Traced",
    "UserDefinedAvailability",
    "availability_model",
]
