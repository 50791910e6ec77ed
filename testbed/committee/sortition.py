"""Committee members drawn by sortition, as Lotto's candidates are, once per service.

Source: Jiang et al., arXiv 2401.02880, section 3.4.

A client may serve if its number on (experiment, first round of the service) is below a s m / n: of n clients, a s are
expected. In the client-centric variant the number is its VRF's output under the key that the PKI has made for it, and
the client claims it with the proof. In the server-centric variant the number is a PRF's output under its public key,
which every party recomputes. With `weights` a client is drawn with probability min(1, a s w / W).

Several lists of one service, for different clients, have the same dishonest clients and may have different honest ones,
so a protocol must not rely on a single list. `analysis.bounds.committee` bounds the number of dishonest members.
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
_BLOCK = 1 << 18  # clients with numbers in the server's memory at the same time


def sortition_input(experiment_id: bytes, first_round: int) -> bytes:
    """Return the input of the VRF or PRF; the testbed uses it for nothing else.

    Args:
        experiment_id: 16 bytes.
        first_round: of the service.
    """
    # No second draw: the first round follows from `serves_rounds` alone, so the same numbers draw a failed committee
    # again.
    return _DOMAIN + experiment_id + first_round.to_bytes(8, "big")


def odds(section: CommitteeSection, directory: Directory, client: int) -> tuple[int, int]:
    """Return (s w, W), with which a client's number is compared (see `testbed.crypto.sortition`).

    Args:
        section: of the experiment.
        directory: the PKI's bulletin board.
        client: its number.
    """
    if section.weights == "equal":
        return section.members_planned, len(directory.registered)
    # Algorand (SOSP 2017, section 5.1) draws each unit of w by itself, for several votes; here a member has one share.
    assert directory.samples is not None
    return section.members_planned * int(directory.samples[client]), max(1, directory.all_samples)


def is_drawn(section: CommitteeSection, directory: Directory, client: int, number: bytes) -> bool:
    """Return whether a client with this number may serve; False for a client that has announced no samples.

    Args:
        section: of the experiment.
        directory: the PKI's bulletin board.
        client: its client number.
        number: output of its VRF or PRF.
    """
    weighed, among = odds(section, directory, client)
    return weighed > 0 and under_threshold(number, section.factor, weighed, among)


def check_beyond(round_number: int, environment: Environment) -> None:
    """Refuse rounds that the experiment does not have: a server could choose among their committees.

    Args:
        round_number: the round.
        environment: of the client that checks.
    """
    if round_number > environment.rounds:
        raise Refusal("committee.after-last-round", f"round {round_number} of {environment.rounds}")


# -- client side -------------------------------------------------------------------------------------------------------


class SortitionRole(Role):
    """Role of all clients: answers whether the client may serve. The answer is the same each time."""

    parameters: CommitteeSection

    @handles(Sortition)
    def on_sortition(self, message: Sortition) -> MembershipClaim:
        """Answer with the VRF's proof if drawn; if membership is public, answer that the client is online."""
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
        """Return a test for clients that are certainly not drawn: all of them give the same answer."""
        # A subclass, e.g. a client that misbehaves, may answer otherwise.
        if cls is not SortitionRole or not isinstance(message, Sortition):
            return None
        if parameters.selection == "lotto-server-centric":  # only the few drawn clients are asked
            return None
        directory = environment.directory
        # A number above the threshold of the heaviest client is above that of every client.
        heaviest = 0 if directory.samples is None else int(directory.samples.argmax())
        alpha = sortition_input(environment.experiment_id, parameters.first_round_of(message.round))
        return certainly_above_threshold(alpha, parameters.factor, *odds(parameters, directory, heaviest))


def committee_roles(section: CommitteeSection) -> list[RoleSpec]:
    """Return the roles of all clients for drawing the committee, beside the protocol's own roles."""
    return [RoleSpec(SortitionRole, section)] if section.by_sortition else []


def committee_stages(section: CommitteeSection) -> tuple[str, ...]:
    """Return the stages that drawing the committee adds to the protocol's."""
    return (STAGE,) if section.by_sortition else ()


