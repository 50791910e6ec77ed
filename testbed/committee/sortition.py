"""Members drawn by sortition: as Lotto's candidates (Jiang et al., arXiv 2401.02880, section 3.4), once for a service.

A client may serve when its number on (experiment, first round of the service) is below a s m / n: of n clients, a s are
expected. Client-centric, the number is its VRF's under the key that the PKI has made for it, and it says so itself,
with the proof. Server-centric, it is a PRF's under its public key, which everybody recomputes. With `weights` a client
is drawn with probability min(1, a s w / W). Algorand (Gilad et al., SOSP 2017, section 5.1) draws each unit of w by
itself, and who is drawn several times has several votes; here a member has one share, whatever its weight is.

The honest server takes the s smallest numbers of those who answer. It needs no coin for that, and everybody can verify
the order; that nobody with a smaller number was left out, nobody can. So a malicious server keeps all its own clients
and hides honest ones, as with Lotto's candidates, and what is bounded is how many of its own are drawn
(`analysis.bounds.committee`). It has no second draw: which round a service begins with follows from `serves_rounds`
alone, a committee that did not come about is drawn by the same numbers again, and a key is made once, by the PKI.
Several lists of one service, for different clients, hold the same dishonest clients and may hold different honest ones:
who uses a committee must not rely on there being one list alone.
"""

from collections.abc import Callable

import numpy as np

from testbed.arrays import Ids
from testbed.committee.messages import STAGE, CommitteeList, CommitteeMember, MembershipClaim, Sortition
from testbed.committee.parameters import CommitteeSection
from testbed.crypto import memo, prf, vrf
from testbed.crypto.sortition import below_threshold_mask, certainly_above_threshold, under_threshold
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal, RoundAborted
from testbed.messages import Message
from testbed.network import Network
from testbed.parties.client import Environment, Role, RoleSpec, handles
from testbed.parties.pki import Directory

_DOMAIN = b"testbed/committee/sortition/v1"
_BLOCK = 1 << 18  # clients whose numbers the server has in memory at the same time


def sortition_input(experiment_id: bytes, first_round: int) -> bytes:
    """What the VRF or PRF is evaluated on; nothing else in the testbed evaluates it on the same."""
    return _DOMAIN + experiment_id + first_round.to_bytes(8, "big")


def odds(section: CommitteeSection, directory: Directory, client: int) -> tuple[int, int]:
    """(s w, W): what a client's number is compared with, see `testbed.crypto.sortition`."""
    if section.weights == "equal":
        return section.members_planned, len(directory.registered)
    assert directory.samples is not None
    return section.members_planned * int(directory.samples[client]), max(1, directory.all_samples)


def is_drawn(section: CommitteeSection, directory: Directory, client: int, number: bytes) -> bool:
    """Whether a client with this number may serve; one that has announced no samples never does."""
    weighed, among = odds(section, directory, client)
    return weighed > 0 and under_threshold(number, section.factor, weighed, among)


def check_beyond(round_number: int, environment: Environment) -> None:
    """No committee serves in rounds that the experiment does not have: a server would choose among them."""
    if round_number > environment.rounds:
        raise Refusal("committee.round-beyond-the-last", f"round {round_number} of {environment.rounds}")


# -- the client side ---------------------------------------------------------------------------------------------------


class SortitionRole(Role):
    """Client side, of all clients: says whether it may serve. Asked again, it says the same."""

    parameters: CommitteeSection

    @handles(Sortition)
    def on_sortition(self, message: Sortition) -> MembershipClaim:
        """Evaluate the VRF, and answer with the proof if drawn; where everybody knows who is: that it is there."""
        check_beyond(message.round, self.environment)
        section = self.parameters
        if section.selection == "lotto-server-centric":
            return MembershipClaim()
        identity = self.client.identity
        assert identity is not None
        assert identity.vrf is not None
        alpha = sortition_input(self.environment.experiment_id, section.first_round_of(message.round))
        meter("vrf.output")
        if not is_drawn(section, self.environment.directory, self.client.number, identity.vrf.output(alpha)):
            return MembershipClaim()
        meter("vrf.prove")
        return MembershipClaim(identity.vrf.prove(alpha)[1])

    @classmethod
    def shared_answer_predicate(
        cls, message: Message, parameters: CommitteeSection, environment: Environment
    ) -> Callable[[bytes, bytes], bool] | None:
        """Test whether a client is certainly not drawn: all such clients say the same."""
        if cls is not SortitionRole or not isinstance(message, Sortition):
            return None
        if parameters.selection == "lotto-server-centric":  # the few that are drawn are asked
            return None
        directory = environment.directory
        heaviest = 0 if directory.samples is None else int(directory.samples.argmax())
        alpha = sortition_input(environment.experiment_id, parameters.first_round_of(message.round))
        return certainly_above_threshold(alpha, parameters.factor, *odds(parameters, directory, heaviest))


def committee_roles(section: CommitteeSection) -> list[RoleSpec]:
    """What all clients play besides an aggregation protocol's own roles, for its committee to be drawn."""
    return [RoleSpec(SortitionRole, section)] if section.by_sortition else []


