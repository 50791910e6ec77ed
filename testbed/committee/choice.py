"""Who serves: what the server does to find out (`chosen`), and what a client checks of it (`verified`)."""

import hashlib

import numpy as np

from testbed.arrays import Ids
from testbed.committee.messages import CommitteeList, CommitteeMember
from testbed.committee.parameters import CommitteeSection
from testbed.errors import Refusal
from testbed.network import Network
from testbed.parties.client import Environment
from testbed.parties.pki import Directory

_SEED_DOMAIN = b"testbed/committee/public-seed/v1"


async def chosen(
    section: CommitteeSection, round_number: int, network: Network, directory: Directory, experiment_id: bytes
) -> CommitteeList:
    """The committee of a round; whoever is on it may be offline, and says nothing then.

    Args:
        section: of the experiment.
        round_number: from 1.
        network: how to reach clients that have to say themselves that they are on it.
        directory: the PKI's bulletin board; members are registered.
        experiment_id: 16 bytes.
    """
    first = section.first_round_of(round_number)
    members = _known_to_all(section, first, directory, experiment_id)
    return CommitteeList(first, [CommitteeMember(client) for client in members])


def verified(section: CommitteeSection, said: CommitteeList, round_number: int, environment: Environment) -> None:
    """Raise `Refusal` unless this is the committee of the round, whatever the server would have it be."""
    first = section.first_round_of(round_number)
    if said.first_round != first:
        raise Refusal("committee.other-service", f"serves from round {said.first_round}; round {round_number}: {first}")
    expected = _known_to_all(section, first, environment.directory, environment.experiment_id)
    if said.clients != expected or any(member.proof for member in said.members):
        raise Refusal("committee.other-members", f"round {round_number}: not the committee that everybody knows")


def _known_to_all(
    section: CommitteeSection, first_round: int, directory: Directory, experiment_id: bytes
) -> tuple[int, ...]:
    """The members, where that takes nobody's word."""
    if section.members is not None:
        return section.members
    registered = np.flatnonzero(directory.registered)
    return tuple(publicly_drawn(experiment_id, first_round, registered, section.members_planned).tolist())


def publicly_drawn(experiment_id: bytes, first_round: int, registered: Ids, members: int) -> Ids:
    """`(members,)` sorted clients, drawn from the registered ones with what everybody knows.

    The seed stands for a beacon's value that nobody knew when clients were registered.
    """
    seed = hashlib.sha256(_SEED_DOMAIN + experiment_id + first_round.to_bytes(8, "big")).digest()
    rng = np.random.Generator(np.random.Philox(key=int.from_bytes(seed[:16], "big")))
    return np.sort(rng.choice(registered, min(members, len(registered)), replace=False)).astype(np.int64)
