"""What stands in Flower's messages, in either of its two APIs."""

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
"""Begin the names of the older API's records."""

EXAMPLES = ("num-examples", "num_examples")
TRAIN_LOSS = ("train_loss", "train-loss", "loss")
LOSS = ("eval_loss", "eval-loss", "loss", "test_loss")
ACCURACY = ("accuracy", "eval_acc", "eval-acc", "eval_accuracy", "acc", "test_accuracy")
"""Usual names of what clients report; the first that a client reports counts."""


def configuration_of(content: RecordDict) -> Configuration:
    """The configuration in a message."""
    return {name: dict(record) for name, record in content.config_records.items()}


def arrays_of(content: RecordDict) -> dict[str, npt.NDArray[Any]]:
    """The model in a message, by name."""
    return {name: np.array(value.numpy()) for name, value in only(content.array_records, "first message").items()}


def only(records: Mapping[str, Any], where: str) -> Any:
    """The one record that there is; raises `Unfit` where there are more, or none."""
    if len(records) != 1:
        raise Unfit(f"the {where} has {len(records)} array records; one, the model, is carried over")
    return next(iter(records.values()))


def metrics_of(content: RecordDict) -> dict[str, float]:
    """All numbers that a client reports, by name."""
    numbers: dict[str, float] = {}
    for records in (content.config_records, content.metric_records):
        for record in records.values():
            numbers |= {key: value for key, value in record.items() if isinstance(value, int | float)}
    return numbers


def named(metrics: Mapping[str, float], names: Sequence[str]) -> float | None:
    """What is reported under the first of these names that is there."""
    return next((metrics[name] for name in names if name in metrics), None)


def metric_name(metrics: Mapping[str, float], key: str, name: str, usual: Sequence[str], part: str) -> str | None:
    """The name under which a client reports a loss or an accuracy; None: it reports none.

    Args:
        metrics: all that it reports, by name.
        key: of ``workload.flower``, for messages.
        name: the key's value; empty: the name is looked for, first among the usual ones, then as the only name that
            contains `part`.
        usual: names, the first that is there counts.
        part: in small letters.

    Raises:
        Unfit: no metric has this name, or several names contain `part`.
    """
    reported = ", ".join(sorted(metrics)) or "no numbers"
    if name:
        if name not in metrics:
            raise Unfit(f"workload.flower.{key}: clients report no {name}, but {reported}; name one of these")
        return name
    common = next((one for one in usual if one in metrics), None)
    candidates = [one for one in metrics if part in one.lower()] if common is None else [common]
    if len(candidates) > 1:
        listed = ", ".join(sorted(candidates))
        raise Unfit(f"clients report {listed}; name the one that counts with workload.flower.{key}")
    return candidates[0] if candidates else None


def is_legacy(content: RecordDict) -> bool:
    """Whether a message is of the older API, `Client` and `NumPyClient`."""
    return any(name.startswith((FIT_INS, EVALUATE_INS)) for name in content)


def legacy_echo(content: RecordDict, kind: str) -> RecordDict:
    """What a client of the older API would answer that has changed nothing."""
    done = Status(Code.OK, "")
    if kind == "evaluate":
        return compat.evaluateres_to_recorddict(EvaluateRes(done, 0.0, 1, {}))
    fit_instructions = compat.recorddict_to_fitins(content, keep_input=True)
    return compat.fitres_to_recorddict(FitRes(done, fit_instructions.parameters, 1, {}), keep_input=True)
