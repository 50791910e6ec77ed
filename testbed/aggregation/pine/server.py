"""PINE: Efficient Verification of a Euclidean Norm Bound of a Secret-Shared Vector.

Source: Rothblum, Omri, Chen and Talwar, USENIX Security 2024 (arXiv 2311.10237), as in draft-chen-cfrg-vdaf-pine-01,
run by two aggregators as DAP (draft-ietf-ppm-dap) runs Prio3.

A client shares its update to the server, which is the leader, and to a helper. It proves to both that the Euclidean
norm is at most `norm_bound`, all in one message. The leader passes on the helper's shares, with its own prepared share
of each report. The helper answers which reports are valid, and then the sum of its shares of the valid reports. With
the leader's sum this gives the sum of the updates. An invalid report is left out without loss for the others.

Deviations:

- The helper's shares are sealed under keys of client and helper; in DAP any party can seal to the helper (`messages`).
- The helper draws the aggregators' verification key before clients report; in DAP it is configured.
- The helper sums one set of the valid reports per round, and answers the leader; there is no collector.
- Coordinates are rounded to the nearest step as in the draft. Before that, the update is scaled down so far that
  rounding cannot lift it over the bound.

Updates are protected if the leader or the helper is honest, however the other behaves, with as many honest clients in a
sum as `min_survivors` leaves. That exactly the valid updates are summed needs both to be honest. See
docs/explanation/input-validation.md.
"""

from dataclasses import dataclass, field

import numpy as np

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.aggregation.kit.server_checks import (
    ServerRound,
    at_least,
    colluders_by_binding,
    digest_of_training,
    refusals_in,
)
from testbed.aggregation.pine.charges import charge_prepare
from testbed.aggregation.pine.client import PineClient
from testbed.aggregation.pine.messages import (
    DrawVerifyKey,
    PineSubmission,
    PineSubmit,
    PrepareReports,
    ReportFrom,
    SumReports,
)
from testbed.aggregation.pine.parameters import PineParameters
from testbed.aggregation.pine.second_aggregator import PineHelper
from testbed.arrays import Ids
from testbed.crypto import field64
from testbed.crypto.field64 import Elements
from testbed.crypto.pine import PineVdaf, Prepared
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.network import Replies
from testbed.network.contract import ids, no_ids
from testbed.parties.client import RoleSpec
from testbed.privacy.noise_plan import Guarantees

LEADER = 0
"""Number of the server among the aggregators."""


@dataclass
class PineRound(ServerRound):
    """State of one round.

    Attributes:
        helper: its client number.
        key: of both aggregators.
        training: digest of the training task; empty with ``model_binding: none``.
        agreed: the participants, if the clients have verified the list; else empty.
        dimension: parameters of an update.
        vdaf: the function of the reports.
        uploads: the answers with the reports.
        reports: by client, the well-formed report.
        prepared: by client, the leader's part of the preparation.
        accepted: sorted clients with a valid report.
    """

    helper: int
    key: bytes
    training: bytes = b""
    agreed: list[int] = field(default_factory=list)
    dimension: int = 0
    vdaf: PineVdaf = field(init=False)
    uploads: Replies = field(init=False)
    reports: dict[int, PineSubmission] = field(default_factory=dict)
    prepared: dict[int, Prepared] = field(default_factory=dict)
    accepted: Ids = field(default_factory=no_ids)


