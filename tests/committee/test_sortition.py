"""Committees by sortition: the draw, its verification by clients, and attacks of malicious parties."""

import asyncio
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from analysis.bounds.lotto import selection_probability
from testbed.committee.choice import verified
from testbed.committee.messages import CommitteeList, CommitteeMember, MembershipClaim, Sortition
from testbed.committee.parameters import CommitteeSection
from testbed.committee.sortition import SortitionRole, committee_roles, committee_stages, is_drawn, sortition_input
from testbed.crypto import prf
from testbed.errors import Refusal, RoundAborted
from testbed.parties.client import handles
from testbed.parties.pki import PKI, Identity
from testbed.randomness import Randomness
from testbed.selection.lotto.messages import selection_input
from tests.committee.drawing import EXPERIMENT, Drawing

POPULATION = 120
VARIANTS = ("lotto-client-centric", "lotto-server-centric")


def section(variant: str, **more: object) -> CommitteeSection:
    return CommitteeSection.model_validate({"selection": variant, "size": 10, "serves_rounds": 3, **more})


def number_of(drawing: Drawing, client: int, round_number: int) -> bytes:
    """Straight from the definition, with keys made anew."""
    alpha = sortition_input(EXPERIMENT, drawing.section.first_round_of(round_number))
    identity = Identity.derived(client, drawing.environment.randomness)
    assert identity.vrf is not None
    if drawing.section.selection == "lotto-server-centric":
        return prf.evaluate(identity.vrf.public, alpha)
    return identity.vrf.output(alpha)


def drawn_by_definition(drawing: Drawing, round_number: int) -> list[int]:
    """All that are drawn, by rising numbers."""
    n, numbers = drawing.environment.population, {}
    for client in range(n):
        number = number_of(drawing, client, round_number)
        share = Fraction(1, n)
        if drawing.directory.samples is not None:
            share = Fraction(int(drawing.directory.samples[client]), int(drawing.directory.samples.sum()))
        limit = drawing.section.factor * drawing.section.members_planned * share * 2 ** (8 * len(number))
        if int.from_bytes(number, "big") < limit:
            numbers[client] = number
    return sorted(numbers, key=lambda client: numbers[client])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_members_are_those_with_the_smallest_numbers(variant: str, weighted: bool) -> None:
    samples = np.arange(POPULATION, dtype=np.int64) ** 2 if weighted else None
    given = section(variant, over_selection=2, weights="samples" if weighted else "equal")
    drawing = Drawing(given, POPULATION, samples=samples)
    for number in (1, 4):
        committee = drawing.draw(number)
        assert list(committee.clients) == drawn_by_definition(drawing, number)[:10]
        assert committee.first_round == number
        verified(given, committee, number + 2, drawing.environment)


@pytest.mark.parametrize("variant", VARIANTS)
def test_shortcuts_and_hosts_change_nothing(variant: str) -> None:
    drawings = [
        Drawing(section(variant, over_selection=3), 400, shortcuts=False),
        Drawing(section(variant, over_selection=3), 400, hosts=3),
    ]
    assert drawings[0].draw() == drawings[1].draw()
    (stage,), (same,) = (drawing.network.exchanges for drawing in drawings)
    for column in ("clients", "received_s", "bytes_up", "bytes_down", "compute_s"):
        np.testing.assert_array_equal(getattr(stage, column), getattr(same, column))
    assert drawings[0].network.now_s == drawings[1].network.now_s > 0


def test_lotto_and_committees_draw_by_different_numbers() -> None:
    assert sortition_input(EXPERIMENT, 1) != selection_input(EXPERIMENT, 1)
    assert sortition_input(EXPERIMENT, 1) != sortition_input(EXPERIMENT, 4)
    assert sortition_input(EXPERIMENT, 1) != sortition_input(bytes(16), 1)


