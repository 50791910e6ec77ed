"""Dishonest clients of LightSecAgg, each of which can end a round: the protocol assumes clients that follow it.

Coded pieces stay secret until the survivors are summed, and holders sum them. So the server receives a sum in which no
single client's part can be distinguished.
"""

from typing import ClassVar

import numpy as np

from testbed.adversary.misbehaviour import ClientMisbehaviour
from testbed.aggregation.lightsecagg.client import LightSecAggClient
from testbed.aggregation.lightsecagg.messages import PieceFor, PiecesForPeers, ShareMasks, SummedPieces, SumPieces
from testbed.crypto.prime_field import elements_to_bytes, uniform
from testbed.parties.client import Role, handles

_LIGHTSECAGG = ("lightsecagg",)


class SealUnopenablePieces(ClientMisbehaviour, LightSecAggClient):
    """Seals pieces of its mask that cannot be opened: each holder refuses to sum, and the round ends.

    The refusals name the client. No holder can prove its refusal to the server.
    """

    name: ClassVar[str] = "seal-unopenable-pieces"
    applies_to: ClassVar[tuple[str, ...]] = _LIGHTSECAGG
    extends: ClassVar[type[Role]] = LightSecAggClient

    @handles(ShareMasks)
    def on_share_masks(self, message: ShareMasks) -> PiecesForPeers:
        """Flip a bit of each sealed piece."""
        honest = super().on_share_masks(message)
        if not self.attacks(message.round):
            return honest
        self.record_attack(SealUnopenablePieces, f"{len(honest.pieces)} pieces that do not open")
        return PiecesForPeers([PieceFor(piece.client, _first_bit_flipped(piece.sealed)) for piece in honest.pieces])


class DealOtherPieces(ClientMisbehaviour, LightSecAggClient):
    """Seals pieces that belong to no mask: the sum is implausible, and the client is not identified."""

    name: ClassVar[str] = "deal-inconsistent-shares"
    applies_to: ClassVar[tuple[str, ...]] = _LIGHTSECAGG
    extends: ClassVar[type[Role]] = LightSecAggClient

    def coded_pieces(self, holders: list[int]) -> list[PieceFor]:
        """Return pieces of a different mask for each holder."""
        if not self.attacks(self.round):
            return super().coded_pieces(holders)
        self.record_attack(DealOtherPieces, f"{len(holders) - 1} pieces that belong to no mask")
        mask_seed, pieces = self.mask_seed, []
        for holder in holders:
            if holder != self.number:
                self.mask_seed = self.secret(f"other mask for {holder}")
                pieces += super().coded_pieces([holder])
        self.mask_seed = mask_seed
        self.own_piece = np.zeros(self.code.piece_length, np.uint32)
        return pieces


class AnswerWrongPieces(ClientMisbehaviour, LightSecAggClient):
    """Answers with another sum than that of its pieces: the sum is implausible, and the client is not identified.

    The server decodes the U answers with the lowest client numbers; other answers have no effect.
    """

    name: ClassVar[str] = "answer-wrong-sum"
    applies_to: ClassVar[tuple[str, ...]] = _LIGHTSECAGG
    extends: ClassVar[type[Role]] = LightSecAggClient

    @handles(SumPieces)
    def on_sum_pieces(self, message: SumPieces) -> SummedPieces:
        """Answer with uniform elements."""
        answer = super().on_sum_pieces(message)
        if not self.attacks(message.round):
            return answer
        self.record_attack(AnswerWrongPieces, f"a sum of {self.code.piece_length} elements that it has made up")
        return SummedPieces(elements_to_bytes(uniform(self.secret("wrong sum"), self.code.piece_length)))


def _first_bit_flipped(sealed: memoryview) -> memoryview:
    # One bit is enough: authenticated encryption does not open changed bytes.
    return memoryview(bytes([sealed[0] ^ 1]) + bytes(sealed[1:]))
