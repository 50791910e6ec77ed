"""Who serves: what the server does to find out (`chosen`), and what a client checks of it (`verified`)."""

import hashlib

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.committee.messages import CommitteeList, CommitteeMember
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import check_beyond, check_members, sorted_out
from testbed.crypto import prf
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import decode, encode
from testbed.network import Network
from testbed.parties.client import Environment
from testbed.parties.pki import Directory

_SEED_DOMAIN = b"testbed/committee/public-seed/v2"
_KEPT = "committee: members"


async def chosen(
    section: CommitteeSection,
    round_number: int,
    network: Network,
    directory: Directory,
    experiment_id: bytes,
    memory: dict[str, npt.NDArray[np.uint8]] | None = None,
) -> CommitteeList:
    """The committee of a round; whoever is on it may be offline, and says nothing then.

    Args:
        section: of the experiment.
        round_number: from 1.
        network: how to reach clients that have to say themselves that they are on it.
        directory: the PKI's bulletin board; members are registered.
        experiment_id: 16 bytes.
        memory: `AggregationRound.memory`, where the list of a service is kept that depends on who answers; None: it is
            drawn each time, and the caller keeps it.

    Raises:
        RoundAborted: too few clients that are drawn answer.
    """
    first = section.first_round_of(round_number)
    if not section.by_sortition:
        members = _known_to_all(section, first, directory, experiment_id)
        return CommitteeList(first, [CommitteeMember(client) for client in members])
    if memory is not None and _KEPT in memory:
        kept = decode(CommitteeList, memory[_KEPT].tobytes())
        if kept.first_round == first:
            return kept
    drawn = CommitteeList(first, await sorted_out(section, round_number, network, directory, experiment_id))
    if memory is not None:
        memory[_KEPT] = np.frombuffer(encode(drawn), np.uint8)
    return drawn


def verified(section: CommitteeSection, said: CommitteeList, round_number: int, environment: Environment) -> None:
    """Raise `Refusal` unless this is the committee of the round, whatever the server would have it be.

    By sortition: a committee of clients that are drawn for the round. Which of them, is the server's choice; see
    `testbed.committee.sortition`.
    """
    check_beyond(round_number, environment)
    first = section.first_round_of(round_number)
    if said.first_round != first:
        raise Refusal("committee.other-service", f"serves from round {said.first_round}; round {round_number}: {first}")
    if section.by_sortition:
        check_members(section, said, environment)
        return
    expected = _known_to_all(section, first, environment.directory, environment.experiment_id)
    if said.clients != expected or any(member.proof for member in said.members):
        raise Refusal("committee.other-members", f"round {round_number}: not the committee that everybody knows")


def _known_to_all(
    section: CommitteeSection, first_round: int, directory: Directory, experiment_id: bytes
) -> tuple[int, ...]:
    """The members, where that takes nobody's word."""
    if section.members is not None:
        return section.members
    drawn = publicly_drawn(experiment_id, first_round, directory.registered, section.members_planned)
    return tuple(drawn.tolist())


def publicly_drawn(experiment_id: bytes, first_round: int, registered: npt.NDArray[np.bool_], members: int) -> Ids:
    """`(members,)` sorted clients, drawn from the registered ones with what everybody knows; all where they are fewer.

    The seed stands for a beacon's value that nobody knew when clients were registered. Numbers of clients are drawn
    until enough different ones are registered, so that nobody goes through the whole population.

    Args:
        experiment_id: 16 bytes.
        first_round: of the service.
        registered: `(n,)`.
        members: how many.
    """
    if np.count_nonzero(registered) <= members:
        return np.flatnonzero(registered)
    seed = hashlib.sha256(_SEED_DOMAIN + experiment_id + first_round.to_bytes(8, "big")).digest()
    drawn: set[int] = set()
    draws = 0
    while len(drawn) < members:
        client = int.from_bytes(prf.evaluate(seed, draws.to_bytes(8, "big")), "big") % len(registered)
        draws += 1
        if registered[client]:
            drawn.add(client)
    meter("hmac", draws)
    return np.array(sorted(drawn), np.int64)
