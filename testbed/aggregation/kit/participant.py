"""A client in one round of secure aggregation: its secrets, its signatures, and the participants that it knows.

Each protocol's participant has a table of the questions that it answers in each state (`testbed.parties.client`).
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from testbed.aggregation.kit.message_parts import ParticipantNotice, SignatureOf
from testbed.aggregation.kit.ring_elements import NoisyRole
from testbed.aggregation.quantisation import Quantisation, Quantised
from testbed.crypto import InvalidSignature, memo
from testbed.emulation.compute.cost import meter
from testbed.errors import Refusal
from testbed.messages import Vector, signed_content
from testbed.network.masked_vectors import Elements, MaskedVector, Masks
from testbed.parties.client import Client, StageTable, Transition
from testbed.parties.pki import Identity
from testbed.training import RoundUpdate, training_digest


def row(after: str, then: str, check: str = "secagg.out-of-order") -> Transition:
    """Return a transition from one state; a transition from "new" starts the round.

    Args:
        after: the state in which the question is answered.
        then: the state after the answer.
        check: refusal code in all other states.
    """
    return Transition(sources={after}, target=then, refusal=check, starts_round=after == "new")


def check_signers(rows: Sequence[SignatureOf], allowed: Set[int], needed: int, *, protocol: str, signers: str) -> None:
    """Refuse signatures of too few clients; two signatures of one client count once.

    Args:
        rows: the signatures that the server shows.
        allowed: the clients with signatures that count.
        needed: t.
        protocol: the first part of the refusal codes.
        signers: name for a client in `allowed` in messages, e.g. "member".
    """
    # A signature that counts twice would lower the threshold.
    signed = {row.client for row in rows}
    if len(signed) != len(rows) or not signed <= allowed:
        detail = f"a client's signature is listed twice, or a client is not a {signers}"
        raise Refusal(f"{protocol}.unexpected-signature", detail)
    if len(rows) < needed:
        raise Refusal(f"{protocol}.too-few-signatures", f"{len(rows)} signatures, threshold {needed}")


class BindsModel(Protocol):
    """Interface of the protocol parameters that a participant needs."""

    @property
    def model_binding(self) -> str:
        """``signed`` if clients sign the training task with their keys, ``none`` if not."""


class Participant(NoisyRole):
    """A participant of one round.

    Attributes:
        progress: state of the stages.
        round: the round in which it takes part.
    """

    STAGES: ClassVar[StageTable]
    parameters: Any  # has at least the interface `BindsModel`

    def __init__(self, client: Client, parameters: BindsModel) -> None:
        super().__init__(client, parameters)
        self.progress = self.STAGES.progress()
        self.round = -1

    @property
    def number(self) -> int:
        """The client's number."""
        return self.client.number

    @property
    def identity(self) -> Identity:
        """The client's key pairs."""
        assert self.client.identity is not None
        return self.client.identity

    def shared_key(self, peer: int, purpose: bytes) -> bytes:
        """Return the 32 bytes that this client and a peer agree on for one purpose, from their keys in the PKI."""
        return memo.agree(self.identity.agreement, self.environment.directory.agreement_key(peer), purpose)

    def secret(self, purpose: str) -> bytes:
        """Return 32 secret bytes of this round for one purpose."""
        return self.environment.randomness.secret(self.number, self.round, f"secagg {purpose}")

    def sign(self, domain: bytes, content: bytes) -> bytes:
        """Return the client's signature of the content."""
        meter("ed25519.sign")
        return self.identity.signing.sign(domain + self.environment.experiment_id, content)

    def verify(self, registered: bytes, domain: bytes, content: bytes, signature: bytes) -> None:
        """Raise `InvalidSignature` unless the registered key verifies the signature."""
        meter("ed25519.verify")
        memo.verify(registered, domain + self.environment.experiment_id, content, signature)

    def check_signatures(
        self,
        domain: bytes,
        common: bytes,
        signed: Mapping[int, tuple[bytes, ...]],
        content_of: Callable[[int], bytes],
        refusal: Callable[[int], Refusal],
        *,
        shown_to_all: bool,
        but: int | None = None,
    ) -> None:
        """Refuse unless all of these signatures verify; the refusal is about the first that does not.

        If another participant was shown the same rows, and all of them verified, they are not verified again. The time
        of the verification is charged all the same.

        Args:
            domain: of the signatures.
            common: part of the contents that is equal for all clients.
            signed: by client, the other parts of its content; its signature is last.
            content_of: returns the content that a client has signed.
            refusal: returns the refusal for a signature that does not verify.
            shown_to_all: whether other participants are shown the same rows.
            but: client with a signature that is not checked.
        """
        if shown_to_all and self._known_to_be_signed(domain, common, signed, content_of):
            meter("ed25519.verify", len(signed) - (but in signed))
            return
        for client, (*_, signature) in signed.items():
            if client == but:
                continue
            try:
                self.verify(self.registered(client), domain, content_of(client), signature)
            except InvalidSignature:
                raise refusal(client) from None

    def check_same_signed(
        self,
        domain: bytes,
        content: bytes,
        rows: Sequence[SignatureOf],
        refusal: Callable[[int], Refusal],
        *,
        shown_to_all: bool,
    ) -> None:
        """Refuse unless these clients have all signed the same `content`; arguments as in `check_signatures`."""
        signed = {row.client: (row.signature,) for row in rows}
        self.check_signatures(domain, content, signed, lambda client: content, refusal, shown_to_all=shown_to_all)

    def _known_to_be_signed(
        self, domain: bytes, common: bytes, signed: Mapping[int, tuple[bytes, ...]], content_of: Callable[[int], bytes]
    ) -> bool:
        try:
            keys = {client: self.registered(client) for client in signed}
        except Refusal:  # a client that the PKI does not know is refused when its signature is checked
            return False
        role, experiment = f"{type(self).__module__} {type(self).__qualname__}", self.environment.experiment_id
        # The memo's key contains role and all keys: only the same question about the same rows is answered from it.
        rows = [(client, key, *signed[client]) for client, key in keys.items()]
        return memo.verify_all(
            signed_content(role, domain, experiment, common, rows),
            lambda: ((key, domain + experiment, content_of(c), signed[c][-1]) for c, key in keys.items()),
        )

    def registered(self, client: int) -> bytes:
        """Return a peer's signing key: from the agreed list if there is one, else from the PKI."""
        agreed = self.client.agreed_participants
        return agreed[client] if agreed is not None else self.environment.directory.signing_key(client)

    def check_size(self, participants: int) -> None:
        """Refuse a number of participants that no honest server announces."""
        agreed = self.client.agreed_participants
        if self.environment.participants_are_agreed and agreed is None:
            raise Refusal("aggregation.no-agreed-list", "no participant list was agreed on in this round")
        if agreed is not None and participants != len(agreed):
            detail = f"{participants} participants announced, {len(agreed)} agreed on"
            raise Refusal("aggregation.participants-mismatch", detail)
        # Checked although the minimum follows: a user-defined selection may have a minimum of 1.
        if participants < 2:
            raise Refusal("aggregation.single-participant", "the sum of one update hides nothing")
        fewest = self.environment.minimum_participants
        if participants < fewest:
            raise Refusal(
                "aggregation.too-few-participants", f"{participants} participants announced; at least {fewest}"
            )
        most = self.environment.maximum_participants
        if participants > most:
            raise Refusal("aggregation.too-many-participants", f"{participants} participants announced; at most {most}")

    def quantised_update(self, update: RoundUpdate) -> Quantised:
        """Return the `(d+1,)` elements of an update with its weight, computed when they are needed (`Quantisation`)."""
        weight = update.samples if self.parameters.weights == "samples" else 1
        coins = self.environment.randomness.simulation_key(self.number, self.round, "stochastic rounding")
        quantisation: Quantisation = self.parameters.quantisation
        return quantisation.quantised(np.asarray(update.delta, np.float32), weight, coins)

    def under_masks(self, elements: npt.NDArray[Any] | Elements, masks: Masks) -> Vector:
        """Return `(d,)` elements of the ring under masks; read-only.

        With `Environment.symbolic_masks`, masks stay seeds until the values are needed.
        """
        bits = self.parameters.bits
        if self.environment.symbolic_masks:
            return MaskedVector(elements, bits, masks)
        masked = np.asarray(elements)
        masks.add_to(masked, bits)
        masked.setflags(write=False)  # as symbolic masks are
        return Vector(masked, bits)

    def digest_of_training(self, update: RoundUpdate) -> bytes:
        """Return the digest of the training task that clients sign; empty with ``model_binding: none``."""
        if self.parameters.model_binding == "none":
            return b""
        # Where compute is measured, a client hashes the model although another client of the process has done so.
        return training_digest(update.question, anew=self.environment.compute.measured)

    def notice(self, participants: int, update: RoundUpdate) -> ParticipantNotice:
        """Return the facts that this client was told of the round with this many participants."""
        agreed = self.client.agreed_participants or {}
        return ParticipantNotice(self.round, participants, self.digest_of_training(update), agreed)

    def not_signed(self, client: int) -> Refusal:
        """Return the refusal of a peer's invalid signature.

        A client cannot distinguish forged keys of a peer from genuine keys of a peer that was sent another model: only
        the server could tell it that peer's digest, and the server may lie. So one code covers both cases. An honest
        server leaves out either kind beforehand.
        """
        if self.parameters.model_binding == "none":
            return Refusal("aggregation.forged-keys", f"client {client} has not signed the keys shown for it")
        return Refusal(
            "aggregation.keys-or-model-mismatch",
            f"client {client} has not signed the keys shown for it with the model that this client was sent: "
            "it was sent another, or they are forged",
        )
