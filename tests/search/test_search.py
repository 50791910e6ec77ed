"""The search finds known attacks without their fixes, no attack with all checks, and missing checks."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.search.choices import Choices
from tests.search.mixes import FIXES, MIXES, Fix, guarded, left_open, unguarded
from tests.search.mutants import Mutant, mutants, noticed
from tests.search.runner import Found, kind_of, play, plays, search
from tests.search.world import Federation, Mix, remembered
from tests.thoroughness import examples

SEED = 1
SERVERS = examples(120)  # played in each mix here; `make search` plays for as long as one likes
NAMED = {mix.name: mix for mix in MIXES}


@pytest.mark.parametrize("name", [mix.name for mix in MIXES if not mix.known_broken])
def test_no_server_exceeds_the_guarantees(name: str) -> None:
    found = search(guarded(NAMED[name]), SEED, SERVERS)
    new = {kind: (line, Found.written(given)) for kind, (line, given) in found.violations.items()}
    assert not {kind: what for kind, what in new.items() if kind not in left_open(NAMED[name])}
    assert found.plays == SERVERS
    assert found.inputs > 0
    assert len(found.states) > SERVERS // 4


ATTACKS = [
    ("secagg, 2 accomplices", "model inconsistency"),
    ("secagg-plus, 2 accomplices", "model inconsistency"),
    ("secagg, whole batches", "model inconsistency"),
    ("verifiable-batch-partition with secagg", "model inconsistency"),
    ("lotto-client-centric with secagg", "skipped rounds"),
    ("lotto-client-centric with secagg", "parallel lists"),
    ("lotto-server-centric with secagg", "parallel lists"),
]


@pytest.mark.parametrize(("name", "attack"), ATTACKS)
def test_a_known_attack_is_found_without_its_fix(name: str, attack: str) -> None:
    mix = unguarded(NAMED[name])
    assert first(mix, attack, 600) is not None


@pytest.mark.parametrize(
    "fix", [fix for fix in FIXES if any(fix.known_to(mix) for mix in MIXES)], ids=lambda fix: fix.key
)
def test_each_fix_alone_closes_its_attack(fix: Fix) -> None:
    """The decisions of an attack found without the fix fail with the fix, and only with it."""
    name = next(name for name, attack in ATTACKS if attack == fix.attack and fix.known_to(NAMED[name]))
    one = first(unguarded(NAMED[name]), fix.attack, 600)
    assert one is not None
    with remembered():
        again = play(Federation(fix.set(unguarded(NAMED[name]), fix.on)), Choices(one))
    assert fix.attack not in {kind_of(line) for line in again.violations}


def first(mix: Mix, attack: str, servers: int) -> list[int] | None:
    """Return the decisions of the first server that carries out the attack."""
    with remembered():
        for count, one in enumerate(plays(Federation(mix), SEED)):
            if attack in {kind_of(line) for line in one.violations}:
                return one.decisions
            if count == servers:
                return None
    raise AssertionError


def test_with_one_accomplice_too_many_a_single_update_is_recovered() -> None:
    """See docs/explanation/reconstruction.md: from x = 2t - s on. The search finds the two stories by itself."""
    assert first(NAMED["secagg, more accomplices than it withstands"], "small sum", 1500) is not None


def test_the_same_seed_gives_the_same_search() -> None:
    mix = NAMED["secagg, 2 accomplices"]
    one, other = (search(mix, 3, 40) for _ in range(2))
    assert (one.questions, one.states, one.refusals) == (other.questions, other.states, other.refusals)


@pytest.mark.parametrize("name", list(NAMED))
def test_an_honest_server_gets_one_sum_and_no_refusal(name: str) -> None:
    with remembered():
        one = play(Federation(guarded(NAMED[name])), Choices())
    assert one.violations == []
    assert one.clients.refusals.keys() <= {"lotto.wrong-size"}  # fewer candidates than participants
    assert "few candidates" in name or one.knowledge.inputs


NOTICED = (
    "stages may come in any order",
    "secagg.threshold-mismatch (SecAggClient.peer_graph",
    "secagg.below-threshold (SecAggClient.masked_input",
    "signatures are not verified",
    "secagg-plus.neighbourhood-mismatch",
    "aggregation.partial-batch",
    "lotto.above-threshold (LottoClient.check_threshold",
    "lotto.output-mismatch (AnnouncedClient",
    "lotto.round-reused (LottoClient",
)


def _noticed() -> Iterator[Mutant]:
    for mutant in mutants():
        if mutant.name.startswith(NOTICED):
            yield mutant


LATE = ("secagg.below-threshold", "lotto.round-reused", "lotto.output-mismatch")  # noticed only after many servers


def _one_each() -> Iterator[Any]:
    for mutant in _noticed():
        marks = pytest.mark.slow if mutant.name.startswith(LATE) else ()
        yield pytest.param(mutant, marks=marks, id=mutant.name.split(" (")[0])


@pytest.mark.parametrize("mutant", _one_each())
def test_a_missing_check_is_detected(mutant: Mutant) -> None:
    assert noticed(mutant, SEED, 1500) is not None


def test_there_is_a_mutant_for_each_check() -> None:
    names = [mutant.name for mutant in mutants()]
    assert len(set(names)) == len(names) > 60
    assert len(list(_noticed())) == len(NOTICED)
