"""What dishonest clients do for a malicious Lotto server: they go along with whatever it shows them.

They answer, sign and agree without a single check, so that the only obstacle is what honest clients see. Where the
server behaves, they do what honest clients do.
"""

from testbed.parties.client import handles
from testbed.parties.round_beacon import randomness_of
from testbed.selection.lotto.client import LottoClient
from testbed.selection.lotto.messages import (
    Agreed,
    ListSignature,
    ListSignatures,
    ParticipantList,
    list_content,
)


class Accomplice(LottoClient):
    """Signs every list, however many it is shown, and agrees with all signatures.

    Attributes:
        shown: the last list; None: none yet.
    """

    shown: ParticipantList | None = None

    def check_population(self, population: int) -> None:
        """Any population will do."""

    def take_pulse(self, number: int, pulse: bytes | None) -> None:
        """Whatever it is told."""
        self.randomness = b"" if pulse is None else randomness_of(pulse)

    def use_round(self, number: int) -> None:
        """Any round will do."""
        self.client.last_round = number
        self.client.agreed_participants = None
        self.progress.begin(number)

    @handles(ParticipantList)
    def on_list(self, message: ParticipantList) -> ListSignature:
        """Sign whatever is shown."""
        self.shown = message
        self.client.last_round = message.round
        return self.sign(list_content(self.environment.experiment_id, self.parameters, message))

    @handles(ListSignatures)
    def on_signatures(self, message: ListSignatures) -> Agreed:
        """Take part with whoever is in the list, and in the others of this round."""
        rows = () if self.shown is None else self.shown.participants
        others = self.client.agreed_participants or {}
        self.client.agreed_participants = others | {entry.client: entry.registration_key for entry in rows}
        return Agreed()


_MADE: dict[type[LottoClient], type[LottoClient]] = {}


def accomplice_of(role: type[LottoClient]) -> type[LottoClient]:
    """The role of an accomplice where honest clients play `role`: it stands, and proves, as they do."""
    if role not in _MADE:
        _MADE[role] = type(f"{role.__name__}Accomplice", (Accomplice, role), {})
    return _MADE[role]
