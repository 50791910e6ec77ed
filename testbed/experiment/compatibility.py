"""Options of an experiment that exclude each other: one table, one check, one form of message.

Aggregation protocols check their own options with the same message (`excludes`), because parameters of user-defined
protocols are read later than an experiment is checked.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from testbed.adversary.section import name_of
from testbed.aggregation import catalogue as aggregations
from testbed.aggregation.contract import AggregationParameters
from testbed.aggregation.kit.ring_elements import compression_of, noise_of
from testbed.emulation.availability import Scheduled
from testbed.emulation.links import Links, Transport
from testbed.errors import LEAVE_ONE_OUT, excludes
from testbed.privacy.section import NEEDS_LOSSES
from testbed.selection import catalogue as selections
from testbed.selection.contract import SelectionParameters


@dataclass(frozen=True)
class Choice:
    """An option of an experiment that others may exclude.

    Attributes:
        key: its dotted key.
        chosen: returns an experiment's chosen value as text, "" if the key alone is shown; None if it is not chosen.
        values: the values that count as chosen, for the documentation; "": every value but the default.
    """

    key: str
    chosen: Callable[[Any], str | None]
    values: str = ""

    def shown(self, experiment: Any) -> str | None:
        """Return the key and the chosen value; None if the option is not chosen."""
        value = self.chosen(experiment)
        return value if value is None else self.key + (f": {value}" if value else "")


@dataclass(frozen=True)
class Exclusion:
    """Two options that exclude each other.

    Attributes:
        option, other: the two options.
        why: the reason, or a function that returns it for an experiment.
        advice: the change that makes the experiment valid.
    """

    option: Choice
    other: Choice
    why: str | Callable[[Any], str]
    advice: str = LEAVE_ONE_OUT


def check_exclusions(experiment: Any) -> None:
    """Raise `ValueError` (one line: both keys, the reason, advice) for the first exclusion that the experiment breaks.

    Args:
        experiment: an `Experiment` without a sweep.
    """
    for exclusion in EXCLUSIONS:
        option, other = exclusion.option.shown(experiment), exclusion.other.shown(experiment)
        if option is not None and other is not None:
            why = exclusion.why if isinstance(exclusion.why, str) else exclusion.why(experiment)
            raise excludes(option, other, why, exclusion.advice)


def check_reported_losses(
    allowed: bool,
    selection: SelectionParameters,
    aggregation: AggregationParameters,
) -> None:
    """Raise `ValueError` if clients would send exact losses and counts beside a noised sum without permission.

    Args:
        allowed: ``privacy.report_losses``.
        selection: may need reported losses.
        aggregation: may add noise.
    """
    if not aggregation.reports_losses:
        if allowed:
            raise ValueError(f"report_losses: clients never report losses under {aggregation.protocol}; leave it out")
        return
    # A loss or a count beside a noised sum is a release without noise of its own.
    if allowed or noise_of(aggregation) is None:
        return
    if needs := selection.uses_reported_losses:
        raise ValueError(f"report_losses: false, but selection.{needs} {NEEDS_LOSSES}")


def _there(section: Any, name: str = "") -> str | None:
    """Return a field of an optional section as text, "" without a field; None if the section is absent."""
    return None if section is None else str(getattr(section, name)) if name else ""


def _if(condition: bool, value: str = "") -> str | None:
    return value if condition else None


def _other_quorums(experiment: Any) -> str | None:
    """Return a stage with a quorum that clients answer one by one in asynchronous rounds; None if there is none."""
    aggregation = experiment.aggregation
    single = ("train", *(aggregation.stages if aggregation.asynchronous_buffer == "server" else ()))
    return next((stage for stage in experiment.time.stage_quorums if stage in single), None)


def _transport(experiment: Any) -> str | None:
    """Return the transport if congestion windows may hold messages back; `auto` decides by the clients' links."""
    links: Links = experiment.links
    if isinstance(links.transport, Transport):
        return _if(links.transport.has_windows, links.transport.preset)
    if links.transport != "auto":
        return _if(links.transport != "none", links.transport)
    # Without latency, loss and a limited buffer, a window never holds a message back.
    free = (links.latency_ms, links.loss, links.buffer_ms) == (0, 0, None)
    return _if(not free, "auto")


def _named(kinds: Iterable[Any]) -> str:
    """Return the protocols of these parameter classes as `a, b or c`."""
    *others, last = [str(kind.model_fields["protocol"].default) for kind in kinds]
    return f"{', '.join(others)} or {last}"


