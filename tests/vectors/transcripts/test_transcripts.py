"""The published transcripts equal the protocols' messages, byte for byte, and are consistent by themselves."""

import json
import re
from typing import Any

import numpy as np
import pytest

from testbed.messages import Message, decode, encode
from tests.vectors.transcripts.write import EXPERIMENTS, HERE, as_text, transcript

NAMES = sorted(EXPERIMENTS)
WITHOUT = r"\.(lightsecagg|flamingo)\."


def kinds(of: type[Message] = Message) -> dict[str, type[Message]]:
    """All types of messages of these protocols by name; LightSecAgg's and Flamingo's have no transcript."""
    found: dict[str, type[Message]] = {}
    for kind in (one for one in of.__subclasses__() if not re.search(WITHOUT, one.__module__)):
        found |= {kind.__name__: kind, **kinds(kind)}
    return found


@pytest.fixture(params=NAMES)
def published(request: pytest.FixtureRequest) -> Any:
    return json.loads((HERE / f"{request.param}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_the_protocol_still_says_the_same(name: str) -> None:
    """After a deliberate change: `python -m tests.vectors.transcripts.write`."""
    assert as_text(transcript(name)) == (HERE / f"{name}.json").read_text()


def test_the_sum_is_that_of_the_survivors(published: Any) -> None:
    bits = published["experiment"]["aggregation"]["bits"]
    rows = [published["quantised"][str(client)] for client in published["survivors"]]
    assert (np.sum(rows, axis=0) % 2**bits).tolist() == published["sum"]
    assert published["sum"][-1] == published["weight"] == sum(published["samples"][c] for c in published["survivors"])
    updates, samples = (np.array(published[key], float)[published["survivors"]] for key in ("updates", "samples"))
    step = 2 / (2 ** published["experiment"]["aggregation"]["levels_bits"] - 1)
    assert np.abs(np.average(updates, axis=0, weights=samples) - published["mean"]).max() <= step


def test_somebody_left_and_was_unmasked(published: Any) -> None:
    assert set(published["survivors"]) < set(published["participants"])
    revealed = [row for row in published["messages"] if row["type"] == "RevealedShares"]
    assert {row["from"] for row in revealed} >= set(published["survivors"])  # one left out with its batch helps


def test_inputs_are_masked(published: Any) -> None:
    masked = [row for row in published["messages"] if row["type"].startswith("Masked")]
    assert {row["from"] for row in masked} >= set(published["survivors"])
    for row in masked:
        sent = decode(kinds()[row["type"]], bytes.fromhex(row["message"]))
        assert sent.input.values.tolist() != published["quantised"][str(row["from"])]  # type: ignore[attr-defined]


def test_every_message_decodes_to_itself(published: Any) -> None:
    known = kinds()
    for row in published["messages"]:
        data = bytes.fromhex(row["message"])
        assert encode(decode(known[row["type"]], data)) == data
        for part in row.get("private", {}).values():
            assert encode(decode(known[row["private_type"]], bytes.fromhex(part))) == bytes.fromhex(part)
