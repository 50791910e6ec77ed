"""Second aggregator of `pine`: prepare the reports, and sum the valid ones, once.

The helper need not be a participant of the round. Of the clients it knows only the facts that the server tells it. The
shares open only if the clients were told the same facts (`context_digest`).
"""

from typing import ClassVar

from testbed.aggregation.kit.participant import row
from testbed.aggregation.kit.serving import ServingClient
from testbed.aggregation.pine.charges import charge_combine, charge_prepare
from testbed.aggregation.pine.client import ORDER
from testbed.aggregation.pine.messages import (
    SEALING_PURPOSE,
    AggregateShare,
    DrawVerifyKey,
    PreparedReport,
    PreparedReports,
    PrepareReports,
    ReportFrom,
    SumReports,
    VerifyKey,
    context_digest,
    open_share,
)
from testbed.aggregation.pine.parameters import PineParameters
from testbed.crypto import InvalidProof, InvalidShares, OpeningFailed, field64
from testbed.crypto.field64 import ELEMENT_BYTES, Elements
from testbed.crypto.pine import PineVdaf
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import Client, StageTable, handles

HELPER = 1
"""Number of the helper among the aggregators."""


class PineHelper(ServingClient):
    """The helper in one round.

    Attributes:
        key: of both aggregators.
        question: the question that brought the reports.
        vdaf: the function of the reports.
        accepted: by client, its opened share of a valid report.
        total: `(D,)` the sum of its shares of all valid reports.
    """

    PROTOCOL: ClassVar[str] = "pine"
    UNBOUND: ClassVar[str] = "the reports are not bound to the clients' training task"
    STAGES: ClassVar[StageTable] = StageTable(
        start="new",
        rows={
            DrawVerifyKey: row("new", "drawn", ORDER),
            PrepareReports: row("drawn", "prepared", ORDER),
            SumReports: row("prepared", "summed", ORDER),
        },
    )
    parameters: PineParameters
    key: bytes
    question: PrepareReports
    vdaf: PineVdaf
    total: Elements

    def __init__(self, client: Client, parameters: PineParameters) -> None:
        super().__init__(client, parameters)
        self.accepted: dict[int, bytes] = {}

    # -- DrawVerifyKey ------------------------------------------------------------------------------------------------

    @handles(DrawVerifyKey)
    def on_draw_verify_key(self, message: DrawVerifyKey) -> VerifyKey:
        """Draw the key, once per round and before any report: a leader could choose a revealing key."""
        with self.progress.answering(message, message.round):
            if self.number != self.parameters.helper:
                raise Refusal("pine.not-the-helper", f"client {self.number} is not the helper of this experiment")
            self.check_not_served(message.round)
            self.serve(message.round)
            self.key = self.secret("pine verify key")
            return VerifyKey(self.key)

    # -- PrepareReports -----------------------------------------------------------------------------------------------

    @handles(PrepareReports)
    def on_prepare_reports(self, message: PrepareReports) -> PreparedReports:
        """Decide which reports are valid, from both aggregators' shares."""
        with self.progress.answering(message, message.round):
            self.check_notice(message)
            self.check_reports(message)
            self.question, self.vdaf = message, self.parameters.vdaf(message.dimension)
            facts = self.environment.experiment_id, message, self.number
            context = context_digest(*facts, message.dimension, self.vdaf)
            self.environment.look_up([report.client for report in message.reports])
            nonces: set[bytes] = set()
            answers = []
            for report in message.reports:
                answers.append(self.answer_to(report, nonces, context))
                nonces.add(report.nonce)
            return PreparedReports(answers)

    def check_reports(self, message: PrepareReports) -> None:
        """Refuse reports that no honest server passes on."""
        clients = {report.client for report in message.reports}
        if len(clients) != len(message.reports) or len(clients) > message.participants:
            detail = "a client has two reports, or there are more reports than participants"
            raise Refusal("pine.unexpected-report", detail)
        if max(clients, default=0) >= self.environment.population:
            raise Refusal(
                "pine.unexpected-report", f"report of {max(clients)}, which is not a client of the population"
            )
        if message.agreed and not clients <= set(message.agreed):
            raise Refusal("pine.unexpected-report", "a client with a report is not on the agreed list")
        if not message.dimension:
            raise Refusal("pine.wrong-size", "the updates have 0 parameters")

    def answer_to(self, report: ReportFrom, nonces: set[bytes], context: bytes) -> PreparedReport:
        """Return the result of one report, and add its share to the sum if it is valid."""
        # Points of the query follow from the nonce, so each report needs a nonce of its own.
        if report.nonce in nonces:
            return PreparedReport(report.client, rejected="pine.replayed-report")
        try:
            share = self.opened(report, context)
            charge_prepare(self.vdaf, HELPER)
            prepared = self.vdaf.prepare(HELPER, self.key, report.nonce, report.public, share)
            charge_combine(self.vdaf)
            seeds = self.vdaf.combined(report.prepared, prepared.share)
            # The client has published a part that does not follow from its shares.
            if seeds != prepared.seeds:
                raise InvalidProof("its parts of the joint randomness are not those of its shares")
        except OpeningFailed:
            return PreparedReport(report.client, rejected="pine.invalid-share")
        except InvalidShares:
            return PreparedReport(report.client, rejected="pine.malformed-report")
        except InvalidProof:
            return PreparedReport(report.client, rejected="pine.invalid-report")
        meter("field64.add", self.vdaf.dimension)
        self.total = field64.add(self.total, prepared.output) if self.accepted else prepared.output
        self.accepted[report.client] = share
        return PreparedReport(report.client, seeds)

    def opened(self, report: ReportFrom, context: bytes) -> bytes:
        """Return the share that a client has sealed for this helper in this context; raises `OpeningFailed`."""
        pair_key = self.shared_key(report.client, SEALING_PURPOSE)
        meter("x25519.agree")
        meter("aead.open")
        meter("aead.byte", len(report.helper))
        return open_share(
            pair_key, report.client, self.number, report.nonce, report.public, report.helper, context
        )  # fmt: skip

    # -- SumReports ---------------------------------------------------------------------------------------------------

    @handles(SumReports)
    def on_sum_reports(self, message: SumReports) -> AggregateShare:
        """Return the sum of its shares of one set of reports per round, as the difference of two sums is an update."""
        with self.progress.answering(message, message.round):
            named = set(message.clients)
            if len(named) != len(message.clients) or not named <= self.accepted.keys():
                raise Refusal("pine.unexpected-report", "a client is listed twice, or has no valid report")
            fewest = self.parameters.fewest(self.question.participants)
            if len(named) < fewest:
                raise Refusal("pine.below-threshold", f"{len(named)} reports, never fewer than {fewest}")
            self.batches.check_survivors(message.clients)
            return AggregateShare(field64.to_bytes(self.summed(named)))

    def summed(self, named: set[int]) -> Elements:
        """Return the `(D,)` sum of its shares of these clients: the total without the others."""
        total = self.total
        for client in sorted(self.accepted.keys() - named):
            meter("xof.byte", ELEMENT_BYTES * self.vdaf.measurement_length)
            meter("field64.add", self.vdaf.dimension)
            total = field64.subtract(total, self.vdaf.helper_output(self.accepted[client]))
        return total