_BUFFERED = [kind for kind in aggregations.PROTOCOLS if kind.asynchronous_buffer is not None]
_SINGLE_DRAWS = [kind for kind in selections.PROTOCOLS if kind.draws_singly is not None]

NOISE = Choice("aggregation.noise", lambda experiment: _there(noise_of(experiment.aggregation)))
COMPRESSION = Choice(
    "aggregation.compression", lambda experiment: _there(compression_of(experiment.aggregation), "name")
)
SERVER_OPTIMIZER = Choice(
    "aggregation.server_optimizer", lambda experiment: _there(experiment.aggregation.server_optimizer, "name")
)
ROBUST = Choice("aggregation.robust", lambda experiment: experiment.aggregation.robust_rule or None)
SAMPLE_PRIVACY = Choice(
    "aggregation.protocol",
    lambda experiment: _if(experiment.aggregation.protects_samples, experiment.aggregation.protocol),
    "a protocol that protects samples",
)
DRIFT_CORRECTION = Choice(
    "workload.drift_correction", lambda experiment: _there(experiment.workload.drift_correction, "name")
)
FEDDYN = Choice(
    "workload.drift_correction",
    lambda experiment: _if(_there(experiment.workload.drift_correction, "name") == "feddyn", "feddyn"),
    "`feddyn`",
)
PROXIMAL = Choice(
    "workload.proximal", lambda experiment: _if(experiment.workload.proximal > 0, f"{experiment.workload.proximal:g}")
)
METRICS = Choice("workload.metrics", lambda experiment: _if(bool(experiment.workload.metrics)))
LOCAL_LAYERS = Choice("workload.local_layers", lambda experiment: _there(experiment.workload.local_layers))
SIMULATED = Choice(
    "workload.training", lambda experiment: _if(experiment.workload.training == "simulated", "simulated"), "`simulated`"
)
CLIENTS_AT_ONCE = Choice(
    "workload.clients_at_once",
    lambda experiment: _if(experiment.workload.clients_at_once > 1, str(experiment.workload.clients_at_once)),
)
UNREPORTED_LOSSES = Choice(
    "aggregation.noise",
    lambda experiment: _if(
        noise_of(experiment.aggregation) is not None
        and experiment.aggregation.reports_losses
        and not (experiment.privacy and experiment.privacy.report_losses)
    ),
    "without `privacy.report_losses: true`",
)
INFLATE_UTILITY = Choice(
    "adversary.clients",
    lambda experiment: _if(
        experiment.adversary is not None and "inflate-utility" in map(name_of, experiment.adversary.clients),
        "inflate-utility",
    ),
    "`inflate-utility`",
)
CANARIES = Choice("privacy.canaries", lambda experiment: _there(experiment.privacy and experiment.privacy.canaries))
MEASURED = Choice(
    "time.compute", lambda experiment: _if(experiment.time.compute != "modelled", experiment.time.compute), "`measured`"
)
WALL_CLOCK = Choice("time.clock", lambda experiment: _if(experiment.time.clock == "wall", "wall"), "`wall`")
ASYNCHRONOUS = Choice("asynchronous", lambda experiment: _there(experiment.asynchronous))
WHOLE_ROUNDS = Choice(
    "selection.protocol",
    lambda experiment: _if(experiment.selection.draws_singly is None, experiment.selection.protocol),
    f"not {_named(_SINGLE_DRAWS)}",
)
UNBUFFERED = Choice(
    "aggregation.protocol",
    lambda experiment: _if(experiment.aggregation.asynchronous_buffer is None, experiment.aggregation.protocol),
    f"not {_named(_BUFFERED)}",
)
ANNOUNCED_BATCHES = Choice(
    "selection.membership",
    lambda experiment: experiment.selection.announced_membership,
    "`announced` or `pinned`",
)
OUTSIDERS = Choice(
    "aggregation.protocol",
    lambda experiment: _if(experiment.aggregation.outsiders_check_batches, experiment.aggregation.protocol),
    _named(kind for kind in aggregations.PROTOCOLS if kind.outsiders_check_batches),
)
ADVERSARY = Choice("adversary", lambda experiment: _there(experiment.adversary))
SCHEDULE = Choice(
    "availability.model",
    lambda experiment: _if(isinstance(experiment.availability, Scheduled), "schedule"),
    "`schedule`",
)
WINDOWS = Choice("links.transport", _transport, "with congestion windows")
QUORUM = Choice("time.stage_quorums", _other_quorums, "of stages that clients answer one by one")

