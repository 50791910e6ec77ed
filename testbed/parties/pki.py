"""The public key infrastructure of Lotto (Jiang et al., arXiv 2401.02880, section 3.4 and its setup stage).

It is not mediated by the server, accepts a registration only from the client itself (over a channel that says who is
there; the request is signed with the key that it registers; one signing key per client), generates the VRF key pair
so that a client cannot grind for lucky keys, and returns it sealed to the client's own key. Everything public goes to
the bulletin board, `Directory`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crypto import encryption, key_agreement, prf, signatures, vrf
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, Refusal
from testbed.messages import ClientId, Key32, Message, Signature64, decode, encode, signed_content
from testbed.parties.derived_keys import DerivedKeys, agreement_seed, signing_seed, vrf_seed
from testbed.randomness import Randomness

REGISTRATION_DOMAIN = b"testbed/pki/registration/v1"
"""What signatures over a registration begin with."""

_SEALED_DOMAIN = b"testbed/pki/vrf-key/v1"
_OWN_SECRET_DOMAIN = b"testbed/pki/own-secret/v1"
_SEED_BYTES = 32
SECRETS_BYTES = 3 * _SEED_BYTES
"""Length of the `secrets` of an `Identity` that is registered."""


class Registration(Message, frozen=True):
    """A client's request: its public keys, signed with the signing key among them."""

    client: ClientId
    signing_key: Key32
    agreement_key: Key32
    signature: Signature64


class Registered(Message, frozen=True):
    """The PKI's answer: the client's VRF secret key, sealed to its agreement key."""

    vrf_public: Key32
    sealed_vrf_secret: Annotated[bytes, msgspec.Meta(max_length=200)]


class Lookup(Message, frozen=True):
    """A query to the bulletin board (kept for its size: clients pay for what they look up)."""

    clients: list[ClientId]


class Entries(Message, frozen=True):
    """The board's answer: signing and VRF keys, 64 bytes per client asked for."""

    keys: list[Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]]


@dataclass(frozen=True)
class Directory:
    """The bulletin board as arrays, one row per client of the population.

    Attributes:
        signing, agreement, vrf: `(n, 32)` uint8 public keys, which may be made when they are looked at.
        registered: `(n,)` bool.
        beacon: the randomness beacon's public key (`round_beacon`); empty where there is none.
        public_seed: 32 bytes drawn after registration has closed; committees and graphs follow from them. A party that
            knew them earlier could register its clients at places that suit it.
        samples: `(n,)` int64, training samples that each client has announced with its registration; None: nobody was
            asked to. The PKI cannot verify them.
    """

    signing: npt.NDArray[np.uint8] | DerivedKeys
    agreement: npt.NDArray[np.uint8] | DerivedKeys
    vrf: npt.NDArray[np.uint8] | DerivedKeys
    registered: npt.NDArray[np.bool_]
    beacon: bytes = b""
    public_seed: bytes = bytes(32)
    samples: npt.NDArray[np.int64] | None = None

    @classmethod
    def empty(cls, population: int) -> "Directory":
        """A board on which nobody is registered."""
        signing, agreement, vrf_keys = (np.zeros((population, 32), np.uint8) for _ in range(3))
        return cls(signing, agreement, vrf_keys, np.zeros(population, np.bool_))

    @classmethod
    def derived(cls, population: int, randomness: Randomness) -> "Directory":
        """The board as it is when everybody has registered, of an experiment with a seed; see `derived_keys`."""
        signing, agreement, vrf_keys = (
            DerivedKeys(population, randomness, "signing"),
            DerivedKeys(population, randomness, "agreement"),
            DerivedKeys(population, randomness, "vrf"),
        )
        return cls(signing, agreement, vrf_keys, np.ones(population, np.bool_))

    def __contains__(self, client: int) -> bool:
        return 0 <= client < len(self.registered) and bool(self.registered[client])

    def signing_key(self, client: int) -> bytes:
        """The client's Ed25519 registration key; raises `Refusal` for a client that the PKI does not know."""
        self._check_known(client)
        return bytes(self.signing[client])

    def agreement_key(self, client: int) -> bytes:
        """The client's X25519 key; raises `Refusal` for a client that the PKI does not know."""
        self._check_known(client)
        return bytes(self.agreement[client])

    def vrf_key(self, client: int) -> bytes:
        """The client's VRF public key; raises `Refusal` for a client that the PKI does not know."""
        self._check_known(client)
        return bytes(self.vrf[client])

    @cached_property
    def all_samples(self) -> int:
        """The sum of `samples`; 0 where nobody was asked."""
        return 0 if self.samples is None else int(self.samples.sum())

    def _check_known(self, client: int) -> None:
        if client not in self:
            raise Refusal("pki.unknown-client", f"client {client} is not registered with the PKI")


