"""Members of a committee: the section's checks, and that clients accept no others."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from testbed.committee.choice import chosen, publicly_drawn, verified
from testbed.committee.messages import CommitteeList, CommitteeMember
from testbed.committee.parameters import CommitteeSection
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.errors import Refusal
from testbed.parties.client import Environment
from testbed.parties.pki import Directory
from testbed.randomness import Randomness

EXPERIMENT = bytes(range(16))


def board(population: int) -> Directory:
    return replace(Directory.empty(population), registered=np.ones(population, np.bool_))


def known(population: int) -> Environment:
    compute = ComputeModel(False, REFERENCE_COSTS)
    return Environment(
        population=population,
        randomness=Randomness(1),
        compute=compute,
        directory=board(population),
        experiment_id=EXPERIMENT,
        rounds=7,
    )


def committee_of(section: CommitteeSection, round_number: int, population: int = 100) -> CommitteeList:
    return asyncio.run(chosen(section, round_number, None, board(population), EXPERIMENT, {}))


def test_the_honest_committee_is_verified_in_all_rounds_that_it_serves() -> None:
    section = CommitteeSection(size=10, serves_rounds=3)
    committees = [committee_of(section, number) for number in range(1, 8)]
    for number, committee in enumerate(committees, 1):
        verified(section, committee, number, known(100))
    assert committees[0] == committees[2] != committees[3]
    assert [committee.first_round for committee in committees] == [1, 1, 1, 4, 4, 4, 7]


@pytest.mark.parametrize("section", [CommitteeSection(size=4), CommitteeSection(selection="given", members=(5, 1, 9))])
def test_others_are_refused(section: CommitteeSection) -> None:
    honest = committee_of(section, 1)
    outsider = next(client for client in range(100) if client not in honest.clients)
    others = {
        "another member": [CommitteeMember(outsider), *honest.members[1:]],
        "one fewer": honest.members[1:],
        "another order": honest.members[::-1],
        "one twice": [honest.members[0], *honest.members[:-1]],
        "a proof that nobody asks for": [CommitteeMember(honest.clients[0], b"x"), *honest.members[1:]],
    }
    for members in others.values():
        with pytest.raises(Refusal) as refused:
            verified(section, CommitteeList(1, members), 1, known(100))
        assert refused.value.check == "committee.members-mismatch"
    with pytest.raises(Refusal) as refused:
        verified(section, CommitteeList(2, honest.members), 1, known(100))
    assert refused.value.check == "committee.service-mismatch"


def test_there_are_no_committees_beyond_the_last_round() -> None:
    section = CommitteeSection(size=10, serves_rounds=3)
    with pytest.raises(Refusal) as refused:
        verified(section, committee_of(section, 8), 8, known(100))
    assert refused.value.check == "committee.after-last-round"


def test_members_are_registered_clients_and_every_seed_draws_others() -> None:
    registered = np.arange(1000) % 3 == 0
    drawn = publicly_drawn(EXPERIMENT, 1, registered, 50)
    assert len(np.unique(drawn)) == 50
    assert registered[drawn].all()
    assert not np.array_equal(drawn, publicly_drawn(bytes(16), 1, registered, 50))
    assert not np.array_equal(drawn, publicly_drawn(EXPERIMENT, 2, registered, 50))
    assert len(publicly_drawn(EXPERIMENT, 1, registered[:21], 50)) == 7


@pytest.mark.parametrize(
    ("section", "what"),
    [
        ({"size": 101}, "committee.size: 101 members of a population of 100; at most 100"),
        ({"size": 10, "threshold": 5}, "committee.threshold: 5 of 10 members; allowed 6 to 10"),
        ({"size": 10, "threshold": 11}, "committee.threshold: 11 of 10 members; allowed 6 to 10"),
        ({"members": [1, 2]}, "committee.members: required with `selection: given`"),
        ({"selection": "given"}, "committee.members: required with `selection: given`"),
        ({"selection": "given", "members": [1, 1]}, "committee.members: [1, 1]; must be two or more different clients"),
        ({"selection": "given", "members": [1, 100]}, "committee.members: 100 is not a client; allowed 0 to 99"),
        ({"selection": "given", "members": [1, 2], "size": 3}, "committee.size: 3, but `members` has 2"),
        ({"over_selection": 2}, "committee.over_selection: needs `selection: lotto-client-centric`"),
        ({"weights": "samples"}, "committee.weights: needs `selection: lotto-client-centric`"),
        (
            {"selection": "lotto-client-centric", "size": 50, "over_selection": 2},
            "all clients would be drawn, and the server could choose; allowed below 2,",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_impossible_sections_say_what_is_allowed(section: dict[str, object], what: str) -> None:
    with pytest.raises(ValueError) as raised:
        CommitteeSection.model_validate(section).check(100)
    assert what in str(raised.value)
    assert not isinstance(raised.value, ValidationError)
