"""Choice of committees: by the server (`chosen`), and its verification by clients (`verified`)."""

import hashlib

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.committee.messages import CommitteeList, CommitteeMember, KeptList
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import check_beyond, check_members, sorted_out
from testbed.crypto import prf
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.memory import Memory, MessageName
from testbed.messages import signed_content
from testbed.network import Network
from testbed.parties.client import Environment
from testbed.parties.pki import Directory

_SEED_DOMAIN = b"testbed/committee/public-seed/v3"
_STORED = MessageName("committee: members", KeptList)


async def chosen(
    section: CommitteeSection,
    round_number: int,
    network: Network,
    directory: Directory,
    experiment_id: bytes,
    memory: Memory,
) -> CommitteeList:
    """Return the committee of a round. Its members may be offline, and then do not answer.

    Args:
        section: of the experiment.
        round_number: from 1.
        network: for questions to clients that must claim their membership themselves.
        directory: the PKI's bulletin board; members are registered.
        experiment_id: 16 bytes.
        memory: `AggregationRound.memory`. It keeps the list of a service that is drawn by sortition.

    Raises:
        RoundAborted: too few of the drawn clients answer.
    """
    first = section.first_round_of(round_number)
    if not section.by_sortition:
        members = _known_to_all(section, first, directory)
        return CommitteeList(first, [CommitteeMember(client) for client in members])
    stored = _STORED.load(memory)
    if stored is not None and stored.committee.first_round == first:
        # Without a seed, a resumed run has new keys, under which the former proofs are invalid.
        if stored.drawn_by == _drawn_by(stored.committee, directory, experiment_id):
            return stored.committee
        network.record_event("server", "committee-lost", "a committee is drawn anew: its members have other keys")
    committee = CommitteeList(first, await sorted_out(section, round_number, network, directory, experiment_id))
    by = _drawn_by(committee, directory, experiment_id)
    # The list depends on the clients that answer: a server that drew again could choose among committees.
    _STORED.store(memory, KeptList(committee, by))
    return committee


def _drawn_by(committee: CommitteeList, directory: Directory, experiment_id: bytes) -> bytes:
    """Return a digest of the keys from which the members' numbers follow."""
    keys = directory.vrf[list(committee.clients)].tobytes()
    return hashlib.sha256(signed_content(experiment_id, keys)).digest()


def verified(section: CommitteeSection, committee: CommitteeList, round_number: int, environment: Environment) -> None:
    """Raise `Refusal` unless this is the committee of the round.

    With sortition, the check accepts any committee of clients drawn for the round: the server chooses among them (see
    `testbed.committee.sortition`).

    Args:
        section: of the experiment.
        committee: the list that the server shows.
        round_number: the round.
        environment: of the client that checks.
    """
    check_beyond(round_number, environment)
    first = section.first_round_of(round_number)
    if committee.first_round != first:
        raise Refusal(
            "committee.service-mismatch",
            f"the committee serves from round {committee.first_round}; that of round {round_number} from {first}",
        )
    if section.by_sortition:
        check_members(section, committee, environment)
        return
    expected = _known_to_all(section, first, environment.directory)
    if committee.clients != expected or any(member.proof for member in committee.members):
        raise Refusal("committee.members-mismatch", f"round {round_number} has another committee than the one shown")


def _known_to_all(section: CommitteeSection, first_round: int, directory: Directory) -> tuple[int, ...]:
    """Return the members of a committee that every party can derive."""
    if section.members is not None:
        return section.members
    members = publicly_drawn(directory.public_seed, first_round, directory.registered, section.members_planned)
    return tuple(members.tolist())


def publicly_drawn(public_seed: bytes, first_round: int, registered: npt.NDArray[np.bool_], members: int) -> Ids:
    """Draw clients from the registered ones.

    Args:
        public_seed: `Directory.public_seed`, 32 bytes.
        first_round: of the service.
        registered: `(n,)` bool.
        members: number of clients to draw.

    Returns:
        `(members,)` sorted client numbers; all registered clients if they are fewer.
    """
    if np.count_nonzero(registered) <= members:
        return np.flatnonzero(registered)
    seed = hashlib.sha256(_SEED_DOMAIN + public_seed + first_round.to_bytes(8, "big")).digest()
    # Rejection: each party draws numbers until enough are registered, instead of a shuffle of the population.
    chosen_clients: set[int] = set()
    draws = 0
    while len(chosen_clients) < members:
        # 256 bits modulo n: a bias below n / 2**256.
        client = int.from_bytes(prf.evaluate(seed, draws.to_bytes(8, "big")), "big") % len(registered)
        draws += 1
        if registered[client]:
            chosen_clients.add(client)
    meter("hmac", draws)
    return np.array(sorted(chosen_clients), np.int64)
