"""Lotto, client-centric variant (Jiang et al., arXiv 2401.02880, section 3.4): clients select themselves.

Each client evaluates a verifiable random function on the round number under a key that the PKI made for it, and
stands as candidate when the result falls below the threshold. The server cannot predict who will, and participants
verify each other's proofs.
"""

from typing import ClassVar, Literal

from pydantic import Field

from testbed.network.contract import ids
from testbed.parties.client import RoleSpec, handles
from testbed.selection.contract import Selection, SelectionRound
from testbed.selection.lotto.announcement import AnnouncedClient, AnnouncingServer
from testbed.selection.lotto.candidacy import proves, under_threshold
from testbed.selection.lotto.messages import Announce, Candidacy
from testbed.selection.lotto.parameters import AnnouncedParameters, LottoParameters
from testbed.selection.lotto.stages import STAGES


class ClientCentricParameters(AnnouncedParameters, LottoParameters):
    """Clients select themselves with a verifiable random function."""

    stages: ClassVar[tuple[str, ...]] = ("lotto/announce", "lotto/participants", "lotto/signatures")

    protocol: Literal["lotto-client-centric"] = "lotto-client-centric"
    unselected: Literal["silent", "acknowledge"] = Field(
        "acknowledge",
        description="What clients that are not selected do: 'silent' costs the server the deadline (the paper), "
        "'acknowledge' a small message of each (the authors' code)",
    )


class ClientCentricClient(AnnouncedClient, answers=(Announce, *STAGES.rows)):
    """Client side."""

    parameters: ClientCentricParameters

    @handles(Announce)
    def on_announce(self, message: Announce) -> Candidacy | None:
        """Check the announcement, evaluate the VRF, and answer with number and proof if selected."""
        self.accept(message)
        output = self.evaluate(message.round)
        if under_threshold(output, self.parameters.factor, message.participants, message.population):
            return self.prove(message.round)
        return Candidacy() if self.parameters.unselected == "acknowledge" else None


class ClientCentricServer(AnnouncingServer):
    """Server side."""

    parameters: ClientCentricParameters
    stages = ClientCentricParameters.stages

    @property
    def roles(self) -> list[RoleSpec]:
        """See `SelectionProtocol.roles`."""
        return [RoleSpec(ClientCentricClient, self.parameters)]

    async def select(self, round_: SelectionRound) -> Selection:
        """See `SelectionProtocol.select`."""
        answers, refusals = await self.announce(self.pool(round_), round_)
        claims = {
            client: answer
            for client, answer in answers.items()
            if answer.output is not None and self.is_candidate(client, answer, round_)
        }
        candidates = ids(list(claims))
        self.require_candidates(candidates, round_, refusals)
        entries = self.entries(self.choose(candidates, round_), claims, round_)
        return await self.agree(entries, len(claims), round_)

    def is_candidate(self, client: int, claim: Candidacy, round_: SelectionRound) -> bool:
        """Check a claim as the participants will: one false candidate must not be able to end everybody's round."""
        if client not in round_.directory or claim.output is None or claim.proof is None:
            return False
        if self.dropped[client]:
            detail = "claimed to be a candidate and is not in the refined population"
            round_.network.record_event(f"client:{client}", "misbehaviour", detail)
            return False
        vrf_input = self.selection_input(round_)
        s, factor = self.parameters.participants, self.parameters.factor
        if not proves(claim, round_.directory.vrf_key(client), vrf_input) or not under_threshold(
            claim.output, factor, s, self.population
        ):
            round_.network.record_event(f"client:{client}", "misbehaviour", "claimed to be a candidate and is not")
            return False
        return True
