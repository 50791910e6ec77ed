"""A malicious Lotto server that signs in an honest participant's name (arXiv 2401.02880, section 3.4)."""

from typing import ClassVar

import msgspec

from testbed.adversary.lotto.misbehaviour import ALL_LISTS, LottoMisbehaviour
from testbed.arrays import Ids
from testbed.crypto import signatures
from testbed.selection.lotto.messages import ListSignatures
from testbed.selection.lotto.server import GroupMessages

_replaced = msgspec.structs.replace


class ForgeSignatures(LottoMisbehaviour):
    """Replaces the signature of an honest participant by one of its own making."""

    name: ClassVar[str] = "forge-signatures"
    applies_to: ClassVar[tuple[str, ...]] = ALL_LISTS

    def signatures_for(self, signers: Ids, message: ListSignatures) -> GroupMessages:
        """Everybody gets the forged one, whatever else is done to the signatures."""
        told = super().signatures_for(signers, message)
        return [(clients, self._forged(shown)) for clients, shown in told] if self.attacking else told

    def _forged(self, message: msgspec.Struct) -> ListSignatures:
        assert isinstance(message, ListSignatures)
        victim = next((row.client for row in message.signatures if row.client not in self.dishonest), None)
        if victim is None:
            return message
        forged = signatures.SigningKey.from_seed(bytes(32)).sign(b"testbed/adversary", victim.to_bytes(8, "big"))
        self.record_attack(ForgeSignatures, f"a signature in the name of client {victim}")
        rows = [_replaced(row, signature=forged) if row.client == victim else row for row in message.signatures]
        return _replaced(message, signatures=rows)