_KEPT_BY_ROUND = "client states belong to rounds in which all clients train the same model"
_ONE_GRADIENT = "clients send one gradient at the server's model instead of training"
_NO_TIME = "clients that are trained together have no separate time to measure or wait for"

EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion(
        ASYNCHRONOUS, WHOLE_ROUNDS, lambda experiment: experiment.selection.needs_rounds, f"use {_named(_SINGLE_DRAWS)}"
    ),
    Exclusion(ASYNCHRONOUS, UNBUFFERED, "the protocol needs whole rounds", f"use {_named(_BUFFERED)}"),
    Exclusion(ASYNCHRONOUS, NOISE, "the ledger does not account for updates of several rounds in one sum"),
    Exclusion(ASYNCHRONOUS, DRIFT_CORRECTION, _KEPT_BY_ROUND),
    Exclusion(ASYNCHRONOUS, LOCAL_LAYERS, _KEPT_BY_ROUND),
    Exclusion(ASYNCHRONOUS, WALL_CLOCK, "the time at which each client finishes is computed"),
    Exclusion(ASYNCHRONOUS, ADVERSARY, "its effect on a buffer is not modelled"),
    Exclusion(ASYNCHRONOUS, SCHEDULE, "a schedule lists synchronous rounds"),
    Exclusion(
        ASYNCHRONOUS,
        WINDOWS,
        "congestion windows are modelled only within the stages of a synchronous round",
        "set links: {transport: none}, or {transport: {preset: tcp, congestion_control: none}} for the headers alone",
    ),
    Exclusion(ASYNCHRONOUS, QUORUM, "the server waits for single answers, not for a stage"),
    Exclusion(
        ANNOUNCED_BATCHES,
        OUTSIDERS,
        "clients outside the round check the sums, and are not told the batches",
        "set selection.membership: known",
    ),
    Exclusion(CANARIES, SAMPLE_PRIVACY, "the protocol protects single samples, but a canary is a whole update"),
    Exclusion(CANARIES, COMPRESSION, "a canary is a whole update"),
    Exclusion(CANARIES, DRIFT_CORRECTION, "a canary is an update without corrections"),
    Exclusion(CANARIES, LOCAL_LAYERS, "a canary is a whole update"),
    Exclusion(SAMPLE_PRIVACY, DRIFT_CORRECTION, _ONE_GRADIENT),
    Exclusion(SAMPLE_PRIVACY, LOCAL_LAYERS, _ONE_GRADIENT),
    Exclusion(SAMPLE_PRIVACY, CLIENTS_AT_ONCE, _ONE_GRADIENT),
    Exclusion(SAMPLE_PRIVACY, SIMULATED, "clients send gradients", "set workload.training to real"),
    Exclusion(
        UNREPORTED_LOSSES,
        INFLATE_UTILITY,
        "clients report no losses, so the misbehaviour has no effect",
        "set privacy.report_losses: true, or leave out one of the two",
    ),
    Exclusion(LOCAL_LAYERS, DRIFT_CORRECTION, "corrections need a model that all clients share"),
    Exclusion(LOCAL_LAYERS, CLIENTS_AT_ONCE, "clients have different layers"),
    Exclusion(LOCAL_LAYERS, METRICS, "with each client's layers only loss and accuracy are measured"),
    Exclusion(DRIFT_CORRECTION, PROXIMAL, "both change the loss of a client"),
    Exclusion(DRIFT_CORRECTION, CLIENTS_AT_ONCE, "clients have different corrections"),
    Exclusion(DRIFT_CORRECTION, NOISE, "no noise is planned for the corrections in the sum"),
    # Compression errors of all rounds would add up in the kept corrections, and the model diverges.
    Exclusion(DRIFT_CORRECTION, COMPRESSION, "corrections accumulate over the rounds and need uncompressed updates"),
    Exclusion(FEDDYN, SERVER_OPTIMIZER, "feddyn has its own step at the server"),
    Exclusion(ROBUST, DRIFT_CORRECTION, "the corrections rely on the mean of all clients' messages"),
    Exclusion(LOCAL_LAYERS, NOISE, "no noise is planned for a part of the model"),
    Exclusion(SIMULATED, MEASURED, "simulated training has no time to measure", "set time.compute: modelled"),
    Exclusion(CLIENTS_AT_ONCE, MEASURED, _NO_TIME, "leave it out, or set time.compute: modelled"),
    Exclusion(CLIENTS_AT_ONCE, WALL_CLOCK, _NO_TIME, "leave it out, or set time.clock: virtual"),
)
"""All exclusions, in the order in which they are checked."""
