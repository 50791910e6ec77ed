"""Who a client is in one round of secure aggregation: its secrets and signatures, and whom it takes part with.

Each protocol's participant has a table of which question it answers when (`testbed.parties.client`).
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
    """One that comes after one state alone; the first begins the round. Refused elsewhere by the name of `check`."""
    return Transition(sources={after}, target=then, refusal=check, starts_round=after == "new")


def check_signers(rows: Sequence[SignatureOf], allowed: Set[int], needed: int, *, protocol: str, signers: str) -> None:
    """Refuse signatures of too few clients: where t of n must sign the same, two of the same client count once.

    Args:
        rows: the signatures that the server shows.
        allowed: the clients whose signatures count.
        needed: t.
        protocol: the first part of the refusals' names.
        signers: what a client in `allowed` is called, e.g. "member".
    """
    signed = {row.client for row in rows}
    if len(signed) != len(rows) or not signed <= allowed:
        raise Refusal(f"{protocol}.foreign-signature", f"a signature twice, or of somebody who is no {signers}")
    if len(rows) < needed:
        raise Refusal(f"{protocol}.too-few-signatures", f"{len(rows)} signatures, threshold {needed}")


class BindsModel(Protocol):
    """What a participant needs of its protocol's parameters."""

    @property
    def model_binding(self) -> str:
        """Whether what was trained is ``signed`` with keys, or ``none`` of it."""


class Participant(NoisyRole):
    """One participant of one round.

    Attributes:
        progress: how far it has come.
        round: the round that it takes part in.
    """

    STAGES: ClassVar[StageTable]
    parameters: Any  # what `BindsModel` says, at least

    def __init__(self, client: Client, parameters: BindsModel) -> None:
        super().__init__(client, parameters)
        self.progress = self.STAGES.progress()
        self.round = -1

    @property
    def number(self) -> int:
        """The client's."""
        return self.client.number

    @property
    def identity(self) -> Identity:
        """The client's key pairs."""
        assert self.client.identity is not None
        return self.client.identity

    def shared_key(self, peer: int, purpose: bytes) -> bytes:
        """Return the 32 bytes that this client and a peer agree on for one purpose, by the keys that the PKI knows."""
        return memo.agree(self.identity.agreement, self.environment.directory.agreement_key(peer), purpose)

    def secret(self, purpose: str) -> bytes:
        """32 secret bytes of this round for one purpose."""
        return self.environment.randomness.secret(self.number, self.round, f"secagg {purpose}")

    def sign(self, domain: bytes, content: bytes) -> bytes:
        """The client's signature."""
        meter("ed25519.sign")
        return self.identity.signing.sign(domain + self.environment.experiment_id, content)

    def verify(self, registered: bytes, domain: bytes, content: bytes, signature: bytes) -> None:
        """Raise `InvalidSignature` unless it is one of the registered key's."""
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
        """Refuse unless all of these signatures verify: the first that does not says why.

        Where it is known here that all do, as another participant was shown the same, none is looked at. That is
        charged as if each had been.

        Args:
            domain: of the signatures.
            common: what all contents follow from.
            said: by client, what its content follows from beside that; and, last, its signature.
            content_of: what a client has signed.
            refusal: of a client's signature that does not verify.
            shown_to_all: whether other participants are shown the same.
            but: whose is not to be looked at.
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
        """Refuse unless these clients have all signed the same `content`; the arguments are `check_signatures`'."""
        signed = {row.client: (row.signature,) for row in rows}
        self.check_signatures(domain, content, signed, lambda client: content, refusal, shown_to_all=shown_to_all)

    def _known_to_be_signed(
        self, domain: bytes, common: bytes, signed: Mapping[int, tuple[bytes, ...]], content_of: Callable[[int], bytes]
    ) -> bool:
        try:
            keys = {client: self.registered(client) for client in signed}
        except Refusal:  # somebody whom the PKI does not know: is refused where each is looked at
            return False
        role, experiment = f"{type(self).__module__} {type(self).__qualname__}", self.environment.experiment_id
        rows = [(client, key, *signed[client]) for client, key in keys.items()]
        return memo.verify_all(
            signed_content(role, domain, experiment, common, rows),
            lambda: ((key, domain + experiment, content_of(c), signed[c][-1]) for c, key in keys.items()),
        )

    def registered(self, client: int) -> bytes:
        """A peer's signing key: of the list that was agreed on, and from nowhere else where one was."""
        agreed = self.client.agreed_participants
        return agreed[client] if agreed is not None else self.environment.directory.signing_key(client)

    def check_size(self, participants: int) -> None:
        """Refuse a round of so many, where no honest server has such."""
        agreed = self.client.agreed_participants
        if self.environment.participants_are_agreed and agreed is None:
            raise Refusal("secagg.not-agreed", "no participant list was agreed on in this round")
        if agreed is not None and participants != len(agreed):
            raise Refusal("secagg.other-participants", f"{participants} announced, {len(agreed)} agreed on")
        if participants < 2:
            raise Refusal("secagg.alone", "the sum of one update hides nothing")
        fewest = self.environment.minimum_participants
        if participants < fewest:
            raise Refusal("secagg.too-few-participants", f"{participants} announced, never fewer than {fewest}")
        most = self.environment.maximum_participants
        if participants > most:
            raise Refusal("secagg.too-many-participants", f"{participants} announced, never more than {most}")

    def quantised_update(self, update: RoundUpdate) -> Quantised:
        """Return the `(d+1,)` elements of an update with its weight, made when they are needed (`Quantisation`)."""
        weight = update.samples if self.parameters.weights == "samples" else 1
        coins = self.environment.randomness.simulation_key(self.number, self.round, "stochastic rounding")
        quantisation: Quantisation = self.parameters.quantisation
        return quantisation.quantised(np.asarray(update.delta, np.float32), weight, coins)

    def under_masks(self, elements: npt.NDArray[Any] | Elements, masks: Masks) -> Vector:
        """Return `(d,)` elements of the ring under masks; read-only.

        Masks stay seeds until somebody looks where `Environment.symbolic_masks` says so.
        """
        bits = self.parameters.bits
        if self.environment.symbolic_masks:
            return MaskedVector(elements, bits, masks)
        masked = np.asarray(elements)
        masks.add_to(masked, bits)
        masked.setflags(write=False)  # as symbolic masks are
        return Vector(masked, bits)

    def digest_of_training(self, update: RoundUpdate) -> bytes:
        """What stands for all that the update was trained from, in what is signed; empty where nothing is to."""
        if self.parameters.model_binding == "none":
            return b""
        return training_digest(update.question, anew=self.environment.compute.measured)

    def notice(self, participants: int, update: RoundUpdate) -> ParticipantNotice:
        """Return what this client was told of the round, with so many participants."""
        agreed = self.client.agreed_participants or {}
        return ParticipantNotice(self.round, participants, self.digest_of_training(update), agreed)

    def not_signed(self, client: int) -> Refusal:
        """What a peer's signature that does not verify says.

        A client cannot tell forged keys from genuine ones of a peer that was sent another model: only the server could
        tell it that peer's digest, and it may lie. So one name says both; an honest server leaves either out before.
        """
        if self.parameters.model_binding == "none":
            return Refusal("secagg.forged-keys", f"client {client} has not signed the keys shown for it")
        return Refusal(
            "secagg.other-keys-or-training",
            f"client {client} has not signed the keys shown for it with the model that this client was sent: "
            "it was sent another, or they are forged",
        )
