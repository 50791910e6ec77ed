"""Compute costs of the work on shares (`testbed.emulation.compute.cost`)."""

from testbed.crypto.prime_field import ELEMENT_BYTES
from testbed.crypto.share_test import ShareTest
from testbed.emulation.compute.cost import meter


def charge_shares(test: ShareTest) -> None:
    """Charge a client for evaluating, committing to and sealing a row per member, and for combining the polynomials."""
    code, combinations = test.code, test.combinations
    meter("x25519.agree", test.holders)
    meter("mask.element", code.private * code.piece_length + combinations * (code.needed + code.piece_length))
    meter("field.multiply", code.needed * (test.holders * test.row_length + combinations * code.piece_length))
    meter("sha256.byte", test.holders * ELEMENT_BYTES * test.row_length)
    meter("aead.seal", test.holders)
    meter("aead.byte", test.holders * ELEMENT_BYTES * test.row_length)


def charge_opening(test: ShareTest, clients: int) -> None:
    """Charge a member for opening the clients' rows, comparing them with the commitments, and testing them.

    Args:
        test: the degree test of the shares.
        clients: number of clients with rows.
    """
    tested = clients * test.combinations * test.code.piece_length
    meter("x25519.agree", clients)
    meter("aead.open", clients)
    meter("aead.byte", ELEMENT_BYTES * clients * test.row_length)
    meter("sha256.byte", ELEMENT_BYTES * clients * test.row_length)
    meter("mask.element", tested)
    meter("field.multiply", tested)


def charge_values(test: ShareTest, clients: int) -> None:
    """Charge the server for hashing the clients' commitments and evaluating their responses for every member.

    Args:
        test: the degree test of the shares.
        clients: number of clients with commitments.
    """
    meter("sha256.byte", 32 * clients * test.holders)
    meter("field.multiply", clients * test.response_length * test.holders)
