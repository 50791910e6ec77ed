"""Contents of Flower's messages, in either of its two APIs."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from flwr.app import RecordDict

from .environment import Unfit
from .older_api import Code, EvaluateRes, FitRes, Status, compat

Configuration: TypeAlias = "dict[str, dict[str, Any]]"
"""The configuration records of a message, by name."""

FIT_INS, EVALUATE_INS = "fitins.", "evaluateins."
"""Prefixes of the names of the older API's records."""

EXAMPLES = ("num-examples", "num_examples")
TRAIN_LOSS = ("train_loss", "train-loss", "loss")
LOSS = ("eval_loss", "eval-loss", "loss", "test_loss")
ACCURACY = ("accuracy", "eval_acc", "eval-acc", "eval_accuracy", "acc", "test_accuracy")
"""Usual names of reported numbers; the first name that a client reports counts."""


def configuration_of(content: RecordDict) -> Configuration:
    """Return the configuration in a message."""
    return {name: dict(record) for name, record in content.config_records.items()}


def arrays_of(content: RecordDict) -> dict[str, npt.NDArray[Any]]:
    """Return the model in a message, by name of its arrays."""
    return {name: np.array(value.numpy()) for name, value in only(content.array_records, "first message").items()}


def only(records: Mapping[str, Any], where: str) -> Any:
    """Return the only record; raises `Unfit` if there are several, or none.

    Args:
        records: the records by name.
        where: the message, for the error.
    """
    if len(records) != 1:
        raise Unfit(f"the {where} has {len(records)} array records; only one, the model, is supported")
    return next(iter(records.values()))


def metrics_of(content: RecordDict) -> dict[str, float]:
    """Return all numbers that a client reports, by name."""
    numbers: dict[str, float] = {}
    for records in (content.config_records, content.metric_records):
        for record in records.values():
            numbers |= {key: value for key, value in record.items() if isinstance(value, int | float)}
    return numbers


def named(metrics: Mapping[str, float], names: Sequence[str]) -> float | None:
    """Return the number under the first of these names that a client reports; None if it reports none of them.

    Args:
        metrics: reported numbers by name.
        names: names in order of preference.
    """
    return next((metrics[name] for name in names if name in metrics), None)


def metric_name(metrics: Mapping[str, float], key: str, name: str, usual: Sequence[str], part: str) -> str | None:
    """Return the name under which a client reports a loss or an accuracy; None if it reports none.

    Args:
        metrics: reported numbers by name.
        key: key of ``workload.flower``, for messages.
        name: the key's value; empty: the name is searched for, first among the usual ones, then as the only name that
            contains `part`.
        usual: usual names in order of preference.
        part: in lower case.

    Raises:
        Unfit: no metric has this name, or several names contain `part`.
    """
    reported = ", ".join(sorted(metrics)) or "no numbers"
    if name:
        if name not in metrics:
            raise Unfit(f"workload.flower.{key}: clients report no {name}, but {reported}; name one of these")
        return name
    common = next((metric for metric in usual if metric in metrics), None)
    candidates = [metric for metric in metrics if part in metric.lower()] if common is None else [common]
    if len(candidates) > 1:
        listed = ", ".join(sorted(candidates))
        raise Unfit(f"clients report {listed}; name one of them with workload.flower.{key}")
    return candidates[0] if candidates else None


def is_legacy(content: RecordDict) -> bool:
    """Return whether a message is of the older API, `Client` and `NumPyClient`."""
    return any(name.startswith((FIT_INS, EVALUATE_INS)) for name in content)


def legacy_echo(content: RecordDict, kind: str) -> RecordDict:
    """Return the answer of a client of the older API that changes nothing.

    Args:
        content: the message.
        kind: ``train`` or ``evaluate``.
    """
    done = Status(Code.OK, "")
    if kind == "evaluate":
        return compat.evaluateres_to_recorddict(EvaluateRes(done, 0.0, 1, {}))
    fit_instructions = compat.recorddict_to_fitins(content, keep_input=True)
    return compat.fitres_to_recorddict(FitRes(done, fit_instructions.parameters, 1, {}), keep_input=True)