# -- server side -------------------------------------------------------------------------------------------------------


async def candidates(
    section: CommitteeSection, round_number: int, network: Network, directory: Directory, experiment_id: bytes
) -> list[CommitteeMember]:
    """Return the clients that are drawn and answer, by rising numbers.

    Args:
        section: of the experiment.
        round_number: the round.
        network: for the question.
        directory: the PKI's bulletin board.
        experiment_id: 16 bytes.
    """
    alpha = sortition_input(experiment_id, section.first_round_of(round_number))
    if section.selection == "lotto-server-centric":
        numbers = _numbers_of_drawn(section, directory, alpha)
        there = await network.ask(np.array(sorted(numbers), np.int64), Sortition(round_number))
        return [CommitteeMember(client) for _, client in sorted((numbers[client], client) for client in there.valid())]
    replies = await network.ask(np.flatnonzero(directory.registered), Sortition(round_number))
    # A shared answer comes from clients that are certainly not drawn.
    claims = {client: claim.proof for client, claim in replies.valid(shared=False).items() if claim.proof is not None}
    # On all cores; the loop below finds the results.
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
    """Return the members: the s smallest numbers among the clients that answer.

    Args:
        section, round_number, network, directory, experiment_id: as in `candidates`.

    Raises:
        RoundAborted: there are fewer than s.
    """
    claimants = await candidates(section, round_number, network, directory, experiment_id)
    needed = section.members_planned
    if len(claimants) < needed:
        raise RoundAborted(
            "too-few-committee-members", f"{len(claimants)} drawn clients have answered, {needed} wanted"
        )
    # The smallest numbers: no randomness, and every party can verify the order. No party can verify that no smaller
    # number was left out, so a malicious server can keep its own clients and hide honest ones.
    return claimants[:needed]


def _numbers_of_drawn(section: CommitteeSection, directory: Directory, alpha: bytes) -> dict[int, bytes]:
    """Return the PRF outputs of the registered clients that are drawn, by client."""
    registered = np.flatnonzero(directory.registered)
    meter("hmac", len(registered))
    number_of: dict[int, bytes] = {}
    for first in range(0, len(registered), _BLOCK):
        some = registered[first : first + _BLOCK]
        numbers = prf.evaluate_many(directory.vrf[some], alpha)
        rows: Ids = np.arange(len(some))
        # One threshold for all: compare whole arrays first, since few clients are drawn.
        if section.weights == "equal":
            rows = np.flatnonzero(below_threshold_mask(numbers, section.factor, *odds(section, directory, 0)))
        for row in rows.tolist():
            client, number = int(some[row]), numbers[row].tobytes()
            if is_drawn(section, directory, client, number):
                number_of[client] = number
    return number_of


# -- verification by all parties ---------------------------------------------------------------------------------------


def check_members(section: CommitteeSection, committee: CommitteeList, environment: Environment) -> None:
    """Raise `Refusal` unless all members are drawn, in rising order, and their number is as planned.

    Args:
        section: of the experiment.
        committee: the list that the server shows.
        environment: of the client that checks.
    """
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
        # The order gives each member its place, so the server must not choose the order.
        if number <= before:
            raise Refusal("committee.out-of-order", f"the numbers of members do not rise at client {member.client}")
        before = number


def _number_of(section: CommitteeSection, directory: Directory, member: CommitteeMember, alpha: bytes) -> bytes:
    if section.selection == "lotto-client-centric":
        return _proven(section, directory, member.client, member.proof, alpha)
    if member.proof:
        raise Refusal("committee.invalid-proof", f"client {member.client}: unexpected proof; this selection has none")

    meter("hmac")
    number = prf.evaluate(directory.vrf_key(member.client), alpha)
    return _if_drawn(section, directory, member.client, number)


def _proven(section: CommitteeSection, directory: Directory, client: int, proof: bytes, alpha: bytes) -> bytes:
    """Return a client's 64-byte number; raises `Refusal` if the proof is invalid or the client is not drawn."""
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
        raise Refusal("committee.above-threshold", f"client {client} is not drawn")
    return number
