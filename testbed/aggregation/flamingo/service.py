"""Server side of the set-up of a committee of `flamingo`, and the state that the server keeps; see `set_up`."""

from collections.abc import Mapping

from testbed.aggregation.contract import AggregationRound
from testbed.aggregation.flamingo.messages import (
    SERVICE_DOMAIN,
    Certificate,
    SealedMemberState,
    Service,
    service_content,
)
from testbed.aggregation.flamingo.set_up import SetUp
from testbed.aggregation.flamingo.set_up_messages import (
    COMPLAINTS_DOMAIN,
    DEALING_DOMAIN,
    KNOWN_DOMAIN,
    AnswerComplaints,
    CheckDealings,
    ComplaintsOf,
    Deal,
    Dealing,
    DealingOf,
    DealtShares,
    FinishSetUp,
    Former,
    KeptService,
    Serving,
    ShareInTheOpen,
    StateOf,
    complaints_content,
    dealing_content,
    dealings_digest,
)
from testbed.aggregation.kit.message_parts import SignatureOf
from testbed.aggregation.kit.server_checks import at_least, record_misbehaviour, verify
from testbed.committee.choice import chosen
from testbed.committee.parameters import CommitteeSection
from testbed.crypto import InvalidShares, memo
from testbed.emulation.compute.cost import meter
from testbed.errors import ProtocolError, RoundAborted
from testbed.memory import MessageName
from testbed.network.contract import ids

_SERVICE = MessageName("flamingo service", KeptService)


async def service_of_round(round_: AggregationRound, section: CommitteeSection) -> KeptService:
    """Return the committee that serves in this round, after its set-up if its service begins now.

    A set-up that has failed is tried again in the next round with the same members. If too few members of the former
    committee have handed over, the next set-up does without it: the new members make a key of their own.

    Args:
        round_: the round.
        section: the experiment's section `committee`.

    Raises:
        RoundAborted: the set-up has failed.
    """
    stored = kept_service(round_)
    first = section.first_round_of(round_.number)
    if stored is not None and stored.certificate.service.committee.first_round == first:
        return stored
    if round_.experiment_id is None:
        raise RoundAborted("no-committee", "the server that sets up a committee must know the experiment's id")
    context = round_.number, round_.network, round_.directory, round_.experiment_id
    committee = await chosen(section, *context, round_.memory)
    former = None if stored is None else Former(stored.certificate, stored.commitments)
    states = {} if stored is None else {row.member: row.sealed for row in stored.states}
    server = ServerSetUp(round_, SetUp(round_.number, committee, former, section), states)
    try:
        made = await server.run()
    except RoundAborted:
        if former is not None and len(server.dealt) < server.set_up.needed:
            del round_.memory[_SERVICE.name]  # else a former committee that is gone would end all remaining rounds
            detail = "the former committee does not hand over; the next set-up makes a key of its own"
            round_.network.record_event("server", "committee-lost", detail)
        raise
    _SERVICE.store(round_.memory, made)
    return made


def kept_service(round_: AggregationRound) -> KeptService | None:
    """Return the stored result of the last set-up; None if there is none, or if its members now have other keys."""
    stored = _SERVICE.load(round_.memory)
    if stored is None:
        return None
    content = service_content(stored.certificate.service.digest)
    try:
        for row in stored.certificate.signatures:
            # Without a seed, a resumed run registers clients anew: nobody can open states that were sealed before.
            verify(round_, row.client, SERVICE_DOMAIN, content, row.signature)
    except ProtocolError as error:
        round_.network.record_event("server", "committee-lost", f"a committee is set up anew: {error}")
        return None
    return stored


