"""Attacks of dishonest clients at the PKI (Lotto, arXiv 2401.02880, section 3.4, setup), and the PKI's refusals.

A client that is in the population more than once, or has a lucky key, would pass all later checks of the selection
protocol. The attacks here run at a real PKI, by clients with real keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.crypto import key_agreement, signatures
from testbed.errors import Refusal
from testbed.messages import decode, encode, signed_content
from testbed.parties.pki import PKI, REGISTRATION_DOMAIN, Identity, Registered, Registration
from testbed.randomness import Randomness

GRINDING = 20
"""Number of times that a client registers again to obtain another key."""


@dataclass(frozen=True)
class RegistrationAttack:
    """One kind of attack at the PKI and its outcome.

    Attributes:
        name: the attack.
        tried: number of attempts.
        refused: number of refused attempts.
        checks: codes of the failed checks.
        gained: outcome of the accepted attempts.
    """

    name: str
    tried: int
    refused: int
    checks: tuple[str, ...]
    gained: str


Request = tuple[bytes, int]  # the encoded registration, and the client that sends it


def attempts(population: int, dishonest: frozenset[int], randomness: Randomness) -> list[RegistrationAttack]:
    """Run every attack once for each dishonest client, with an honest client as its victim.

    Args:
        population: number of clients n.
        dishonest: the dishonest clients; at least one, and not all clients.
        randomness: the experiment's; keys equal those of the experiment's clients.
    """
    pki = PKI(population, randomness)
    victims = [client for client in range(population) if client not in dishonest][: len(dishonest)]
    # With fewer honest clients than dishonest ones, a victim is attacked several times.
    pairs = [(client, victims[place % len(victims)]) for place, client in enumerate(sorted(dishonest))]
    tried = [_tried(pki, "register for a client that has not registered yet", _for_another(pairs, randomness))]
    identities = {client: Identity(client, randomness) for client in sorted(dishonest | set(victims))}
    for client, identity in identities.items():
        pki.register(identity.registration(), client)
    tried += [
        _tried(pki, "replace the key of a registered client", _taking_over(pairs, randomness)),
        _tried(pki, "register an honest client's key as one's own", _anothers_key(pairs, identities)),
        _tried(pki, "a second identity, with a number of its own", _beyond(pairs, population, randomness)),
    ]
    return [*tried, _grinding(pki, [identities[client] for client in sorted(dishonest)], randomness)]


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
    """Return a registration of `client` with keys made by `owner`, signed by `signer`."""
    agreement = key_agreement.PrivateKey.from_seed(
        randomness.identity_secret(owner, 0, "agreement key of another identity")
    )
    signature = signer.sign(REGISTRATION_DOMAIN, signed_content(client, signer.public, agreement.public))
    return encode(Registration(client, signer.public, agreement.public, signature))


def _fresh(owner: int, randomness: Randomness) -> signatures.SigningKey:
    return signatures.SigningKey.from_seed(randomness.identity_secret(owner, 0, "signing key of another identity"))


def _for_another(pairs: list[tuple[int, int]], randomness: Randomness) -> Iterator[Request]:
    """Yield registrations in the victim's name, signed with the attacker's keys, over the attacker's channel."""
    for client, victim in pairs:
        yield _request(victim, randomness, client, _fresh(client, randomness)), client


def _taking_over(pairs: list[tuple[int, int]], randomness: Randomness) -> Iterator[Request]:
    """Yield registrations over the victim's own channel: even there the key cannot be replaced."""
    for client, victim in pairs:
        yield _request(victim, randomness, client, _fresh(client, randomness)), victim


def _anothers_key(pairs: list[tuple[int, int]], identities: dict[int, Identity]) -> Iterator[Request]:
    """Yield registrations of the victim's public key under the attacker's number, with the attacker's signature."""
    for client, victim in pairs:
        stolen = decode(Registration, identities[victim].registration())
        content = signed_content(client, stolen.signing_key, stolen.agreement_key)
        signature = identities[client].signing.sign(REGISTRATION_DOMAIN, content)
        yield encode(Registration(client, stolen.signing_key, stolen.agreement_key, signature)), client


def _beyond(pairs: list[tuple[int, int]], population: int, randomness: Randomness) -> Iterator[Request]:
    """Yield registrations with a number outside of the population."""
    for place, (client, _) in enumerate(pairs):
        yield _request(population + place, randomness, client, _fresh(client, randomness)), population + place


def _grinding(pki: PKI, dishonest: list[Identity], randomness: Randomness) -> RegistrationAttack:
    """Register repeatedly, each time with another agreement key, to obtain another VRF key."""
    vrf_keys = set()
    for identity in dishonest:
        for number in range(GRINDING):
            owner = f"{identity.client}/{number}"
            request = _request(identity.client, randomness, owner, identity.signing)
            # A choice among several VRF keys would let a client grind its lottery numbers.
            vrf_keys.add((identity.client, decode(Registered, pki.register(request, identity.client)).vrf_public))
    gained = "nothing: the same VRF key every time"
    if len(vrf_keys) > len(dishonest):
        gained = f"{len(vrf_keys) - len(dishonest)} more VRF keys"
    return RegistrationAttack("register again for another VRF key", GRINDING * len(dishonest), 0, (), gained)
