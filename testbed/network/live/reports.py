"""Clients' reports about themselves: crashes, seconds of work, and delays of their machine.

Anybody with the run's token can send such reports, so a false report may harm the client that sends it, but no other.
A *crash* ends the run only if the client's host confirms it over the channel of the process that started the host (a
method call, or a Ray actor's). *Seconds* and *bytes* of look-ups at the PKI are limited to possible values.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from testbed.crashes import Crash
from testbed.display import visible
from testbed.errors import RunError, reason
from testbed.network.live import wire
from testbed.network.live.stage import Exchange
from testbed.network.live.wire import AnswerHeader, FramingError

LONGEST_TEXT = 200  # characters kept of a client's report, before escaping
_CLOCK_SHARE, _CLOCK_S = 0.01, 0.05  # tolerance for the difference of two machines' clocks
_DIRECTORY_COPIES, _ENTRY_BYTES, _LEAST_LOOK_UPS = 16, 100, 1 << 16


@dataclass(frozen=True)
class HostReport:
    """A host's report about one of its clients.

    Attributes:
        key: (round, number of the stage) of the question.
        crash: the exception.
        fatal: whether the host itself cannot continue, as opposed to the client's code.
    """

    key: tuple[int, int]
    crash: Crash
    fatal: bool


Confirming = Callable[[int, tuple[int, int]], Awaitable[HostReport | None]]
"""Asks the host of a client, by the client's number and the question's key; None: no host of this run says so."""


async def unconfirmed(client: int, key: tuple[int, int]) -> HostReport | None:
    """Confirm nothing: the server has no channel to hosts besides the clients' connections.

    Args:
        client: ignored.
        key: ignored.
    """
    return None


class ClientReports:
    """Validation of the clients' reports about themselves.

    Args:
        confirming: asks the hosts that the run's owner has started.
        check: called with confirmed crashes; raises `CodeCrashed` if a crash is configured to end the run.
        population: number of clients n.
        on_exaggeration: called with (client, one line) for seconds that cannot be true.
    """

    def __init__(
        self,
        confirming: Confirming,
        check: Callable[[Sequence[Crash]], None],
        population: int,
        on_exaggeration: Callable[[int, str], None],
    ) -> None:
        self._confirming = confirming
        self._check = check
        self._largest_look_ups = _LEAST_LOOK_UPS + _DIRECTORY_COPIES * _ENTRY_BYTES * population
        self._on_exaggeration = on_exaggeration

    async def judge_crash(self, exchange: Exchange, key: tuple[int, int]) -> None:
        """Find out which crash a client's report stands for, and keep it in the exchange.

        Args:
            exchange: its `body` is the client's text, complete.
            key: of the question.

        Raises:
            RunError: the client's own host confirms that it cannot go on.
            CodeCrashed: the client's own host confirms a crash, and the experiment stops at crashes.
        """
        assert exchange.header is not None
        assert exchange.body is not None
        # Never over the client's connection: anybody with the token could end the run by claiming a crash.
        report = await self._confirming(exchange.client, key)
        if report is None:
            # Escaped and cut: a client's text must not reach a terminal or the records as it is.
            text = visible(reason(exchange.body.decode(errors="replace"), LONGEST_TEXT))
            what = "crash" if exchange.header.status == wire.CRASHED else "failure of its host"
            exchange.crash = Crash(exchange.client, f"unconfirmed {what}: {text}", "", 0, "", "")
            return
        exchange.crash = report.crash
        if report.fatal:
            line = f"client {exchange.client}'s host cannot go on: {visible(report.crash.error)}"
            raise RunError(line) from report.crash.cause
        self._check([report.crash])

    async def judge_late_crashes(self, exchanges: Sequence[Exchange], key: tuple[int, int]) -> None:
        """Judge crash reports that the end of the stage has cut short; raises as `judge_crash` does."""
        for exchange in exchanges:
            if exchange.crash is None and exchange.reports_crash:
                await self.judge_crash(exchange, key)

    def bounded(self, header: AnswerHeader, took_s: float, speed_factor: float, cut_off_s: float) -> AnswerHeader:
        """Return the header of an answer with its seconds limited to possible values.

        Args:
            header: as the client sent it.
            took_s: seconds from the beginning of the question's transfer to the header's arrival.
            speed_factor: factor of the client's compute seconds.
            cut_off_s: seconds of the stage before, if answers were cut off there: the next answer reports their delay.

        Raises:
            FramingError: more bytes of look-ups than any client needs.
        """
        if max(header.pki_up, header.pki_down) > self._largest_look_ups:
            raise FramingError(f"claims PKI look-ups of more than {self._largest_look_ups} bytes")
        # No answer leaves before its work is done, so the exchange lasts at least as long as the work.
        longest_s = took_s / speed_factor if speed_factor > 0 else took_s
        for what, said_s, most_s in (
            ("seconds of work", header.compute_s, longest_s),
            ("seconds behind", header.behind_s, max(took_s, cut_off_s)),
        ):
            # Small excesses are the two clocks' difference, and no event.
            if said_s > (1 + _CLOCK_SHARE) * most_s + _CLOCK_S:
                line = f"claims {said_s:.6g} {what}, when its exchange leaves room for {most_s:.6g}; counted as these"
                self._on_exaggeration(header.client, line)
        return header._replace(
            compute_s=min(header.compute_s, longest_s), behind_s=min(header.behind_s, max(took_s, cut_off_s))
        )