# -- offline clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_who_does_not_answer_makes_room_and_a_service_keeps_its_members(variant: str) -> None:
    """Half of the clients are there in each round: others than in the round in which the committee was drawn."""
    drawing = Drawing(
        section(variant, over_selection=6), POPULATION, availability={"model": "bernoulli", "unavailable": 0.5}
    )
    memory: dict[str, np.ndarray] = {}
    first, second = drawing.draw(1, memory), drawing.draw(2, memory)
    assert first == second
    assert len(drawing.network.exchanges) == 0  # of the second round: nobody was asked
    by_number = drawn_by_definition(drawing, 1)
    assert list(first.clients) == [client for client in by_number if client in first.clients]
    assert list(first.clients) != by_number[:10]
    verified(drawing.section, second, 2, drawing.environment)
    assert drawing.draw(4, memory) != first
    assert drawing.draw(2, {}) != first  # others would have answered


@pytest.mark.parametrize("variant", VARIANTS)
def test_members_that_have_other_keys_now_are_drawn_anew(variant: str) -> None:
    """Nobody would take the proofs of those that were: without a seed, a resumed run registers its clients anew."""
    before, after = (Drawing(section(variant), POPULATION, seed=seed) for seed in (1, 2))
    memory: dict[str, np.ndarray] = {}
    first = before.draw(1, memory)
    second = after.draw(2, memory)
    assert second.first_round == first.first_round
    assert second.clients != first.clients
    verified(after.section, second, 2, after.environment)
    assert [event.kind for event in after.network.events] == ["committee-lost"]
    assert after.draw(3, memory) == second


@pytest.mark.parametrize("variant", VARIANTS)
def test_too_few_end_the_round_and_the_same_numbers_count_in_the_next(variant: str) -> None:
    drawing = Drawing(
        section(variant, over_selection=1.2, serves_rounds=100), POPULATION,
        availability={"model": "bernoulli", "unavailable": 0.7},
    )  # fmt: skip
    for number in (1, 2, 3):
        with pytest.raises(RoundAborted) as ended:
            drawing.draw(number)
        assert ended.value.reason == "too-few-committee-members"
    assert drawn_by_definition(drawing, 1) == drawn_by_definition(drawing, 3)


# -- a malicious server ------------------------------------------------------------------------------------------------


