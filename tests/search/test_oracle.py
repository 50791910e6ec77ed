"""The oracle's arithmetic against hand computations, and the reduction of decisions."""

import random

import numpy as np

from testbed.crypto import shamir
from tests.search.choices import Choices, fewer
from tests.search.knowledge import Input, Knowledge, Secret, Update, interpolated
from tests.search.mixes import MIXES
from tests.search.oracle import Combination, carried_out, derivable, nullspace, smallest
from tests.search.runner import play, state
from tests.search.world import Federation, remembered


def sent(client: int, peers: dict[int, bytes], key: bytes) -> Input:
    nothing = np.zeros(2, np.uint32)
    return Input(Update(client, 1), key, peers, nothing, nothing, 32, 2, 3, frozenset(range(3)))


def known_seeds(*clients: int) -> Knowledge:
    knowledge = Knowledge()
    keys = {client: bytes([client]) * 32 for client in range(3)}
    for client in range(3):
        peers = {peer: keys[peer] for peer in range(3) if peer != client}
        knowledge.inputs.append(sent(client, peers, keys[client]))
        knowledge.advertised(client, 1, keys[client])
        knowledge.shared(client, 1, 2)
    for client in clients:
        for holder in (0, 1):
            knowledge.share(Secret(client, 1, "self-mask seed"), holder, (7).to_bytes(33, "big"))
    return knowledge


def test_all_masks_cancel_in_the_sum_of_all_inputs() -> None:
    (one,) = derivable(known_seeds(0, 1, 2), 1)
    assert sorted(one.coefficients.items()) == [(0, 1), (1, 1), (2, 1)]


def test_one_unknown_seed_hides_everything() -> None:
    assert derivable(known_seeds(0, 1), 1) == []


def test_shares_below_the_threshold_give_no_secret() -> None:
    knowledge = known_seeds()
    knowledge.share(Secret(0, 1, "self-mask seed"), 0, bytes(33))
    assert knowledge.had(Secret(0, 1, "self-mask seed")) is None


def test_the_smallest_combination_is_found_among_sums_of_sums() -> None:
    a, b, c = (Update(client, 1) for client in range(3))
    basis = [Combination({0: 1, 1: 1, 2: 1}, {a: 1, b: 1, c: 1}), Combination({0: 1, 1: 1}, {a: 1, b: 1})]
    found = smallest(basis, (), 2)
    assert found is not None
    assert set(found.updates) == {c}
    assert smallest(basis[:1], (), 3) is None
    assert smallest(basis[:1], {a, b}, 2) is not None  # all but one are known: a crafted model's


def test_the_nullspace_is_complete() -> None:
    source = random.Random(1)  # noqa: S311
    for _ in range(30):
        rows = [{column: source.choice((-1, 0, 1)) for column in range(4)} for _ in range(5)]
        basis = nullspace(rows)
        matrix = np.array([[row[column] for column in range(4)] for row in rows])
        assert len(basis) == 5 - np.linalg.matrix_rank(matrix)
        for vector in basis:
            assert not any(
                sum(a * row[column] for a, row in zip(vector, rows, strict=True)) % (2**61 - 1) for column in range(4)
            )


def test_shares_are_interpolated_as_they_were_dealt() -> None:
    secret = bytes(range(32))
    shares = shamir.share(secret, 3, [1, 4, 6, 9], bytes(32))
    taken = {point: int.from_bytes(share, "big") for point, share in zip([1, 4, 6, 9], shares, strict=True)}
    del taken[4]
    assert interpolated(taken).to_bytes(32, "big") == secret


def test_the_oracles_combinations_can_be_computed_from_the_bytes() -> None:
    with remembered():
        one = play(Federation(MIXES[0]), Choices())
    (combination,) = derivable(one.knowledge, 1)
    assert carried_out(one.knowledge, combination)
    wrong = Combination({next(iter(combination.coefficients)): 1}, combination.updates)
    assert not carried_out(one.knowledge, wrong)


def test_decisions_are_reduced() -> None:
    assert fewer([3, 1, 4, 1, 5, 9, 2, 6], lambda given: len(given) > 4 and given[4] >= 2) == [0, 0, 0, 0, 2]


def test_permuted_clients_are_in_the_same_state() -> None:
    federation = Federation(next(mix for mix in MIXES if mix.name == "secagg, no accomplice"))
    ended = []
    for first in (0, 1, 3):  # three clients from this one on are spared the crafted model; client 5 takes no part
        with remembered():
            ended.append(state(play(federation, Choices([0, 1, 2, first])).clients))
    assert ended[0] == ended[1] != ended[2]