class ServerSetUp:
    """One set-up, relayed by the server.

    Args:
        round_: the round in which it takes place.
        set_up: dealers, members and rules.
        states: by former member, the state that it has sealed for itself.
    """

    def __init__(self, round_: AggregationRound, set_up: SetUp, states: Mapping[int, bytes]) -> None:
        self.round = round_
        self.set_up = set_up
        self.states = states
        self.dealt: dict[int, Dealing] = {}
        self.checked: list[int] = []

    async def run(self) -> KeptService:
        """Deal, check, answer complaints if there are any, and finish.

        Raises:
            RoundAborted: too few clients take part in a step.
        """
        await self.deal()
        complaints = await self.check()
        answered = await self.answer(complaints)
        return await self.finish(complaints, answered)

    @property
    def dealings(self) -> list[DealingOf]:
        """Accepted dealings, in the dealers' order."""
        return [
            DealingOf(dealer, dealt.commitments, dealt.signature, dealt.proof_of_knowledge)
            for dealer in self.set_up.dealers
            if (dealt := self.dealt.get(dealer)) is not None
        ]

    async def deal(self) -> None:
        """Collect the dealings; drop every dealing that an honest member would refuse."""
        set_up = self.set_up
        states = {dealer: SealedMemberState(self.states.get(dealer, b"")) for dealer in set_up.dealers}
        # A former member without a sealed state has no share to hand over.
        if set_up.former is not None:
            states = {dealer: state for dealer, state in states.items() if dealer in self.states}
        question = Deal(set_up.round, set_up.committee, set_up.former)
        replies = await self.round.network.ask(ids(list(states)), question, private=states)
        for dealer, answer in replies.valid().items():
            content = dealing_content(set_up.digest, dealer, answer.commitments)
            try:
                set_up.check_dealing(dealer, answer.commitments)
                if len(answer.shares) != len(set_up.members):
                    raise ProtocolError("it does not have one share for every member")
                verify(self.round, dealer, DEALING_DOMAIN, content, answer.signature)
                self.check_known(answer, content)
            except ProtocolError as error:
                self.misbehaved(dealer, f"dealing: {error}")
                continue
            self.dealt[dealer] = answer
        at_least(set_up.needed, len(self.dealt), replies, "dealt to the committee")

    def check_known(self, dealing: Dealing, content: bytes) -> None:
        """Raise `ProtocolError` unless the dealer has proven that it knows the secret that it deals."""
        if self.round.experiment_id is None:
            return
        meter("ed25519.verify")
        memo.verify(
            dealing.commitments[0], KNOWN_DOMAIN + self.round.experiment_id, content, dealing.proof_of_knowledge
        )

    async def check(self) -> list[ComplaintsOf]:
        """Collect the members' complaints; a member without complaints signs an empty list."""
        set_up, dealings = self.set_up, self.dealings
        private = {
            member: DealtShares([self.dealt[dealing.dealer].shares[point - 1] for dealing in dealings])
            for member, point in set_up.members.items()
        }
        meter("message", len(dealings) * len(private))
        question = CheckDealings(set_up.round, set_up.committee, set_up.former, dealings)
        replies = await self.round.network.ask(ids(list(private)), question, private=private)
        complaints = []
        shown = dealings_digest(set_up.digest, dealings)
        for member, answer in replies.valid().items():
            content = complaints_content(shown, member, answer.against)
            try:
                verify(self.round, member, COMPLAINTS_DOMAIN, content, answer.signature)
            except ProtocolError as error:
                self.misbehaved(member, f"complaints: {error}")
                continue
            self.checked.append(member)
            if answer.against:
                complaints.append(ComplaintsOf(member, answer.against, answer.signature))
                detail = f"complains about the dealings of clients {answer.against}; one of them is dishonest"
                self.misbehaved(member, detail)
        at_least(set_up.threshold, len(self.checked), replies, "checked the dealings")
        return complaints

    async def answer(self, complaints: list[ComplaintsOf]) -> list[ShareInTheOpen]:
        """Collect the shares that the accused dealers reveal."""
        about = sorted({dealer for row in complaints for dealer in row.against if dealer in self.dealt})
        if not about:
            return []
        shown = dealings_digest(self.set_up.digest, self.dealings)
        question = AnswerComplaints(self.set_up.round, shown, complaints)
        replies = await self.round.network.ask(ids(about), question)
        # A dealer can reveal only its own shares.
        return [row for dealer, answer in replies.valid().items() for row in answer.shares if row.dealer == dealer]

    async def finish(self, complaints: list[ComplaintsOf], answered: list[ShareInTheOpen]) -> KeptService:
        """Collect the members' signatures and sealed states; t of them are needed."""
        set_up = self.set_up
        try:
            counting, _ = set_up.qualified(self.dealings, complaints, answered)
            commitments = set_up.commitments(counting)
            service = set_up.service(commitments)
        except (InvalidShares, ProtocolError) as error:
            raise RoundAborted("set-up-failed", str(error)) from None
        question = FinishSetUp(set_up.round, complaints, answered)
        # Members that have not checked the dealings cannot know that their shares are right.
        replies = await self.round.network.ask(ids(self.checked), question)
        serving: dict[int, Serving] = {}
        for member, answer in replies.valid().items():
            try:
                if answer.service != service.digest:
                    raise ProtocolError("its key is not the one that the dealings give")
                verify(self.round, member, SERVICE_DOMAIN, service_content(service.digest), answer.signature)
            except ProtocolError as error:
                self.misbehaved(member, f"set-up: {error}")
                continue
            serving[member] = answer
        at_least(set_up.threshold, len(serving), replies, "serve on the committee")
        return self.service_to_keep(service, list(commitments), serving)

    def service_to_keep(
        self, service: Service, commitments: list[bytes], serving: Mapping[int, Serving]
    ) -> KeptService:
        """Return the service to store, with t of the signatures."""
        signed = [SignatureOf(member, serving[member].signature) for member in self.set_up.members if member in serving]
        states = [StateOf(member, answer.state) for member, answer in serving.items()]
        return KeptService(Certificate(service, signed[: self.set_up.threshold]), commitments, states)

    def misbehaved(self, client: int, detail: str) -> None:
        """Record that a client has not followed the protocol."""
        record_misbehaviour(self.round, client, detail)