def committee_stages(section: CommitteeSection) -> tuple[str, ...]:
    """The stages that it adds to the protocol's."""
    return (STAGE,) if section.by_sortition else ()


# -- the server side ---------------------------------------------------------------------------------------------------


async def candidates(
    section: CommitteeSection, round_number: int, network: Network, directory: Directory, experiment_id: bytes
) -> list[CommitteeMember]:
    """Those who are drawn and answer, by rising numbers."""
    alpha = sortition_input(experiment_id, section.first_round_of(round_number))
    if section.selection == "lotto-server-centric":
        numbers = _numbers_of_drawn(section, directory, alpha)
        there = await network.ask(np.array(sorted(numbers), np.int64), Sortition(round_number))
        return [CommitteeMember(client) for _, client in sorted((numbers[client], client) for client in there.valid())]
    replies = await network.ask(np.flatnonzero(directory.registered), Sortition(round_number))
    claims = {client: claim.proof for client, claim in replies.valid(shared=False).items() if claim.proof is not None}
    memo.verify_outputs([(directory.vrf_key(client), alpha, proof) for client, proof in claims.items()])
    claimants = []
    for client, proof in claims.items():
        try:
            claimants.append((_proven(section, directory, client, proof, alpha), client))
        except ProtocolError:
            network.record_event(f"client:{client}", "misbehaviour", "claimed to be drawn for the committee and is not")
    return [CommitteeMember(client, claims[client]) for _, client in sorted(claimants)]


async def sorted_out(
    section: CommitteeSection, round_number: int, network: Network, directory: Directory, experiment_id: bytes
) -> list[CommitteeMember]:
    """The members: the s smallest numbers of those who answer; raises `RoundAborted` where there are fewer."""
    claimants = await candidates(section, round_number, network, directory, experiment_id)
    needed = section.members_planned
    if len(claimants) < needed:
        raise RoundAborted(
            "too-few-committee-members", f"{len(claimants)} drawn clients have answered, {needed} wanted"
        )
    return claimants[:needed]


def _numbers_of_drawn(section: CommitteeSection, directory: Directory, alpha: bytes) -> dict[int, bytes]:
    """The PRF of all registered clients, of which those are kept that are drawn."""
    registered = np.flatnonzero(directory.registered)
    meter("hmac", len(registered))
    number_of: dict[int, bytes] = {}
    for first in range(0, len(registered), _BLOCK):
        some = registered[first : first + _BLOCK]
        numbers = prf.evaluate_many(directory.vrf[some], alpha)
        rows: Ids = np.arange(len(some))
        if section.weights == "equal":
            rows = np.flatnonzero(below_threshold_mask(numbers, section.factor, *odds(section, directory, 0)))
        for row in rows.tolist():
            client, number = int(some[row]), numbers[row].tobytes()
            if is_drawn(section, directory, client, number):
                number_of[client] = number
    return number_of


# -- what everybody verifies -------------------------------------------------------------------------------------------


def check_members(section: CommitteeSection, committee: CommitteeList, environment: Environment) -> None:
    """Raise `Refusal` unless there are as many members as agreed on, all of them drawn, by rising numbers."""
    clients = committee.clients
    if len(clients) != section.members_planned or len(set(clients)) != len(clients):
        raise Refusal("committee.wrong-size", f"not {section.members_planned} different members")
    directory, alpha = environment.look_up(clients), sortition_input(environment.experiment_id, committee.first_round)
    if section.selection == "lotto-client-centric":
        claims = [(directory.vrf_key(member.client), alpha, member.proof) for member in committee.members]
        memo.verify_outputs(claims)
    before = b""
    for member in committee.members:
        number = _number_of(section, directory, member, alpha)
        if number <= before:
            raise Refusal("committee.out-of-order", f"client {member.client} does not have the next number")
        before = number


def _number_of(section: CommitteeSection, directory: Directory, member: CommitteeMember, alpha: bytes) -> bytes:
    if section.selection == "lotto-client-centric":
        return _proven(section, directory, member.client, member.proof, alpha)
    if member.proof:
        raise Refusal("committee.invalid-proof", f"client {member.client}: a proof that nobody asks for")
    meter("hmac")
    number = prf.evaluate(directory.vrf_key(member.client), alpha)
    return _if_drawn(section, directory, member.client, number)


def _proven(section: CommitteeSection, directory: Directory, client: int, proof: bytes, alpha: bytes) -> bytes:
    """The number of a client, 64 bytes, which is drawn by it; raises `Refusal` where a proof shows nothing of that."""
    key = directory.vrf_key(client)
    if len(proof) != vrf.PROOF_BYTES:
        raise Refusal("committee.invalid-proof", f"client {client}: {len(proof)} bytes; a proof has {vrf.PROOF_BYTES}")
    meter("vrf.verify")
    try:
        number = memo.verify_output(key, alpha, proof)
    except ProtocolError as error:
        raise Refusal("committee.invalid-proof", f"client {client}: {error}") from None
    return _if_drawn(section, directory, client, number)


def _if_drawn(section: CommitteeSection, directory: Directory, client: int, number: bytes) -> bytes:
    if not is_drawn(section, directory, client, number):
        raise Refusal("committee.over-threshold", f"client {client} is not drawn")
    return number
