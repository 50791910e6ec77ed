"""The virtual clock against the kernel's TCP over distances: `python -m benchmarks.fidelity --wan`.

Clients in namespaces answer a server over the wire in user space (`wire`): round trips of 5 to 300 ms, rates of 2 to
100 Mbit/s, messages of 200 bytes to 10 MB, three algorithms of congestion control, connections that are new, warm or
idle, several clients at one link of the server's, packets that are lost, by chance or because a queue is full. The
cases are drawn by seed (those with queues are always the same). The computed side gets the case's numbers, and as
clients' work the time of the smallest message beyond its round trips (`handling_s`).
With loss, means over repetitions are compared. Then whole rounds of protocols (`wan_rounds`).
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.fidelity.measuring import Clients
from benchmarks.fidelity.namespaces import enter
from benchmarks.fidelity.picture import draw
from benchmarks.fidelity.wan_cases import ALGORITHMS, STATES, WanCase, queue_cases, size_text, wan_cases
from benchmarks.fidelity.wan_measuring import Measured, handling_s, measured, predicted
from benchmarks.fidelity.wan_rounds import RoundTimes, compared_rounds
from benchmarks.fidelity.wire_check import Checked, checked, worst
from benchmarks.fidelity.wire_star import WireStar

CASES, LOSSY = 160, 24
QUICK_CASES, QUICK_LOSSY, QUICK_LONGEST_S = 10, 2, 1.0
LOSSY_REPEATS, QUICK_REPEATS, LOSSY_PREDICTIONS, QUEUE_PREDICTIONS = 20, 3, 60, 10
SHORT_S, SHORT_REPEATS = 1.0, 3  # the median of several, where that costs little
CLIENTS = 8
MEDIAN_TARGET, WITHIN, WITHIN_SHARE, ROUND_TARGET = 0.05, 0.15, 0.95, 0.10


@dataclass(frozen=True)
class WanComparison:
    """One case; `predictions` and `measurements` are several only where chance or the machine has a part in them."""

    case: WanCase
    predictions: Sequence[float]
    measurements: Sequence[Measured]

    @cached_property
    def predicted_s(self) -> float:
        """Mean."""
        return statistics.fmean(self.predictions)

    @cached_property
    def measured_s(self) -> float:
        """Mean with loss, median without: there an outlier is the machine's."""
        times = [one.seconds for one in self.measurements]
        return statistics.fmean(times) if self.case.loss else statistics.median(times)

    @property
    def error(self) -> float:
        """Of the time until the last answer."""
        return self.predicted_s / self.measured_s - 1

    @property
    def standard_error_s(self) -> float:
        """Of the difference of two means, where losses are drawn; else 0."""
        if not self.case.loss:
            return 0.0
        samples = self.predictions, [one.seconds for one in self.measurements]
        return math.sqrt(sum(float(np.var(times)) / len(times) for times in samples))

    def row(self) -> dict[str, object]:
        """For the table."""
        times = [one.seconds for one in self.measurements]
        apart_s, error_s = self.predicted_s - self.measured_s, self.standard_error_s
        return {
            "case": self.case.name,
            "computed s": round(self.predicted_s, 4),
            "measured s": round(self.measured_s, 4),
            "error %": round(100 * self.error, 1),
            "computed +-": round(float(np.std(self.predictions)), 4),
            "measured +-": round(float(np.std(times)), 4),
            "standard errors": round(apart_s / error_s, 1) if error_s else None,
            "sent again": round(sum(one.retransmitted for one in self.measurements) / len(times), 1),
            "wire late ms": round(1e3 * max(one.late_s for one in self.measurements), 1),
        }


@dataclass(frozen=True)
class Validation:
    """All that `--wan` finds."""

    comparisons: Sequence[WanComparison]
    rounds: Sequence[RoundTimes]
    wire: Sequence[Checked]
    seed: int

    @cached_property
    def without_loss(self) -> list[WanComparison]:
        """Cases in which no packet is lost."""
        return [one for one in self.comparisons if not one.case.loss and one.case.queue_s == math.inf]

    def headline(self, load: float) -> dict[str, object]:
        """In one flat object: `seconds` are all computed ones together, the floor all measured ones."""
        exact, queued = self.without_loss, [one for one in self.comparisons if one.case.queue_s < math.inf]
        lossy = [one for one in self.comparisons if one.case.loss]
        errors = np.abs([one.error for one in exact])
        lossy_errors = np.abs([one.error for one in lossy])
        queue_errors = np.abs([one.error for one in queued])
        round_errors = np.abs([one.error for one in self.rounds])
        seconds = sum(one.predicted_s for one in self.comparisons)
        real = sum(one.measured_s for one in self.comparisons)
        within = _of(np.mean, errors <= WITHIN)
        return {
            "seconds": seconds, "floor_seconds": real, "ratio": seconds / real, "cases": len(self.comparisons),
            "median_error": _of(np.median, errors), "p95_error": _of(lambda some: np.quantile(some, 0.95), errors),
            "worst_error": _of(np.max, errors),
            "worst_case": max(exact, key=lambda one: abs(one.error)).case.name if exact else None,
            "within_15_percent": within,
            "lossy_cases": len(lossy), "lossy_median_error": _of(np.median, lossy_errors),
            "lossy_worst_error": _of(np.max, lossy_errors),
            "lossy_within_15_percent": _of(np.mean, lossy_errors <= WITHIN),
            "queue_cases": len(queued), "queue_median_error": _of(np.median, queue_errors),
            "queue_worst_error": _of(np.max, queue_errors),
            "rounds": len(self.rounds), "round_median_error": _of(np.median, round_errors),
            "round_worst_error": _of(np.max, round_errors),
            "wire_rate_error": worst(self.wire, "rate"), "wire_rtt_error": worst(self.wire, "round trip"),
            "wire_loss_error": worst(self.wire, "loss"),
            "wire_late_s": max(one.late_s for case in self.comparisons for one in case.measurements),
            "within_target": bool(
                (within is None or (np.median(errors) <= MEDIAN_TARGET and within >= WITHIN_SHARE))
                and (lossy_errors <= WITHIN).all() and (round_errors <= ROUND_TARGET).all()
            ),
            "seed": self.seed, "load_before": load,
        }  # fmt: skip

    def tables(self) -> Iterator[list[dict[str, object]]]:
        """The wire, the rounds, groups of cases, and the cases: the largest errors first."""
        yield [one.row() for one in self.wire]
        if self.rounds:
            yield [one.row() for one in self.rounds]
        if self.without_loss:
            yield by_group(self.without_loss)
        yield [one.row() for one in sorted(self.comparisons, key=lambda one: -abs(one.error))]

    def picture(self, path: Path) -> None:
        """Predicted against measured, one point a case."""
        points = [(one.case, one.measured_s, one.predicted_s) for one in self.comparisons]
        draw(points, [(one.measured_s, one.predicted_s) for one in self.rounds], path)


