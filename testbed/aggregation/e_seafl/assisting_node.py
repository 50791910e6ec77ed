"""The assisting node of `e-seafl`: sum the masks of one set of participants per round."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from testbed.aggregation.e_seafl.messages import (
    MASK_PURPOSE,
    PARTICIPATION_DOMAIN,
    SumMasks,
    SummedMasks,
    context_digest,
    mask_seed,
)
from testbed.aggregation.e_seafl.parameters import ESeaflParameters
from testbed.aggregation.kit.message_parts import RoundNotice
from testbed.aggregation.kit.participant import row
from testbed.aggregation.kit.serving import ServingClient
from testbed.crypto.masks import add_masks, word_dtype
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import Vector
from testbed.parties.client import StageTable, handles


class AssistingNode(ServingClient):
    """An assisting node in one round. It need not be a participant of the round."""

    PROTOCOL: ClassVar[str] = "e-seafl"
    UNBOUND: ClassVar[str] = "the masks are not bound to the training task of the participants"
    STAGES: ClassVar[StageTable] = StageTable(
        start="new", rows={SumMasks: row("new", "summed", "e-seafl.out-of-order")}
    )
    parameters: ESeaflParameters

    @handles(SumMasks)
    def on_sum_masks(self, message: SumMasks) -> SummedMasks:
        """Sum the masks of enough clients that have signed this round; serve once per round."""
        with self.progress.answering(message, message.round):
            if self.number not in self.parameters.assisting_nodes:
                raise Refusal(
                    "e-seafl.not-an-assisting-node", f"client {self.number} is not an assisting node of this experiment"
                )
            # The difference of two sums would be one client's mask, and with the other nodes' masks its update.
            self.check_not_served(message.round)
            self.check_notice(message)
            self.serve(message.round)
            self.check_survivors([row.client for row in message.survivors], message)
            # An update has at least one element beside its weight.
            if message.length < 2:
                raise Refusal("e-seafl.wrong-size", f"masks of {message.length} elements; at least 2")
            # A server that tells this node other facts gets other masks, which do not cancel.
            context = context_digest(self.environment.experiment_id, message, message.length, self.parameters)
            self.check_signatures_of(message, context)
            return SummedMasks(self.summed_masks(message, context))

    def check_survivors(self, named: Sequence[int], notice: RoundNotice) -> None:
        """Refuse survivors that an honest server cannot name, and numbers that belong to no client."""
        if max(named, default=0) >= self.environment.population:
            raise Refusal("e-seafl.unknown-survivor", f"survivor {max(named)} is not a client of the population")
        super().check_survivors(named, notice)

    def check_signatures_of(self, message: SumMasks, context: bytes) -> None:
        """Refuse unless every survivor has signed its participation, with the same notice as this node has."""

        def unsigned(client: int) -> Refusal:
            return Refusal(
                "e-seafl.missing-signature", f"client {client} has not signed that it takes part in this round"
            )

        self.environment.look_up(row.client for row in message.survivors)
        self.check_same_signed(PARTICIPATION_DOMAIN, context, message.survivors, unsigned, shown_to_all=True)

    def summed_masks(self, message: SumMasks, context: bytes) -> Vector:
        """Return the sum of the masks shared with the survivors, `(length,)`."""
        total = np.zeros(message.length, word_dtype(self.parameters.bits))
        clients = [row.client for row in message.survivors]
        meter("x25519.agree", len(clients))
        meter("hmac", len(clients))
        meter("mask.element", len(clients) * len(total))
        seeds = [mask_seed(self.shared_key(client, MASK_PURPOSE), client, self.number, context) for client in clients]
        add_masks(total, seeds, [1] * len(seeds), self.parameters.bits)
        return Vector(total, self.parameters.bits)

    def registered(self, client: int) -> bytes:
        """Return the signing key of a participant, as the PKI has it: the node need be no participant."""
        return self.environment.directory.signing_key(client)
