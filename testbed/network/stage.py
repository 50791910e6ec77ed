"""One stage's arrays, aligned with the clients that were asked."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.emulation.links import Transport
from testbed.messages import Message
from testbed.network.contract import Missing, Replies, Summing
from testbed.network.hosts import HostAnswers
from testbed.network.recorder import ANSWERED, DROPPED, LATE, OFFLINE, REFUSED, SILENT, Exchanges


class Stage:
    """What is known of one stage while it runs.

    Args:
        kind: type of the question.
        recipients: `(m,)` sorted client numbers.
        size: bytes of the common part on the wire.
        private: encoded private part per client, or None.

    Attributes:
        size_down, size_up: `(m,)` int64 bytes that are to be carried; `bytes_down`, `bytes_up` those that were.
        transport_down, transport_up: `(m,)` int64 transport headers and acknowledgements that went with them.
        pki_up, pki_down: `(m,)` int64 bytes exchanged with the PKI by the handler.
        compute_s: `(m,)` seconds on the reference machine.
        ready_s: `(m,)` when the client had done its work, look-ups at the PKI included; infinite: never.
        arrival_s: `(m,)` when the answer was complete at the server; infinite: never.
        outcome: `(m,)` int8 position in `OUTCOMES`.
        number: names the stage within the round.
    """

    def __init__(
        self, kind: type[Message], recipients: Ids, size: int, private: Mapping[int, bytes] | None, number: int
    ) -> None:
        count = len(recipients)
        self.kind = kind
        self.recipients = recipients
        self.number = number
        self.size_down = np.full(count, size, np.int64)
        if private is not None:
            self.size_down += np.fromiter((len(private[client]) for client in recipients.tolist()), np.int64, count)
        self.size_up = np.zeros(count, np.int64)
        self.bytes_down, self.bytes_up = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.transport_down, self.transport_up = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.pki_up, self.pki_down = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.compute_s = np.zeros(count)
        self.ready_s, self.arrival_s = np.full(count, np.inf), np.full(count, np.inf)
        self.outcome = np.full(count, SILENT, np.int8)

    def place(self, answers: HostAnswers) -> None:
        """Note what the clients did: answered, refused or stayed silent, and what it took them."""
        at = np.searchsorted(self.recipients, answers.clients)
        self.size_up[at] = answers.sizes
        self.compute_s[at] = answers.compute_s
        self.pki_up[at] = answers.pki_up
        self.pki_down[at] = answers.pki_down
        self.outcome[at[answers.answered]] = ANSWERED
        refused = np.fromiter((refusal.client for refusal in answers.refusals), np.int64)
        self.outcome[np.searchsorted(self.recipients, refused)] = REFUSED
        if (shared := answers.shared) is not None:
            at = np.searchsorted(self.recipients, shared.clients)
            self.size_up[at] = shared.size
            self.compute_s[at] = shared.compute_s
            self.outcome[at] = ANSWERED

    def who(self, *outcomes: int) -> Ids:
        """Sorted numbers of the clients with one of these outcomes."""
        return self.recipients[np.isin(self.outcome, outcomes)]

    def ride_on_answers(self, transport: Transport, speed_factors: npt.NDArray[np.float64]) -> None:
        """Take off `transport_up` the last acknowledgements of questions that were answered before they went alone."""
        prompt = self.compute_s * speed_factors[self.recipients] <= transport.acknowledgement_delay_s
        rode = (self.bytes_up > 0) & prompt
        self.transport_up = self.transport_up - np.where(rode, transport.delayed_acknowledgement(self.size_down), 0)

    def exchanges(self, sent_s: float, speed_factors: npt.NDArray[np.float64]) -> Exchanges:
        """The stage as it is recorded; `(n,)` `speed_factors` scale the compute time."""
        arrived = np.isfinite(self.arrival_s) & (self.outcome != LATE)
        return Exchanges(
            stage=self.kind.stage,
            as_participant=self.kind.as_participant,
            clients=self.recipients,
            sent_s=sent_s,
            received_s=np.where(arrived, self.arrival_s, np.nan),
            bytes_down=self.bytes_down,
            bytes_up=self.bytes_up,
            transport_down=self.transport_down,
            transport_up=self.transport_up,
            pki_bytes_down=self.pki_down,
            pki_bytes_up=self.pki_up,
            compute_s=self.compute_s * speed_factors[self.recipients],
            outcome=self.outcome,
        )

    def replies(self, answers: HostAnswers, summing: Summing, sent_s: float, end_s: float) -> Replies:
        """What the server gets of a stage that began at `sent_s` and ended at `end_s`."""
        refused = self.who(REFUSED)
        in_time = set(refused.tolist())
        missing = Missing(
            offline=self.who(OFFLINE),
            dropped=self.who(DROPPED),
            late=self.who(LATE),
            refused=refused,
            silent=self.who(SILENT),
            refusals=tuple(refusal for refusal in answers.refusals if refusal.client in in_time),
        )
        assert self.kind.Answer is not None
        answered = self.outcome == ANSWERED
        return Replies(
            kind=self.kind.Answer,
            clients=self.recipients[answered],
            headers=answers.headers,
            missing=missing,
            summing=summing,
            latency_s=self.arrival_s[answered] - sent_s,
            waited_s=end_s - sent_s,
            shared=None if answers.shared is None else answers.shared.header,
        )
