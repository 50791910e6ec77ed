"""Warnings that follow from an experiment's numbers: rounds with too few clients, deadlines that cannot be met.

They are warnings, as such an experiment is valid and its result may be intended.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from testbed.emulation.availability import Traced
from testbed.emulation.availability.expected import online_share, staying_share
from testbed.emulation.availability.section import AvailabilityModel
from testbed.engine.plan import RunPlan
from testbed.errors import ExperimentError, TraceError
from testbed.experiment.schema import Experiment
from testbed.records.clients import take_single_steps
from testbed.selection.supply import Supply, at_least
from testbed.workload.contract import DescribedWorkload, Workload

UNLIKELY = 0.9
"""Rounds with a smaller probability of success get a warning; the finding `ended-early` uses the same limit."""
MOST_CLIENTS_LATE = 0.5
"""Largest share of clients that cannot answer before a deadline, without a warning."""
_TRACES_UP_TO = 1 << 28  # bytes of a file; larger ones are read by a run alone


def foreseeable(experiment: Experiment, plan: RunPlan | None, workload: Workload | None = None) -> list[str]:
    """Return a warning for each problem that follows from the experiment's numbers.

    Args:
        experiment: one point.
        plan: its plan; None: its protocols are not imported, and checks that need them are left out.
        workload: its workload; None: the data are not read, and checks that need them are left out.
    """
    lines = [*_too_few(experiment, plan), *_deadlines(experiment, plan)]
    # Without the data only a fixed number per client is known.
    counts = _known_counts(experiment) if workload is None else np.asarray(workload.sample_counts)
    if counts is not None and _trains_in_batches(experiment, workload):
        lines += single_step(counts, experiment.workload.epochs, experiment.workload.batch_size)
    return lines


def _too_few(experiment: Experiment, plan: RunPlan | None) -> list[str]:
    """Return warnings of rounds that are unlikely to find enough clients, or to keep them."""
    # A buffer waits for clients instead of failing.
    if experiment.asynchronous is not None:
        return []
    section, lines = experiment.availability, []
    online = _online_share(section)
    supply = None if online is None else experiment.selection.supply(experiment.population, online)
    if online is not None and supply is not None and supply.enough < UNLIKELY:
        lines.append(_short_supply(supply, online))
    if plan is None:
        return lines
    participants = experiment.selection.participants
    fewest = plan.aggregation_parameters.fewest_survivors(participants)
    stays = staying_share(section.dropout, len(plan.stages) - len(plan.selection.stages))
    enough = at_least(fewest, participants, stays)
    if enough < UNLIKELY:
        lines.append(
            f"aggregation: a sum needs {fewest} of {participants} participants to the end, and "
            f"{participants * stays:.1f} stay on average, so a round has {_chance(enough)} to give one; change "
            "aggregation.threshold (min_survivors), availability.dropout or selection.participants"
        )
    return lines


def _short_supply(supply: Supply, online: float) -> str:
    """Return the warning of rounds that are likely to have too few candidates, participants or batches.

    Args:
        supply: the supply of clients per round.
        online: mean share of the clients that is online; at 1, availability is not the cause.
    """
    has = (
        f"a round has {supply.expected:.1f} {supply.noun} on average and needs {supply.required}, with "
        f"{_chance(supply.enough)} to have enough of them"
    )
    if online < 1:
        beginning = f"availability: {online:.1%} of the clients are online on average, so {has}"
        return f"{beginning}; change {', '.join(supply.keys)}"
    keys = ", ".join(key for key in supply.keys if key != "availability")
    return f"selection: {has}; change {keys}"


def _online_share(section: AvailabilityModel) -> float | None:
    """Return the mean share of the clients that is online; None if unknown before a run."""
    try:
        if not isinstance(section, Traced):
            return online_share(section)
        file = section.path.stat()
        return _share_of_trace(section.path, file.st_size, file.st_mtime_ns) if file.st_size <= _TRACES_UP_TO else None
    except (OSError, TraceError):
        return None  # a run reports the error


@lru_cache(maxsize=4)  # the points of a sweep name the same few files
def _share_of_trace(path: Path, size: int, changed_ns: int) -> float | None:
    # Size and time of change are part of the key, so that a changed file is read again.
    return online_share(Traced(path=path))


def _chance(probability: float) -> str:
    return "no chance" if probability < 5e-4 else f"a chance of {probability:.1%}"


def _deadlines(experiment: Experiment, plan: RunPlan | None) -> list[str]:
    """Return warnings of deadlines that end before a question and its answer have travelled."""
    if plan is None or experiment.asynchronous is not None:
        return []
    try:
        links = plan.links()
    except (ExperimentError, TraceError):
        return []  # a run reports the error
    # Without transfer and work, so a lower bound: the warning is never wrong.
    travel_s = 2 * np.asarray(links.latency_s)
    time, lines = experiment.time, []
    deadlines = {"time.deadline_s": time.deadline_s} if set(plan.stages) - set(time.stage_deadlines) else {}
    deadlines |= {
        f"time.stage_deadlines.{stage}": seconds
        for stage, seconds in time.stage_deadlines.items()
        if stage in plan.stages
    }
    for key, seconds in deadlines.items():
        late = int(np.count_nonzero(travel_s >= seconds))
        if late > MOST_CLIENTS_LATE * len(travel_s):
            lines.append(
                f"{key}: {seconds:g} s are over before {late:,} of {len(travel_s):,} clients can answer: a question "
                f"and its answer travel {float(np.median(travel_s)):.3g} s (links.latency_ms, there and back); raise it"
            )
    return lines


def _known_counts(experiment: Experiment) -> np.ndarray | None:
    """Return the number of samples of each client, if the workload section alone determines it."""
    section = experiment.workload
    return None if section.samples_per_client is None else np.full(1, section.samples_per_client)


def _trains_in_batches(experiment: Experiment, workload: Workload | None) -> bool:
    section = experiment.workload
    if experiment.records.aggregates != "none":  # kept for attacks, which are about single steps more often than not
        return False
    if section.training != "real" or section.flower is not None or experiment.aggregation.protects_samples:
        return False
    if section.is_built_in:
        return True
    return isinstance(workload, DescribedWorkload) and bool(workload.data_facts.get("trained_in_batches"))


def single_step(counts: np.ndarray, epochs: int, batch_size: int) -> list[str]:
    """Return a warning if nearly all clients take a single gradient step per round.

    Args:
        counts: `(n,)` training samples of each client.
        epochs: local epochs of the experiment's workload.
        batch_size: samples per batch of the experiment's workload.
    """
    if not take_single_steps(counts, epochs, batch_size):
        return []
    return [
        f"workload: clients have {float(np.median(counts[counts > 0])):,.0f} samples in the median, "
        f"workload.batch_size is {batch_size} and workload.epochs 1, so a client takes one gradient step a round; "
        "raise epochs, or lower batch_size"
    ]


def merged(lines: Sequence[tuple[str, str]], where: str, points: int) -> list[str]:
    """Merge equal lines; each begins with the places that it holds for.

    Args:
        lines: place (a point of the sweep) and line.
        where: the file, named instead of all places.
        points: number of places.
    """
    places: dict[str, list[str]] = {}
    for place, line in lines:
        places.setdefault(line, []).append(place)
    return [f"{where if len(named) == points else _some(named)}: {line}" for line, named in places.items()]


def _some(places: Sequence[str]) -> str:
    more = len(places) - 1
    return f"{places[0]}{f' and {more} more' if more else ''}"
