"""The virtual clock against the kernel: computed times and bytes of stages beside measured ones. Root only.

    python -m benchmarks.fidelity                      # minutes
    python -m benchmarks.fidelity --quick              # each case once: a minute
    python -m benchmarks.fidelity --cases "server down shared by eight" --format markdown
    python -m benchmarks.fidelity --wan --out fidelity.svg    # over distances (`wan`): an hour; --quick: two minutes

A server and up to eight clients, each a process in a network namespace of its own, exchange the same messages that the
emulated network is asked to carry: over real TCP, on links limited by `tc` (`namespaces`), through the live network
with its own throttling off. The time is that of the last answer; the bytes are those that the server's interface has
counted in both directions. The model gets the links' rates, its transport preset `tcp`, and as latency half the idle
round trip of the smallest message to as many clients on links without limits, measured before each case (a
millisecond or a few, nearly all of it handling by processes that share this machine; stages that are not much longer
say little about links). Errors are (computed - measured) / measured.

Nothing outside the namespaces is touched, and they are removed when this ends, however it ends (after a kill: by the
next run).
"""

import argparse
import math
import os
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fidelity.cases import CASES, Case
from benchmarks.fidelity.measuring import Clients, Stage, idle_round_trip_s, measured, median, predicted, throttle
from benchmarks.fidelity.namespaces import Star, Unavailable, check_available, enter, lost, release
from benchmarks.report import arguments, emit, table

TARGET_MEDIAN, TARGET_WORST, TARGET_BYTES = 0.05, 0.15, 0.03
SHORT_S, SHORT_REPEATS = 0.1, 5  # short stages vary more, and cost less
HANDLING = 3  # idle round trips: a shorter stage is handling of messages, and its links hardly matter
CANNOT = 2  # exit status


@dataclass(frozen=True)
class Comparison:
    """One case, computed and measured.

    Attributes:
        predicted, measured: the latter is the median of the repeats.
        spread: (longest - shortest) / median of the repeats' times.
        round_trip_s: the idle one.
        lost, retransmitted: packets, in all repeats together.
    """

    case: Case
    predicted: Stage
    measured: Stage
    spread: float
    round_trip_s: float
    lost: int
    retransmitted: int

    @property
    def error(self) -> float:
        """Of the time until the last answer."""
        return self.predicted.seconds / self.measured.seconds - 1

    @property
    def bytes_error(self) -> float:
        """Of the bytes on the server's interface."""
        return self.predicted.wire_bytes / self.measured.wire_bytes - 1

    @property
    def client_error(self) -> float:
        """Of the time of that client's answer that is furthest off."""
        errors = self.predicted.arrival_s / self.measured.arrival_s - 1
        return float(errors[np.nanargmax(np.abs(errors))])

    def row(self) -> dict[str, object]:
        """For the table."""
        case = self.case
        return {
            "case": case.name,
            "clients": case.clients,
            "client Mbit/s": f"{_span(case.down_mbit_s)} / {_span(case.up_mbit_s)}",
            "server Mbit/s": f"{_rate(case.server_up_mbit_s)} / {_rate(case.server_down_mbit_s)}",
            "kB each": f"{case.question_bytes / 1000:g} / {_span([size / 1000 for size in case.answer_bytes])}",
            "computed s": round(self.predicted.seconds, 4),
            "measured s": round(self.measured.seconds, 4),
            "error %": round(100 * self.error, 1),
            "worst client %": round(100 * self.client_error, 1),
            "spread %": round(100 * self.spread, 1),
            "computed kB": round(self.predicted.wire_bytes / 1000, 1),
            "measured kB": round(self.measured.wire_bytes / 1000, 1),
            "bytes error %": round(100 * self.bytes_error, 1),
        }


def compare(star: Star, clients: Clients, case: Case, repeats: int) -> Comparison:
    """Compute and measure one case; this process must be in the server's namespace."""
    round_trip_s = idle_round_trip_s(star, clients, case.clients)
    computed = predicted(case, round_trip_s / 2)
    throttle(star, case)
    resent = star.retransmitted()
    try:
        short = computed.seconds < SHORT_S
        stages = measured(star, clients, case, SHORT_REPEATS * repeats if short else repeats)
        dropped = lost(star)
    finally:
        release(star)
    times = [stage.seconds for stage in stages]
    middle = median(stages)
    spread = (max(times) - min(times)) / middle.seconds
    return Comparison(case, computed, middle, spread, round_trip_s, dropped, star.retransmitted() - resent)


