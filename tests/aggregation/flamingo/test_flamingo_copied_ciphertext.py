"""A dishonest client that hands in, and signs, the first half of another's ciphertext as one of its own: members would
decrypt for it what two clients online have in common.
"""

import asyncio

from msgspec.structs import replace as changed

from testbed.aggregation.flamingo.messages import SEEDS_DOMAIN, Reconstruct, SharesForMember, seed_content
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.crypto import edwards25519
from tests.aggregation.federations import EXPERIMENT
from tests.aggregation.flamingo_rounds import federation, stand_before

MEMBER, DISHONEST, VICTIM = 4, 1, 5


async def refusals(copied: bool, shifted: bool = False) -> list[str]:
    stand = await stand_before("reconstruct", MEMBER, federation(leaving={"flamingo/report": {0, 3}}))
    state = stand.state
    at = next(at for at, edge in enumerate(stand.edges) if edge.online == DISHONEST)
    peer = next(neighbour for client, neighbour in state.seeds if client == VICTIM and neighbour in stand.online)
    theirs, edges = state.seeds[VICTIM, peer], stand.edges
    if copied:
        point = theirs.point
        if shifted:  # not the same any more, and decrypted all the same
            point = edwards25519.add(point, edwards25519.multiply_base(bytes([9, *bytes(31)])))
        content = seed_content(state.digest, DISHONEST, edges[at].offline, point)
        signature = stand.small.client(DISHONEST).identity.signing.sign(SEEDS_DOMAIN + EXPERIMENT, content)
        edges[at] = changed(edges[at], point=point, signature=signature, proof_of_knowledge=theirs.proof_of_knowledge)
    signed = [SignatureOf(*one) for one in state.signed.items()]
    place = state.members[MEMBER] - 1
    private = SharesForMember([state.reports[client].shares[place] for client in stand.online])
    return await stand.ask(Reconstruct(1, signed, edges), private)


def test_nobody_has_another_clients_ciphertext_decrypted() -> None:
    assert asyncio.run(refusals(copied=False)) == []
    assert asyncio.run(refusals(copied=True)) == ["flamingo.ciphertext-mismatch"]
    assert asyncio.run(refusals(copied=True, shifted=True)) == ["flamingo.ciphertext-mismatch"]