def by_group(comparisons: Sequence[WanComparison]) -> list[dict[str, object]]:
    """How large errors are for each value of each dimension, from small to large."""
    groups: dict[tuple[str, float, str], list[float]] = {}
    for one in comparisons:
        case, largest = one.case, max(one.case.question_bytes, one.case.answer_bytes)
        for key in (
            ("algorithm", ALGORITHMS.index(case.algorithm), case.algorithm),
            ("connection", list(STATES).index(case.state), case.state),
            ("round trip", case.rtt_ms, f"{case.rtt_ms:g} ms"),
            ("rate", case.mbit_s, f"{case.mbit_s:g} Mbit/s"),
            ("larger message", largest, size_text(largest)),
            ("clients", case.clients, str(case.clients)),
        ):
            groups.setdefault(key, []).append(one.error)
    rows: list[dict[str, object]] = []
    for (dimension, _, value), signed in sorted(groups.items()):
        errors = np.abs(signed)
        rows.append({
            "of": dimension, "value": value, "cases": len(errors),
            "median error %": round(100 * float(np.median(errors)), 1),
            "median signed %": round(100 * float(np.median(signed)), 1),
            "worst %": round(100 * float(errors.max()), 1),
            "within 15 %": f"{100 * float((errors <= WITHIN).mean()):.0f} %",
        })  # fmt: skip
    return rows


def validate(seed: int, *, quick: bool = False, names: Sequence[str] = ()) -> Validation:
    """Measure and compute; this process moves into a namespace, and its priority should be raised.

    Args:
        seed: of the cases and of the losses.
        quick: a few of the cases, those that are short, and one round.
        names: only cases with one of these in their names.
    """
    cases = [*wan_cases(CASES, LOSSY, seed), *queue_cases()]
    if quick:
        short = [case for case in cases if case.least_s <= QUICK_LONGEST_S]
        lossy = [case for case in short if case.loss]
        cases = [case for case in short if not case.loss and case.queue_s == math.inf][:QUICK_CASES]
        cases += lossy[:QUICK_LOSSY]
    if names:
        cases = [case for case in cases if any(name in case.name for name in names)]
    with WireStar(CLIENTS) as star, Clients(star) as clients:
        enter(star.server)
        wire = checked(star)
        star.order({"seed": seed})
        comparisons = list(_compared(star, clients, cases, QUICK_REPEATS if quick else LOSSY_REPEATS))
        rounds = [] if names else compared_rounds(star, clients, quick=quick)
    return Validation(comparisons, rounds, wire, seed)


def _compared(star: WireStar, clients: Clients, cases: Sequence[WanCase], lossy: int) -> Iterator[WanComparison]:
    handling: dict[tuple[int, str], float] = {}
    for case in cases:
        kind = (case.clients, "new" if STATES[case.state] is None else "warm")
        if kind not in handling:
            handling[kind] = handling_s(star, clients, *kind)
        predictions = [predicted(case, handling[kind], key) for key in range(_predictions(case))]
        several = predictions[0] < SHORT_S or case.queue_s < math.inf
        repeats = lossy if case.loss else SHORT_REPEATS if several else 1
        found = WanComparison(case, predictions, [measured(star, clients, case) for _ in range(repeats)])
        if sys.stderr.isatty():
            print(f"{case.name}: {100 * found.error:+.1f}%", file=sys.stderr)
        yield found


def _predictions(case: WanCase) -> int:
    """How many, where chance has a part in them."""
    return LOSSY_PREDICTIONS if case.loss else QUEUE_PREDICTIONS if case.queue_s < math.inf else 1


def _of(function: Callable[[npt.NDArray[Any]], Any], errors: npt.NDArray[Any]) -> float | None:
    """None of no errors at all."""
    return float(function(errors)) if len(errors) else None
