"""A dealer that deals last, and cancels the others' keys: the committee's key would be one that the server knows."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace as changed

from testbed.aggregation.flamingo.service import ServerSetUp
from testbed.aggregation.flamingo.set_up import SetUp
from testbed.aggregation.flamingo.set_up_messages import (
    DEALING_DOMAIN,
    DEALING_PURPOSE,
    KNOWN_DOMAIN,
    CheckDealings,
    DealtShares,
    FinishSetUp,
    dealing_content,
    seal_dealt,
)
from testbed.committee.choice import chosen
from testbed.crypto import InvalidSignature, edwards25519, feldman, signatures
from testbed.crypto.edwards25519 import ORDER
from testbed.network.contract import ids
from tests.aggregation.federations import EXPERIMENT
from tests.aggregation.flamingo_rounds import MEMBERS, federation, parameters_with

DISHONEST = MEMBERS[-1]
T = 4
"""Of five: two dishonest members are borne, and one deals here."""


def negated(point: bytes) -> bytes:
    return edwards25519.multiply((ORDER - 1).to_bytes(32, "little"), point)


def basis(points: Sequence[int], own: int) -> list[int]:
    """The coefficients of the polynomial that is 1 at `own` and 0 at the other points."""
    coefficients, below = [1], 1
    for other in points:
        if other != own:
            shifted = [0, *coefficients]
            coefficients = [(high - other * low) % ORDER for high, low in zip(shifted, [*coefficients, 0], strict=True)]
            below = below * (own - other) % ORDER
    inverse = pow(below, -1, ORDER)
    return [one * inverse % ORDER for one in coefficients]


def through(values: dict[int, bytes]) -> list[bytes]:
    """Return commitments to the polynomial with these values, times the base point."""
    rows = {point: basis(list(values), point) for point in values}
    higher = [
        feldman.weighted_points(list(values.values()), [rows[point][k] for point in values])
        for k in range(1, len(values))
    ]
    return [values[0], *higher]


async def rogue(own: bytes) -> tuple[list[str], int]:
    """Return the refusals of t - 1 honest members, and the number that sign the server's own key, `own` times B."""
    small = federation(parameters=parameters_with(threshold=T))
    start = await small.begin(1)
    section = small.parameters.committee
    committee = await chosen(section, 1, small.network, start.directory, EXPERIMENT, {})
    server = ServerSetUp(start, SetUp(1, committee, None, section), {})
    await server.deal()
    set_up, accomplice = server.set_up, small.client(DISHONEST).identity
    shown = [member for member in set_up.members if member != DISHONEST][: T - 1]
    honest = [server.dealt[dealer].commitments[0] for dealer in set_up.members if dealer != DISHONEST]
    cancelled = feldman.weighted_points([edwards25519.multiply_base(own), negated(feldman.weighted_points(honest))])
    told = {member: feldman.random_scalar(bytes([member]) * 32) for member in shown}
    values = {0: cancelled} | {set_up.members[m]: edwards25519.multiply_base(share) for m, share in told.items()}
    commitments = through(values)
    shares = [bytes(48)] * len(set_up.members)
    for member, share in told.items():
        key = accomplice.agreement.agree(start.directory.agreement_key(member), DEALING_PURPOSE)
        sealed = seal_dealt(key, DISHONEST, member, share, set_up.digest, commitments)
        shares[set_up.members[member] - 1] = sealed
    content = dealing_content(set_up.digest, DISHONEST, commitments)
    signature = accomplice.signing.sign(DEALING_DOMAIN + EXPERIMENT, content)
    known = signatures.sign_with_scalar(own, KNOWN_DOMAIN + EXPERIMENT, content)  # the best it can do
    server.dealt[DISHONEST] = changed(
        server.dealt[DISHONEST], commitments=commitments, shares=shares, signature=signature, proof_of_knowledge=known
    )
    with pytest.raises(InvalidSignature):  # an honest server leaves it out
        server.check_known(server.dealt[DISHONEST], content)
    private = {
        member: DealtShares([server.dealt[row.dealer].shares[set_up.members[member] - 1] for row in server.dealings])
        for member in shown
    }
    question = CheckDealings(1, committee, None, server.dealings)
    checked = await small.network.ask(ids(shown), question, private=private)
    assert all(answer.against == [] for answer in checked.valid().values())
    served = await small.network.ask(ids(list(checked.valid())), FinishSetUp(1, [], []))
    made = set_up.service(set_up.commitments(server.dealings))
    for answer in served.valid().values():
        assert answer.service == made.digest
    assert made.public_key == edwards25519.multiply_base(own)
    return [refusal.check for refusal in checked.missing.refusals], len(served)


def test_a_dealer_must_know_what_it_deals() -> None:
    """Else one of a committee that bears two has, with the server, the key: t - 1 honest members have signed it."""
    refused, signed = asyncio.run(rogue(feldman.random_scalar(b"the server's own key" + bytes(12))))
    assert refused == ["flamingo.invalid-dealing"] * (T - 1)
    assert signed == 0
