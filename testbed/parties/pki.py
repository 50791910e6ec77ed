"""The public key infrastructure of Lotto.

The server does not mediate it. It accepts a registration only from the client itself: the channel is authenticated, the
request is signed with the key that it registers, and each client has one signing key. The PKI generates the VRF key
pair, and returns it sealed to the client's own key. All public data are on the bulletin board, `Directory`.

Source: Jiang et al., arXiv 2401.02880, section 3.4 and its setup stage.
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
"""Domain separator of signatures over a registration."""

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
    """A query to the bulletin board; its encoded size is charged to the client that looks up keys."""

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
        """Return a board without registrations."""
        signing, agreement, vrf_keys = (np.zeros((population, 32), np.uint8) for _ in range(3))
        return cls(signing, agreement, vrf_keys, np.zeros(population, np.bool_))

    @classmethod
    def derived(cls, population: int, randomness: Randomness) -> "Directory":
        """Return the board after all clients have registered, for an experiment with a seed; see `derived_keys`."""
        signing, agreement, vrf_keys = (
            DerivedKeys(population, randomness, "signing"),
            DerivedKeys(population, randomness, "agreement"),
            DerivedKeys(population, randomness, "vrf"),
        )
        return cls(signing, agreement, vrf_keys, np.ones(population, np.bool_))

    def __contains__(self, client: int) -> bool:
        return 0 <= client < len(self.registered) and bool(self.registered[client])

    def signing_key(self, client: int) -> bytes:
        """Return the client's Ed25519 registration key; raises `Refusal` for a client unknown to the PKI."""
        self._check_known(client)
        return bytes(self.signing[client])

    def agreement_key(self, client: int) -> bytes:
        """Return the client's X25519 key; raises `Refusal` for a client unknown to the PKI."""
        self._check_known(client)
        return bytes(self.agreement[client])

    def vrf_key(self, client: int) -> bytes:
        """Return the client's VRF public key; raises `Refusal` for a client unknown to the PKI."""
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
    """The PKI's side of registration: see the module's docstring.

    Args:
        population: number of clients that may register, 0..population-1.
        randomness: the experiment's randomness; the PKI generates VRF keys from its own secrets.
    """

    def __init__(self, population: int, randomness: Randomness) -> None:
        self._signing, self._agreement, self._vrf = (np.zeros((population, 32), np.uint8) for _ in range(3))
        self._board = Directory(self._signing, self._agreement, self._vrf, np.zeros(population, np.bool_))
        self._randomness = randomness
        self._vrf_secrets = np.zeros((population, 32), np.uint8)  # one draw per client, for repeated requests

    def register(self, request: bytes, sender: int) -> bytes:
        """Answer an encoded `Registration` with an encoded `Registered`.

        A client may repeat its own registration (after a restart). It gets the same VRF key again, sealed to the
        agreement key of the new request.

        Args:
            request: the encoded request.
            sender: the client at the other end of the authenticated channel, regardless of the request's content.

        Raises:
            Refusal: any other request that is not valid.
        """
        try:
            registration = decode(Registration, request)
        except ProtocolError as error:
            raise Refusal("pki.malformed", str(error)) from None
        board, client = self._board, registration.client
        if client >= len(board.registered):
            raise Refusal("pki.unknown-client", f"client {client} is outside the population")
        # Stops clients and hosts that register keys in the name of other clients.
        if sender != client:
            raise Refusal("pki.unauthorised-registration", f"client {sender} asks to register client {client}")
        keys = signed_content(client, registration.signing_key, registration.agreement_key)
        try:
            # Under a key of small order, one signature would verify for many messages.
            signatures.validate_public_key(registration.signing_key)
            # Proof of possession: nobody can register another client's public key as its own.
            signatures.verify(registration.signing_key, REGISTRATION_DOMAIN, keys, registration.signature)
        except ProtocolError as error:
            raise Refusal("pki.unauthorised-registration", str(error)) from None
        # A second signing key would be a second identity (Sybil attack on the selection).
        if client in board and board.signing_key(client) != registration.signing_key:
            raise Refusal("pki.already-registered", f"client {client} has registered another key before")
        # The PKI draws the VRF key: a client that chose it could grind for a key with lucky lots.
        secret = self._vrf_secret(client)
        public = vrf.SecretKey.from_seed(secret).public
        try:
            sealed = encryption.seal_to(
                registration.agreement_key,
                secret,
                _SEALED_DOMAIN + client.to_bytes(8, "big"),
                self._randomness.identity_secret("pki", client, "ephemeral key"),
            )
        except ProtocolError as error:
            raise Refusal("pki.invalid-agreement-key", str(error)) from None
        # From here on nothing can fail: a refused request leaves no trace on the board.
        if client not in board:
            self._vrf_secrets[client] = np.frombuffer(secret, np.uint8)
        for rows, key in (
            (self._signing, registration.signing_key),
            (self._agreement, registration.agreement_key),
            (self._vrf, public),
        ):
            rows[client] = np.frombuffer(key, np.uint8)
        board.registered[client] = True
        return encode(Registered(public, sealed))

    def _vrf_secret(self, client: int) -> bytes:
        """Return the client's VRF secret; without a seed, drawing it again would give another key."""
        if client in self._board:
            return bytes(self._vrf_secrets[client])
        return vrf_seed(self._randomness, client)

    def register_many(self, requests: Sequence[bytes], senders: Ids) -> list[bytes]:
        """Register several clients of a host, as `register` does.

        Args:
            requests: one encoded request per sender.
            senders: `(m,)` int64, the owners of the channels; the host's own claim does not count.
        """
        return [self.register(request, sender) for request, sender in zip(requests, senders.tolist(), strict=True)]

    def directory(self) -> Directory:
        """Return the bulletin board."""
        return self._board


