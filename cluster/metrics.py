"""Metrics of a run on Ray for Prometheus, by `ray.util.metrics`.

Ray's agent on the coordinator's node exports these metrics, with ``ray_`` before their names, on the node's metrics
export port (docs/how-to/metrics.md). They are for watching: no result is computed from them. Tags are few: the run, its
selection protocol, stages, names of checks, never clients or rounds.

Sums are counters, even where a gauge would look simpler: Ray forgets a gauge that has not been set for some 20 seconds,
and computes the sum of a histogram only from the middles of its buckets.
"""

import logging
import math
import os
from collections import Counter as Tally
from collections.abc import Sequence

from ray.util.metrics import Counter, Gauge, Histogram

from testbed.display import visible
from testbed.network.exchanges import OUTCOMES, Exchanges
from testbed.network.recorder import Event

_log = logging.getLogger(__name__)

RAYS_SWITCH = "RAY_enable_metrics_collection"
MAXIMUM_WORDS = 64  # values that one tag takes in one run: a user-defined class may name checks as it likes
LONGEST_WORD = 100
_OTHER = "other"

COUNTERS: dict[str, tuple[tuple[str, ...], str]] = {
    "testbed_rounds_total": (("outcome",), "Rounds that ended: completed, skipped, aborted"),
    "testbed_wall_seconds_total": ((), "Wall-clock seconds spent in rounds"),
    "testbed_virtual_seconds_total": ((), "Seconds of the run's clock that its rounds took"),
    "testbed_stage_seconds_total": (("stage",), "Seconds of the run's clock spent in a stage"),
    "testbed_bytes_total": (("stage", "direction"), "Bytes of messages between server and clients"),
    "testbed_transport_bytes_total": (
        ("stage", "direction"),
        "Bytes that the transport adds to messages",
    ),
    "testbed_pki_bytes_total": (("stage", "direction"), "Bytes of messages between the PKI and clients"),
    "testbed_asked_clients_total": (("stage", "outcome"), "Clients asked in a stage, by outcome"),
    "testbed_participants_total": ((), "Participants of all rounds"),
    "testbed_survivors_total": ((), "Participants with an update in the round's sum"),
    "testbed_refusals_total": (("stage", "check"), "Refusals, by the check that failed"),
    "testbed_crashes_total": (("stage",), "Crashes of clients' handlers"),
    "testbed_restarts_total": (("party",), "Hosts and coordinators that were replaced"),
    "testbed_events_total": (("kind",), "All events: refusal, crash, restart, misbehaviour, quarantined, ..."),
}
HISTOGRAMS: dict[str, tuple[tuple[str, ...], str, list[float]]] = {
    "testbed_round_wall_seconds": (
        (),
        "Wall-clock seconds of a round",
        [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0],
    ),
    "testbed_stage_duration_seconds": (
        ("stage",),
        "Seconds of the run's clock that a stage took in a round",
        [0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0],
    ),
}
GAUGES: dict[str, tuple[tuple[str, ...], str]] = {
    "testbed_accuracy_ratio": ((), "Share of the test examples that the model classifies correctly, as last evaluated"),
    "testbed_loss": ((), "Loss of the model on the test examples, as last evaluated"),
}
_OF_ALL = ("run", "protocol")