class PKI:
    """See the module's docstring.

    Args:
        population: number of clients that may register, 0..population-1.
        randomness: the experiment's; the PKI generates VRF keys from its own secrets.
    """

    def __init__(self, population: int, randomness: Randomness) -> None:
        self._signing, self._agreement, self._vrf = (np.zeros((population, 32), np.uint8) for _ in range(3))
        self._board = Directory(self._signing, self._agreement, self._vrf, np.zeros(population, np.bool_))
        self._randomness = randomness
        self._vrf_secrets = np.zeros((population, 32), np.uint8)  # drawn once: no second draw for who asks again

    def register(self, request: bytes, sender: int) -> bytes:
        """Answer an encoded `Registration` with an encoded `Registered`.

        Repeating one's own registration gives the same VRF key again (a client that was restarted), sealed to the
        agreement key of the new request; anything else that is wrong raises `Refusal`.

        Args:
            request: the encoded request.
            sender: the client at the other end of the authenticated channel, whatever the request says.
        """
        try:
            asked = decode(Registration, request)
        except ProtocolError as error:
            raise Refusal("pki.malformed", str(error)) from None
        board, client = self._board, asked.client
        if client >= len(board.registered):
            raise Refusal("pki.unknown-client", f"client {client} is outside the population")
        if sender != client:
            raise Refusal("pki.not-by-the-client", f"client {sender} asks to register client {client}")
        keys = signed_content(client, asked.signing_key, asked.agreement_key)
        try:
            signatures.validate_public_key(asked.signing_key)
            signatures.verify(asked.signing_key, REGISTRATION_DOMAIN, keys, asked.signature)
        except ProtocolError as error:
            raise Refusal("pki.not-by-the-client", str(error)) from None
        if client in board and board.signing_key(client) != asked.signing_key:
            raise Refusal("pki.already-registered", f"client {client} has registered another key before")
        secret = self._vrf_secret(client)
        public = vrf.SecretKey.from_seed(secret).public
        try:
            sealed = encryption.seal_to(
                asked.agreement_key,
                secret,
                _SEALED_DOMAIN + client.to_bytes(8, "big"),
                self._randomness.identity_secret("pki", client, "ephemeral key"),
            )
        except ProtocolError as error:
            raise Refusal("pki.invalid-agreement-key", str(error)) from None
        if client not in board:
            self._vrf_secrets[client] = np.frombuffer(secret, np.uint8)
        for rows, key in (
            (self._signing, asked.signing_key),
            (self._agreement, asked.agreement_key),
            (self._vrf, public),
        ):
            rows[client] = np.frombuffer(key, np.uint8)
        board.registered[client] = True
        return encode(Registered(public, sealed))

    def _vrf_secret(self, client: int) -> bytes:
        """The client's one VRF secret: with secrets from the operating system a new draw would be another key."""
        if client in self._board:
            return bytes(self._vrf_secrets[client])
        return vrf_seed(self._randomness, client)

    def register_many(self, requests: Sequence[bytes], senders: Ids) -> list[bytes]:
        """`register` for each of a host's clients.

        Args:
            requests: as many as there are senders.
            senders: whose channels they came over, by who owns which clients and not by the host's word.
        """
        return [self.register(request, sender) for request, sender in zip(requests, senders.tolist(), strict=True)]

    def directory(self) -> Directory:
        """The bulletin board."""
        return self._board


class Identity:
    """A client's key pairs, made from the client's own secrets.

    Args:
        client: its number.
        randomness: the experiment's.

    Attributes:
        secrets: what the key pairs are made from, 64 bytes; 96 when the PKI's answer has been accepted. A
            host keeps no more than this of a client that nobody has asked yet; the key pairs take 20 times as much.
    """

    __slots__ = ("agreement", "client", "secrets", "signing", "vrf")

    def __init__(self, client: int, randomness: Randomness) -> None:
        self._expand(client, signing_seed(randomness, client) + agreement_seed(randomness, client))

    @classmethod
    def derived(cls, client: int, randomness: Randomness) -> "Identity":
        """The identity that a client has once it is registered, of an experiment with a seed; see `derived_keys`."""
        identity = cls(client, randomness)
        seed = vrf_seed(randomness, client)
        identity.vrf = vrf.SecretKey.from_seed(seed)
        identity.secrets += seed
        return identity

    @classmethod
    def restored(cls, client: int, secrets: bytes) -> "Identity":
        """The identity of a client whose 96 bytes of `secrets` were kept."""
        identity = cls.__new__(cls)
        identity._expand(client, secrets[: 2 * _SEED_BYTES])
        identity.vrf = vrf.SecretKey.from_seed(secrets[2 * _SEED_BYTES :])
        identity.secrets = secrets
        return identity

    def _expand(self, client: int, secrets: bytes) -> None:
        self.client = client
        self.secrets = secrets
        self.signing = signatures.SigningKey.from_seed(secrets[:_SEED_BYTES])
        self.agreement = key_agreement.PrivateKey.from_seed(secrets[_SEED_BYTES:])
        self.vrf: vrf.SecretKey | None = None

    def derived_secret(self, purpose: bytes) -> bytes:
        """32 bytes that nobody else can compute, for one purpose: HMAC-SHA-256 under the secrets of the key pairs."""
        return prf.evaluate(self.secrets[: 2 * _SEED_BYTES], _OWN_SECRET_DOMAIN + purpose)

    def registration(self) -> bytes:
        """The encoded request to the PKI."""
        keys = signed_content(self.client, self.signing.public, self.agreement.public)
        signature = self.signing.sign(REGISTRATION_DOMAIN, keys)
        meter("ed25519.sign")
        return encode(Registration(self.client, self.signing.public, self.agreement.public, signature))

    def accept(self, answer: bytes) -> None:
        """Open the PKI's answer; raises `Refusal` if the key in it does not belong to the announced public key."""
        registered = decode(Registered, answer)
        associated = _SEALED_DOMAIN + self.client.to_bytes(8, "big")
        seed = encryption.open_from(self.agreement, registered.sealed_vrf_secret, associated)
        secret = vrf.SecretKey.from_seed(seed)
        if secret.public != registered.vrf_public:
            raise Refusal("pki.key-mismatch", "the sealed VRF key does not belong to the announced public key")
        self.vrf = secret
        self.secrets = self.secrets[: 2 * _SEED_BYTES] + seed
