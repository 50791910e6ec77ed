"""Client side of `pine`: a single message per round; see `testbed.aggregation.pine.server`."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from testbed.aggregation.kit.participant import Participant, row
from testbed.aggregation.pine.charges import charge_shard
from testbed.aggregation.pine.messages import SEALING_PURPOSE, PineSubmission, PineSubmit, context_digest, seal_share
from testbed.aggregation.pine.parameters import PineParameters
from testbed.crypto.pine import NONCE_BYTES, PineVdaf, Report
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.parties.client import StageTable, handles
from testbed.training import trained_update

ORDER = "pine.out-of-order"


class PineClient(Participant):
    """A participant of one round."""

    STAGES: ClassVar[StageTable] = StageTable(start="new", rows={PineSubmit: row("new", "submitted", ORDER)})
    parameters: PineParameters

    @handles(PineSubmit)
    def on_submit(self, message: PineSubmit) -> PineSubmission:
        """Share the update to the server and the helper, with the proof that its norm is within the bound."""
        with self.progress.answering(message, message.round):
            self.check_size(message.participants)
            # A malicious server would name a helper that colludes with it.
            if message.helper != self.parameters.helper:
                raise Refusal("pine.helper-mismatch", f"client {message.helper} is not the helper of this experiment")
            update = trained_update(self, message.round)
            self.round, dimension = message.round, len(update.delta)
            vdaf = self.parameters.vdaf(dimension)
            notice = self.notice(message.participants, update)
            context = context_digest(self.environment.experiment_id, notice, message.helper, dimension, vdaf)
            nonce = self.secret("pine nonce")[:NONCE_BYTES]
            report = self.report(vdaf, self.vector(np.asarray(update.delta, np.float32)), nonce)
            charge_shard(vdaf)
            sealed = self.sealed(message.helper, nonce, report, context)
            return PineSubmission(nonce, report.public, report.leader, sealed)

    def vector(self, delta: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Return the `(D,)` integers of the update that are shared."""
        return self.parameters.encode(delta)

    def report(self, vdaf: PineVdaf, vector: npt.NDArray[np.int64], nonce: bytes) -> Report:
        """Return the report of this vector."""
        return vdaf.shard(vector, nonce, [self.secret(f"pine seed {i}") for i in range(vdaf.report_seeds)])

    def sealed(self, helper: int, nonce: bytes, report: Report, context: bytes) -> bytes:
        """Return the helper's share, sealed for the helper."""
        self.environment.look_up([helper])
        pair_key = self.shared_key(helper, SEALING_PURPOSE)
        meter("x25519.agree")
        meter("aead.seal")
        meter("aead.byte", len(report.helper))
        return seal_share(pair_key, self.number, helper, (nonce, report.public, report.helper), context)
