"""Pictures of traces: clients online over time, and the quality of links; one column wide, as PNG and PDF."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from analysis.style import COLUMN_INCHES, house_style, save
from testbed.arrays import Floats
from testbed.emulation.traces.inspection import availability_over_time
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.schedule import DROPPED, OFFLINE, PARTICIPANT, Schedule
from testbed.emulation.traces.series import RateSeries

_HOUR_S, _DAY_S = 3600.0, 86_400.0
_ONLINE, _SHADE, _LOST, _AWAY = "#0072B2", "#56B4E9", "#D55E00", "#999999"  # Okabe and Ito
_POINTS = 2000
_QUARTERS = 96  # of an hour, in a day
_TRACE_COLOURS = ("#0072B2", "#E69F00", "#000000")


def draw(traced: AvailabilityTrace | RateSeries | Schedule, path: Path) -> list[Path]:
    """Write the picture of a trace as `path` with the suffixes .png and .pdf; returns the two files.

    Args:
        traced: the trace to draw.
        path: where; a suffix .png or .pdf of its own is replaced.
    """
    target = path.with_suffix("") if path.suffix in (".png", ".pdf") else path
    with house_style():
        if isinstance(traced, AvailabilityTrace):
            figure = availability(traced)
        elif isinstance(traced, RateSeries):
            figure = series(traced)
        else:
            figure = schedule(traced)
        return save(figure, target)


# -- availability ---------------------------------------------------------------------------------------------------


def availability(trace: AvailabilityTrace) -> Figure:
    """Share of clients online over time, by the time of day if there are two days or more, and per client.

    Time 0 is taken to be a midnight, as the converters do. Recordings shorter than the horizon are repeated.
    """
    trace = trace.laid_out()
    days = trace.horizon_s >= 2 * _DAY_S
    figure = Figure(figsize=(COLUMN_INCHES, 4.4 if days else 3.0), layout="constrained")
    panels = list(figure.subplots(3 if days else 2, 1))
    _over_time(panels[0], trace)
    if days:
        _by_time_of_day(panels[1], trace)
    _by_client(panels[-1], trace)
    for axes in panels:
        axes.grid()
        axes.set_ylim(bottom=0)
    return figure


def _over_time(axes: Axes, trace: AvailabilityTrace) -> None:
    moments, online = availability_over_time(trace, _POINTS)
    begin, end = trace.horizon
    share = 100 * online / len(trace)
    size = _time_axis(axes, begin, end, trace.horizon_s)
    x = np.append(moments, end) / size
    axes.stairs(share, x, color=_ONLINE, linewidth=0.8, baseline=None)
    axes.stairs(share, x, color=_SHADE, alpha=0.25, fill=True, linewidth=0)
    axes.set_ylabel("Online [%]")
    axes.set_title(f"Clients online, of {len(trace)}", loc="left")


def _by_time_of_day(axes: Axes, trace: AvailabilityTrace) -> None:
    """Return the mean day and the range of the days, in quarters of an hour; whole days only."""
    begin, end = trace.horizon
    first, last = np.ceil(begin / _DAY_S), np.floor(end / _DAY_S)
    if last <= first:
        first = begin / _DAY_S
        last = first + np.floor((end - begin) / _DAY_S)
    step = _DAY_S / _QUARTERS
    edges = first * _DAY_S + step * np.arange(int(last - first) * _QUARTERS + 1)
    share = 100 * np.diff(_online_seconds(trace, edges)) / step / len(trace)
    days = share.reshape(-1, _QUARTERS)
    days = np.roll(days, round((first % 1) * _QUARTERS), axis=1)  # days that begin within a day, from midnight
    hours = np.arange(_QUARTERS + 1) * step / _HOUR_S
    axes.stairs(days.max(axis=0), hours, baseline=days.min(axis=0), fill=True, color=_SHADE, alpha=0.3, linewidth=0)
    axes.stairs(days.mean(axis=0), hours, color=_ONLINE, baseline=None)
    axes.set_xlim(0, 24)
    axes.xaxis.set_major_locator(MultipleLocator(4))
    axes.set_xlabel("Time of day [h]")
    axes.set_ylabel("Online [%]")
    axes.set_title("Mean day, and range of the days", loc="left")


def _online_seconds(trace: AvailabilityTrace, times: Floats) -> Floats:
    """`(m,)` seconds that all clients together have been online up to each of the ascending `times`, exactly."""

    def passed(moments: Floats) -> Floats:
        """Sum of max(0, time - moment) over the moments."""
        moments = np.sort(moments)
        total = np.append(0.0, np.cumsum(moments))
        before = np.searchsorted(moments, times)
        total_passed: Floats = before * times - total[before]
        return total_passed

    return passed(trace.online_from_s) - passed(trace.online_until_s)


def _by_client(axes: Axes, trace: AvailabilityTrace) -> None:
    total = np.append(0.0, np.cumsum(trace.online_until_s - trace.online_from_s))
    share = np.sort(np.diff(total[trace.offsets])) / trace.horizon_s
    _distribution(axes, 100 * share)
    axes.set_xlabel("Share of the time online [%]")
    axes.set_ylabel("Clients [%]")
    axes.set_title("Clients online for at most this share", loc="left")
    axes.set_xlim(0, max(100 * share[-1] * 1.02, 1e-3))


# -- bandwidth, latency, loss ---------------------------------------------------------------------------------------

_AXES = {"bandwidth": ("Rate", "Mbit/s", 1.0), "latency": ("Latency", "ms", 1.0), "loss": ("Loss", "%", 100.0)}


def series(traces: RateSeries) -> Figure:
    """Draw the number over time of a few traces, and its distribution over all seconds of all of them."""
    name, unit, factor = _AXES[traces.kind.name]
    figure = Figure(figsize=(COLUMN_INCHES, 3.4), layout="constrained")
    over_time, distribution = figure.subplots(2, 1)
    count = len(traces.period_s)
    shown_traces = np.unique(np.linspace(0, count - 1, min(count, len(_TRACE_COLOURS))).round().astype(np.int64))
    longest = float(traces.period_s[shown_traces].max())
    size = _time_axis(over_time, 0.0, longest, longest)
    for trace, colour in zip(shown_traces, _TRACE_COLOURS, strict=False):
        part = slice(traces.offsets[trace], traces.offsets[trace + 1])
        x = np.append(traces.time_s[part], traces.period_s[trace]) / size
        over_time.stairs(factor * traces.value[part], x, color=colour, linewidth=0.7, baseline=None)
    over_time.set_ylabel(f"{name} [{unit}]")
    over_time.set_title(f"{name} over time, {len(shown_traces)} of {count} traces", loc="left")
    following = np.append(traces.time_s[1:], 0.0)
    following[traces.offsets[1:] - 1] = traces.period_s
    lasts = following - traces.time_s
    order = np.argsort(traces.value, kind="stable")
    _distribution(distribution, factor * traces.value[order], lasts[order])
    distribution.set_xlabel(f"{name} [{unit}]")
    distribution.set_ylabel("Time [%]")
    distribution.set_title(f"Share of time up to this {name.lower()}, all traces", loc="left")
    distribution.set_xlim(left=0)
    for axes in (over_time, distribution):
        axes.grid()
        axes.set_ylim(bottom=0)
    return figure


# -- schedules ------------------------------------------------------------------------------------------------------


def schedule(recorded: Schedule) -> Figure:
    """Per round: participants, clients that were offline, and those that dropped out."""
    figure = Figure(figsize=(COLUMN_INCHES, 1.9), layout="constrained")
    axes = figure.subplots()
    rounds = np.arange(1, recorded.last_round + 1)
    for fate, colour, label in (
        (PARTICIPANT, _ONLINE, "participants"),
        (OFFLINE, _AWAY, "offline"),
        (DROPPED, _LOST, "dropped out"),
    ):
        number = np.bincount(recorded.round[recorded.fate == fate], minlength=recorded.last_round + 1)[1:]
        if number.any():
            edges = np.append(rounds, recorded.last_round + 1) - 0.5
            axes.stairs(number, edges, color=colour, label=label, baseline=None, linewidth=1.0)
    axes.set_xlabel("Round")
    axes.set_ylabel("Clients")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.set_ylim(bottom=0)
    axes.grid()
    figure.legend(loc="outside lower center", ncols=3)
    return figure


# -- axes -----------------------------------------------------------------------------------------------------------


def _time_axis(axes: Axes, begin_s: float, end_s: float, length_s: float) -> float:
    """Label the axis in days, hours, minutes or seconds, whichever suits the length; returns the unit in seconds."""
    units = (("days", _DAY_S, 2 * _DAY_S), ("h", _HOUR_S, 2 * _HOUR_S), ("min", 60.0, 120.0), ("s", 1.0, 0.0))
    symbol, size, _ = next(unit for unit in units if length_s >= unit[2])
    axes.set_xlim(begin_s / size, end_s / size)
    if symbol == "h" and 6 < length_s / size <= 48:
        axes.xaxis.set_major_locator(MultipleLocator(4 if length_s / size <= 24 else 8))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=symbol == "days", steps=[1, 2, 5, 10]))
    axes.set_xlabel(f"Time [{symbol}]")
    return size


def _distribution(axes: Axes, values: Floats, weights: Floats | None = None) -> None:
    """Return the cumulative distribution of ascending values, in percent."""
    passed = np.cumsum(np.ones(len(values)) if weights is None else weights)
    axes.stairs(100 * passed / passed[-1], np.append(values, values[-1] * 1.02 + 1e-9), color=_ONLINE, baseline=None)
    axes.set_ylim(0, 103)
