"""Runs with given accuracies, for tests of times to a target."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from testbed.records import RunRecords
from tests.analysis import recorded


def learner(folder: Path) -> Callable[..., RunRecords]:
    """``learner(folder)([0.1, None, 0.5], ...)``: a run with these accuracies; its rounds take 10 s times its speed.

    Every round has 100 + 10 bytes between the server and two clients each, and 3 between one of them and the PKI.
    """
    numbers = count()

    def make(
        accuracies: Sequence[float | None],
        *,
        protocol: str = "random",
        seed: int | None = 1,
        speed: float = 1.0,
        losses: Sequence[float | None] = (),
        rounds: int | None = None,
        outcomes: Sequence[str] = (),
        **keys: Any,
    ) -> RunRecords:
        made, now = [], 0.0
        for place, accuracy in enumerate(accuracies):
            ended = now + 10 * speed
            stages = [
                recorded.asked("check-in", now, [0, 1], [ended, None], down=100, up=10),
                recorded.asked("train", now, [1], [ended], pki=(2, 1)),
            ]
            loss = losses[place] if losses else None
            outcome = outcomes[place] if outcomes else "completed"
            took_part = [1] if outcome == "completed" else []
            made.append(
                recorded.RecordedRound(now, ended, stages, took_part, took_part, outcome, accuracy=accuracy, loss=loss)
            )
            now = ended
        experiment = {
            "name": protocol, "seed": seed, "rounds": rounds or len(made), "population": 5,
            "selection": {"protocol": protocol}, "workload": {"dataset": "digits"},
            "aggregation": {"protocol": "secagg"}, "provenance": {"label": protocol, "sweep": {"seed": seed}}, **keys,
        }  # fmt: skip
        return recorded.write_run(folder / f"run-{next(numbers)}", experiment, made)

    return make