def listed(drawing: Drawing, clients: list[int], round_number: int = 1) -> CommitteeList:
    """These clients with valid proofs, whether they are drawn or not, by rising numbers."""
    first = drawing.section.first_round_of(round_number)
    proofs = {}
    for client in clients:
        secret = Identity.derived(client, drawing.environment.randomness).vrf
        assert secret is not None
        proofs[client] = secret.prove(sortition_input(EXPERIMENT, first))[1]
    if drawing.section.selection == "lotto-server-centric":
        proofs = dict.fromkeys(clients, b"")
    return CommitteeList(
        first,
        [CommitteeMember(c, proofs[c]) for c in sorted(clients, key=lambda c: number_of(drawing, c, round_number))],
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_server_that_hides_honest_candidates_has_no_more_than_are_drawn(variant: str) -> None:
    """As the bound assumes: all drawn clients of the server serve, and no others of its clients."""
    dishonest, expected, found = set(range(30)), 0.0, 0
    for seed in range(25):
        drawing = Drawing(section(variant, over_selection=2), POPULATION, seed=seed)
        drawn = drawn_by_definition(drawing, 1)
        ours = [client for client in drawn if client in dishonest]
        others = [client for client in drawn if client not in dishonest]
        if len(drawn) < 10:
            continue
        kept = [*ours, *others][:10]
        verified(drawing.section, listed(drawing, kept), 1, drawing.environment)
        undrawn = next(client for client in dishonest if client not in drawn)
        with pytest.raises(Refusal) as refused:
            verified(drawing.section, listed(drawing, [*kept[:9], undrawn]), 1, drawing.environment)
        assert refused.value.check == "committee.above-threshold"
        found += len(ours)
        expected += 30 * 2 * 10 / POPULATION
    assert binomtest(found, 25 * 30, float(selection_probability(10, 2, POPULATION))).pvalue > 1e-4


@pytest.mark.parametrize("variant", VARIANTS)
def test_different_committees_for_different_clients_pass_with_the_same_dishonest_members(variant: str) -> None:
    """Not protected by the list: a protocol must make members or clients agree on one committee."""
    drawing = Drawing(section(variant, over_selection=3), POPULATION)
    drawn = drawn_by_definition(drawing, 1)
    assert len(drawn) >= 18
    both = drawn[:4]
    lists = [listed(drawing, [*both, *drawn[4:10]]), listed(drawing, [*both, *drawn[10:16]])]
    for one in lists:
        verified(drawing.section, one, 1, drawing.environment)
    assert set(lists[0].clients) & set(lists[1].clients) == set(both)


def _first_changed(**how: object) -> Callable[[Drawing, CommitteeList], CommitteeList]:
    def change(drawing: Drawing, honest: CommitteeList) -> CommitteeList:
        first = honest.members[0]
        fields = {"client": first.client, "proof": first.proof, **how}
        return CommitteeList(honest.first_round, [CommitteeMember(**fields), *honest.members[1:]])

    return change


def _proof_of_another_service(drawing: Drawing, honest: CommitteeList) -> CommitteeList:
    """A client that is drawn for the second service, in the first."""
    later = drawn_by_definition(drawing, 4)
    client = next(client for client in later if client not in honest.clients)
    (member,) = listed(drawing, [client], 4).members
    return CommitteeList(honest.first_round, [member, *honest.members[1:]])


FORGERIES: dict[str, tuple[Callable[[Drawing, CommitteeList], CommitteeList], dict[str, str]]] = {
    "a made-up proof": (
        _first_changed(proof=bytes([1]) * 80),
        {"lotto-client-centric": "committee.invalid-proof", "lotto-server-centric": "committee.invalid-proof"},
    ),
    "a proof cut short": (
        _first_changed(proof=bytes(79)),
        {"lotto-client-centric": "committee.invalid-proof", "lotto-server-centric": "committee.invalid-proof"},
    ),
    "another's proof": (
        lambda drawing, honest: _first_changed(proof=honest.members[1].proof or b"x")(drawing, honest),
        {"lotto-client-centric": "committee.invalid-proof", "lotto-server-centric": "committee.invalid-proof"},
    ),
    "a client twice": (
        lambda drawing, honest: CommitteeList(1, [honest.members[0], *honest.members[:-1]]),
        dict.fromkeys(VARIANTS, "committee.wrong-size"),
    ),
    "one fewer": (
        lambda drawing, honest: CommitteeList(1, honest.members[1:]),
        dict.fromkeys(VARIANTS, "committee.wrong-size"),
    ),
    "another order": (
        lambda drawing, honest: CommitteeList(1, honest.members[::-1]),
        dict.fromkeys(VARIANTS, "committee.out-of-order"),
    ),
    "somebody outside the population": (
        _first_changed(client=POPULATION),
        dict.fromkeys(VARIANTS, "pki.unknown-client"),
    ),
    "another service's proof": (
        _proof_of_another_service,
        {"lotto-client-centric": "committee.invalid-proof", "lotto-server-centric": "committee.above-threshold"},
    ),
    "another service": (
        lambda drawing, honest: listed(drawing, drawn_by_definition(drawing, 4)[:10], 4),
        dict.fromkeys(VARIANTS, "committee.service-mismatch"),
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_forged_committees_are_refused(variant: str, forgery: str) -> None:
    drawing = Drawing(section(variant, over_selection=3), POPULATION)
    change, checks = FORGERIES[forgery]
    forged = change(drawing, drawing.draw())
    with pytest.raises(Refusal) as refused:
        verified(drawing.section, forged, 1, drawing.environment)
    assert refused.value.check == checks[variant]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_server_cannot_choose_when_a_service_begins(variant: str) -> None:
    """Of 9 rounds in threes there are three draws, whichever rounds the server lets happen; none is beyond the last."""
    drawing = Drawing(section(variant, over_selection=3), POPULATION)
    drawing.environment.rounds = 9
    accepted, checks = set(), set()
    for begins in range(1, 10):
        made = listed(drawing, drawn_by_definition(drawing, begins)[:10], begins)
        for number in range(1, 12):
            try:
                verified(drawing.section, CommitteeList(begins, made.members), number, drawing.environment)
            except Refusal as refused:
                checks.add((refused.check, number > 9))
            else:
                accepted.add((begins, number))
    assert checks == {("committee.after-last-round", True), ("committee.service-mismatch", False)}
    assert accepted == {(begins, begins + more) for begins in (1, 4, 7) for more in range(3)}
    alike = asyncio.run(drawing.network.ask(np.arange(POPULATION), Sortition(10)))
    assert len(alike) == 0
    assert {refusal.check for refusal in alike.missing.refusals} == {"committee.after-last-round"}


# -- dishonest clients -------------------------------------------------------------------------------------------------


class ClaimsAlways(SortitionRole):
    """Its own proof, though it is not drawn."""

    @handles(Sortition)
    def on_sortition(self, message: Sortition) -> MembershipClaim:
        assert self.client.identity is not None
        assert self.client.identity.vrf is not None
        alpha = sortition_input(self.environment.experiment_id, self.parameters.first_round_of(message.round))
        return MembershipClaim(self.client.identity.vrf.prove(alpha)[1])


class MakesUpProofs(SortitionRole):
    """Eighty bytes."""

    @handles(Sortition)
    def on_sortition(self, message: Sortition) -> MembershipClaim:
        return MembershipClaim(bytes([1]) * 80)


@pytest.mark.parametrize("role", [ClaimsAlways, MakesUpProofs])
def test_false_claims_are_seen_by_the_server_and_change_nothing(role: type[SortitionRole]) -> None:
    given = section("lotto-client-centric", over_selection=3)
    honest = Drawing(given, POPULATION)
    drawn = drawn_by_definition(honest, 1)
    liars = frozenset(client for client in range(40) if client not in drawn)
    lying = Drawing(given, POPULATION, dishonest=(role, liars))
    assert lying.draw() == honest.draw()
    seen = {event.party for event in lying.network.events if event.kind == "misbehaviour"}
    assert seen == {f"client:{client}" for client in liars}


def test_registering_again_gives_no_other_number() -> None:
    """Grinding identities: the PKI makes one VRF key per client, for any registered keys."""
    randomness = Randomness(3)
    pki = PKI(10, randomness)
    numbers = set()
    for other in range(20):
        identity = Identity(4, randomness)
        identity.agreement = type(identity.agreement).from_seed(bytes([other]) * 32)
        identity.accept(pki.register(identity.registration(), 4))
        assert identity.vrf is not None
        numbers.add(identity.vrf.output(sortition_input(EXPERIMENT, 1)))
    assert len(numbers) == 1


# -- weights, and a million clients ------------------------------------------------------------------------------------


def test_weights_draw_in_proportion() -> None:
    """Clients 0-9 hold half of all samples; one without samples is never drawn, even with the number 0."""
    samples = np.array([100] * 10 + [10] * 100 + [0] * 10, np.int64)
    given = section("lotto-server-centric", weights="samples")
    drawing = Drawing(given, POPULATION, samples=samples)
    heavy = trials = 0
    for first in range(1, 3000, 3):
        numbers = prf.evaluate_many(drawing.directory.vrf[:10], sortition_input(EXPERIMENT, first))
        heavy += sum(is_drawn(given, drawing.directory, client, numbers[client].tobytes()) for client in range(10))
        trials += 10
    assert binomtest(heavy, trials, 1.5 * 10 * 100 / 2000).pvalue > 1e-4
    assert not is_drawn(given, drawing.directory, 115, bytes(32))
    assert is_drawn(given, drawing.directory, 0, bytes(32))


def test_roles_and_stages_are_added_where_clients_are_asked() -> None:
    for variant in VARIANTS:
        given = section(variant)
        assert [spec.role for spec in committee_roles(given)] == [SortitionRole]
        assert committee_stages(given) == ("committee/sortition",)
    assert committee_roles(CommitteeSection()) == []
    assert committee_stages(CommitteeSection()) == ()
