"""Dishonest clients at the PKI (Lotto, arXiv 2401.02880, section 3.4, setup): what they try, and what it refuses.

Being in the population more often than once, or with a lucky key, would let them through whatever the selection
protocol checks later. Every attempt here is made at a real PKI, by clients that have real keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.crypto import key_agreement, signatures
from testbed.errors import Refusal
from testbed.messages import decode, encode, signed_content
from testbed.parties.pki import PKI, REGISTRATION_DOMAIN, Identity, Registered, Registration
from testbed.randomness import Randomness

GRINDING = 20
"""How often a client registers again in the hope of another key."""


@dataclass(frozen=True)
class RegistrationAttack:
    """One thing that dishonest clients tried.

    Attributes:
        name: what.
        tried: how often.
        refused: how often it was refused.
        checks: the names of the checks that failed.
        gained: what the attempts that were not refused have brought.
    """

    name: str
    tried: int
    refused: int
    checks: tuple[str, ...]
    gained: str


Request = tuple[bytes, int]  # the encoded registration, and the client whose channel it comes over


def attempts(population: int, dishonest: frozenset[int], randomness: Randomness) -> list[RegistrationAttack]:
    """Make every attempt once for each dishonest client, with an honest client as its victim.

    Args:
        population: number of clients n.
        dishonest: the dishonest clients; there must be some, and some that are not.
        randomness: the experiment's; keys are those that the experiment's clients have.
    """
    pki = PKI(population, randomness)
    victims = [client for client in range(population) if client not in dishonest][: len(dishonest)]
    pairs = [(client, victims[place % len(victims)]) for place, client in enumerate(sorted(dishonest))]
    tried = [_tried(pki, "register for a client that has not registered yet", _for_another(pairs, randomness))]
    known = {client: Identity(client, randomness) for client in sorted(dishonest | set(victims))}
    for client, identity in known.items():
        pki.register(identity.registration(), client)
    tried += [
        _tried(pki, "replace the key of a registered client", _taking_over(pairs, randomness)),
        _tried(pki, "register an honest client's key as one's own", _anothers_key(pairs, known)),
        _tried(pki, "a second identity, with a number of its own", _beyond(pairs, population, randomness)),
    ]
    return [*tried, _grinding(pki, [known[client] for client in sorted(dishonest)], randomness)]


def _tried(pki: PKI, name: str, requests: Iterator[Request]) -> RegistrationAttack:
    tried, checks = 0, []
    for request, sender in requests:
        tried += 1
        try:
            pki.register(request, sender)
        except Refusal as refusal:
            checks.append(refusal.check)
    accepted = tried - len(checks)
    gained = "nothing" if not accepted else f"{accepted} registrations"
    return RegistrationAttack(name, tried, len(checks), tuple(sorted(set(checks))), gained)


def _request(client: int, randomness: Randomness, owner: int | str, signer: signatures.SigningKey) -> bytes:
    """A registration of `client` with keys of `owner`'s making, signed by `signer`."""
    agreement = key_agreement.PrivateKey.from_seed(
        randomness.identity_secret(owner, 0, "agreement key of another identity")
    )
    signature = signer.sign(REGISTRATION_DOMAIN, signed_content(client, signer.public, agreement.public))
    return encode(Registration(client, signer.public, agreement.public, signature))


def _fresh(owner: int, randomness: Randomness) -> signatures.SigningKey:
    return signatures.SigningKey.from_seed(randomness.identity_secret(owner, 0, "signing key of another identity"))


def _for_another(pairs: list[tuple[int, int]], randomness: Randomness) -> Iterator[Request]:
    """In the victim's name, well signed with the attacker's keys, over the attacker's channel."""
    for client, victim in pairs:
        yield _request(victim, randomness, client, _fresh(client, randomness)), client


def _taking_over(pairs: list[tuple[int, int]], randomness: Randomness) -> Iterator[Request]:
    """Even over the victim's own channel: whoever has it cannot replace the key."""
    for client, victim in pairs:
        yield _request(victim, randomness, client, _fresh(client, randomness)), victim


def _anothers_key(pairs: list[tuple[int, int]], known: dict[int, Identity]) -> Iterator[Request]:
    """The victim's public key under the attacker's number; it cannot sign for it."""
    for client, victim in pairs:
        stolen = decode(Registration, known[victim].registration())
        content = signed_content(client, stolen.signing_key, stolen.agreement_key)
        signature = known[client].signing.sign(REGISTRATION_DOMAIN, content)
        yield encode(Registration(client, stolen.signing_key, stolen.agreement_key, signature)), client


def _beyond(pairs: list[tuple[int, int]], population: int, randomness: Randomness) -> Iterator[Request]:
    """A number that the population does not have."""
    for place, (client, _) in enumerate(pairs):
        yield _request(population + place, randomness, client, _fresh(client, randomness)), population + place


def _grinding(pki: PKI, dishonest: list[Identity], randomness: Randomness) -> RegistrationAttack:
    """Registering again and again, each time with another agreement key, in the hope of another VRF key."""
    vrf_keys = set()
    for identity in dishonest:
        for number in range(GRINDING):
            owner = f"{identity.client}/{number}"
            request = _request(identity.client, randomness, owner, identity.signing)
            vrf_keys.add((identity.client, decode(Registered, pki.register(request, identity.client)).vrf_public))
    gained = "nothing: the same VRF key every time"
    if len(vrf_keys) > len(dishonest):
        gained = f"{len(vrf_keys) - len(dishonest)} more VRF keys"
    return RegistrationAttack("register again for another VRF key", GRINDING * len(dishonest), 0, (), gained)
