"""One-shot private aggregation (OPA) with single client interaction.

Source: Karthikeyan and Polychroniadou, OPA: One-shot Private Aggregation with Single Client Interaction and its
Applications to Federated Learning, CRYPTO 2025 (arXiv 2410.22303, eprint 2024/1192), in the variant from LWE with
leakage that Hint-LWE covers.

A client draws a key s, uploads its update under the mask of s (`testbed.crypto.ring_lwe`), and shares s to a committee
by packed secret sharing, all in one message. The server names the survivors to the committee. Each member answers with
the sum of the survivors' shares that it holds. U answers give the sum of the keys, which unmasks the sum of the
updates. Dropouts of clients cost nothing, nor do dropouts of members, as long as U members answer all three times.

Deviations:

- The masks are from Ring-LWE with several elements packed in a coefficient, as in Willow (Bell-Clark, Gascon, Li,
  Raykova, Schoppmann, CRYPTO 2025). The paper's matrix takes a product in d times 2,048 steps instead.
- Members sign the survivors to each other before they answer, as the paper suggests against a malicious server.
- In the paper a client proves that its shares are consistent by SCRAPE's test of commitments in a group. Here it
  commits by hashes, and reveals random combinations of its polynomials (`testbed.crypto.share_test`). Each member tests
  its own share and reports the clients with shares that fail, before anything is signed; the server leaves out these
  clients, or the members (`complaints`). That is one question more to the committee than without the test.
- The committee is drawn before the round (`testbed.committee`), and its members' long-term keys are the PKI's, so
  sharing to it needs no message of the members. The facts that a client was told are bound to the shares that it seals
  (`messages.context_digest`).

The protocol protects against a malicious server that colludes with T members of the committee, as long as two clients
in a sum are honest; and, with an honest server, against clients that deal wrong shares. See
docs/explanation/one-shot.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.aggregation.contract import Aggregate, AggregationProtocol, AggregationRound, clients_with_shape
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.kit.server_checks import (
    ServerRound,
    at_least,
    colluders_by_binding,
    digest_of_training,
    quantised_mean,
    valid_signatures,
)
from testbed.aggregation.one_shot.charges import charge_values
from testbed.aggregation.one_shot.client import OneShotClient
from testbed.aggregation.one_shot.complaints import flaw_of, settle, shares_for_members
from testbed.aggregation.one_shot.member import OneShotMember
from testbed.aggregation.one_shot.messages import (
    SURVIVORS_DOMAIN,
    OneShotSubmission,
    OneShotSubmit,
    OpenShares,
    SignSurvivors,
    SumShares,
    context_digest,
    public_seed,
    survivors_content,
)
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.arrays import Ids
from testbed.committee.choice import chosen
from testbed.committee.messages import CommitteeList
from testbed.committee.sortition import committee_roles
from testbed.crypto import InvalidShares, OpeningFailed
from testbed.crypto.coded_masks import MaskCode
from testbed.crypto.prime_field import PRIME, Elements
from testbed.crypto.ring_lwe import LARGEST, PRIMES
from testbed.crypto.share_test import ShareTest
from testbed.emulation.compute.cost import meter
from testbed.errors import RoundAborted
from testbed.network import Replies
from testbed.network.contract import ids, no_ids
from testbed.parties.client import RoleSpec
from testbed.privacy.noise_plan import Guarantees
from testbed.vectors.integers import INTEGERS


@dataclass
class OneShotRound(ServerRound):
    """State of one round.

    Attributes:
        experiment_id: 16 bytes.
        committee: the serving committee.
        code: by which keys are shared to its members.
        training: digest of the training task; empty with ``model_binding: none``.
        agreed: the participants, if the clients have verified the list; else empty.
        uploads: the answers with the masked inputs.
        shares: by client with a valid upload, its submission: a sealed share per member, and the inputs of their test.
        survivors: sorted clients in the sum.
        members: the committee, sorted; once the shares are opened, the members that sum opened shares.
    """

    experiment_id: bytes
    committee: CommitteeList
    code: MaskCode
    training: bytes = b""
    agreed: list[int] = field(default_factory=list)
    uploads: Replies = field(init=False)
    shares: dict[int, OneShotSubmission] = field(default_factory=dict)
    survivors: Ids = field(default_factory=no_ids)
    members: Ids = field(init=False)

    def __post_init__(self) -> None:
        self.members = ids(self.committee.clients)

    @property
    def test(self) -> ShareTest:
        """Test that a client's shares are consistent."""
        return ShareTest(self.code, len(self.committee.members))


