"""Wrong shares found and left out, against trying every set of t shares."""

import itertools
from typing import Any

import gmpy2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.aggregation.kit.message_parts import ShareOf, point_of
from testbed.aggregation.secagg.share_recovery import decode, recover
from testbed.crypto.shamir import PRIME, reconstruct, share
from testbed.emulation.compute.cost import metered
from testbed.errors import ProtocolError, RoundAborted
from tests.messages_named import naming
from tests.thoroughness import examples


def polynomial_through(points: list[int], values: list[int], t: int) -> list[int]:
    """Coefficients modulo PRIME of the polynomial of degree below t through t points (Vandermonde, elimination)."""
    prime = int(PRIME)
    rows = [[pow(x, k, prime) for k in range(t)] + [y] for x, y in zip(points, values, strict=True)]
    for column in range(t):
        pivot = next(r for r in range(column, t) if rows[r][column] % prime)
        rows[column], rows[pivot] = rows[pivot], rows[column]
        inverse = pow(rows[column][column], -1, prime)
        rows[column] = [value * inverse % prime for value in rows[column]]
        for other in range(t):
            if other != column:
                factor = rows[other][column]
                rows[other] = [(a - factor * b) % prime for a, b in zip(rows[other], rows[column], strict=True)]
    return [row[-1] for row in rows]


def decoded_slowly(points: list[int], values: list[int], t: int) -> list[int] | None:
    """The polynomial that all but (m - t) // 2 of the values lie on, by trying every t of them."""
    allowed = (len(points) - t) // 2
    for chosen in itertools.combinations(range(len(points)), t):
        found = polynomial_through([points[i] for i in chosen], [values[i] for i in chosen], t)
        at = [sum(c * pow(x, k, int(PRIME)) for k, c in enumerate(found)) % int(PRIME) for x in points]
        if sum(a != b for a, b in zip(at, values, strict=True)) <= allowed:
            while found and not found[-1]:
                found.pop()
            return found
    return None


element = st.one_of(st.integers(0, int(PRIME) - 1), st.integers(0, 3))


@st.composite
def received(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    count = draw(st.integers(1, 8))
    t = draw(st.integers(1, count))
    points = draw(st.lists(st.integers(1, 2**32), min_size=count, max_size=count, unique=True))
    coefficients = draw(st.lists(element, min_size=t, max_size=t))
    values = [sum(c * x**k for k, c in enumerate(coefficients)) % int(PRIME) for x in points]
    for position in draw(st.lists(st.integers(0, count - 1), max_size=count)):
        values[position] = draw(element)
    return points, values, t


@settings(max_examples=examples(150))
@given(received())
def test_decoding_finds_what_trying_everything_finds(case: tuple[list[int], list[int], int]) -> None:
    points, values, t = case
    expected = decoded_slowly(points, values, t)
    arguments = [gmpy2.mpz(point) for point in points], [gmpy2.mpz(value) for value in values], t
    if expected is None:
        with pytest.raises(ProtocolError, match="shares are wrong"):
            decode(*arguments)
    else:
        assert decode(*arguments) == expected


@st.composite
def revealed_shares(draw: st.DrawFn) -> Any:
    count = draw(st.integers(1, 12))
    t = draw(st.integers(1, count))
    holders = sorted(draw(st.sets(st.integers(0, 10**6), min_size=count, max_size=count)))
    secrets = draw(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3))
    liars = draw(st.sets(st.sampled_from(holders), max_size=(count - t) // 2))
    return t, holders, secrets, liars


@given(revealed_shares())
def test_secrets_are_recovered_and_wrong_shares_named(case: Any) -> None:
    t, holders, secrets, liars = case
    rows: dict[int, list[ShareOf]] = {holder: [] for holder in holders}
    for client, secret in enumerate(secrets):
        dealt = share(secret, t, [point_of(holder) for holder in holders], bytes(32))
        assert reconstruct([point_of(holder) for holder in holders], dealt, t) == secret
        for holder, one in zip(holders, dealt, strict=True):
            value = (int.from_bytes(one, "big") + 1 + holder) % int(PRIME) if holder in liars else None
            rows[holder].append(ShareOf(client, one if value is None else value.to_bytes(33, "big")))
    found = recover(t, list(range(len(secrets))), rows)
    assert found.secrets == dict(enumerate(secrets))
    assert found.wrong == [(client, liar) for client in range(len(secrets)) for liar in sorted(liars)]


def test_holders_may_differ_from_secret_to_secret() -> None:
    points = [1, 2, 3, 4, 5]
    dealt = [share(bytes([client]) * 32, 3, points, bytes(32)) for client in range(2)]
    rows = {holder: [ShareOf(0, dealt[0][holder])] for holder in range(4)}
    rows[4] = []
    for holder in (0, 2, 4):
        rows[holder].append(ShareOf(1, dealt[1][holder]))
    assert recover(3, [0, 1], rows).secrets == {0: bytes(32), 1: b"\x01" * 32}
    del rows[4]
    with pytest.raises(RoundAborted, match=naming("below-threshold", "2 of 3", "client 1")):
        recover(3, [0, 1], rows)


def test_shares_that_give_no_32_byte_secret_belong_to_no_secret() -> None:
    """2**256 is a field element and no secret."""
    rows = {holder: [ShareOf(0, (2**256).to_bytes(33, "big"))] for holder in range(3)}
    assert recover(1, [0], rows).undecided.keys() == {0}
    assert recover(1, [0], {0: rows[0]}).undecided.keys() == {0}
    rows[2] = [ShareOf(0, bytes(33))]
    assert recover(1, [0], rows).undecided.keys() == {0}


def test_checking_costs_what_reconstructing_costs() -> None:
    dealt = share(bytes(range(32)), 4, [1, 2, 3, 4, 5, 6], bytes(32))
    rows = {holder: [ShareOf(0, dealt[holder])] for holder in range(6)}
    with metered() as meter:
        recover(4, [0], rows)
    assert meter.counts == {"shamir.reconstruct.term": 4 + 6}
