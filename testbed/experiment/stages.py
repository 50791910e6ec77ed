"""Names of stages in an experiment: one that no protocol has would silently have no effect, so it is refused."""

import difflib
from collections.abc import Iterable, Iterator

from testbed.errors import ExperimentError
from testbed.experiment.schema import Experiment
from testbed.messages import Message


def known_stages() -> set[str]:
    """The stages of all questions that any imported protocol asks."""
    from testbed import registry  # noqa: F401  its imports are the built-in protocols

    return {kind.stage for kind in _kinds_of(Message) if kind.stage}


def check_stages(experiment: Experiment, own: Iterable[str] = ()) -> None:
    """Raise `ExperimentError` for the name of a stage that does not exist.

    A stage of another protocol than the experiment's is no mistake: in a sweep the protocols differ.

    Args:
        experiment: what names stages (drop-out, deadlines and quorums).
        own: stages of protocols of the user's own.
    """
    known = known_stages() | set(own)
    dropout = experiment.availability.dropout
    named = [("availability.dropout.stage", dropout.stage)] if dropout.stage != "random" else []
    if isinstance(dropout.hazard, dict):
        named += [("availability.dropout.hazard", stage) for stage in dropout.hazard]
    named += [("time.stage_deadlines", stage) for stage in experiment.time.stage_deadlines]
    named += [("time.stage_quorums", stage) for stage in experiment.time.stage_quorums]
    for key, stage in named:
        if stage not in known:
            close = difflib.get_close_matches(stage, sorted(known), n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ExperimentError(f"{key}: unknown stage {stage!r}; {hint}allowed: {', '.join(sorted(known))}")


def check_schedule(stages: Iterable[str], where: str, own: Iterable[str] = ()) -> None:
    """Raise `ExperimentError` for a stage of a schedule that looks like a mistyped one.

    Other unknown stages are those of protocols that this run does not have.
    """
    known = known_stages() | set(own)
    for stage in stages:
        close = difflib.get_close_matches(stage, sorted(known), n=1, cutoff=0.85) if stage not in known else []
        if stage and close:
            raise ExperimentError(f"{where}: unknown stage {stage!r}; did you mean {close[0]!r}?")


def _kinds_of(kind: type[Message]) -> Iterator[type[Message]]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _kinds_of(derived)
