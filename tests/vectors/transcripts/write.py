"""Writes the transcripts: `python -m tests.vectors.transcripts.write`. What is in them: README.md here."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from testbed.aggregation.secagg.client import SecAggClient
from testbed.aggregation.secagg.noise import WithoutNoise
from testbed.emulation.availability import Presence
from testbed.engine.in_process import federation_in_process
from testbed.engine.plan import RunPlan
from testbed.experiment.schema import validated
from testbed.messages import attach, encode
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI
from testbed.randomness import Randomness
from testbed.workload.contract import LocalUpdate

HERE = Path(__file__).parent
FORMAT = 1
POPULATION, DIMENSION, SEED = 8, 5, 20240501
LEAVES_AT = "secagg/masked-input"
SECAGG = {"protocol": "secagg", "threshold": 4, "levels_bits": 12, "bits": 20}
LOTTO = {"participants": 6, "over_selection": 1.3}
EXPERIMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "secagg": ({"protocol": "random", "participants": 6}, SECAGG),
    "secagg-plus": (
        {"protocol": "random", "participants": 7},
        {
            "protocol": "secagg-plus",
            "levels_bits": 12,
            "bits": 20,
            "neighbours": 4,
            "threshold": 3,
            "accept_weaker": True,
            "dropouts": 0.2,
        },
    ),
    "lotto-client-centric": ({"protocol": "lotto-client-centric", **LOTTO}, SECAGG),
    "lotto-server-centric": ({"protocol": "lotto-server-centric", **LOTTO}, SECAGG),
    "verifiable-batch-partition": (
        {"protocol": "verifiable-batch-partition", "privacy": 2, "beacon": "a public text", **LOTTO},
        SECAGG,
    ),
}


class Given:
    """A `testbed.workload.contract.Workload` with updates that everybody can write down."""

    dimension = DIMENSION

    def __init__(self) -> None:
        self.sample_counts = np.arange(1, POPULATION + 1, dtype=np.int64)

    def initial_model(self) -> Any:
        return np.linspace(-1, 1, DIMENSION, dtype=np.float32)

    def train(self, client: int, model: Any, round_number: int) -> LocalUpdate:
        delta = np.array([(client + 1) * (place - 2) / 64 for place in range(DIMENSION)], np.float32)
        return LocalUpdate(delta, client + 1, 0.5, client + 1)

    def evaluate(self, model: Any) -> None:
        return None


class LowestLeaves:
    """An `Availability`: the participant with the lowest number leaves before it sends its masked input."""

    comes_back = False

    def presence(self, round_number: int, stage: str, now_s: float, clients: Any) -> Presence:
        leaves = (clients == clients.min(initial=POPULATION)) & (stage == LEAVES_AT)
        return Presence.of(np.ones(len(clients), np.bool_), leaves)


class Recorder:
    """Everything that is sent, drawn and summed in one run."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.registrations: list[dict[str, Any]] = []
        self.secrets: dict[tuple[str, int, str], str] = {}
        self.quantised: dict[str, list[int]] = {}
        self.total: list[int] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record what happens meanwhile."""
        deliver, register = LocalHosts.deliver, PKI.register
        secret, encoded, mean = Randomness.secret, SecAggClient.encoded, WithoutNoise.mean

        async def delivered(hosts: Any, delivery: Any) -> Any:
            answers = await deliver(hosts, delivery)
            self.exchange(hosts, delivery, answers)
            return answers

        def registered(pki: Any, request: bytes, *sender: Any) -> bytes:
            answer = register(pki, request, *sender)
            self.registrations.append({"request": request.hex(), "answer": answer.hex()})
            return answer

        def drawn(randomness: Any, party: str | int, round_number: int, purpose: str) -> bytes:
            found = secret(randomness, party, round_number, purpose)
            self.secrets[str(party), round_number, purpose] = found.hex()
            return found

        def quantised(role: Any) -> Any:
            found = encoded(role)
            self.quantised[str(role.client.number)] = np.asarray(found).tolist()
            return found

        def summed(parameters: Any, total: Any, updates: int, round_: Any) -> Any:
            self.total = total.tolist()
            return mean(parameters, total, updates, round_)

        with ExitStack() as stack:
            for owner, name, instead in (
                (LocalHosts, "deliver", delivered),
                (PKI, "register", registered),
                (Randomness, "secret", drawn),
                (SecAggClient, "encoded", quantised),
                (WithoutNoise, "mean", summed),
                (RunPlan, "derives_identities", False),  # registrations are part of what is recorded
            ):
                stack.enter_context(patch.object(owner, name, instead))
            yield

    def exchange(self, hosts: Any, delivery: Any, answers: Any) -> None:
        """One question and its answers, as they are on the wire."""
        kind = delivery.kind
        common = encode(attach(kind, delivery.header, delivery.vectors)).hex()
        asked = {"stage": kind.stage, "type": kind.__name__, "to": delivery.recipients.tolist(), "message": common}
        if delivery.private is not None:
            asked["private_type"] = kind.Private.__name__
            asked["private"] = {str(client): part.hex() for client, part in sorted(delivery.private.items())}
        self.messages.append(asked)
        shared = answers.shared
        given = {} if shared is None else dict.fromkeys(shared.clients.tolist(), shared.header)
        assert not answers.refusals, answers.refusals
        for client, header in sorted({**given, **answers.headers}.items()):
            vector = hosts.hosts[0]._vectors.get(delivery.key, {}).get(client)
            answer = attach(kind.Answer, header, () if vector is None else (vector,))
            self.messages.append(
                {"stage": kind.stage, "type": kind.Answer.__name__, "from": client, "message": encode(answer).hex()}
            )


def transcript(name: str) -> dict[str, Any]:
    """The first round of an experiment."""
    selection, aggregation = EXPERIMENTS[name]
    written = {
        "name": f"transcript {name}",
        "seed": SEED,
        "rounds": 1,
        "population": POPULATION,
        "workload": {"dataset": "digits", "model": "logistic"},
        "selection": selection,
        "aggregation": aggregation,
        "time": {"compute": "modelled"},
    }
    plan, recorder = RunPlan(validated(written, name), SEED), Recorder()
    with recorder.listening():
        federation = federation_in_process(plan, Given(), None)
        federation.network.availability = LowestLeaves()
        outcome = asyncio.run(federation.run_next_round())
    assert outcome.aggregate is not None, outcome.reason
    board = federation.directory
    secrets = [
        {"party": party, "round": number, "purpose": purpose, "secret": secret}
        for (party, number, purpose), secret in sorted(recorder.secrets.items())
    ]
    return {
        "format": FORMAT,
        "experiment": {**written, "experiment_id": plan.experiment_id.hex()},
        "updates": [Given().train(client, None, 1).delta.tolist() for client in range(POPULATION)],
        "samples": Given().sample_counts.tolist(),
        "secrets": secrets,
        "board": [
            {name: getattr(board, name)[client].tobytes().hex() for name in ("signing", "agreement", "vrf")}
            for client in range(POPULATION)
        ],
        "public_seed": board.public_seed.hex(),
        "registrations": recorder.registrations,
        "quantised": dict(sorted(recorder.quantised.items(), key=lambda row: int(row[0]))),
        "messages": recorder.messages,
        "participants": outcome.participants.tolist(),
        "survivors": outcome.survivors.tolist(),
        "sum": recorder.total,
        "mean": [float(value) for value in outcome.aggregate.mean],
        "weight": int(outcome.aggregate.weight),
    }


def as_text(of: dict[str, Any]) -> str:
    """As it stands in a file: one line for each message, so that a change can be read."""
    lines = []
    for key, value in of.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n".join("  " + json.dumps(row, separators=(", ", ": ")) for row in value)
            lines.append(f'"{key}": [\n{rows}\n ]')
        else:
            lines.append(f'"{key}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(lines) + "\n}\n"


def main() -> None:
    """Write all of them."""
    for name in EXPERIMENTS:
        path = HERE / f"{name}.json"
        path.write_text(as_text(transcript(name)))
        print(path.relative_to(HERE))


if __name__ == "__main__":
    main()