class OneShot(AggregationProtocol):
    """Server side. A malicious server overrides some of its methods."""

    parameters: OneShotParameters
    needs_registration = True

    def __init__(self, parameters: OneShotParameters) -> None:
        super().__init__(parameters)
        self.stages = parameters.stages_of_round()

    @property
    def roles(self) -> list[RoleSpec]:
        own = [RoleSpec(OneShotClient, self.parameters), RoleSpec(OneShotMember, self.parameters)]
        return [*own, *committee_roles(self.parameters.committee)]

    def guarantees(self, participants: int) -> Guarantees:
        """Return the guarantees, with all dishonest clients counted as committee members."""
        fewest = self.parameters.fewest(participants)
        private = self.parameters.code_for(self.parameters.committee.members_planned).private
        return Guarantees(
            participants,
            max_colluders=colluders_by_binding(self.parameters.model_binding, min(private, fewest - 2)),
            min_sum_size=fewest,
            min_partition_size=fewest,
            min_noise_share=fewest / participants,
        )

    async def aggregate(self, round_: AggregationRound) -> Aggregate:
        """Sum the updates that arrive, or raise `RoundAborted`."""
        state = await self.begin(round_)
        await self.collect_submissions(state)
        await self.test_shares(state)
        key = await self.summed_key(state)
        return quantised_mean(self.parameters, await self.unmasked(state, key), state.survivors)

    async def begin(self, round_: AggregationRound) -> OneShotRound:
        """Get the committee of this round; raises `RoundAborted` if clients would refuse the round."""
        participants, parameters = len(round_.participants), self.parameters
        if round_.experiment_id is None:
            raise RoundAborted("no-committee", "the committee is drawn with the experiment's id")
        if participants < 2 or participants > parameters.packing.most_clients:
            raise RoundAborted("wrong-size", f"{participants} participants; 2 to {parameters.packing.most_clients}")
        fewest = parameters.fewest(participants)
        parameters.batch_policy(round_.batches).require_complete_batches(round_.trained, fewest, "trained")
        facts = round_.number, round_.network, round_.directory, round_.experiment_id
        committee = await chosen(parameters.committee, *facts, round_.memory)
        try:
            code = parameters.code_for(len(committee.members))
        except ValueError as error:
            raise RoundAborted("unsafe-committee", str(error)) from None
        return OneShotRound(round_, round_.experiment_id, committee, code)

    # -- submissions of the clients -----------------------------------------------------------------------------------

    async def collect_submissions(self, state: OneShotRound) -> None:
        """Collect the masked inputs with all their shares, and choose the survivors."""
        start, participants = state.start, len(state.start.participants)
        state.training = digest_of_training(self.parameters.model_binding, start)
        state.agreed = start.participants.tolist() if start.participants_agreed else []
        question = OneShotSubmit(start.number, participants, state.committee)
        state.uploads = await start.network.ask(start.trained, question)
        answers = state.uploads.valid()
        length = None if start.dimension is None else self.input_length(start.dimension)
        fitting = set(clients_with_shape({c: answer.input for c, answer in answers.items()}, INTEGERS, length).tolist())
        for client, answer in answers.items():
            if client not in fitting:
                state.misbehaved(client, f"masked input: {answer.input}")
            elif flaw := flaw_of(answer, state.test):
                state.misbehaved(client, f"masked input: {flaw}")
            else:
                state.shares[client] = answer
        fewest = self.parameters.fewest(participants)
        at_least(fewest, len(state.shares), state.uploads, "sent their input")
        batches = self.parameters.batch_policy(start.batches)
        state.survivors = batches.require_complete_batches(ids(list(state.shares)), fewest, "sent their input")

    def input_length(self, dimension: int) -> int:
        """Return the number of elements of a masked update with this many parameters."""
        return len(PRIMES) * self.parameters.packing.coefficients(dimension + 1)

    # -- answers of the committee -------------------------------------------------------------------------------------

    async def test_shares(self, state: OneShotRound) -> None:
        """Leave out the clients that the committee rejects, or the members that reject wrongly."""
        private = shares_for_members(state.shares, state.survivors, state.committee.clients, state.test)
        meter("message", len(state.members) * len(state.survivors))
        charge_values(state.test, len(state.survivors))
        replies = await state.start.network.ask(state.members, self.opening(state, state.survivors), private=private)
        rejected = {
            member: {rejection.client: rejection.check for rejection in answer.rejected}
            for member, answer in replies.valid().items()
        }
        at_least(state.code.needed, len(rejected), replies, "members opened the shares")
        settled = settle(rejected, state.survivors.tolist(), state.code)
        for party, detail in settled.blamed:
            state.misbehaved(party, detail)
        fewest = self.parameters.fewest(len(state.start.participants))
        staying, passed = ids(settled.clients), "dealt consistent shares"
        at_least(fewest, len(staying), state.uploads, passed)
        batches = self.parameters.batch_policy(state.start.batches)
        state.survivors, state.members = batches.require_complete_batches(staying, fewest, passed), ids(settled.members)

    async def summed_key(self, state: OneShotRound) -> npt.NDArray[np.int64]:
        """Return the `(4096,)` sum of the survivors' keys, from the committee's answers."""
        replies, signatures = await self.signatures(state, state.members, state.survivors)
        at_least(state.code.needed, len(signatures), replies, "members signed the survivors")
        replies, sums = await self.summed_shares(state, ids(list(signatures)), signatures)
        at_least(state.code.needed, len(sums), replies, "members summed their shares")
        return self.decoded_key(state, sums, len(state.survivors))

    def opening(self, state: OneShotRound, survivors: Ids) -> OpenShares:
        """Return the question to the members about these survivors."""
        return OpenShares(
            state.start.number, len(state.start.participants), state.training, state.agreed, state.committee,
            survivors.tolist(),
        )  # fmt: skip

    async def signatures(self, state: OneShotRound, members: Ids, survivors: Ids) -> tuple[Replies, dict[int, bytes]]:
        """Ask members to sign the survivors; return the replies and the signatures by member."""
        start = state.start
        replies = await start.network.ask(members, SignSurvivors(start.number, survivors.tolist()))
        notice = self.opening(state, survivors)
        # The same context as the clients': a member that was told other facts has signed other content.
        context = context_digest(state.experiment_id, notice, state.committee, state.code, self.parameters.bits)
        content = survivors_content(start.number, survivors.tolist(), context)
        return replies, valid_signatures(start, replies, SURVIVORS_DOMAIN, content, "signature on the survivors")

    async def summed_shares(
        self, state: OneShotRound, members: Ids, signatures: Mapping[int, bytes]
    ) -> tuple[Replies, dict[int, Elements]]:
        """Ask members for their sums, with the first U signatures; return the replies and the sums by point."""
        # U signatures: more prove nothing, and each costs every member a verification.
        rows = [SignatureOf(member, signatures[member]) for member in sorted(signatures)[: state.code.needed]]
        replies = await state.start.network.ask(members, SumShares(state.start.number, rows))
        return replies, state.sums_by_point(replies, state.code.piece_length, "summed shares")

    def decoded_key(self, state: OneShotRound, sums: Mapping[int, Elements], clients: int) -> npt.NDArray[np.int64]:
        """Decode the `(4096,)` sum of keys from at least U sums of shares.

        Args:
            state: of the round.
            sums: by the members' points.
            clients: number of keys in the sum.

        Raises:
            RoundAborted: too many sums are wrong, or they decode to no sum of keys.
        """
        code = state.code
        meter("field.multiply", (len(sums) + code.needed - code.private) * code.needed * code.piece_length)
        try:
            wrong = code.wrong(sums)
            meter("field.add.element", code.search_steps(len(sums)) if wrong else 0)
        except InvalidShares as error:
            meter("field.add.element", code.search_steps(len(sums)))
            raise RoundAborted("wrong-shares", f"the sums of {len(sums)} members: {error}") from None
        key = code.decoded({point: total for point, total in sums.items() if point not in wrong}).astype(np.int64)
        # The sum has small signed numbers: take the representatives nearest to zero.
        key -= np.where(key > PRIME // 2, PRIME, 0)
        # No honest sum is larger; a wrong one is nearly uniform in the field.
        if int(np.abs(key).max()) > clients * LARGEST:
            raise RoundAborted("wrong-shares", f"the decoded sum is too large for a sum of {clients} keys")
        for point in wrong:  # only now: before the check of size, too many wrong sums could make honest ones look wrong
            state.misbehaved(point - 1, "summed shares: does not fit the sums of the other members")
        return key

    # -- the sum ------------------------------------------------------------------------------------------------------

    async def unmasked(self, state: OneShotRound, key: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Return the `(d+1,)` sum of the survivors' elements."""
        return self.without_mask(state, await state.uploads.total(state.survivors), key, len(state.survivors))

    def without_mask(
        self, state: OneShotRound, total: npt.NDArray[np.uint64], key: npt.NDArray[np.int64], clients: int
    ) -> npt.NDArray[np.uint64]:
        """Remove the mask of this key from a sum of masked inputs.

        Args:
            state: of the round.
            total: `(3 C,)` sum of masked inputs.
            key: `(4096,)` sum of their keys.
            clients: number of inputs in the sum.

        Returns:
            `(d+1,)` sum of the elements.

        Raises:
            RoundAborted: the mask belongs to another key.
        """
        packing, rows = self.parameters.packing, total.reshape(len(PRIMES), -1)
        dimension = state.start.dimension
        elements = packing.together * rows.shape[1] if dimension is None else dimension + 1
        meter("mask.element", rows.size)
        meter("ring_lwe.multiply", rows.size)
        meter("ring_lwe.add", rows.size + elements)
        seed = public_seed(state.experiment_id, state.start.number)
        try:
            return packing.unmasked(rows, key, seed, elements, clients)
        except OpeningFailed as error:
            raise RoundAborted("wrong-key", f"the committee's answers: {error}") from None