class Identity:
    """A client's key pairs, made from the client's own secrets.

    Args:
        client: its number.
        randomness: the experiment's randomness.

    Attributes:
        secrets: the secrets from which the key pairs are made, 64 bytes; 96 once the PKI's answer has been accepted. A
            host stores only the secrets of a client that has not been asked yet; the key pairs take 20 times as much
            memory.
    """

    __slots__ = ("agreement", "client", "secrets", "signing", "vrf")

    def __init__(self, client: int, randomness: Randomness) -> None:
        self._expand(client, signing_seed(randomness, client) + agreement_seed(randomness, client))

    @classmethod
    def derived(cls, client: int, randomness: Randomness) -> "Identity":
        """Return the identity of a registered client, for an experiment with a seed; see `derived_keys`."""
        identity = cls(client, randomness)
        seed = vrf_seed(randomness, client)
        identity.vrf = vrf.SecretKey.from_seed(seed)
        identity.secrets += seed
        return identity

    @classmethod
    def restored(cls, client: int, secrets: bytes) -> "Identity":
        """Return the identity of a client with 96 stored bytes of `secrets`."""
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
        """Return 32 bytes that no other party can compute, for one purpose.

        They are the HMAC-SHA-256 of the purpose under the secrets of the key pairs.
        """
        # Without the VRF seed, as the PKI knows it.
        return prf.evaluate(self.secrets[: 2 * _SEED_BYTES], _OWN_SECRET_DOMAIN + purpose)

    def registration(self) -> bytes:
        """Return the encoded request to the PKI."""
        keys = signed_content(self.client, self.signing.public, self.agreement.public)
        signature = self.signing.sign(REGISTRATION_DOMAIN, keys)
        meter("ed25519.sign")
        return encode(Registration(self.client, self.signing.public, self.agreement.public, signature))

    def accept(self, answer: bytes) -> None:
        """Open the PKI's answer; raises `Refusal` if the key in it does not belong to the announced public key."""
        registered = decode(Registered, answer)
        # The client's number is authenticated, so that an answer to another client does not open.
        associated = _SEALED_DOMAIN + self.client.to_bytes(8, "big")
        seed = encryption.open_from(self.agreement, registered.sealed_vrf_secret, associated)
        secret = vrf.SecretKey.from_seed(seed)
        # With another key, every proof of this client would fail in front of its peers.
        if secret.public != registered.vrf_public:
            raise Refusal("pki.key-mismatch", "the sealed VRF key does not belong to the announced public key")
        self.vrf = secret
        self.secrets = self.secrets[: 2 * _SEED_BYTES] + seed
