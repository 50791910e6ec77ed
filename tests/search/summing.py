"""The server's decisions in one round of `secagg`: training, keys, shares, inputs, survivors, unmasking.

The claims to clients are drawn from a few *stories*, because an attack needs several clients with the same. Free
actions are always taken: the server shows every fitting signature, and its accomplices sign and reveal everything.
Between the stages it may repeat any question with other contents, or send an old question again.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.secagg.messages import (
    KEYS_DOMAIN,
    MASK_KEY,
    SELF_MASK,
    SURVIVORS_DOMAIN,
    AdvertiseKeys,
    AdvertOf,
    CheckSurvivors,
    MaskInput,
    ProveShare,
    RevealedShares,
    SealedFromPeers,
    ShareKeys,
    SharesFor,
    UnmaskSurvivors,
    open_share,
    open_shares,
    seal_shares,
    sealed_bytes,
)
from testbed.aggregation.secagg.noise import PROTOCOL_SECRETS
from testbed.aggregation.secagg.share_holding import SEALING_PURPOSE
from testbed.crypto import OpeningFailed, shamir
from testbed.crypto.key_agreement import PrivateKey
from testbed.messages import Vector
from testbed.training import Train
from tests.search.choices import Choices
from tests.search.knowledge import Input, Knowledge, Secret, Update
from tests.search.stories import Group, told, units
from tests.search.world import CRAFTED_MODEL, HONEST_MODEL, Clients

AGAIN = 3  # deviations from the order of the stages, after each of them


class Summing:
    """One round of one server.

    Args:
        clients: the honest clients.
        knowledge: the server's knowledge, extended here.
        choices: its decisions.
        number: the round.
        agreed: the list of participants of each client that has agreed on one; None: the selection has no lists.
    """

    question: Any = AdvertiseKeys

    def __init__(
        self, clients: Clients, knowledge: Knowledge, choices: Choices, number: int, agreed: Mapping[int, Group] | None
    ) -> None:
        self.clients, self.knowledge, self.choices = clients, knowledge, choices
        self.number, self.agreed = number, agreed
        self.federation = clients.federation
        self.parameters = self.federation.aggregation
        self.accomplices = sorted(self.federation.mix.accomplices)
        self.batches = self.federation.environment.batches
        self.model: dict[int, bool] = {}  # by client, whether it has trained on the crafted one
        self.told_more = 0  # participants than there are, and
        self.told_less = 0  # holders than are needed
        self.filled_up = 0  # how a client that too few agree with is shown signatures
        self.adverts: dict[int, Any] = {}
        self.roles: dict[int, Any] = {}  # by client: its side of the protocol, for what is public of it
        self.listed: dict[int, Group] = {}  # by client, the owners of the shown keys
        self.replaced: dict[int, Group] = {}  # by client, the peers with keys of the server
        self.sealed: dict[int, dict[int, bytes]] = {}
        self.masked: dict[int, Group] = {}  # by client, the claimed sharers
        self.survivors: dict[int, Group] = {}
        self.signed: dict[int, tuple[bytes, bytes]] = {}  # by client, content and signature

    def run(self) -> None:
        """Run all stages; between them any question again, or an earlier stage."""
        stages = (self.train_all, self.advertise_all, self.share_all, self.mask_all, self.sign_all, self.unmask_all)
        for place, stage in enumerate(stages):
            self.choices.begin()
            stage()
            for _ in range(AGAIN):
                deviation = self.choices.pick(3, 0.93)
                if deviation == 0:
                    break
                if deviation == 1:
                    self.once_more()
                    continue
                self.choices.begin()
                for repeated in stages[place - self.choices.pick(place + 1, 0) : place + 1]:
                    repeated()

    # -- stages --------------------------------------------------------------------------------------------------

    @property
    def there(self) -> list[int]:
        """Return the honest clients of this round."""
        return self.federation.honest if self.agreed is None else sorted(self.agreed)

    def train_all(self) -> None:
        """Send the model; to some clients a crafted one."""
        crafted: Group = frozenset()
        if self.choices.pick(2, 0.9):
            spared = self.choices.some(self.there)
            crafted = frozenset(self.there) - (spared if len(spared) < len(self.there) else {self.there[0]})
        for client in self.there:
            self.train(client, client in crafted)

    def advertise_all(self) -> None:
        """Ask for keys; s and t are mostly those of the experiment."""
        self.told_more = (0, 1, -1)[self.choices.pick(3, 0.97)]
        self.told_less = self.choices.pick(3, 0.88)
        for client in self.there:
            self.advertise(client, self.size(client) + self.told_more)

    def share_all(self) -> None:
        """Show each client keys."""
        lists = self.lists()
        shown = [client for client in sorted(self.adverts) if client in lists[client] or self.choices.pick(2, 0.98)]
        told = self.told([*self.accomplices, *self.adverts], shown)
        replaced: Group = frozenset()
        if self.choices.pick(2, 0.97):
            replaced = self.choices.some(shown, 1)
        for client in shown:
            foreign = self.choices.pick(2, 0.98)  # accomplices that do not take part
            listed = lists[client] & told[client] | {client}
            self.share(client, listed | set(self.accomplices) if foreign else listed, replaced - {client})

    def mask_all(self) -> None:
        """Tell each client the sharers."""
        told = self.told([*self.accomplices, *self.sealed], sorted(self.sealed))
        for client in sorted(self.sealed):
            self.mask(client, self.listed[client] & told[client] - {client})

    def sign_all(self) -> None:
        """Tell each client the survivors."""
        if not self.masked:
            return
        told = self.told([*self.accomplices, *self.masked], sorted(self.masked))
        as_it_is = self.choices.pick(2, 0.8)
        for client in sorted(self.masked):
            self.sign(client, told[client] if as_it_is else told[client] & self.could_survive(client))

    def unmask_all(self) -> None:
        """Ask for shares wherever possible; if too few have signed, other signatures may replace theirs."""
        self.filled_up = self.choices.pick(3, 0)
        for client in sorted(self.survivors):
            self.unmask(client)

    def once_more(self) -> None:
        """Ask any question with other contents, out of order or repeatedly."""
        client = self.there[self.choices.pick(len(self.there), 0)]
        everybody = [*self.accomplices, *self.federation.honest]
        attempts: list[Callable[[], object]] = [
            lambda: self.train(client, bool(self.choices.pick(2, 0))),
            lambda: self.advertise(client, self.size(client) + self.choices.pick(3, 0) - 1),
            lambda: self.share(client, self.choices.some(everybody) | {client}),
            lambda: self.mask(client, self.listed.get(client, frozenset()) & self.choices.some(everybody) - {client}),
            lambda: self.sign(client, self.choices.some(sorted(self.could_survive(client)))),
            lambda: self.unmask(client),
            lambda: self.unsigned(client, self.choices.some(sorted(self.could_survive(client)))),
            self.clients.begin_round,
            lambda: self.again(client),
            lambda: self.prove(client),
        ]
        attempts[self.choices.pick(len(attempts), 0)]()

    # -- stories -------------------------------------------------------------------------------------------------

    def size(self, client: int) -> int:
        """Return s, as this client must be told."""
        return self.federation.environment.maximum_participants if self.agreed is None else len(self.agreed[client])

    def units(self, clients: Iterable[int]) -> list[list[int]]:
        """Return the units of stories."""
        return units(clients, self.parameters.atomic_batches(self.batches), self.accomplices)

    @property
    def least(self) -> int:
        """Return the fewest clients that a client accepts."""
        return self.parameters.threshold_for(self.size(self.there[0])) - self.told_less

    def told(self, everybody: Iterable[int], clients: list[int]) -> dict[int, Group]:
        """Return a story for each client."""
        return told(self.choices, self.units(everybody), clients, self.least)

    def lists(self) -> dict[int, Group]:
        """Return the participants that each client is told: s of all, or the agreed list."""
        if self.agreed is not None:
            return dict(self.agreed)
        units = self.units([*self.accomplices, *self.federation.honest])
        size = self.size(self.there[0])
        pools = []
        for _ in range(1 + self.choices.pick(3, 0.6)):
            begin = self.choices.pick(len(units), 0.3)
            with_all = not self.choices.pick(2, 0.8)
            ours = [unit for unit in units if set(unit) & set(self.accomplices)] if with_all else []
            rest = [unit for unit in units if unit not in ours]
            members: list[int] = []
            for unit in [*ours, *rest[begin:], *rest[:begin]]:
                if len(members) + len(unit) <= size:
                    members += unit
            pools.append(frozenset(members))
        found = {}
        for client in self.there:
            fitting = [pool for pool in pools if client in pool] or pools[:1]
            found[client] = fitting[self.choices.pick(len(fitting))]
        return found

    def could_survive(self, client: int) -> Group:
        """Return the clients that this client may be told have survived."""
        return self.masked.get(client, frozenset()) | {client}

    # -- questions to one client ----------------------------------------------------------------------------------

    def role(self, client: int) -> Any:
        """Return the client's side of the protocol."""
        return self.clients.role(client, self.question)

    def ask(self, client: int, message: Any, private: Any = None, about: object = "") -> Any:
        """Ask a client."""
        return self.clients.ask(client, message, private, about)

    def train(self, client: int, crafted: bool) -> None:
        """Have the client train."""
        model = CRAFTED_MODEL if crafted else HONEST_MODEL
        if self.ask(client, Train(self.number, Vector(model, 0)), about=crafted) is not None:
            self.model[client] = crafted

    def advertise(self, client: int, size: int) -> None:
        """Have the client make its keys."""
        advert = self.ask(client, self.advertise_question(client, size), about=size)
        if advert is not None:
            self.adverts[client], self.roles[client] = advert, self.role(client)
            self.knowledge.advertised(client, self.number, advert.mask_key)

    def advertise_question(self, client: int, size: int) -> Any:
        """Return the question that begins the aggregation."""
        return AdvertiseKeys(self.number, size, max(1, self.parameters.threshold_for(size) - self.told_less))

    def share(self, client: int, listed: Group, replaced: Group = frozenset()) -> None:
        """Show the client keys, for some peers the server's; it deals its secrets."""
        self.replaced[client] = replaced | frozenset(self.accomplices)
        rows = [
            self.advert(peer, client) for peer in sorted(listed) if peer in self.adverts or peer in self.accomplices
        ]
        answer = self.share_question(client, rows)
        if answer is None:
            return
        self.listed[client] = frozenset(row.client for row in rows)
        self.sealed[client] = {row.client: row.sealed for row in answer.shares}
        role = self.roles[client]
        self.knowledge.shared(client, self.number, role.graph.threshold)
        for holder in self.listed[client] & self.replaced[client]:
            key = self.key(holder, "sealing").agree(self.adverts[client].sealing_key, SEALING_PURPOSE)
            associated = role.associated(client, holder)
            try:
                opened = open_shares(key, client, holder, self.sealed[client][holder], associated)
            except OpeningFailed:
                continue
            self.knowledge.opened(client, self.number, holder, opened)

    def share_question(self, client: int, rows: list[AdvertOf]) -> Any:
        """Ask with these keys."""
        return self.ask(client, ShareKeys(self.number, rows), about=frozenset(row.client for row in rows))

    def mask(self, client: int, told: Group) -> None:
        """Ask for the client's input."""
        rows = [SharesFor(peer, self.shares_for(peer, client)) for peer in sorted(told)]
        answer = self.mask_question(client, rows)
        if answer is None or client not in self.listed:
            return
        self.masked[client] = frozenset(told)
        if not len(answer.input):
            return
        self.knowledge.inputs.append(self.input(client, self.roles[client], answer.input))

    def mask_question(self, client: int, rows: list[SharesFor]) -> Any:
        """Ask with these shares."""
        return self.ask(client, MaskInput(self.number), SealedFromPeers(rows), frozenset(row.client for row in rows))

    def input(self, client: int, role: Any, vector: Any) -> Input:
        """Note an input, for the server and for the search."""
        plain = np.asarray(role.encoded())
        earlier = [one for one in self.knowledge.inputs if one.update[:2] == (client, self.number)]
        same = [one.update for one in earlier if np.array_equal(one.plain, plain)]
        update = same[0] if same else Update(client, self.number, len({one.update for one in earlier}))
        if self.model[client]:
            self.knowledge.crafted.add(update)
        peers = {peer: role.adverts[peer].mask_key for peer in role.received}
        return Input(
            update,
            role.mask.public,
            peers,
            vector.values,
            plain,
            self.parameters.bits,
            role.graph.threshold,
            self.size(client),
            frozenset(role.adverts) if self.agreed is None else self.agreed[client],
        )

    def sign(self, client: int, survivors: Group) -> None:
        """Tell the client the survivors, and ask for its signature."""
        if self.parameters.consistency == "none":
            self.unsigned(client, survivors)
            return
        answer = self.ask(client, CheckSurvivors(self.number, sorted(survivors)), about=survivors)
        if answer is not None:
            self.survivors[client] = survivors
            self.signed[client] = self.roles[client].survivors_signed, answer.signature

    def signatures(self, client: int) -> list[SignatureOf]:
        """Return signatures that this client accepts, otherwise any.

        Acceptable are those of clients with the same story, and of accomplices.
        """
        role = self.roles[client]
        content, _ = self.signed[client]
        fitting: list[SignatureOf] = []
        others: list[SignatureOf] = []
        for signer in sorted({*role.signers(), *self.signed}):
            if signer in self.accomplices:
                fitting.append(SignatureOf(signer, self.signature(signer, SURVIVORS_DOMAIN, content)))
            elif signer in self.signed:
                same = self.signed[signer][0] == content and signer in role.signers()
                (fitting if same else others).append(SignatureOf(signer, self.signed[signer][1]))
        if len(fitting) < role.graph.threshold:  # it will be refused, unless a check is missing
            among = [row for row in others if row.client in role.signers()]
            fitting += ([], among[: role.graph.threshold - len(fitting)], others)[self.filled_up]
        return sorted(fitting, key=lambda row: row.client)

    def unmask(self, client: int) -> None:
        """Ask for the client's shares."""
        if client not in self.signed:
            return
        kind = self.parameters.noise_policy().unmask_kind(self.size(client))
        self.revealed(client, self.unmask_question(client, kind))

    def unmask_question(self, client: int, kind: Any) -> Any:
        """Ask with the signatures."""
        self.knowledge.asked_last.setdefault(self.number, set()).add(client)
        rows = self.signatures(client)
        return self.ask(client, kind(self.number, rows), about=frozenset(row.client for row in rows))

    def unsigned(self, client: int, survivors: Group) -> None:
        """Ask for the client's shares without signatures."""
        self.knowledge.asked_last.setdefault(self.number, set()).add(client)
        self.revealed(client, self.ask(client, UnmaskSurvivors(self.number, sorted(survivors)), about=survivors))

    def revealed(self, holder: int, answer: RevealedShares | None) -> None:
        """Note a client's revealed shares."""
        if answer is None:
            return
        kinds = {"mask key": answer.mask_keys, "self-mask seed": answer.self_masks}
        made_here = self.replaced.get(holder, frozenset())  # shares of the server's own making say nothing
        for kind, rows in kinds.items():
            for row in rows:
                if row.client in made_here:
                    continue
                self.knowledge.share(Secret(row.client, self.number, kind), holder, row.share)

    def prove(self, dealer: int) -> None:
        """Ask all holders for the keys of their shares of one kind, which open the dealer's sealed shares."""
        kind, name = ((MASK_KEY, "mask key"), (SELF_MASK, "self-mask seed"))[self.choices.pick(2)]
        for holder, sealed in sorted(self.sealed.get(dealer, {}).items()):
            if holder not in self.roles:
                continue
            answer = self.ask(holder, ProveShare(self.number, dealer, kind), about=(dealer, kind))
            if answer is None:
                continue
            try:
                share = open_share(answer.key, sealed, kind, self.roles[holder].associated(dealer, holder))
            except OpeningFailed:
                continue
            self.knowledge.share(Secret(dealer, self.number, name), holder, share)

    def again(self, client: int) -> None:
        """Repeat an old question, of this round or an earlier one."""
        earlier = [(message, private) for to, message, private in self.clients.sent if to == client]
        if earlier:
            message, private = earlier[self.choices.pick(len(earlier), 0)]
            answer = self.ask(client, message, private, "again")
            if isinstance(answer, RevealedShares):
                self.revealed(client, answer)

    # -- accomplices ----------------------------------------------------------------------------------------------

    def key(self, accomplice: int, purpose: str) -> PrivateKey:
        """Return its key pair of this round."""
        named = f"{accomplice} {self.number} {purpose}".encode()
        key = PrivateKey.from_seed(hashlib.sha256(named).digest())
        if purpose == "mask":
            self.knowledge.own(key)
        return key

    def signature(self, accomplice: int, domain: bytes, content: bytes) -> bytes:
        """Return its signature on any content."""
        signing = self.federation.identities[accomplice].signing
        return signing.sign(domain + self.federation.environment.experiment_id, content)

    def advert(self, peer: int, receiver: int) -> AdvertOf:
        """Return a peer's keys as shown to `receiver`."""
        if peer not in self.replaced[receiver]:
            advert = self.adverts[peer]
            return AdvertOf(peer, advert.sealing_key, advert.mask_key, advert.signature)
        keys = self.key(peer, "sealing").public, self.key(peer, "mask").public
        content = self.roles[receiver].advert_content(peer, *keys) if receiver in self.roles else b""
        signer = peer if peer in self.accomplices else min(self.accomplices, default=receiver)
        return AdvertOf(peer, *keys, self.signature(signer, KEYS_DOMAIN, content))

    def shares_for(self, peer: int, client: int) -> bytes:
        """Return a peer's sealed shares for `client`; an accomplice's shares are valid, so that they open."""
        secrets = PROTOCOL_SECRETS + self.parameters.noise_policy().secrets(self.size(client))
        nothing = bytes(sealed_bytes(secrets))
        if peer not in self.replaced.get(client, self.accomplices):
            return self.sealed.get(peer, {}).get(client, nothing)
        if client not in self.adverts or client not in self.listed:
            return nothing
        key = self.key(peer, "sealing").agree(self.adverts[client].sealing_key, SEALING_PURPOSE)
        shares = bytes(secrets * shamir.SHARE_BYTES)
        return seal_shares(key, peer, client, shares, self.roles[client].associated(peer, client))