class RunMetrics:
    """The metrics of one run; created in the process of its coordinator.

    A failure of the metrics never stops a run; the process's log reports it once. Metrics are off from the start if
    Ray's are (``RAY_enable_metrics_collection=0`` when the node was started).

    Args:
        run: name of the run among those of the cluster, e.g. the point of a sweep.
        protocol: its selection protocol.
    """

    def __init__(self, run: str, protocol: str) -> None:
        self._default_tags = {"run": visible(run)[:LONGEST_WORD], "protocol": visible(protocol)[:LONGEST_WORD]}
        self._words: dict[str, set[str]] = {}
        self.on = os.environ.get(RAYS_SWITCH, "1").lower() not in ("0", "false")
        if self.on:
            try:
                self._make()
            except Exception as error:
                self._give_up(error)

    def _make(self) -> None:
        self._counters = {name: Counter(name, text, (*_OF_ALL, *tags)) for name, (tags, text) in COUNTERS.items()}
        self._gauges = {name: Gauge(name, text, (*_OF_ALL, *tags)) for name, (tags, text) in GAUGES.items()}
        self._histograms = {
            name: Histogram(name, text, buckets, (*_OF_ALL, *tags))
            for name, (tags, text, buckets) in HISTOGRAMS.items()
        }
        for metric in (*self._counters.values(), *self._gauges.values(), *self._histograms.values()):
            metric.set_default_tags(self._default_tags)

    def _give_up(self, error: Exception) -> None:
        self.on = False
        _log.warning("no metrics from here on: %s: %s", type(error).__name__, error)

    def round_ended(
        self,
        outcome_state: str,
        wall_s: float,
        exchanges: Sequence[Exchanges],
        events: Sequence[Event],
        now_s: float,
        *,
        participants: int = 0,
        survivors: int = 0,
        accuracy: float | None = None,
        loss: float | None = None,
    ) -> None:
        """Count a round that has just ended. Never raises.

        Args:
            outcome_state: completed, skipped or aborted.
            wall_s: wall-clock seconds of the round.
            exchanges: stages of the round.
            events: events of the round.
            now_s: seconds of the run's clock at the end of the round. The round's seconds are counted from its first
                stage on.
            participants: number of participants.
            survivors: number of participants in the sum.
            accuracy: accuracy of the model after the round, 0 to 1; None: not evaluated.
            loss: loss of the model, likewise.
        """
        if not self.on:
            return
        try:
            self._add("testbed_rounds_total", 1, outcome=outcome_state)
            self._add("testbed_wall_seconds_total", wall_s)
            self._histograms["testbed_round_wall_seconds"].observe(float(wall_s))
            self._add("testbed_participants_total", participants)
            self._add("testbed_survivors_total", survivors)
            self._count_stages(exchanges, now_s)
            self._count_events(events)
            for name, value in (("testbed_accuracy_ratio", accuracy), ("testbed_loss", loss)):
                if value is not None and math.isfinite(value):
                    self._gauges[name].set(float(value))
        except Exception as error:
            self._give_up(error)

    def _count_stages(self, exchanges: Sequence[Exchanges], now_s: float) -> None:
        """Count the stages; a stage lasts until the next begins, the last until the round ends, as in the figures."""
        ordered = sorted(exchanges, key=lambda stage: stage.sent_s)
        ends_s = [*(later.sent_s for later in ordered[1:]), now_s]
        for stage, end_s in zip(ordered, ends_s, strict=False):  # there is one end even without stages
            name, lasted_s = self._word("stage", stage.stage), max(0.0, float(end_s - stage.sent_s))
            self._add("testbed_virtual_seconds_total", lasted_s)
            self._add("testbed_stage_seconds_total", lasted_s, stage=name)
            self._histograms["testbed_stage_duration_seconds"].observe(lasted_s, {"stage": name})
            for metric, columns in (
                ("testbed_bytes_total", "bytes"),
                ("testbed_transport_bytes_total", "transport"),
                ("testbed_pki_bytes_total", "pki_bytes"),
            ):
                for direction in ("down", "up"):
                    self._add(metric, stage.total(f"{columns}_{direction}"), stage=name, direction=direction)
            for word, count in zip(OUTCOMES, stage.outcomes().tolist(), strict=True):
                self._add("testbed_asked_clients_total", count, stage=name, outcome=word)

    def _count_events(self, events: Sequence[Event]) -> None:
        tallies: Tally[tuple[str, str, str, str]] = Tally()
        for event in events:
            # The check alone: details name clients and rounds, of which there are too many for tags.
            check = event.detail.partition(": ")[0] if event.kind == "refusal" else ""
            tallies[(event.kind, event.stage, event.party.partition(":")[0], check)] += 1
        for (kind, stage, party, check), count in tallies.items():
            self._add("testbed_events_total", count, kind=self._word("kind", kind))
            if kind == "refusal":
                self._add(
                    "testbed_refusals_total", count, stage=self._word("stage", stage), check=self._word("check", check)
                )
            elif kind == "crash":
                self._add("testbed_crashes_total", count, stage=self._word("stage", stage))
            elif kind == "restart":
                self._add("testbed_restarts_total", count, party=party)

    def _add(self, name: str, amount: float, **tags: str) -> None:
        if amount > 0:  # Ray takes nothing else
            self._counters[name].inc(amount, tags)

    def _word(self, tag: str, word: str) -> str:
        """Return `word`, or "other" if this tag has too many values already."""
        word = visible(word)[:LONGEST_WORD]
        words = self._words.setdefault(tag, set())
        # Each value is a series of its own in Prometheus, and series cost memory for weeks.
        if word not in words and len(words) >= MAXIMUM_WORDS:
            return _OTHER
        words.add(word)
        return word