def headline(comparisons: Sequence[Comparison], repeats: int, load: float) -> dict[str, object]:
    """The result in one flat object: `seconds` are all computed ones together, the floor all measured ones."""
    seconds = sum(one.predicted.seconds for one in comparisons)
    real = sum(one.measured.seconds for one in comparisons)
    worst = max(comparisons, key=lambda one: abs(one.error))
    middle = statistics.median(abs(one.error) for one in comparisons)
    on_links = [abs(one.error) for one in comparisons if one.measured.seconds > HANDLING * one.round_trip_s]
    bytes_worst = max(abs(one.bytes_error) for one in comparisons)
    idle: dict[int, list[float]] = {}
    for one in comparisons:
        idle.setdefault(one.case.clients, []).append(one.round_trip_s)
    return {
        "seconds": seconds, "floor_seconds": real, "ratio": seconds / real,
        "median_error": middle, "worst_error": abs(worst.error), "worst_case": worst.case.name,
        "worst_error_without_handling": max(on_links, default=None), "handling_cases": len(comparisons) - len(on_links),
        "median_bytes_error": statistics.median(abs(one.bytes_error) for one in comparisons),
        "worst_bytes_error": bytes_worst,
        "within_target": middle <= TARGET_MEDIAN and abs(worst.error) <= TARGET_WORST and bytes_worst <= TARGET_BYTES,
        "cases": len(comparisons), "repeats": repeats, "load_before": load,
        **{f"idle_round_trip_{count}_s": statistics.median(found) for count, found in sorted(idle.items())},
        "lost_packets": sum(one.lost for one in comparisons),
        "retransmitted": sum(one.retransmitted for one in comparisons),
    }  # fmt: skip


def markdown(rows: Sequence[dict[str, object]]) -> str:
    """The table for the documentation."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "|".join("---" for _ in columns) + "|"]
    lines += ["| " + " | ".join(str(row[column]) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def _rate(mbit_s: float) -> str:
    return "-" if math.isinf(mbit_s) else f"{mbit_s:g}"


def _chosen(names: Sequence[str] | None) -> list[Case]:
    known = {case.name: case for case in CASES}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise Unavailable(f"no case {unknown[0]!r}; there are: {'; '.join(known)}")
    return [known[name] for name in names] if names else list(CASES)


def _compared(cases: Sequence[Case], repeats: int) -> list[Comparison]:
    comparisons = []
    most = max(case.clients for case in cases)
    with Star(most) as star, Clients(star) as clients:
        enter(star.server)
        for case in cases:
            comparisons.append(compare(star, clients, case, repeats))
            if sys.stderr.isatty():
                print(f"{case.name}: {100 * comparisons[-1].error:+.1f}%", file=sys.stderr)
    return comparisons


def _near(options: argparse.Namespace, load: float) -> None:
    repeats = 1 if options.quick else max(1, options.repeats)
    comparisons = _compared(_chosen(options.cases), repeats)
    rows = [comparison.row() for comparison in comparisons]
    if options.format == "markdown":
        print(markdown(rows) + "\n")
        rows = []
    emit(headline(comparisons, repeats, load), rows, options.format == "json")


def _far(options: argparse.Namespace, load: float) -> None:
    from benchmarks.fidelity.wan import validate

    found = validate(options.seed, quick=options.quick, names=options.cases or ())
    if options.out is not None:
        found.picture(options.out)
    if options.format != "json":
        show = markdown if options.format == "markdown" else table
        print("\n\n".join(show(rows) for rows in found.tables()) + "\n")
    emit(found.headline(load), [], options.format == "json")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0], "markdown")
    parser.add_argument("--wan", action="store_true", help="over distances, through a wire in user space")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each case; their median counts")
    parser.add_argument("--quick", action="store_true", help="one measurement of each case; with --wan: a few cases")
    parser.add_argument(
        "--cases", nargs="+", metavar="NAME", help="only these; with --wan: cases with these texts in their names"
    )
    parser.add_argument("--seed", type=int, default=1, help="with --wan: which cases are drawn, and which packets lost")
    parser.add_argument("--out", type=Path, metavar="PICTURE", help="with --wan: .svg, .png or .pdf")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up first
    try:
        if options.out is not None and (not options.wan or options.out.suffix not in (".svg", ".png", ".pdf")):
            raise Unavailable("--out is a picture (.svg, .png or .pdf) of --wan")
        if not options.wan:
            _chosen(options.cases)
        check_available()
        os.setpriority(os.PRIO_PROCESS, 0, -15)  # other processes must not disturb the measurement; clients inherit it
        (_far if options.wan else _near)(options, load)
    except Unavailable as error:
        print(f"fidelity: {error}", file=sys.stderr)
        sys.exit(CANNOT)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()
