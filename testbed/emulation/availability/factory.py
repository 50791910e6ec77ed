"""Construction of the availability model that an experiment's `availability` section describes."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats
from testbed.emulation.availability.clocked import AlternatingAvailability, TracedAvailability, assign_devices
from testbed.emulation.availability.models import (
    AlwaysAvailable,
    Availability,
    CheckedAvailability,
    DroppingAvailability,
    RoundwiseAvailability,
    ScheduledAvailability,
    unavailable_by_label,
)
from testbed.emulation.availability.section import (
    Always,
    AvailabilityModel,
    Bernoulli,
    DiurnalWeibull,
    Dropout,
    LabelDependent,
    Markov,
    Scheduled,
    Traced,
    UserDefinedAvailability,
)
from testbed.emulation.links import cycle_values
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.schedule import Schedule
from testbed.errors import ExperimentError
from testbed.plugins import options
from testbed.plugins.classes import plugin_class
from testbed.randomness import Randomness


def availability_model(
    section: AvailabilityModel,
    population: int,
    stages_after_selection: Sequence[str],
    randomness: Randomness,
    label_counts: Callable[[], npt.NDArray[np.int64]],
) -> Availability:
    """Return the availability model that `section` describes, dropouts included.

    Args:
        section: the experiment's section, one of the alternatives of `AvailabilitySection`.
        population: number of clients n.
        stages_after_selection: names of the stages from training on, in order.
        randomness: of the experiment.
        label_counts: returns `(n, classes)` int64 examples of each label that only the client has; called only if the
            model needs it.

    Raises:
        ExperimentError: a list longer than the population, or a user-defined class that cannot be found or used.
        TraceError: a trace or schedule that cannot be used.
    """
    try:
        section.check(population)
    except ValueError as error:
        raise ExperimentError(f"availability.{error}") from None
    model: Availability
    match section:
        case Always():
            model = AlwaysAvailable()
        case Bernoulli():
            model = RoundwiseAvailability(_unavailable(section, population, randomness), randomness)
        case LabelDependent():
            model = RoundwiseAvailability(unavailable_by_label(section, label_counts(), population), randomness)
        case Markov() | DiurnalWeibull():
            model = AlternatingAvailability(section, population, randomness)
        case Traced():
            model = _traced(section, population, randomness)
        case Scheduled():
            model = ScheduledAvailability(Schedule.read(section.path), population, stages_after_selection)
        case UserDefinedAvailability():
            own = plugin_class(section.model, "availability.model")
            made = options.create_with_options(own, section.model, "availability", section, population, randomness)
            model = CheckedAvailability(made, section.model)
        case _:
            raise ExperimentError(f"availability.model: {type(section).__name__} is not an availability model")
    if section.dropout == Dropout():
        return model
    return DroppingAvailability(model, section.dropout, population, stages_after_selection, randomness)


def _unavailable(section: Bernoulli, population: int, randomness: Randomness) -> Floats:
    """Return `(n,)` float64: each client's probability of being away, cycled or drawn from the list."""
    if not (section.drawn and isinstance(section.unavailable, list)):
        return cycle_values(section.unavailable, population)
    generator = randomness.generator("availability", 0, "unavailable")
    return generator.choice(np.array(section.unavailable, dtype=np.float64), population)


def _traced(section: Traced, population: int, randomness: Randomness) -> Availability:
    trace = AvailabilityTrace.read(section.path)
    if section.start_s >= trace.horizon_s:
        raise ExperimentError(
            f"availability.start_s: {section.start_s:g} s is not before the end of {section.path}, which lasts "
            f"{trace.horizon_s:g} s"
        )
    generator = randomness.generator("availability", 0, "trace")
    # Drawn for `cycle`, too, so that both assignments have the same shifts.
    device_of, shift_s = assign_devices(population, trace, generator, section.shift)
    if section.assign == "cycle":
        device_of = np.arange(population, dtype=np.int64) % len(trace)
    return TracedAvailability(trace, device_of, shift_s, section.repeat, section.start_s)
