"""Rates of clients' links over time: constant, or a periodic piecewise-constant bandwidth trace.

A client on a trace has at time t the rate `scale * rate(t + phase)`; the trace is repeated for ever. All methods work
on the bytes that a trace has carried since its beginning (a piecewise linear function). The bytes between two moments,
and the time needed for some bytes, therefore cost one binary search per client, for all clients at once.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.arrays import Floats, Ids, compress_constant
from testbed.emulation.traces.bandwidth import BandwidthTraces

CONSTANT = -1  # in `trace_of`: the client follows no trace
_ROUNDING = 1e-14  # relative: bytes missing by rounding alone must not wait for the end of an outage


@dataclass(frozen=True, eq=False)
class Rates:
    """Rates of n clients' links over time; created by `constant` or `traced`.

    Attributes:
        traces: the bandwidth traces, or None if all rates are constant.
        trace_of: `(n,)` int64, index of each client's trace, or `CONSTANT`.
        phase_s: `(n,)` float64 seconds, each client's position in its trace at time 0; within the trace's period.
        scale: `(n,)` float64, factor on the trace's rates; for a constant client, its bytes per second.

    Example:
        >>> rates = Rates.constant([1.25e6, 2.5e6])
        >>> rates.time_to_send(10.0, 5e6).tolist()
        [14.0, 12.0]
    """

    traces: BandwidthTraces | None
    trace_of: Ids
    phase_s: Floats
    scale: Floats

    @classmethod
    def constant(cls, bytes_s: npt.ArrayLike) -> "Rates":
        """Return rates that never change.

        Args:
            bytes_s: `(n,)` bytes per second, at least 0; may be infinite.

        Raises:
            ValueError: a rate is negative or NaN, or `bytes_s` does not have one dimension.
        """
        rate = np.array(bytes_s, np.float64)
        if rate.ndim != 1:
            raise ValueError(f"rates must have one dimension, not {rate.ndim}")
        if not (rate >= 0).all():
            raise ValueError("a rate must be at least 0 bytes per second")
        no_trace: Ids = np.broadcast_to(np.int64(CONSTANT), rate.shape)
        return cls(None, no_trace, np.broadcast_to(np.float64(0), rate.shape), compress_constant(rate))

    @classmethod
    def traced(
        cls, traces: BandwidthTraces, trace_of: npt.ArrayLike, phase_s: npt.ArrayLike = 0.0, scale: npt.ArrayLike = 1.0
    ) -> "Rates":
        """Return rates that follow traces.

        Args:
            traces: the traces.
            trace_of: `(n,)` int, index of each client's trace; `CONSTANT` for a client with `scale` bytes per second.
            phase_s: `(n,)` or one for all: at time t a client is at `t + phase_s` seconds of its trace.
            scale: `(n,)` or one for all: factor on the trace's rates, finite and at least 0.

        Raises:
            ValueError: no such trace, shapes that do not fit, or a number that is negative, infinite or NaN.
        """
        of = np.array(trace_of, np.int64)
        if of.ndim != 1 or (of < CONSTANT).any() or (of >= len(traces)).any():
            raise ValueError(f"trace_of must be a one-dimensional array of trace indices, 0 to {len(traces) - 1}")
        phase, factor = (
            np.array(np.broadcast_to(np.asarray(column, np.float64), of.shape)) for column in (phase_s, scale)
        )
        if not np.isfinite(phase).all():
            raise ValueError("a phase must be a finite number of seconds")
        if not ((factor >= 0) & (factor < np.inf)).all():
            raise ValueError("a scale must be finite and at least 0")
        # `CONSTANT` is -1, so it picks the appended element.
        period = np.append(traces.period_s, np.inf)[of]
        # `mod` of a tiny negative phase may round to the period itself, which the last line turns into 0.
        phase = np.where(of == CONSTANT, 0.0, np.mod(phase, period, where=of != CONSTANT, out=np.zeros(len(of))))
        return cls(traces, of, np.where(phase < period, phase, 0.0), factor)

    def __len__(self) -> int:
        return len(self.trace_of)

    @property
    def is_constant(self) -> bool:
        """Whether no client follows a trace."""
        return self.traces is None or not (self.trace_of != CONSTANT).any()

    def take(self, ids: npt.ArrayLike) -> "Rates":
        """Return the rates of the clients `ids`, in that order."""
        index = np.asarray(ids)
        return Rates(self.traces, self.trace_of[index], self.phase_s[index], self.scale[index])

    def replaced(self, ids: npt.ArrayLike, others: "Rates") -> "Rates":
        """Return these rates with those of the clients `ids` taken from `others`, which has as many clients."""
        index = np.asarray(ids, np.int64)
        trace_of, phase_s, scale = self.trace_of.copy(), self.phase_s.copy(), self.scale.copy()
        traces = self.traces if others.is_constant else others.traces
        behind = 0
        if self.traces is not None and traces is not None and traces is not self.traces:
            traces, behind = self.traces.followed_by(traces), len(self.traces)
        of = others.trace_of[index]
        trace_of[index] = np.where(of == CONSTANT, CONSTANT, of + behind)
        phase_s[index], scale[index] = others.phase_s[index], others.scale[index]
        return Rates(traces, trace_of, phase_s, scale)

    def delayed(self, delay_s: npt.ArrayLike) -> "Rates":
        """Return rates shifted in time: at any time those of `delay_s` seconds earlier, `(n,)` or one for all."""
        if self.traces is None or self.is_constant:
            return self
        return Rates.traced(self.traces, self.trace_of, self.phase_s - np.asarray(delay_s, np.float64), self.scale)

    def at(self, time_s: npt.ArrayLike) -> Floats:
        """Return `(n,)` bytes per second at `time_s`: finite seconds, one moment for all or `(n,)`."""
        rate = self.scale.copy()
        moment = np.broadcast_to(np.asarray(time_s, np.float64), rate.shape)
        if (who := self._on_traces(np.ones(len(self), np.bool_))) is not None:
            traces, _, step, _ = self._place(who, moment[who])
            rate[who] *= traces.rate_bytes_s[step]
        return rate

    def mean(self) -> Floats:
        """Return `(n,)` bytes per second, averaged over the period of each client's trace."""
        if self.traces is None:
            return self.scale.copy()
        return np.asarray(self.scale * np.append(self.traces.total_bytes / self.traces.period_s, 1.0)[self.trace_of])

    def maximum(self) -> Floats:
        """Return `(n,)` bytes per second, the largest rate that each client ever has."""
        if self.traces is None or not len(self.traces):
            return self.scale.copy()
        most = np.maximum.reduceat(self.traces.rate_bytes_s, self.traces.offsets[:-1])
        return np.asarray(self.scale * np.append(most, 1.0)[self.trace_of])

    def bytes_between(self, begin_s: npt.ArrayLike, end_s: npt.ArrayLike) -> Floats:
        """Return the bytes that each link can carry in an interval of time.

        Args:
            begin_s: seconds, `(n,)` or one for all.
            end_s: seconds, likewise; may be infinite.

        Returns:
            `(n,)` float64 bytes: 0 if the end is before the begin, infinite if the end is infinite and the link carries
                anything.

        Example:
            >>> Rates.constant([100.0, 50.0]).bytes_between(1.0, 3.0).tolist()
            [200.0, 100.0]
        """
        begin, end = (np.broadcast_to(np.asarray(moment, np.float64), self.scale.shape) for moment in (begin_s, end_s))
        span = np.zeros(len(self))
        np.subtract(end, begin, out=span, where=end > begin)
        amount = np.zeros(len(self))
        np.multiply(span, self.scale, out=amount, where=(span > 0) & (self.scale > 0))
        endless = amount == np.inf
        if (who := self._on_traces((span > 0) & np.isfinite(begin))) is not None:
            whole = self.traces.total_bytes[self.trace_of[who]] if self.traces is not None else np.zeros(0)
            amount[who] = np.where(endless[who] & (whole > 0), np.inf, 0.0)
            who = who[np.isfinite(end[who])]
            traces, begin_turn, step, into_s = self._place(who, begin[who])
            carried = traces.carried_bytes[step] + traces.rate_bytes_s[step] * into_s
            _, end_turn, step, into_s = self._place(who, end[who])
            carried = traces.carried_bytes[step] + traces.rate_bytes_s[step] * into_s - carried
            # Whole repetitions and the rest by themselves, which keeps the digits of a short interval far into a run.
            turns = (end_turn - begin_turn) * traces.total_bytes[self.trace_of[who]]
            amount[who] = np.maximum(turns + carried, 0.0) * self.scale[who]
        return amount

    def time_to_send(self, begin_s: npt.ArrayLike, size_bytes: npt.ArrayLike) -> Floats:
        """Return the first moment at which each link has carried `size_bytes` since `begin_s`.

        Inverts `bytes_between`, up to float rounding.

        Args:
            begin_s: seconds, `(n,)` or one for all; infinite: never.
            size_bytes: finite bytes, `(n,)` or one for all; 0 bytes are sent at once.

        Returns:
            `(n,)` float64 seconds; infinite if never.

        Example:
            >>> Rates.constant([100.0, 0.0]).time_to_send(1.0, 200.0).tolist()
            [3.0, inf]
        """
        begin, size = (
            np.broadcast_to(np.asarray(values, np.float64), self.scale.shape) for values in (begin_s, size_bytes)
        )
        finish = begin.copy()
        sends = (size > 0) & (begin < np.inf)
        with np.errstate(divide="ignore"):
            np.add(finish, np.divide(size, self.scale, where=sends, out=np.zeros(len(self))), out=finish)
        if (who := self._on_traces(sends & np.isfinite(finish))) is not None:
            traces, _, step, into_s = self._place(who, begin[who])
            of = self.trace_of[who]
            total = traces.total_bytes[of]
            goal = traces.carried_bytes[step] + traces.rate_bytes_s[step] * into_s + size[who] / self.scale[who]
            turns = np.zeros(len(who))
            np.floor_divide(goal, total, out=turns, where=total > 0)
            rest = goal - turns * total
            short = (turns > 0) & (rest <= _ROUNDING * goal)  # the end of a turn, not the beginning of the next
            turns[short] -= 1
            rest[short] = total[short]
            # The last step that begins before all bytes have been carried.
            target = np.maximum(rest - _ROUNDING * goal, 0.0)
            last = _last_at_most(traces.carried_bytes, traces.offsets[of], traces.offsets[of + 1], target, strict=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                within_s = (rest - traces.carried_bytes[last]) / traces.rate_bytes_s[last]
            into_s = into_s + traces.time_s[step]
            # Division by a small rate may overshoot the end of the step.
            place_s = np.minimum(traces.time_s[last] + within_s, self._until(last, of))
            spent_s = turns * traces.period_s[of] + (place_s - into_s)
            finish[who] = np.where(total > 0, begin[who] + np.maximum(spent_s, 0.0), np.inf)
        return finish

    def changes(self, begin_s: npt.ArrayLike, end_s: npt.ArrayLike) -> tuple[Ids, Floats, Floats]:
        """Return the rate changes between `begin_s` and a finite `end_s`.

        Args:
            begin_s: seconds, `(n,)` or one for all; exclusive.
            end_s: seconds, likewise; exclusive.

        Returns:
            Client indices, times in seconds, and rates in bytes per second from that time on: `(changes,)` each, sorted
                by client and then by time.
        """
        begin, end = (np.broadcast_to(np.asarray(moment, np.float64), self.scale.shape) for moment in (begin_s, end_s))
        who = self._on_traces((end > begin) & np.isfinite(begin))
        if who is None:
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        traces, turn, step, _ = self._place(who, begin[who])
        _, end_turn, end_step, end_into_s = self._place(who, end[who])
        first, steps = traces.offsets[self.trace_of[who]], np.diff(traces.offsets)[self.trace_of[who]]
        # Steps are counted through the repetitions; a step that begins exactly at the end does not count.
        before = turn.astype(np.int64) * steps + step - first
        count = end_turn.astype(np.int64) * steps + end_step - first - (end_into_s <= 0) - before
        count = np.maximum(count, 0)
        row = np.repeat(np.arange(len(who)), count)
        number = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + 1 + before[row]
        turn, step = np.divmod(number, steps[row])
        step += first[row]
        rate = traces.rate_bytes_s[step] * self.scale[who][row]
        time_s = turn * traces.period_s[self.trace_of[who]][row] + traces.time_s[step] - self.phase_s[who][row]
        time_s = np.clip(time_s, begin[who][row], end[who][row])
        earlier = traces.rate_bytes_s[np.where(step > first[row], step, first[row] + steps[row]) - 1]
        differs = traces.rate_bytes_s[step] != earlier
        return who[row][differs], time_s[differs], rate[differs]

    def changes_per_s(self) -> Floats:
        """Return the `(n,)` mean number of changes of each rate per second."""
        if self.traces is None:
            return np.zeros(len(self))
        return np.append(np.diff(self.traces.offsets) / self.traces.period_s, 0.0)[self.trace_of]

    def _on_traces(self, mask: npt.NDArray[np.bool_]) -> Ids | None:
        """Return the clients in the mask that follow a trace; None if there are none."""
        if self.traces is None:
            return None
        who = np.flatnonzero(mask & (self.trace_of != CONSTANT))
        return who if len(who) else None

    def _place(self, who: Ids, time_s: Floats) -> tuple[BandwidthTraces, Floats, Ids, Floats]:
        """Return the clients' positions in their traces: repetitions done, step, seconds since the step began."""
        assert self.traces is not None
        traces, of = self.traces, self.trace_of[who]
        turn, into_s = np.divmod(time_s + self.phase_s[who], traces.period_s[of])
        over = into_s >= traces.period_s[of]  # rounding
        turn[over] += 1
        into_s[over] = 0
        step = _last_at_most(traces.time_s, traces.offsets[of], traces.offsets[of + 1], into_s)
        return traces, turn, step, into_s - traces.time_s[step]

    def _until(self, step: Ids, of: Ids) -> Floats:
        """Return the end of each step, in seconds of its trace."""
        assert self.traces is not None
        last = step + 1 == self.traces.offsets[of + 1]
        return np.where(last, self.traces.period_s[of], self.traces.time_s[np.where(last, step, step + 1)])


def _last_at_most(values: Floats, begin: Ids, end: Ids, limit: Floats, *, strict: bool = False) -> Ids:
    """Return, per row, the last position in `begin:end` with a value of at most `limit`, or `begin`.

    With `strict`, the value must be below `limit`. One binary search runs in all rows at once; unlike a single search
    with shifted keys it compares the exact numbers.
    """
    low = begin.copy()
    for bit in reversed(range(int((end - begin).max(initial=1) - 1).bit_length())):
        ahead = low + (1 << bit)
        inside = ahead < end
        there = values.take(np.where(inside, ahead, low))
        moves = there < limit if strict else there <= limit
        moves &= inside
        low += moves.astype(np.int64) << bit
    return low