class Pine(AggregationProtocol):
    """Server side: the leader. A malicious server overrides some of its methods."""

    parameters: PineParameters
    stages = PineParameters.stages
    needs_registration = True

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(PineClient, self.parameters), RoleSpec(PineHelper, self.parameters)]

    def guarantees(self, participants: int) -> Guarantees:
        """Return the guarantees, with a dishonest client counted as the helper: then no update is safe."""
        fewest = self.parameters.fewest(participants)
        return Guarantees(
            participants,
            max_colluders=colluders_by_binding(self.parameters.model_binding, 0),
            min_sum_size=fewest,
            min_partition_size=fewest,
            min_noise_share=fewest / participants,
        )

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum the updates of all valid reports, or raise `RoundAborted`."""
        state = await self.begin(round_)
        await self.collect_reports(state)
        self.prepare_reports(state)
        await self.validate(state)
        survivors = self.survivors(state)
        share = await self.helpers_share(state, survivors)
        return self.unsharded(state, survivors, share)

    async def begin(self, round_: AggregationRound) -> PineRound:
        """Get the verification key, before any report; raises `RoundAborted` if clients would refuse the round."""
        participants, helper = len(round_.participants), self.parameters.helper
        if round_.experiment_id is None:
            raise RoundAborted("no-experiment", "reports are bound to the experiment's id")
        if participants < 2:
            raise RoundAborted("wrong-size", f"{participants} participants; at least 2")
        fewest = self.parameters.fewest(participants)
        self.parameters.batch_policy(round_.batches).require_complete_batches(round_.trained, fewest, "trained")
        # Before any report: clients must not know the key when they make their proofs.
        replies = await round_.network.ask(ids([helper]), DrawVerifyKey(round_.number))
        answer = replies.valid().get(helper)
        if answer is None:
            raise RoundAborted("no-helper", f"client {helper} does not answer{refusals_in(replies)}")
        return PineRound(round_, helper, answer.key)

    async def collect_reports(self, state: PineRound) -> None:
        """Collect the well-formed reports of updates of one length."""
        start, participants = state.start, len(state.start.participants)
        state.training = digest_of_training(self.parameters.model_binding, start)
        state.agreed = start.participants.tolist() if start.participants_agreed else []
        if start.dimension is None:
            raise RoundAborted("no-dimension", "the server must know the length of the updates")
        state.dimension, state.vdaf = start.dimension, self.parameters.vdaf(start.dimension)
        state.uploads = await start.network.ask(start.trained, PineSubmit(start.number, participants, state.helper))
        for client, answer in state.uploads.valid().items():
            if len(answer.leader) != state.vdaf.leader_bytes or len(answer.public) != state.vdaf.helper_bytes:
                state.misbehaved(client, f"pine.malformed-report: {len(answer.leader)} and {len(answer.public)} bytes")
            else:
                state.reports[client] = answer
        at_least(self.parameters.fewest(participants), len(state.reports), state.uploads, "sent their report")

    def prepare_reports(self, state: PineRound) -> None:
        """Prepare the leader's share of each report."""
        for client, report in list(state.reports.items()):
            charge_prepare(state.vdaf, LEADER)
            try:
                prepared = state.vdaf.prepare(LEADER, state.key, report.nonce, report.public, report.leader)
            except ProtocolError as error:
                state.misbehaved(client, f"pine.malformed-report: {error}")
                del state.reports[client]
                continue
            state.prepared[client] = prepared

    def question(self, state: PineRound) -> PrepareReports:
        """Return the question to the helper about the reports."""
        passed_on = [
            ReportFrom(client, report.nonce, report.public, report.helper, state.prepared[client].share)
            for client, report in sorted(state.reports.items())
        ]
        return PrepareReports(
            state.start.number, len(state.start.participants), state.dimension, state.training, state.agreed, passed_on
        )

    async def validate(self, state: PineRound) -> None:
        """Ask the helper, and accept the reports that both aggregators find valid."""
        question = self.question(state)
        meter("message", len(question.reports))
        replies = await state.start.network.ask(ids([state.helper]), question)
        answer = replies.valid().get(state.helper)
        if answer is None:
            raise RoundAborted("no-helper", f"client {state.helper} does not prepare the reports{refusals_in(replies)}")
        answers = {report.client: report for report in answer.reports}
        if len(answers) != len(answer.reports) or answers.keys() != state.reports.keys():
            state.misbehaved(state.helper, "prepared reports: does not have one result for each report")
            raise RoundAborted("wrong-helper", "the helper does not answer for each report whether it is valid")
        accepted = []
        for client, report in sorted(answers.items()):
            if report.rejected:
                state.misbehaved(client, f"{report.rejected}: reported by the helper, client {state.helper}")
            elif report.seeds != state.prepared[client].seeds:
                detail = f"the helper, client {state.helper}, derives other joint randomness than the server"
                state.misbehaved(client, f"pine.inconsistent-report: {detail}")
            else:
                accepted.append(client)
        state.accepted = ids(accepted)

    def survivors(self, state: PineRound) -> Ids:
        """Return the clients with valid reports in the sum; raises `RoundAborted` if they are too few."""
        fewest = self.parameters.fewest(len(state.start.participants))
        at_least(fewest, len(state.accepted), state.uploads, "sent a valid report")
        batches = self.parameters.batch_policy(state.start.batches)
        return batches.require_complete_batches(state.accepted, fewest, "sent a valid report")

    async def helpers_share(self, state: PineRound, survivors: Ids) -> Elements:
        """Return the helper's `(D,)` share of the sum; raises `RoundAborted` if it sends none."""
        question = SumReports(state.start.number, survivors.tolist())
        replies = await state.start.network.ask(ids([state.helper]), question)
        answer = replies.valid().get(state.helper)
        if answer is None:
            raise RoundAborted("no-helper", f"client {state.helper} does not sum the reports{refusals_in(replies)}")
        share = field64.from_bytes(answer.share)
        if share is None or len(share) != state.vdaf.dimension:
            detail = f"aggregate share: {len(answer.share)} bytes are not {state.vdaf.dimension} elements of the field"
            state.misbehaved(state.helper, detail)
            raise RoundAborted("wrong-helper", "the helper's share of the sum is malformed")
        return share

    def unsharded(self, state: PineRound, survivors: Ids, share: Elements) -> Aggregate:
        """Return the mean, from both shares of the sum; raises `RoundAborted` for an impossibly long sum."""
        total = share
        for client in survivors.tolist():
            total = field64.add(total, state.prepared[client].output)
        meter("field64.add", len(survivors) * len(total))
        exact = field64.to_signed(total).astype(np.float64)
        # The sum of valid reports is never longer; a wrong share gives a nearly uniform sum. The factor covers
        # rounding.
        if float(np.square(exact).sum()) > (len(survivors) * self.parameters.integer_bound) ** 2 * (1 + 2**-40):
            state.misbehaved(state.helper, "aggregate share: gives a sum that is longer than valid reports' can be")
            raise RoundAborted("implausible-sum", "the aggregators' shares are inconsistent")

        mean = exact / (2**self.parameters.fraction_bits * len(survivors))
        return Aggregate(mean, float(len(survivors)), survivors)
