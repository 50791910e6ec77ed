"""e-SeaFL: Efficient Secure Aggregation for Privacy-Preserving Federated Machine Learning.

Source: Behnia, Riasi, Ebrahimi, Chow, Padmanabhan and Hoang, ACSAC 2024 (arXiv 2304.03841), Algorithm 2 against
malicious parties.

Client i shares a key with each of k assisting nodes. It sends y_i = x_i + sum_j PRG(seed_ij) modulo 2**bits, once, with
a signature that it takes part. Each node checks the signatures of the survivors and answers with the sum of its masks
over them. The server subtracts the sums of all k nodes. A client that drops out costs nothing; a node that drops out
ends the round.

Deviations:

- Clients and nodes agree on keys by the X25519 keys that the PKI has, so there is no set-up phase.
- Clients send the signatures for the nodes to the server, which passes them on. The nodes compare no lists.
- Clients sign, and derive masks from, the training task, the participants and the nodes (`context_digest`).
- The authenticated homomorphic commitments, by which clients verify the server's sum, are not implemented. A malicious
  server can send any model as the result of a round.

Updates are hidden from a malicious server that colludes with all nodes but one, and with clients, as long as
`min_survivors` leaves two honest clients in a sum.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound
from testbed.aggregation.e_seafl.assisting_node import AssistingNode
from testbed.aggregation.e_seafl.client import ESeaflClient
from testbed.aggregation.e_seafl.messages import PARTICIPATION_DOMAIN, SendMaskedUpdate, SumMasks, context_digest
from testbed.aggregation.e_seafl.parameters import ESeaflParameters
from testbed.aggregation.kit.message_parts import ParticipantNotice, SignatureOf
from testbed.aggregation.kit.server_checks import (
    ServerRound,
    at_least,
    colluders_by_binding,
    digest_of_training,
    quantised_mean,
    refusals_in,
    verify,
)
from testbed.arrays import Ids
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.network import Replies
from testbed.network.contract import ids
from testbed.parties.client import RoleSpec
from testbed.privacy.noise_plan import Guarantees


@dataclass
class ESeaflRound(ServerRound):
    """State of one round.

    Attributes:
        experiment_id: 16 bytes.
        training: digest of the participants' training task; empty with ``model_binding: none``.
        agreed: the participants, where they have verified the list; else empty.
        length: ring elements of a masked update, d + 1.
        uploads: the answers with the masked updates.
        signatures: by client with a valid upload, the signature for the assisting nodes.
    """

    experiment_id: bytes
    training: bytes = b""
    agreed: list[int] = field(default_factory=list)
    length: int = 0
    uploads: Replies = field(init=False)
    signatures: dict[int, bytes] = field(default_factory=dict)


class ESeafl(AggregationProtocol):
    """The server. A malicious server overrides some decisions."""

    parameters: ESeaflParameters
    stages = ESeaflParameters.stages
    needs_registration = True

    @property
    def roles(self) -> list[RoleSpec]:
        return [RoleSpec(ESeaflClient, self.parameters), RoleSpec(AssistingNode, self.parameters)]

    def guarantees(self, participants: int) -> Guarantees:
        """Return the guarantees, with dishonest clients counted as assisting nodes, but not as all nodes."""
        fewest = self.parameters.fewest(participants)
        # One honest node hides all masks; two honest clients hide each other in the smallest sum.
        colluders = max(-1, min(len(self.parameters.assisting_nodes) - 1, fewest - 2))
        return Guarantees(
            participants,
            max_colluders=colluders_by_binding(self.parameters.model_binding, colluders),
            min_sum_size=fewest,
            min_partition_size=fewest,
            min_noise_share=fewest / participants,
        )

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Return the mean over the survivors; raises `RoundAborted`."""
        state = self.begin(round_)
        await self.collect_masked_inputs(state)
        survivors = self.choose_survivors(state)
        masks = await self.summed_masks(state, survivors)
        total = await self.unmasked(state, masks, survivors)
        return quantised_mean(self.parameters, total, survivors)

    def begin(self, round_: AggregationRound) -> ESeaflRound:
        """Begin the round; raises `RoundAborted` where the clients would refuse it."""
        if round_.experiment_id is None:
            raise RoundAborted("no-experiment", "masks and signatures are bound to the experiment's id")
        if len(round_.participants) < 2:
            raise RoundAborted("wrong-size", f"{len(round_.participants)} participants; at least 2")
        fewest = self.parameters.fewest(len(round_.participants))
        self.parameters.batch_policy(round_.batches).require_complete_batches(round_.trained, fewest, "trained")
        return ESeaflRound(round_, round_.experiment_id)

    async def collect_masked_inputs(self, state: ESeaflRound) -> None:
        """Collect the masked updates; leave out uploads that the assisting nodes would refuse."""
        start, participants = state.start, len(state.start.participants)
        state.training = digest_of_training(self.parameters.model_binding, start)
        state.agreed = start.participants.tolist() if start.participants_agreed else []
        state.uploads = await start.network.ask(start.trained, SendMaskedUpdate(start.number, participants))
        answers = state.uploads.valid()
        inputs = {client: answer.input for client, answer in answers.items()}
        length = None if start.dimension is None else start.dimension + 1
        fitting = state.fitting(inputs, self.parameters.bits, length, "masked input")
        fewest = self.parameters.fewest(participants)
        at_least(fewest, len(fitting), state.uploads, "sent their input")
        state.length = len(inputs[int(fitting[0])])
        context = self.context_of(state)
        for client in fitting.tolist():
            try:
                self.check_signature(state, client, context, answers[client].signature)
            except ProtocolError as error:
                state.misbehaved(client, f"masked input: {error}")
            else:
                state.signatures[client] = answers[client].signature

    def check_signature(self, state: ESeaflRound, client: int, context: bytes, signature: bytes) -> None:
        """Raise `ProtocolError` unless the assisting nodes will accept the signature of a client."""
        verify(state.start, client, PARTICIPATION_DOMAIN, context, signature)

    def choose_survivors(self, state: ESeaflRound) -> Ids:
        """Return the clients in the sum; raises `RoundAborted` for too few."""
        fewest = self.parameters.fewest(len(state.start.participants))
        at_least(fewest, len(state.signatures), state.uploads, "signed their input")
        batches = self.parameters.batch_policy(state.start.batches)
        return batches.require_complete_batches(ids(list(state.signatures)), fewest, "signed their input")

    def context_of(self, state: ESeaflRound) -> bytes:
        """Return the context that clients sign."""
        notice = ParticipantNotice(state.start.number, len(state.start.participants), state.training, state.agreed)
        return context_digest(state.experiment_id, notice, state.length, self.parameters)

    def question(self, state: ESeaflRound, survivors: Ids) -> SumMasks:
        """Return the question to the assisting nodes."""
        return SumMasks(
            state.start.number,
            len(state.start.participants),
            state.length,
            state.training,
            state.agreed,
            [SignatureOf(client, state.signatures[client]) for client in survivors.tolist()],
        )

    async def summed_masks(self, state: ESeaflRound, survivors: Ids) -> npt.NDArray[np.unsignedinteger]:
        """Return the sum of all masks of the survivors, `(d+1,)`; raises `RoundAborted` if a node does not answer."""
        nodes = ids(self.parameters.assisting_nodes)
        meter("message", len(survivors) * len(nodes))
        # All nodes get the same survivors: masks of sums over different sets do not cancel.
        replies = await state.start.network.ask(nodes, self.question(state, survivors))
        totals = {node: answer.total for node, answer in replies.valid().items()}
        fitting = state.fitting(totals, self.parameters.bits, state.length, "summed masks")
        # Each node knows a mask of every update, so the sum needs all of them.
        if len(fitting) < len(nodes):
            missing = sorted(set(nodes.tolist()) - set(fitting.tolist()))
            named = ", ".join(str(node) for node in missing)
            raise RoundAborted("no-assisting-node", f"no sum of masks from client {named}{refusals_in(replies)}")
        meter("ring.add.element", len(nodes) * state.length)
        total: npt.NDArray[np.unsignedinteger] = np.asarray(await replies.total(fitting))
        return total

    async def unmasked(
        self, state: ESeaflRound, masks: npt.NDArray[np.unsignedinteger], survivors: Ids
    ) -> npt.NDArray[np.unsignedinteger]:
        """Return the sum of the survivors' elements, `(d+1,)`."""
        masked = np.asarray(await state.uploads.total(survivors))
        meter("ring.add.element", len(masked))
        largest = masked.dtype.type(2**self.parameters.bits - 1)
        difference: npt.NDArray[np.unsignedinteger] = np.subtract(masked, masks) & largest
        return difference
