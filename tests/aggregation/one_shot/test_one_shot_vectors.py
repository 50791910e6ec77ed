"""Own test vectors: derived, sealed and sent bytes of one round (long ones as SHA-256).

After a deliberate change: `python -m tests.aggregation.one_shot.test_one_shot_vectors` writes them anew.
"""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from testbed.aggregation.kit.message_parts import ParticipantNotice
from testbed.aggregation.one_shot.messages import context_digest, public_seed, survivors_content
from testbed.aggregation.one_shot.parameters import OneShotParameters
from testbed.aggregation.one_shot.server import OneShot
from testbed.network.contract import ids
from tests.aggregation.federations import EXPERIMENT, SmallFederation

PATH = Path(__file__).parents[2] / "vectors" / "one_shot" / "round.json"
DELTAS = [[0.5, -0.25, 0.0], [1.0, 1.0, -1.0], [-0.5, 0.125, 0.75], [0.0, 0.0, 0.0]]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def round_of_four() -> dict[str, Any]:
    """Four clients with three parameters, all of them members, threshold three."""
    parameters = OneShotParameters(
        committee={"selection": "given", "members": (0, 1, 2, 3), "threshold": 3}, max_colluders=1, weights="equal"
    )

    async def play() -> dict[str, Any]:
        small = SmallFederation(DELTAS, parameters, protocol=OneShot)
        protocol: Any = small.protocol
        state = await protocol.begin(await small.begin())
        await protocol.collect_submissions(state)
        uploads = {client: await state.uploads.total(ids([client])) for client in range(4)}
        await protocol.test_shares(state)
        replies, signatures = await protocol.signatures(state, state.members, state.survivors)
        assert len(replies) == 4
        _, held = await protocol.summed_shares(state, state.members, signatures)
        key = protocol.decoded_key(state, held, 4)
        total = await protocol.unmasked(state, key)
        told = ParticipantNotice(1, 4, state.training, state.agreed)
        context = context_digest(EXPERIMENT, told, state.committee, state.code, parameters.bits)
        return {
            "experiment_id": EXPERIMENT.hex(),
            "public_seed": public_seed(EXPERIMENT, 1).hex(),
            "training": state.training.hex(),
            "context": context.hex(),
            "signed": digest(survivors_content(1, [0, 1, 2, 3], context)),
            "inputs": {str(client): values.tolist() for client, values in uploads.items()},
            "sealed": {
                str(client): [digest(sealed) for sealed in said.shares] for client, said in state.shares.items()
            },
            "sealed_bytes": len(state.shares[0].shares[0]),
            "commitments": {str(client): digest(said.commitments) for client, said in state.shares.items()},
            "responses": {str(client): digest(said.responses) for client, said in state.shares.items()},
            "signatures": {str(member): signature.hex() for member, signature in signatures.items()},
            "sums": {str(point): digest(share.astype("<u4").tobytes()) for point, share in held.items()},
            "key": digest(key.astype("<i8").tobytes()),
            "key_begins": key[:8].tolist(),
            "total": total.tolist(),
        }

    return asyncio.run(play())


def test_a_round_is_what_was_published() -> None:
    found = round_of_four()
    assert found == json.loads(PATH.read_text())
    assert found["total"][-1] == 4
    step = 2 / (2**16 - 1)
    mean = np.array(found["total"][:-1]) / 4 * step - 1
    assert np.abs(mean - np.mean(DELTAS, axis=0)).max() <= step


if __name__ == "__main__":
    PATH.write_text(json.dumps(round_of_four(), indent=1) + "\n")
