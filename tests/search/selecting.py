"""The server's decisions in selections with a verified and signed list: Lotto, verifiable batches.

It may announce any round number and population to any client, draw several lists from the candidates, show each client
any of them, and show any signatures. Its accomplices sign every list; it knows their outputs for all rounds in advance.
"""

from itertools import combinations
from typing import Any

from testbed.crypto import prf
from testbed.crypto.sortition import under_threshold
from testbed.selection.lotto.messages import (
    LIST_DOMAIN,
    Announce,
    ListSignatures,
    ParticipantEntry,
    ParticipantList,
    SignedBy,
    selection_input,
)
from testbed.selection.lotto.variants import ServerCentricClient
from testbed.selection.verifiable_batch_partition import Prove, VerifiableBatchPartitionParameters, candidate_batches
from tests.search.beacon import Opening
from tests.search.choices import Choices
from tests.search.knowledge import Knowledge
from tests.search.world import Clients

Group = frozenset[int]


class Selecting:
    """The selection of one round.

    Args:
        clients: the honest clients.
        knowledge: the server's knowledge, extended here.
        choices: its decisions.
        number: the round.
        beacon: opens rounds; None: no beacon.
    """

    def __init__(
        self, clients: Clients, knowledge: Knowledge, choices: Choices, number: int, beacon: Any = None
    ) -> None:
        self.clients, self.knowledge, self.choices, self.number = clients, knowledge, choices, number
        self.opening = Opening(clients.federation.plan, beacon, number)
        self.federation = clients.federation
        self.parameters: Any = self.federation.selection
        self.population = self.federation.mix.population
        self.batches = self.federation.environment.batches
        self.accomplices = sorted(self.federation.mix.accomplices)
        self.by_batches = isinstance(self.parameters, VerifiableBatchPartitionParameters)
        self.announces = not any(issubclass(spec.role, ServerCentricClient) for spec in self.federation.plan.roles)
        self.claims: dict[int, tuple[bytes, bytes]] = {}  # by client, its number and proof
        self.shown: dict[int, Group] = {}  # by client, the list that it has signed
        self.signed: dict[int, tuple[bytes, bytes]] = {}  # by client, content and signature

    def run(self) -> dict[int, Group]:
        """Return the list that each honest client has agreed on (other clients are absent)."""
        heard_before = dict(self.clients.heard)
        self.choices.begin()
        self.announce_all()
        self.choices.begin()
        lists = self.lists()
        self.show_all(lists)
        agreed = {}
        for client in sorted(self.shown):
            if self.sign_round(client):
                agreed[client] = self.shown[client]
                self.knowledge.agreed[self.number, client] = self.shown[client]
                wrong = sorted(member for member in self.shown[client] if not self.may_be_listed(member))
                if wrong:
                    self.knowledge.stuffed.append((client, self.number, wrong))
                before = heard_before.get(client, 0)
                if self.announces and self.number - before > 1:
                    self.knowledge.skipped.append((client, before, self.number))
        return agreed

    def may_be_listed(self, member: int) -> bool:
        """Return whether a participant was a candidate, computed from the PKI's keys."""
        output, _ = self.entry_of(member, self.evaluated())
        if not self.by_batches:
            return self.stands(output)
        assert self.batches is not None
        mates = self.batches.members([int(self.batches.of[member])]).tolist()
        outputs = {mate: self.entry_of(mate, self.evaluated())[0] for mate in mates}
        known = self.federation.environment.experiment_id, self.number, self.population
        return len(candidate_batches(self.parameters, self.batches, outputs, *known)) == 1

    # -- announcing -------------------------------------------------------------------------------------------------

    def announce_all(self) -> None:
        """Announce the round and the population; collect (or compute) outputs."""
        asked = self.evaluated()
        stuffed = self.choices.pick(4, 0.9)  # with accomplices that are no candidates; with another number
        for client in self.accomplices:
            output, proof = self.entry_of(client, asked)
            if stuffed or self.stands(output):
                self.claims[client] = (bytes(len(output)) if stuffed == 2 else output), proof
        if not self.announces:
            for client in self.federation.honest:
                entry = self.entry_of(client, asked)
                if self.stands(entry[0]):
                    self.claims[client] = entry
            return
        heard = [c for c in self.federation.honest if not self.choices.pick(2, 0.97)]
        for client in heard:
            population = self.population + (0, 1, -1)[self.choices.pick(3, 0.97)]
            answer = self.clients.ask(client, self.announcement(population), about=(self.number, population))
            if answer is None or answer.output is None:
                continue
            if self.by_batches:
                proof = self.clients.ask(client, Prove(self.number))
                if proof is not None:
                    self.claims[client] = answer.output, proof.proof
            elif answer.proof is not None:
                self.claims[client] = answer.output, answer.proof

    def stands(self, output: bytes) -> bool:
        """Return whether this number makes a candidate (for batches this is checked later)."""
        s, n = self.parameters.participants, self.population
        return self.by_batches or under_threshold(output, self.parameters.factor, s, n)

    def announcement(self, population: int) -> Announce:
        """Return the message that begins the round."""
        factor = self.parameters.factor
        s = self.parameters.participants
        return self.opening.announced(Announce(self.number, population, s, factor.numerator, factor.denominator))

    def evaluated(self) -> bytes:
        """Return the input of the outputs in this round."""
        return selection_input(self.federation.environment.experiment_id, self.number, *self.opening.randomness)

    def entry_of(self, client: int, asked: bytes) -> tuple[bytes, bytes]:
        """Return an accomplice's entry, or in the server-centric variant any client's."""
        if not self.announces:
            return prf.evaluate(self.federation.environment.directory.vrf_key(client), asked), b""
        secret = self.federation.identities[client].vrf
        assert secret is not None
        return secret.prove(asked)

    # -- lists ------------------------------------------------------------------------------------------------------

    def lists(self) -> list[Group]:
        """Return one to three lists of the right size: accomplices first, then any others."""
        units = [[client] for client in sorted(self.claims, key=lambda one: (one not in self.accomplices, one))]
        wanted = self.parameters.participants
        if self.by_batches:
            assert self.batches is not None
            outputs = {client: output for client, (output, _) in self.claims.items()}
            known = self.federation.environment.experiment_id, self.number, self.population
            standing = candidate_batches(self.parameters, self.batches, outputs, *known)
            units = [self.batches.members([batch]).tolist() for batch in standing]
        ours = [unit for unit in units if set(unit) & set(self.accomplices)]
        rest = [unit for unit in units if unit not in ours]
        found = []
        for place in range(1 + self.choices.pick(3, 0.7)):
            begin = self.choices.pick(max(1, len(rest)), 0.2) + place * (wanted - len(ours))
            with_ours = not self.choices.pick(2, 0.8)
            turned = rest[begin % max(1, len(rest)) :] + rest[: begin % max(1, len(rest))]
            members: list[int] = []
            for unit in [*(ours if with_ours else []), *turned]:
                if len(members) + len(unit) <= wanted:
                    members += unit
            found.append(frozenset(members))
        if self.choices.pick(2, 0.95):  # a list of the wrong size
            found.append(frozenset(list(found[0])[1:]))
        return found

    def show_all(self, lists: list[Group]) -> None:
        """Show each client a list that contains it, sometimes another, or a second list."""
        for client in self.federation.honest:
            fitting = [one for one in lists if client in one]
            if self.choices.pick(2, 0.97):
                fitting = lists
            if not fitting:
                continue
            self.show(client, fitting[self.choices.pick(len(fitting))])
            if self.choices.pick(2, 0.95):
                self.show(client, lists[self.choices.pick(len(lists), 0)])

    def show(self, client: int, members: Group) -> None:
        """Show a client a list."""
        directory = self.federation.environment.directory
        rows = [ParticipantEntry(one, directory.signing_key(one), *self.claims[one]) for one in sorted(members)]
        population = self.population + self.choices.pick(2, 0.98)
        message = self.opening.listed(ParticipantList(self.number, population, rows))
        answer = self.clients.ask(client, message, about=(self.number, population, members))
        if answer is not None:
            role = self.clients.role(client, ParticipantList)
            self.shown[client] = members
            self.signed[client] = role.content, answer.signature

    def sign_round(self, client: int) -> bool:
        """Show a client the signatures on its list; return whether it agrees."""
        content, _ = self.signed[client]
        rows = []
        for signer in sorted(self.shown[client]):
            if signer in self.accomplices:
                identity = self.federation.identities[signer]
                rows.append(SignedBy(signer, identity.signing.sign(LIST_DOMAIN, content)))
            elif signer in self.signed and (self.signed[signer][0] == content or not self.choices.pick(2, 0.5)):
                rows.append(SignedBy(signer, self.signed[signer][1]))
        return self.clients.ask(client, ListSignatures(self.number, rows), about=len(rows)) is not None


def agreeing(lists: dict[tuple[int, int], Group]) -> list[tuple[int, Group, Group]]:
    """Return (round, one list, another) for each round in which honest clients agreed on different lists."""
    by_round: dict[int, set[Group]] = {}
    for (number, _), members in lists.items():
        by_round.setdefault(number, set()).add(members)
    return [
        (number, min(pair, key=sorted), max(pair, key=sorted))
        for number, found in sorted(by_round.items())
        for pair in list(combinations(found, 2))[:1]
    ]
