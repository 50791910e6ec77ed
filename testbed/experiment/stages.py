"""Names of stages in an experiment: one that its protocols do not have would silently have no effect, so it is refused.

In a sweep the protocols differ. Where clients drop out must be a stage of each point, or that point would lose nobody
and be compared with others that do. A deadline or a quorum may be of a stage that only other points have.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence

from testbed.adversary.catalogue import CLIENTS, SERVER
from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters
from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.selection import catalogue as selections
from testbed.selection.contract import SelectionParameters

_ALWAYS = "train"
_WITH_AN_ADVERSARY = "adversary/"
RANDOM = "random"  # availability.dropout.stage: any stage after selection


def known_stages() -> set[str]:
    """The stages of all questions that a built-in protocol asks, or a built-in misbehaviour."""
    protocols: tuple[type[SelectionParameters] | type[AggregationParameters], ...]
    protocols = (*selections.PROTOCOLS, *aggregations.PROTOCOLS)
    declared = [stage for kind in protocols for stage in (*kind.stages, *kind.further_stages)]
    return {*declared, _ALWAYS, *(stage for kind in (*SERVER, *CLIENTS) for stage in kind.added_stages)}


def stages_of(experiment: Experiment) -> tuple[str, ...] | None:
    """The stages of a round, in order; None where a protocol is a user-defined class, which is not imported."""
    selection, aggregation = (one.stages_of_round() for one in (experiment.selection, experiment.aggregation))
    return (*selection, _ALWAYS, *aggregation) if selection and aggregation else None


def check_points(
    experiments: Sequence[tuple[str, Experiment]],
    stages: Callable[[Experiment], tuple[str, ...] | None] = stages_of,
) -> None:
    """Raise `ExperimentError` for a stage that the protocols of a point, or of all points, do not have.

    Args:
        experiments: all points of a sweep, or the one experiment, each with what its errors begin with.
        stages: of a point; None: not known, so its names are left unchecked.
    """
    known = [stages(experiment) for _, experiment in experiments]
    everywhere = None if None in known else {stage for found in known for stage in found or ()}
    for (where, experiment), own in zip(experiments, known, strict=True):
        if own is None:
            continue
        try:
            check_stages(experiment, own, everywhere)
        except ExperimentError as error:
            raise ExperimentError(f"{where}: {error}") from None


def check_stages(experiment: Experiment, stages: Iterable[str], elsewhere: Iterable[str] | None = None) -> None:
    """Raise `ExperimentError` for the name of a stage that this experiment does not have.

    Args:
        experiment: one point; what names stages (drop-out, deadlines and quorums).
        stages: of its protocols, in order.
        elsewhere: stages of the other points of its sweep; None: not known, so any stage of a built-in protocol passes
            where a deadline or a quorum names it.
    """
    stages = tuple(dict.fromkeys(stages))
    known = known_stages()
    if experiment.adversary is not None and experiment.adversary.server:  # an honest server asks none of them
        stages += tuple(sorted(stage for stage in known if stage.startswith(_WITH_AN_ADVERSARY)))
    any_point = tuple(dict.fromkeys((*stages, *sorted(known if elsewhere is None else elsewhere))))
    shown = stages if elsewhere is None else any_point
    dropout = experiment.availability.dropout
    if dropout.stage != RANDOM:
        _check("availability.dropout.stage", dropout.stage, stages, (RANDOM, *stages), experiment)
    if isinstance(dropout.hazard, dict) and dropout.hazard:
        for stage in dropout.hazard:
            _check("availability.dropout.hazard", stage, any_point, shown, experiment)
        if not set(stages).intersection(dropout.hazard):
            _check("availability.dropout.hazard", next(iter(dropout.hazard)), stages, stages, experiment)
    for key, named in (
        ("stage_deadlines", experiment.time.stage_deadlines),
        ("stage_quorums", experiment.time.stage_quorums),
    ):
        for stage in named:
            _check(f"time.{key}", stage, any_point, shown, experiment)


def check_schedule(stages: Iterable[str], where: str, own: Iterable[str] = ()) -> None:
    """Raise `ExperimentError` for a stage of a schedule that no protocol has.

    Those of protocols that this run does not have are no mistake: `ScheduledAvailability` says what they mean.

    Args:
        stages: that the schedule names.
        where: the schedule.
        own: stages of user-defined protocols, of all points.
    """
    known = {*known_stages(), *own}
    for stage in stages:
        if stage and stage not in known:
            raise ExperimentError(f"{where}: unknown stage {stage!r}; {_allowed(stage, sorted(known))}")


def _check(key: str, stage: str, fitting: Iterable[str], shown: Iterable[str], experiment: Experiment) -> None:
    if stage in fitting:
        return
    shown = tuple(shown)
    if stage in known_stages():
        protocols = f"selection {experiment.selection.protocol} with aggregation {experiment.aggregation.protocol}"
        raise ExperimentError(f"{key}: {stage!r} is no stage of {protocols}; {_allowed(stage, shown)}")
    raise ExperimentError(f"{key}: unknown stage {stage!r}; {_allowed(stage, shown)}")


def _allowed(stage: str, shown: Sequence[str]) -> str:
    close = difflib.get_close_matches(stage, shown, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(shown)}"
