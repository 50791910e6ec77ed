"""Nobody signs the survivors of LightSecAgg, and whole batches hold all the same: by the rank of all that is known."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.batch_policy import CompleteBatches
from testbed.batches import Batches
from testbed.crypto.prime_field import PRIME
from tests.thoroughness import examples


def rank(rows: np.ndarray) -> int:
    """Of a matrix modulo the prime."""
    matrix = [[int(value) % PRIME for value in row] for row in rows]
    found = 0
    for column in range(len(matrix[0]) if matrix else 0):
        pivot = next((place for place in range(found, len(matrix)) if matrix[place][column]), None)
        if pivot is None:
            continue
        matrix[found], matrix[pivot] = matrix[pivot], matrix[found]
        inverse = pow(matrix[found][column], -1, PRIME)
        top = [value * inverse % PRIME for value in matrix[found]]
        matrix[found] = top
        for place in range(len(matrix)):
            factor = matrix[place][column]
            if place != found and factor:
                matrix[place] = [
                    (value - factor * other) % PRIME for value, other in zip(matrix[place], top, strict=True)
                ]
        found += 1
    return found


def known(told: Sequence[Sequence[int]], accomplices: int, clients: int, needed: int) -> np.ndarray:
    """Return the `(equations, clients * U)` known pieces: each piece of accomplices, one sum of each other client."""
    rows = []
    for holder in range(clients):
        powers = [pow(holder + 1, power, PRIME) for power in range(needed)]
        alone = [[client] for client in range(clients)]
        for members in alone if holder < accomplices else [told[holder]]:
            row = np.zeros((clients, needed), object)
            row[list(members)] = powers
            rows.append(row.reshape(-1))
    return np.array(rows)


def is_known(equations: np.ndarray, combination: np.ndarray, needed: int) -> bool:
    """Whether the combination of the masks' first elements, and with it that of the updates, is known."""
    target = np.zeros((len(combination), needed), object)
    target[:, 0] = combination
    return rank(equations) == rank(np.vstack((equations, target.reshape(-1))))


CLIENTS, NEEDED, PRIVATE = 8, 5, 2
BATCHES = Batches.consecutive(CLIENTS, 2)


@given(st.lists(st.sets(st.integers(0, 3), min_size=3), min_size=CLIENTS, max_size=CLIENTS), st.integers(0, PRIVATE))
@settings(max_examples=examples(25), deadline=None)
def test_what_a_malicious_server_of_lightsecagg_knows_is_of_whole_batches(told: list[set[int]], x: int) -> None:
    """Each honest holder may be told other survivors; T of the others' pieces are known, too."""
    survivors = [BATCHES.members(sorted(batches)).tolist() for batches in told]
    for members in survivors:
        CompleteBatches(BATCHES).check_survivors(members)  # the check of an honest holder
    equations = known(survivors, x, CLIENTS, NEEDED)
    for honest_batch in range(x, 4):  # accomplices 0 and 1 are the first batch
        first, second = BATCHES.members([honest_batch]).tolist()
        for alone in (np.eye(CLIENTS, dtype=int)[first], np.eye(CLIENTS, dtype=int)[first] * 2):
            assert not is_known(equations, alone, NEEDED)
        mixed = np.zeros(CLIENTS, int)
        mixed[first], mixed[second] = 1, 3
        assert not is_known(equations, mixed, NEEDED)


def test_the_search_finds_sums_of_batches_and_what_lies_beyond_t() -> None:
    everybody = [list(range(CLIENTS))] * CLIENTS
    assert is_known(known(everybody, 0, CLIENTS, NEEDED), np.ones(CLIENTS, int), NEEDED)
    two_sums = [list(range(CLIENTS))] * 5 + [[0, 1, 2, 3, 4, 5]] * 3
    batch = np.array([0] * 6 + [1, 1])
    assert is_known(known(two_sums, PRIVATE, CLIENTS, NEEDED), batch, NEEDED)  # contradict-dropouts has one batch's sum
    broken = [list(range(CLIENTS))] * 5 + [[1, 2, 3, 4, 5, 6, 7]] * 3
    assert is_known(known(broken, PRIVATE, CLIENTS, NEEDED), np.eye(CLIENTS, dtype=int)[0], NEEDED)  # not whole
    assert is_known(known(everybody, NEEDED, CLIENTS, NEEDED), np.eye(CLIENTS, dtype=int)[7], NEEDED)  # U accomplices
