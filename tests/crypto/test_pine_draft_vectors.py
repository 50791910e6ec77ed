"""PINE against the vectors of draft-chen-cfrg-vdaf-pine's repository, byte for byte."""

import hashlib
from typing import Any

import numpy as np
import pytest

from testbed.crypto import field64
from testbed.crypto.field64 import Elements
from testbed.crypto.pine import IDENTIFIER, PineVdaf
from testbed.crypto.xof import XofHmacSha256Aes128
from tests.crypto.draft_pine import DraftPine, OlderDraftPine
from tests.crypto.published import vectors
from tests.crypto.turboshake import XofTurboShake128

PUBLISHED = vectors("pine/draft_chen_cfrg_vdaf_pine_01_hmac_sha256_aes128")
KEY, NONCE, RAND = (bytes.fromhex(PUBLISHED[name]) for name in ("verify_key", "nonce", "rand"))
SEEDS = [RAND[first : first + 32] for first in range(0, len(RAND), 32)]
OLDER = vectors("pine/draft_chen_cfrg_vdaf_pine_01")


def function(vector: dict[str, Any], kind: type[PineVdaf] = DraftPine) -> PineVdaf:
    assert vector["proofs_norm_equality"] == 1
    return kind(
        vector["dimension"], vector["l2_norm_bound"], vector["chunk_length"], vector["chunk_length_norm_equality"],
        XofHmacSha256Aes128, int(PUBLISHED["identifier"], 16), vector["proofs"], vector["num_wr_checks"],
        vector["num_wr_successes"],
    )  # fmt: skip


def measurement(vector: dict[str, Any], report: dict[str, Any]) -> Any:
    ones = np.zeros(vector["dimension"], np.int64)
    ones[report["one_at"]] = 2 ** vector["num_frac_bits"]
    return ones


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("vector", PUBLISHED["vectors"], ids=lambda vector: str(vector["number"]))
def test_the_drafts_vectors_match_in_all_bytes(vector: dict[str, Any]) -> None:
    pine, totals = function(vector), []
    for expected in vector["reports"]:
        report = pine.shard(measurement(vector, expected), NONCE, SEEDS)
        assert report.public.hex() == expected["public_share"]
        assert report.leader[:32].hex() == expected["leader_share_begins"]
        assert len(report.leader) == pine.leader_bytes == expected["leader_share_bytes"]
        assert sha256(report.leader) == expected["leader_share_sha256"]
        assert report.helper.hex() == expected["helper_share"]
        shares = [report.leader, report.helper]
        prepared = [pine.prepare(i, KEY, NONCE, report.public, share) for i, share in enumerate(shares)]
        assert [one.share[:32].hex() for one in prepared] == expected["prep_shares_begin"]
        assert [sha256(one.share) for one in prepared] == expected["prep_shares_sha256"]
        assert [sha256(field64.to_bytes(one.output)) for one in prepared] == expected["out_shares_sha256"]
        message = pine.combined(prepared[0].share, prepared[1].share)
        assert message.hex() == expected["prep_message"]
        assert message == prepared[0].seeds == prepared[1].seeds
        totals.append([one.output for one in prepared])
    sums = [field64.add(*outputs) for outputs in zip(*totals, strict=True)]
    assert [sha256(field64.to_bytes(total)) for total in sums] == vector["agg_shares_sha256"]
    result = field64.to_signed(field64.add(*sums)) / 2 ** vector["num_frac_bits"]
    assert np.flatnonzero(result).tolist() == vector["agg_result_ones"]
    assert set(result.tolist()) == {0.0, 1.0}


def test_there_are_eight_vectors() -> None:
    assert [vector["number"] for vector in PUBLISHED["vectors"]] == list(range(8))


def test_the_shipped_function_has_an_identifier_of_its_own() -> None:
    """It differs from the draft's in the public share and the proofs, so the draft's identifier must not name it."""
    vector = PUBLISHED["vectors"][0]
    draft, own = function(vector), PineVdaf(20, 128, 150, 4)
    assert (own.identifier, own.identifier == draft.identifier) == (IDENTIFIER, False)
    expected = vector["reports"][0]
    under_the_drafts = function(vector, PineVdaf).shard(measurement(vector, expected), NONCE, SEEDS)
    assert under_the_drafts.public.hex() != expected["public_share"]
    assert under_the_drafts.helper.hex() == expected["helper_share"]


# -- the older vector --------------------------------------------------------------------------------------------------


def older() -> tuple[PineVdaf, bytes, bytes, list[bytes]]:
    """Return the function, the verification key, the nonce and the seeds."""
    pine = OlderDraftPine(
        OLDER["dimension"], OLDER["l2_norm_bound"], OLDER["chunk_length"], OLDER["chunk_length_norm_equality"],
        XofTurboShake128, 0xFFFFFFFF,
    )  # fmt: skip
    key, nonce, rand = (bytes.fromhex(OLDER[name]) for name in ("verify_key", "nonce", "rand"))
    return pine, key, nonce, [rand[first : first + 16] for first in range(0, len(rand), 16)]


@pytest.mark.parametrize("number", [0, 1])
def test_the_older_vector(number: int) -> None:
    expected = OLDER["reports"][number]
    pine, key, nonce, seeds = older()
    report = pine.shard(measurement(OLDER, expected), nonce, seeds)
    assert report.leader.hex().startswith(expected.get("leader_share_begins", ""))
    assert report.leader.hex().endswith(expected["leader_share_ends"])
    assert report.helper.hex() == OLDER["helper_share"]
    assert report.public.hex() == expected.get("public_share", report.public.hex())
    shares = [report.leader, report.helper]
    prepared = [pine.prepare(i, key, nonce, report.public, share) for i, share in enumerate(shares)]
    for i, one in enumerate(prepared):
        assert len(one.share) == pine.prepare_bytes
        assert one.share.hex().startswith(expected["prep_shares_begin"][i])
        assert one.share.hex().endswith(expected.get("prep_shares_end", ["", ""])[i])
    message = pine.combined(prepared[0].share, prepared[1].share)
    assert message.hex() == expected["prep_message"]
    assert message == prepared[0].seeds == prepared[1].seeds


def test_the_older_vectors_sum() -> None:
    pine, key, nonce, seeds = older()
    shares: list[list[Elements]] = [[], []]
    for expected in OLDER["reports"]:
        report = pine.shard(measurement(OLDER, expected), nonce, seeds)
        for i, share in enumerate([report.leader, report.helper]):
            shares[i].append(pine.prepare(i, key, nonce, report.public, share).output)
    totals = [field64.add(*outputs) for outputs in shares]
    assert [field64.to_bytes(total).hex() for total in totals] == OLDER["agg_shares"]
    assert (field64.to_signed(field64.add(*totals))[:2] / 16).tolist() == OLDER["agg_result"]
