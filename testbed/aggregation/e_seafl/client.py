"""The participant of `e-seafl`: one masked update per round."""

from typing import ClassVar

import numpy as np

from testbed.aggregation.e_seafl.messages import (
    MASK_PURPOSE,
    PARTICIPATION_DOMAIN,
    MaskedUpdate,
    SendMaskedUpdate,
    context_digest,
    mask_seed,
)
from testbed.aggregation.e_seafl.parameters import ESeaflParameters
from testbed.aggregation.kit.participant import Participant, row
from testbed.crypto.masks import add_masks
from testbed.emulation.compute.cost import meter
from testbed.messages import Vector
from testbed.parties.client import StageTable, handles
from testbed.training import trained_update


class ESeaflClient(Participant):
    """One participant of one round."""

    STAGES: ClassVar[StageTable] = StageTable(
        start="new", rows={SendMaskedUpdate: row("new", "masked", "e-seafl.out-of-order")}
    )
    parameters: ESeaflParameters

    @handles(SendMaskedUpdate)
    def on_mask_input(self, message: SendMaskedUpdate) -> MaskedUpdate:
        """Mask the update for all assisting nodes, and sign that it takes part."""
        with self.progress.answering(message, message.round):
            self.check_size(message.participants)
            update = trained_update(self, message.round)
            # After `trained_update`, which refuses a round without training; secrets follow from the round.
            self.round = message.round
            elements = np.asarray(self.quantised_update(update))
            notice = self.notice(message.participants, update)
            context = context_digest(self.environment.experiment_id, notice, len(elements), self.parameters)
            seeds = self.mask_seeds(context)
            meter("mask.element", len(seeds) * len(elements))
            add_masks(elements, seeds, [1] * len(seeds), self.parameters.bits)
            return MaskedUpdate(Vector(elements, self.parameters.bits), self.sign(PARTICIPATION_DOMAIN, context))

    def mask_seeds(self, context: bytes) -> list[bytes]:
        """Return the seeds of this round's masks, one per assisting node."""
        nodes = self.parameters.assisting_nodes
        self.environment.look_up(nodes)
        meter("x25519.agree", len(nodes))
        meter("hmac", len(nodes))
        return [mask_seed(self.shared_key(node, MASK_PURPOSE), self.number, node, context) for node in nodes]
